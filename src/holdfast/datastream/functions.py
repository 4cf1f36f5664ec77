"""The functions that a user writes, and what they are given while they run.

A function object is made by the user's program, sent to the workers, and lives there as long as an
attempt of the job: ``open`` is called before its first record, ``close`` after its last one, and
what it keeps in its fields is there in the next epoch. A subtask may run in another worker process
from one epoch to the next; then its fields are carried there, after ``open`` was called in that
process, so ``open`` is the place for connections, clients and other things that cannot be carried.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.datastream.async_functions import (
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
)
from holdfast.datastream.broadcast_functions import (
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedStateFunction,
)
from holdfast.datastream.co_functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
)
from holdfast.datastream.function_base import Function, KeyedStateStore, RuntimeContext
from holdfast.datastream.join_functions import (
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    ProcessJoinFunction,
)
from holdfast.datastream.process_functions import KeyedProcessFunction, ProcessFunction
from holdfast.datastream.timerservice import TimerService
from holdfast.datastream.window_functions import (
    AllWindowFunction,
    PassThroughAllWindowFunction,
    PassThroughWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)

if TYPE_CHECKING:
    from holdfast.datastream.state import OperatorStateStore

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
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
    "SourceContext",
    "SourceFunction",
    "TimerService",
    "TwoPhaseCommitSinkFunction",
    "WindowFunction",
]


class FunctionSnapshotContext(ABC):
    """What ``snapshot_state`` is told of the checkpoint."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """The id of the checkpoint; later checkpoints have higher ids."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """When the checkpoint was triggered, in milliseconds."""

    @abstractmethod
    def set_raw_operator_state(self, data: bytes) -> None:
        """Save bytes that the runtime does not look into."""


class FunctionInitializationContext(ABC):
    """What ``initialize_state`` is given."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Whether the state comes from a checkpoint."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """State that belongs to the subtask."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """State that belongs to keys; only on a keyed stream."""

    @abstractmethod
    def get_raw_operator_state_inputs(self) -> tuple[bytes, ...]:
        """The raw bytes that came to this subtask, one per subtask that had saved some."""


class CheckpointedFunction(ABC):
    """A function that takes part in checkpoints; any kind of function can be one."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Called at the barrier of a checkpoint, between two records: bring the state up to date.

        An exception aborts the checkpoint, not the job.
        """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Called once per attempt, before ``open``."""


class ListCheckpointed(ABC):
    """The short form: a function whose state is a list, dealt out over the subtasks on restore."""

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any] | None:
        """The state at the barrier of a checkpoint; None: none."""

    @abstractmethod
    def restore_state(self, state: list[Any]) -> None:
        """Called before ``open`` in an attempt that begins at a checkpoint."""


class CheckpointListener(ABC):
    """A function that is told of the end of checkpoints.

    Ids strictly increase, and a completed checkpoint contains all earlier ones. A notification
    comes after the fact, and may not come at all when the job fails meanwhile. An exception fails
    the job, but not the checkpoint.
    """

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete and will be restored from if the job fails now."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was given up; the next one covers the longer span."""


class MapFunction(Function):
    """One record in, one record out."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """The result for a record."""


class FlatMapFunction(Function):
    """One record in, any number of records out."""

    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any] | None:
        """The results for a record: a generator, any iterable, or None."""


class FilterFunction(Function):
    """Keeps a record or drops it."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Whether to keep the record."""


class ReduceFunction(Function):
    """Two values into one of the same type."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """The combination of the value so far and a new one."""


class FoldFunction(Function):
    """An accumulator and a value into an accumulator (deprecated, as in Flink)."""

    @abstractmethod
    def fold(self, accumulator: Any, value: Any) -> Any:
        """The accumulator with the value taken in."""


class AggregateFunction(Function):
    """Folds values into an accumulator that may be of another type than input and output."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """A new accumulator, for a key without one."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """The accumulator with the value taken in; may be the same object."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """The output for an accumulator."""

    @abstractmethod
    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Two accumulators as one."""


class KeySelector(Function):
    """Takes the key out of a record. Called on both sides of a shuffle: must be deterministic."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """The key of a record."""


class NullByteKeySelector(KeySelector):
    """Gives every record the same key."""

    def get_key(self, value: Any) -> Any:
        """Always 0."""
        return 0


class Partitioner(Function):
    """Chooses the subtask for a key."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """The index of the target subtask, from 0 to ``num_partitions - 1``."""


class SinkFunction(Function):
    """Takes records out of the job, in the worker."""

    class Context(ABC):
        """What is known of the current record; valid only during the call."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """The event timestamp of the record in milliseconds, or None if it has none."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """The processing time in milliseconds."""

    @abstractmethod
    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        """Called for each record. An epoch that is run again calls it again."""

    def finish(self) -> None:
        """Called when the last record was taken: write what is still buffered.

        It is called again in the epochs that may follow, and when an epoch is run again. A job that
        is stopped with a savepoint goes on later: its sinks are not finished unless it is drained.
        """

    def end_epoch(self) -> None:
        """Called after the last record of an epoch: send what is under way, and wait for it.

        The next epoch may be another process's, which knows nothing of what a client of this one
        still holds in its memory. Fields of the function need not be sent: they go along.
        """

    def end_round(self) -> None:
        """Called in place of ``end_epoch`` where no checkpoint is taken and the function stays.

        An engine that keeps functions in their processes from one checkpoint to the next calls it
        several times a second. Records may wait in the memory of a client until the next
        ``end_epoch``. By default it calls ``end_epoch``.
        """
        self.end_epoch()


class SourceContext(ABC):
    """How a source function emits."""

    @abstractmethod
    def collect(self, value: Any) -> None:
        """Emit a record; waits while the job is behind."""

    @abstractmethod
    def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
        """Emit a record with its timestamp in milliseconds; see `SourceFunction`."""

    @abstractmethod
    def emit_watermark(self, timestamp: int) -> None:
        """Say that no record at or before this timestamp is to come; going back is ignored.

        It moves the time of the job at the end of the epoch in which it is read.
        """

    @abstractmethod
    def mark_as_temporarily_idle(self) -> None:
        """Say that there is nothing to emit for a while, so that others need not wait for this one.

        It ends with the next record or watermark.
        """

    @abstractmethod
    def get_checkpoint_lock(self) -> Any:
        """The lock under which emission and the change of the source's position are one.

        ``with ctx.get_checkpoint_lock(): ctx.collect(x); self.position += 1``. ``collect`` takes
        the lock by itself, so a source that keeps no position need not know of it.
        """


class SourceFunction(Function):
    """A source written as a loop. Runs with parallelism 1.

    The loop runs in a thread of a process of its own, beside the workers, so it may keep what it
    likes in local variables and fields.

    Attributes:
        gives_timestamps: set it to True in a class whose ``run`` gives records their timestamps, or
            watermarks: a job is planned before it runs.
    """

    gives_timestamps: ClassVar[bool] = False

    @abstractmethod
    def run(self, ctx: SourceContext) -> None:
        """Emit records until there are no more (a bounded source) or ``cancel`` was called."""

    def cancel(self) -> None:
        """Called from another thread when the job ends: make ``run`` return soon."""


class ParallelSourceFunction(SourceFunction):
    """A source function of which every subtask runs its own instance.

    Each instance learns its share in ``open``, from the index of its subtask.
    """


# NB: last, since it is made of the classes above.
from holdfast.datastream.two_phase_commit import TwoPhaseCommitSinkFunction  # noqa: E402
