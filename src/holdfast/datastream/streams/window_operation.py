"""The complete definition of a window operation: the function of one operator in the graph.

It defines what happens to a window's records and when; it has no state and no logic. The runtime
creates an operator from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.common.typeinfo import TypeInformation
from holdfast.datastream.functions import AggregateFunction, ReduceFunction
from holdfast.datastream.functions.base import WrappingFunction
from holdfast.datastream.functions.windows import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from holdfast.datastream.output_tag import OutputTag
from holdfast.datastream.windows.assigners import WindowAssigner
from holdfast.datastream.windows.evictors import Evictor
from holdfast.datastream.windows.trigger import Trigger

Reducer = ReduceFunction | Callable[[Any, Any], Any]
AnyWindowFunction = (
    WindowFunction[Any, Any, Any, Any]
    | ProcessWindowFunction[Any, Any, Any, Any]
    | AllWindowFunction[Any, Any, Any]
    | ProcessAllWindowFunction[Any, Any, Any]
)


@dataclass(frozen=True, eq=False)
class WindowOperation(WrappingFunction):
    """A window operation.

    Attributes:
        assigner: assigns records to windows.
        trigger: decides when a window fires.
        evictor: removes records from a window that fires, if it is given.
        allowed_lateness: how long a window is kept after its end, in milliseconds.
        late_tag: the side output for records that are too late; without one they are dropped.
        reducer: combines the records into one; then only that one is kept.
        aggregator: aggregates the records in an accumulator; then only that is kept.
        function: receives the records, or their reduced or aggregated value; None to emit these.
        kept_type: the declared type of the records or the accumulator that is kept.
    """

    assigner: WindowAssigner[Any, Any]
    trigger: Trigger[Any, Any]
    evictor: Evictor[Any, Any] | None = None
    allowed_lateness: int = 0
    late_tag: OutputTag | None = None
    reducer: Reducer | None = None
    aggregator: AggregateFunction | None = None
    function: AnyWindowFunction | None = None
    kept_type: TypeInformation | None = None

    def wrapped(self) -> tuple[Any, ...]:
        """Return the user's functions."""
        return self.reducer, self.aggregator, self.function
