"""The names that the queries are written with: Holdfast's, or PyFlink's where that is installed.

Both have them, with the same meaning, so both run the same queries. (Query 8's ``co_group`` is the
exception: PyFlink has no window joins.)
"""

try:
    from holdfast.common import Duration, Time, Types, WatermarkStrategy
    from holdfast.common.watermark_strategy import TimestampAssigner
    from holdfast.datastream import (
        AggregateFunction,
        DataStream,
        KeyedCoProcessFunction,
        KeyedProcessFunction,
        MapFunction,
        ProcessWindowFunction,
        RuntimeContext,
    )
    from holdfast.datastream.functions import ProcessAllWindowFunction
    from holdfast.datastream.state import ListStateDescriptor, ValueStateDescriptor
    from holdfast.datastream.window import (
        EventTimeSessionWindows,
        SlidingEventTimeWindows,
        TumblingEventTimeWindows,
        TumblingProcessingTimeWindows,
    )
except ModuleNotFoundError:
    from pyflink.common import (  # type: ignore[import-not-found, no-redef]
        Duration,
        Time,
        Types,
        WatermarkStrategy,
    )
    from pyflink.common.watermark_strategy import (  # type: ignore[import-not-found, no-redef]
        TimestampAssigner,
    )
    from pyflink.datastream import (  # type: ignore[import-not-found, no-redef]
        AggregateFunction,
        DataStream,
        KeyedCoProcessFunction,
        KeyedProcessFunction,
        MapFunction,
        ProcessWindowFunction,
        RuntimeContext,
    )
    from pyflink.datastream.functions import (  # type: ignore[import-not-found, no-redef]
        ProcessAllWindowFunction,
    )
    from pyflink.datastream.state import (  # type: ignore[import-not-found, no-redef]
        ListStateDescriptor,
        ValueStateDescriptor,
    )
    from pyflink.datastream.window import (  # type: ignore[import-not-found, no-redef]
        EventTimeSessionWindows,
        SlidingEventTimeWindows,
        TumblingEventTimeWindows,
        TumblingProcessingTimeWindows,
    )

__all__ = [
    "AggregateFunction",
    "DataStream",
    "Duration",
    "EventTimeSessionWindows",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "ListStateDescriptor",
    "MapFunction",
    "ProcessAllWindowFunction",
    "ProcessWindowFunction",
    "RuntimeContext",
    "SlidingEventTimeWindows",
    "Time",
    "TimestampAssigner",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "Types",
    "ValueStateDescriptor",
    "WatermarkStrategy",
]
