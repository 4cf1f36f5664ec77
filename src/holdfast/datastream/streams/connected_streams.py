"""Connected streams: two streams that are processed by one function."""

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
from holdfast.datastream.streams.function_checks import check_object
from holdfast.errors import JobDefinitionError, JobTypeError
from holdfast.graph.nodes import Edge, Hash
from holdfast.graph.operations import (
    CoFlatMapOperation,
    CoMapOperation,
    CoProcessOperation,
    FunctionOperation,
)

if TYPE_CHECKING:
    from holdfast.datastream.data_stream import DataStream, KeyedStream

    Stream: TypeAlias = DataStream | KeyedStream


class ConnectedStreams:
    """Two streams, of the same type or not, whose records are processed by one function object.

    The function has a method for each of them, and both use the same fields and the same state. If
    both streams are keyed, a record of either uses the state of its key. There is no order between
    the records of the two streams.
    """

    def __init__(self, stream1: Stream, stream2: Stream) -> None:
        """Use ``connect`` of a stream."""
        check_same_environment("connect", stream1, stream2)
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self,
        key_selector1: Callable[[Any], Any] | KeySelector,
        key_selector2: Callable[[Any], Any] | KeySelector,
        key_type: Any = None,
    ) -> ConnectedStreams:
        """Partition both streams by a key, so that equal keys of both are in the same subtask."""
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type),
            self.stream2.key_by(key_selector2, key_type),
        )

    def map(self, func: CoMapFunction, output_type: Any = None) -> DataStream:
        """Convert each record of either stream to one record, or to none if the result is None."""
        _check("map", func, CoMapFunction)
        return self._apply("co_map", "Co-Map", CoMapOperation, func, output_type)

    def flat_map(self, func: CoFlatMapFunction, output_type: Any = None) -> DataStream:
        """Convert each record of either stream to any number of records."""
        _check("flat_map", func, CoFlatMapFunction)
        return self._apply("co_flat_map", "Co-Flat Map", CoFlatMapOperation, func, output_type)

    def process(
        self, func: CoProcessFunction | KeyedCoProcessFunction, output_type: Any = None
    ) -> DataStream:
        """Process each record with a process function; on keyed streams it can also set timers."""
        _check("process", func, CoProcessFunction, KeyedCoProcessFunction)
        keyed = self._keys() is not None
        if isinstance(func, KeyedCoProcessFunction) and not keyed:
            message = (
                f"process: {type(func).__name__} is a KeyedCoProcessFunction, and these streams "
                "are not both keyed; call key_by(...) on the connected streams, or on each of them"
            )
            raise JobTypeError(message)
        kind, name = ("keyed_co_process", "Keyed Co-Process") if keyed else _PROCESS
        return self._apply(kind, name, CoProcessOperation, func, output_type)

    def _keys(self) -> tuple[Hash, Hash] | None:
        first, second = key_of(self.stream1), key_of(self.stream2)
        return (first, second) if first is not None and second is not None else None

    def _apply(
        self,
        kind: str,
        name: str,
        operation_class: type[FunctionOperation],
        function: Function,
        output_type: Any,
    ) -> DataStream:
        keys = self._keys()
        operation = operation_class(function)
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
    """Return how a keyed stream is partitioned; None for one without keys."""
    partitioning = stream._edges[0].partitioning
    return partitioning if isinstance(partitioning, Hash) else None


def two_inputs(first: Stream, second: Stream) -> tuple[Edge, ...]:
    """Return the edges of an operator with two inputs."""
    return (*first._edges, *(replace(edge, input=1) for edge in second._edges))


def check_same_environment(method: str, stream: Stream, other: Stream) -> None:
    """Raise an error if the streams belong to different environments."""
    if stream._environment is not other._environment:
        raise JobDefinitionError(
            f"{method}: stream '{other.get_name()}' belongs to another environment; a job "
            "has one environment"
        )


def _check(method: str, function: Any, *kinds: type[Function]) -> None:
    check_object(method, function, *kinds, expected="connected streams take")
