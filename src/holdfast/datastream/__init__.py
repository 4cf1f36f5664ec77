"""PyFlink's DataStream API.

Environment: StreamExecutionEnvironment makes streams and runs the job; RuntimeExecutionMode is
noted. Streams: DataStream, KeyedStream, DataStreamSink, CloseableIterator. Functions: see
``holdfast.datastream.functions``. State: see ``holdfast.datastream.state``.
"""

from holdfast.datastream.data_stream import (
    CloseableIterator,
    DataStream,
    DataStreamSink,
    KeyedStream,
)
from holdfast.datastream.execution_mode import RuntimeExecutionMode
from holdfast.datastream.functions import (
    AggregateFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ParallelSourceFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
)
from holdfast.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = [
    "AggregateFunction",
    "CloseableIterator",
    "DataStream",
    "DataStreamSink",
    "FilterFunction",
    "FlatMapFunction",
    "KeySelector",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "ParallelSourceFunction",
    "Partitioner",
    "ProcessFunction",
    "ReduceFunction",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SinkFunction",
    "SourceFunction",
    "StreamExecutionEnvironment",
]
