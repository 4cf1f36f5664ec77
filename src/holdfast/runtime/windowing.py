"""The operators of windows: which one serves a window operation.

A window of a key has contents (`window_contents`), perhaps state of its trigger and of its
function, and timers. All of it is keyed state under the window's namespace (`window_contexts`), so
it is saved, restored and moved with the key.

`window_operator` serves any assigner and any trigger, `window_merging` any whose windows merge.
`event_time_windows` and `processing_time_windows` have the windows that most jobs have, with less
to do for each record.
"""

from __future__ import annotations

from typing import Final

from holdfast.datastream.window_operation import WindowOperation
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
from holdfast.runtime.event_time_windows import Sessions, SlidingWindows, TumblingWindows
from holdfast.runtime.processing_time_windows import TumblingClockWindows
from holdfast.runtime.window_contexts import Surroundings
from holdfast.runtime.window_merging import MergingWindows
from holdfast.runtime.window_operator import TriggeredWindows, WindowOperator

#: by assigner and trigger
_USUAL: Final[dict[tuple[type, type], type[WindowOperator]]] = {
    (TumblingEventTimeWindows, EventTimeTrigger): TumblingWindows,
    (SlidingEventTimeWindows, EventTimeTrigger): SlidingWindows,
    (EventTimeSessionWindows, EventTimeTrigger): Sessions,
    (DynamicEventTimeSessionWindows, EventTimeTrigger): Sessions,
    (TumblingProcessingTimeWindows, ProcessingTimeTrigger): TumblingClockWindows,
}


def make_windows(operation: WindowOperation, around: Surroundings) -> WindowOperator:
    """The operator for a window operation; classes that users derive are served by the general."""
    general: type[WindowOperator] = TriggeredWindows
    if isinstance(operation.assigner, MergingWindowAssigner):
        general = MergingWindows
    kind = _USUAL.get((type(operation.assigner), type(operation.trigger)), general)
    return kind(operation, around)
