"""The operators of windows: which one serves a window operation.

A window of a key has contents (`window_contents`), perhaps state of its trigger and of its
function, and timers. All of it is keyed state under the window's namespace (`window_contexts`), so
it is saved, restored and moved with the key.

`window_operator` serves any assigner and any trigger, `window_merging` any whose windows merge.
`event_time_windows` has the windows that most jobs have, with less to do for each record.
"""

from __future__ import annotations

from typing import Final

from holdfast.datastream.window_operation import WindowOperation
from holdfast.datastream.windows.assigners import (
    MergingWindowAssigner,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from holdfast.datastream.windows.sessions import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
)
from holdfast.datastream.windows.triggers import EventTimeTrigger
from holdfast.runtime.event_time_windows import Sessions, SlidingWindows, TumblingWindows
from holdfast.runtime.window_contexts import Surroundings
from holdfast.runtime.window_merging import MergingWindows
from holdfast.runtime.window_operator import TriggeredWindows, WindowOperator

#: by assigner, where the trigger is that of event time
_USUAL: Final[dict[type, type[WindowOperator]]] = {
    TumblingEventTimeWindows: TumblingWindows,
    SlidingEventTimeWindows: SlidingWindows,
    EventTimeSessionWindows: Sessions,
    DynamicEventTimeSessionWindows: Sessions,
}


def make_windows(operation: WindowOperation, around: Surroundings) -> WindowOperator:
    """The operator for a window operation; classes that users derive are served by the general."""
    general = TriggeredWindows
    if isinstance(operation.assigner, MergingWindowAssigner):
        general = MergingWindows
    if type(operation.trigger) is EventTimeTrigger:
        return _USUAL.get(type(operation.assigner), general)(operation, around)
    return general(operation, around)
