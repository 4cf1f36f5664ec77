"""Chooses the implementation of windows for a window operation.

A window of a key has contents (`contents`), optional state of its trigger and of its function, and
timers. All of it is keyed state in the window's namespace (`contexts`), so it is saved, restored
and redistributed with the key.

`operator` supports any assigner and any trigger, `merging` any whose windows merge.
`event_time_windows` and `processing_time_windows` are faster implementations of the most common
windows.
"""

from __future__ import annotations

from typing import Final

from holdfast.datastream.streams.window_operation import WindowOperation
from holdfast.datastream.windows.assigners import (
    MergingWindowAssigner,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from holdfast.datastream.windows.sessions import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
)
from holdfast.datastream.windows.triggers import EventTimeTrigger, ProcessingTimeTrigger
from holdfast.runtime.operators.windows.contexts import Surroundings
from holdfast.runtime.operators.windows.event_time_windows import (
    Sessions,
    SlidingWindows,
    TumblingWindows,
)
from holdfast.runtime.operators.windows.merging import MergingWindows
from holdfast.runtime.operators.windows.operator import TriggeredWindows, WindowOperator
from holdfast.runtime.operators.windows.processing_time_windows import TumblingClockWindows

#: by assigner and trigger
_USUAL: Final[dict[tuple[type, type], type[WindowOperator]]] = {
    (TumblingEventTimeWindows, EventTimeTrigger): TumblingWindows,
    (SlidingEventTimeWindows, EventTimeTrigger): SlidingWindows,
    (EventTimeSessionWindows, EventTimeTrigger): Sessions,
    (DynamicEventTimeSessionWindows, EventTimeTrigger): Sessions,
    (TumblingProcessingTimeWindows, ProcessingTimeTrigger): TumblingClockWindows,
}


def make_windows(operation: WindowOperation, around: Surroundings) -> WindowOperator:
    """Return the implementation for a window operation; classes of users get a general one."""
    general: type[WindowOperator] = TriggeredWindows
    if isinstance(operation.assigner, MergingWindowAssigner):
        general = MergingWindows
    kind = _USUAL.get((type(operation.assigner), type(operation.trigger)), general)
    return kind(operation, around)
