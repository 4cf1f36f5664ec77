"""Windows whose records are combined before the exchange, in the subtask that sends them.

The records of one key and one pane of time are in the same windows. So they can be combined to one
partial value, which is sent with its key. The windows merge partial values as they would add
records, and their state is the same as without it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, Final

from holdfast.datastream.functions import AggregateFunction, KeySelector
from holdfast.datastream.functions.base import WrappingFunction
from holdfast.datastream.streams.batches import Edges, operator_behind
from holdfast.datastream.streams.window_operation import Reducer, WindowOperation
from holdfast.datastream.windows.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from holdfast.datastream.windows.triggers import EventTimeTrigger
from holdfast.errors import JobDefinitionError
from holdfast.graph import nodes
from holdfast.graph.graph import Graph
from holdfast.graph.operations import CombineOperation

_ASSIGNERS: Final = (TumblingEventTimeWindows, SlidingEventTimeWindows)
_FLAT: Final = (bool, int, float, complex, str, bytes, type(None))


class KeyOfPartial(KeySelector):
    """Finds the key of a partial value: it is sent with it."""

    def get_key(self, value: Any) -> Any:
        """Return the first of the pair."""
        return value[0]


@dataclass(frozen=True, eq=False)
class Combining(WrappingFunction):
    """How the records of a key and a pane become a partial value.

    Attributes:
        reducer: combines two records.
        aggregator: adds a record to an accumulator; set if there is no reducer.
        selector: finds the key of a record.
        key_type: the declared type of the key.
        pane: the length of a pane in milliseconds.
        offset: where a pane begins.
    """

    reducer: Reducer | None
    aggregator: AggregateFunction | None
    selector: Any
    key_type: Any
    pane: int
    offset: int

    def wrapped(self) -> tuple[Any, ...]:
        """Return the user's functions."""
        return self.reducer, self.aggregator

    @property
    def called(self) -> Callable[..., Any]:
        """Return the user's function that is called with records."""
        return _reduce_of(self.reducer) if self.aggregator is None else self.aggregator.add

    def adder(self) -> Callable[[Any, Any], Any]:
        """Return a function that adds a record to a partial value; None is none yet."""
        call = self.called
        if self.aggregator is None:
            # NB: other operators may have the record, and a function may change its first argument
            return lambda part, record: own(record) if part is None else call(part, record)
        create = self.aggregator.create_accumulator
        return lambda part, record: call(record, create() if part is None else part)


class MergingPartials(WrappingFunction, AggregateFunction):
    """Merges partial values, in place of a function that adds records."""

    def __init__(self, combining: Combining, shared: bool) -> None:
        """Merge as this function does; ``shared``: a partial value belongs to several windows."""
        self._combining = combining
        self._shared = shared

    def wrapped(self) -> tuple[Any, ...]:
        """Return the user's functions."""
        return self._combining.wrapped()

    def create_accumulator(self) -> Any:
        """Return None: the first partial value is the accumulator."""
        return None

    def add(self, value: Any, accumulator: Any) -> Any:
        """Merge a partial value, which comes with its key."""
        part = own(value[1]) if self._shared else value[1]
        return part if accumulator is None else self.merge(accumulator, part)

    def get_result(self, accumulator: Any) -> Any:
        """Return the result of the user's function."""
        aggregator = self._combining.aggregator
        return accumulator if aggregator is None else aggregator.get_result(accumulator)

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Merge two partial values."""
        aggregator = self._combining.aggregator
        if aggregator is not None:
            return aggregator.merge(acc_a, acc_b)
        return _reduce_of(self._combining.reducer)(acc_a, acc_b)


def own(value: Any) -> Any:
    """Return a copy of a value that a function may change."""
    return value if isinstance(value, _FLAT) else copy.deepcopy(value)


def combined(
    graph: Graph, edges: Edges, operation: WindowOperation
) -> tuple[Edges, WindowOperation]:
    """Return edges that carry partial values, and windows that merge these.

    Raises:
        JobDefinitionError: when the windows need the records one by one.
    """
    assigner = _checked(operation)
    slide = assigner.slide if isinstance(assigner, SlidingEventTimeWindows) else assigner.size
    found = []
    for edge in edges:
        partitioning = edge.partitioning
        assert isinstance(partitioning, nodes.Hash)
        combining = Combining(
            operation.reducer,
            operation.aggregator,
            partitioning.selector,
            partitioning.key_type,
            gcd(assigner.size, slide),
            assigner.offset,
        )
        combine = CombineOperation(combining)
        behind = operator_behind(graph, edge, "combine", "Combine", combine, None, shared=False)
        found.append(replace(behind, partitioning=replace(partitioning, selector=KeyOfPartial())))
    merging = MergingPartials(combining, shared=slide < assigner.size)
    return tuple(found), replace(operation, reducer=None, aggregator=merging)


def _checked(
    operation: WindowOperation,
) -> TumblingEventTimeWindows[Any] | SlidingEventTimeWindows[Any]:
    aggregator, assigner = operation.aggregator, operation.assigner
    # NB: a subclass may assign other windows
    if type(assigner) not in _ASSIGNERS or not isinstance(assigner, _ASSIGNERS):
        problem = f"the windows are {assigner!r}; use tumbling or sliding windows of event time"
    elif operation.reducer is None and aggregator is None:
        problem = "the function needs all records of a window; use reduce or aggregate"
    elif aggregator is not None and not hasattr(aggregator, "merge"):
        problem = f"{type(aggregator).__name__} has no method merge; implement it"
    elif type(operation.trigger) is not EventTimeTrigger or operation.evictor is not None:
        problem = "a trigger or an evictor needs the records one by one; leave it out"
    elif operation.allowed_lateness or operation.late_tag is not None:
        problem = "late records are handled one by one; leave out allowed_lateness and late data"
    else:
        return assigner
    message = f"combine_before_exchange: {problem}, or do not combine"
    raise JobDefinitionError(message)


def _reduce_of(reducer: Any) -> Callable[[Any, Any], Any]:
    reduce: Callable[[Any, Any], Any] = getattr(reducer, "reduce", reducer)
    return reduce
