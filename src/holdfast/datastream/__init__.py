"""PyFlink's DataStream API.

Environment: StreamExecutionEnvironment makes streams and runs the job; RuntimeExecutionMode is
noted. Streams: DataStream, KeyedStream, DataStreamSink, CloseableIterator. Functions: see
``holdfast.datastream.functions``. State: see ``holdfast.datastream.state``. Checkpoints:
CheckpointConfig, with CheckpointingMode and ExternalizedCheckpointRetention (older:
ExternalizedCheckpointCleanup), says when and how; FileSystemCheckpointStorage and
JobManagerCheckpointStorage say where. HashMapStateBackend and EmbeddedRocksDBStateBackend (older:
MemoryStateBackend, FsStateBackend, RocksDBStateBackend) say how state is kept.
"""

from holdfast.datastream.checkpoint_config import CheckpointConfig, ExternalizedCheckpointCleanup
from holdfast.datastream.checkpoint_storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from holdfast.datastream.checkpointing_mode import CheckpointingMode
from holdfast.datastream.data_stream import (
    CloseableIterator,
    DataStream,
    DataStreamSink,
    KeyedStream,
)
from holdfast.datastream.execution_mode import RuntimeExecutionMode
from holdfast.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
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
    TwoPhaseCommitSinkFunction,
)
from holdfast.datastream.state_backend import (
    EmbeddedRocksDBStateBackend,
    FsStateBackend,
    HashMapStateBackend,
    MemoryStateBackend,
    RocksDBStateBackend,
    StateBackend,
)
from holdfast.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = [
    "AggregateFunction",
    "CheckpointConfig",
    "CheckpointStorage",
    "CheckpointingMode",
    "CloseableIterator",
    "DataStream",
    "DataStreamSink",
    "EmbeddedRocksDBStateBackend",
    "ExternalizedCheckpointCleanup",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatMapFunction",
    "FsStateBackend",
    "HashMapStateBackend",
    "JobManagerCheckpointStorage",
    "KeySelector",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "MemoryStateBackend",
    "ParallelSourceFunction",
    "Partitioner",
    "ProcessFunction",
    "ReduceFunction",
    "RocksDBStateBackend",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SinkFunction",
    "SourceFunction",
    "StateBackend",
    "StreamExecutionEnvironment",
    "TwoPhaseCommitSinkFunction",
]
