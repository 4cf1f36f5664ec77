"""Two streams that meet in one function: connected streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.datastream.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    Function,
    KeyedCoProcessFunction,
    KeySelector,
)
from holdfast.errors import JobDefinitionError
from holdfast.graph.nodes import Edge, FunctionOperation, Hash, Style

if TYPE_CHECKING:
    from holdfast.datastream.data_stream import DataStream, KeyedStream

    Stream: TypeAlias = DataStream | KeyedStream

__all__ = ["ConnectedStreams"]


class ConnectedStreams:
    """Two streams, of one type or of two, whose records go to one function object.

    The function has a method for each of them, and both see the same fields and the same state. Of
    two keyed streams, a record of either sees the state of its key. Between the records of the two
    streams there is no order.
    """

    def __init__(self, stream1: Stream, stream2: Stream) -> None:
        """Made by ``connect`` of a stream."""
        check_same_environment("connect", stream1, stream2)
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self,
        key_selector1: Callable[[Any], Any] | KeySelector,
        key_selector2: Callable[[Any], Any] | KeySelector,
        key_type: Any = None,
    ) -> ConnectedStreams:
        """Partition both streams by a key, so that equal keys of the two meet."""
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type),
            self.stream2.key_by(key_selector2, key_type),
        )

    def map(self, func: CoMapFunction, output_type: Any = None) -> DataStream:
        """One record of either stream in, one record out; None: no record."""
        _check("map", func, CoMapFunction)
        return self._apply("co_map", "Co-Map", Style.CO_MAP, func, output_type)

    def flat_map(self, func: CoFlatMapFunction, output_type: Any = None) -> DataStream:
        """One record of either stream in, any number out."""
        _check("flat_map", func, CoFlatMapFunction)
        return self._apply("co_flat_map", "Co-Flat Map", Style.CO_FLAT_MAP, func, output_type)

    def process(
        self, func: CoProcessFunction | KeyedCoProcessFunction, output_type: Any = None
    ) -> DataStream:
        """Give each record to a process function; a keyed one has timers as well."""
        _check("process", func, CoProcessFunction, KeyedCoProcessFunction)
        keyed = self._keys() is not None
        if isinstance(func, KeyedCoProcessFunction) and not keyed:
            msg = (
                f"process: {type(func).__name__} is a KeyedCoProcessFunction, and these streams "
                "are not both keyed; call key_by(...) on the connected streams, or on each of them"
            )
            raise TypeError(msg)
        kind, name = ("keyed_co_process", "Keyed Co-Process") if keyed else _PROCESS
        return self._apply(kind, name, Style.CO_PROCESS, func, output_type)

    def _keys(self) -> tuple[Hash, Hash] | None:
        first, second = key_of(self.stream1), key_of(self.stream2)
        return (first, second) if first is not None and second is not None else None

    def _apply(
        self, kind: str, name: str, style: Style, function: Function, output_type: Any
    ) -> DataStream:
        keys = self._keys()
        operation = FunctionOperation(style, function)
        if keys is not None:
            operation = replace(
                operation,
                key_selector=keys[0].selector,
                key_type=keys[0].key_type,
                second_selector=keys[1].selector,
            )
        edges = two_inputs(self.stream1, self.stream2)
        return self.stream1._new(kind, name, operation, edges, output_type)


_PROCESS = ("co_process", "Co-Process")


def key_of(stream: Stream) -> Hash | None:
    """How a keyed stream is partitioned; None for one without keys."""
    partitioning = stream._edges[0].partitioning
    return partitioning if isinstance(partitioning, Hash) else None


def two_inputs(first: Stream, second: Stream) -> tuple[Edge, ...]:
    """The edges of an operator with two inputs."""
    return (*first._edges, *(replace(edge, input=1) for edge in second._edges))


def check_same_environment(method: str, stream: Stream, other: Stream) -> None:
    """Streams of two environments never meet."""
    if stream._environment is not other._environment:
        raise JobDefinitionError(
            f"{method}: stream '{other.get_name()}' belongs to another environment; a job "
            "has one environment"
        )


def _check(method: str, function: Any, *kinds: type[Function]) -> None:
    if not isinstance(function, kinds):
        wanted = " or a ".join(kind.__name__ for kind in kinds)
        msg = f"{method}: connected streams take a {wanted}; got {function!r}"
        raise TypeError(msg)
