"""The functions that a user writes, and their contexts.

A function object is created by the user's program, sent to the workers, and lives there as long as
an attempt of the job: ``open`` is called before its first record, ``close`` after its last one, and
its fields keep their values. On the epochs engine a subtask may run in another worker process
from one epoch to the next; then its fields are set there, after ``open`` was called in that
process. So create connections, clients and other things that cannot be pickled in ``open``.
"""

from holdfast.datastream.functions.async_retries import AsyncRetryPredicate, AsyncRetryStrategy
from holdfast.datastream.functions.asynchronous import AsyncFunction
from holdfast.datastream.functions.base import Function, KeyedStateStore, RuntimeContext
from holdfast.datastream.functions.basic import (
    AggregateFunction,
    CheckpointedFunction,
    CheckpointListener,
    FilterFunction,
    FlatMapFunction,
    FoldFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeySelector,
    ListCheckpointed,
    MapFunction,
    NullByteKeySelector,
    ParallelSourceFunction,
    Partitioner,
    ReduceFunction,
    SinkFunction,
    SourceContext,
    SourceFunction,
)
from holdfast.datastream.functions.batches import BatchFunction, KeyedBatchFunction
from holdfast.datastream.functions.broadcast import (
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedStateFunction,
)
from holdfast.datastream.functions.connected import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
)
from holdfast.datastream.functions.joins import (
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    ProcessJoinFunction,
)
from holdfast.datastream.functions.process import KeyedProcessFunction, ProcessFunction
from holdfast.datastream.functions.sink_writer import SinkWriter
from holdfast.datastream.functions.two_phase_commit import TwoPhaseCommitSinkFunction
from holdfast.datastream.functions.windows import (
    AllWindowFunction,
    PassThroughAllWindowFunction,
    PassThroughWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from holdfast.datastream.timerservice import TimerService

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
    "BatchFunction",
    "BroadcastProcessFunction",
    "CheckpointListener",
    "CheckpointedFunction",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatJoinFunction",
    "FlatMapFunction",
    "FoldFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "JoinFunction",
    "KeySelector",
    "KeyedBatchFunction",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateFunction",
    "KeyedStateStore",
    "ListCheckpointed",
    "MapFunction",
    "NullByteKeySelector",
    "ParallelSourceFunction",
    "Partitioner",
    "PassThroughAllWindowFunction",
    "PassThroughWindowFunction",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RuntimeContext",
    "SinkFunction",
    "SinkWriter",
    "SourceContext",
    "SourceFunction",
    "TimerService",
    "TwoPhaseCommitSinkFunction",
    "WindowFunction",
]
