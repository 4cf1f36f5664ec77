"""What a window operation is, all together: the function of one operator in the graph.

It says what is to be done with a window's records and when; it keeps nothing and does nothing. The
runtime makes an operator of it that does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.common.typeinfo import TypeInformation
from holdfast.datastream.function_base import WrappingFunction
from holdfast.datastream.functions import AggregateFunction, ReduceFunction
from holdfast.datastream.output_tag import OutputTag
from holdfast.datastream.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from holdfast.datastream.windows.assigners import WindowAssigner
from holdfast.datastream.windows.evictors import Evictor
from holdfast.datastream.windows.trigger import Trigger

__all__ = ["AnyWindowFunction", "Reducer", "WindowOperation"]

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
        assigner: puts records into windows.
        trigger: says when a window fires.
        evictor: takes records out of a window that fires, if it is given.
        allowed_lateness: how long a window is kept after its end, in milliseconds.
        late_tag: the side output for records that are too late; without one they are dropped.
        reducer: folds the records into one; then only that is kept.
        aggregator: folds the records into an accumulator; then only that is kept.
        function: is given the records, or what they were folded into; None: that is the result.
        kept_type: the declared type of what is kept, a record or the accumulator.
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
        """The user's functions."""
        return self.reducer, self.aggregator, self.function
