"""Windows, and the parts of a window operation.

Windows: Window, TimeWindow, CountWindow, GlobalWindow. Assigners, which assign windows to a record:
tumbling and sliding ones of event time and of processing time, sessions with a fixed or a
dynamic gap, GlobalWindows, CountTumblingWindowAssigner and CountSlidingWindowAssigner; your own
are a WindowAssigner or a MergingWindowAssigner. Triggers, which decide when a window fires:
EventTimeTrigger, ProcessingTimeTrigger, their continuous forms, CountTrigger, DeltaTrigger,
NeverTrigger, PurgingTrigger around any of them; your own are a Trigger. Evictors, which remove
records: CountEvictor, TimeEvictor, DeltaEvictor; your own are an Evictor.
"""

from holdfast.datastream.windows.assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    GlobalWindows,
    MergingWindowAssigner,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from holdfast.datastream.windows.delta import DeltaFunction
from holdfast.datastream.windows.evictors import (
    CountEvictor,
    DeltaEvictor,
    Evictor,
    TimeEvictor,
    TimestampedValue,
)
from holdfast.datastream.windows.sessions import (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
)
from holdfast.datastream.windows.trigger import Trigger, TriggerResult
from holdfast.datastream.windows.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from holdfast.datastream.windows.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    Window,
)

__all__ = [
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountSlidingWindowAssigner",
    "CountTrigger",
    "CountTumblingWindowAssigner",
    "CountWindow",
    "CountWindowSerializer",
    "DeltaEvictor",
    "DeltaFunction",
    "DeltaTrigger",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "Evictor",
    "GlobalWindow",
    "GlobalWindowSerializer",
    "GlobalWindows",
    "MergingWindowAssigner",
    "NeverTrigger",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "SessionWindowTimeGapExtractor",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TimeEvictor",
    "TimeWindow",
    "TimeWindowSerializer",
    "TimestampedValue",
    "Trigger",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "Window",
    "WindowAssigner",
]
