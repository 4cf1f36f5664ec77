"""PyFlink's DataStream API.

Environment: StreamExecutionEnvironment creates streams and runs the job; RuntimeExecutionMode is
its mode. Streams: DataStream, KeyedStream, WindowedStream, AllWindowedStream, ConnectedStreams,
BroadcastStream, BroadcastConnectedStream, JoinedStreams, CoGroupedStreams, AsyncDataStream for
asynchronous functions, DataStreamSink, CloseableIterator. Functions: see
``holdfast.datastream.functions``. State: see ``holdfast.datastream.state``. Windows, assigners,
triggers and evictors: see ``holdfast.datastream.window``. Time: TimerService sets timers,
TimeDomain is the time a timer is based on; OutputTag names a side output. Checkpoints:
CheckpointConfig, with CheckpointingMode and ExternalizedCheckpointRetention (older:
ExternalizedCheckpointCleanup), defines when and how; FileSystemCheckpointStorage and
JobManagerCheckpointStorage where. HashMapStateBackend and EmbeddedRocksDBStateBackend (older:
MemoryStateBackend, FsStateBackend, RocksDBStateBackend) define how state is stored.
"""

from holdfast.datastream.async_data_stream import AsyncDataStream
from holdfast.datastream.checkpoint_config import CheckpointConfig, ExternalizedCheckpointCleanup
from holdfast.datastream.checkpoint_storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from holdfast.datastream.checkpointing_mode import CheckpointingMode
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.data_stream import (
    AllWindowedStream,
    BroadcastConnectedStream,
    BroadcastStream,
    CloseableIterator,
    ConnectedStreams,
    DataStream,
    DataStreamSink,
    KeyedStream,
    WindowedStream,
)
from holdfast.datastream.data_stream_utils import DataStreamUtils
from holdfast.datastream.execution_mode import RuntimeExecutionMode
from holdfast.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from holdfast.datastream.functions import (
    AggregateFunction,
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    BatchFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoGroupFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatJoinFunction,
    FlatMapFunction,
    JoinFunction,
    KeyedBatchFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ParallelSourceFunction,
    Partitioner,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    TwoPhaseCommitSinkFunction,
    WindowFunction,
)
from holdfast.datastream.output_tag import OutputTag
from holdfast.datastream.state_backend import (
    EmbeddedRocksDBStateBackend,
    FsStateBackend,
    HashMapStateBackend,
    MemoryStateBackend,
    RocksDBStateBackend,
    StateBackend,
)
from holdfast.datastream.stream_execution_environment import StreamExecutionEnvironment
from holdfast.datastream.streams.joined_streams import CoGroupedStreams, JoinedStreams
from holdfast.datastream.time_domain import TimeDomain
from holdfast.datastream.timerservice import TimerService
from holdfast.datastream.window import (
    CountWindow,
    Evictor,
    GlobalWindow,
    MergingWindowAssigner,
    TimeWindow,
    Trigger,
    TriggerResult,
    Window,
    WindowAssigner,
)

__all__ = [
    "AggregateFunction",
    "AllWindowedStream",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BatchFunction",
    "BatchTypeInfo",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "CheckpointConfig",
    "CheckpointStorage",
    "CheckpointingMode",
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoGroupedStreams",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "CountWindow",
    "DataStream",
    "DataStreamSink",
    "DataStreamUtils",
    "EmbeddedRocksDBStateBackend",
    "Evictor",
    "ExternalizedCheckpointCleanup",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatJoinFunction",
    "FlatMapFunction",
    "FsStateBackend",
    "GlobalWindow",
    "HashMapStateBackend",
    "JobManagerCheckpointStorage",
    "JoinFunction",
    "JoinedStreams",
    "KeySelector",
    "KeyedBatchFunction",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "MemoryStateBackend",
    "MergingWindowAssigner",
    "OutputTag",
    "ParallelSourceFunction",
    "Partitioner",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RocksDBStateBackend",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SinkFunction",
    "SourceFunction",
    "StateBackend",
    "StreamExecutionEnvironment",
    "TimeDomain",
    "TimeWindow",
    "TimerService",
    "Trigger",
    "TriggerResult",
    "TwoPhaseCommitSinkFunction",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
]
