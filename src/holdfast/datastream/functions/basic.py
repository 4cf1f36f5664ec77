"""Functions of single records, of sources and sinks, and what a function does in a checkpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.datastream.functions.base import Function, KeyedStateStore

if TYPE_CHECKING:
    from holdfast.datastream.state import OperatorStateStore


class FunctionSnapshotContext(ABC):
    """Describes the checkpoint, for ``snapshot_state``."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """Return the id of the checkpoint; later checkpoints have higher ids."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """Return when the checkpoint was triggered, in milliseconds."""

    @abstractmethod
    def set_raw_operator_state(self, data: bytes) -> None:
        """Save bytes that the runtime does not interpret."""


class FunctionInitializationContext(ABC):
    """Gives access to state, for ``initialize_state``."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Return whether the state comes from a checkpoint."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the state that belongs to the subtask."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """Return the state that belongs to keys; only on a keyed stream."""

    @abstractmethod
    def get_raw_operator_state_inputs(self) -> tuple[bytes, ...]:
        """Return the raw bytes for this subtask, one per subtask that had saved some."""


class CheckpointedFunction(ABC):
    """A function that takes part in checkpoints; any kind of function can implement it."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Called at the barrier of a checkpoint, between two records: update the state.

        An exception aborts the checkpoint, not the job.
        """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Called once per attempt, before ``open``."""


class ListCheckpointed(ABC):
    """The short form, for state that is a list, divided between the subtasks on restore."""

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any] | None:
        """Return the state at the barrier of a checkpoint; None if there is none."""

    @abstractmethod
    def restore_state(self, state: list[Any]) -> None:
        """Called before ``open`` in an attempt that starts from a checkpoint."""


class CheckpointListener(ABC):
    """A function that is notified when checkpoints end.

    Ids strictly increase, and a completed checkpoint includes all earlier ones. A notification
    arrives after the fact, and may never arrive if the job fails meanwhile. An exception fails
    the job, but not the checkpoint.
    """

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Called when the checkpoint is complete: a failure now would restore it."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Called when the checkpoint was aborted; the next one includes its changes."""


class MapFunction(Function):
    """One record in, one record out."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """Return the result for a record."""


class FlatMapFunction(Function):
    """One record in, any number of records out."""

    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any] | None:
        """Return the results for a record: a generator, any iterable, or None."""


class FilterFunction(Function):
    """Keeps a record or drops it."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Return whether to keep the record."""


class ReduceFunction(Function):
    """Combines two values into one of the same type."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """Return the combination of the value so far and a new one."""


class FoldFunction(Function):
    """Adds a value to an accumulator (deprecated, as in Flink)."""

    @abstractmethod
    def fold(self, accumulator: Any, value: Any) -> Any:
        """Add the value, and return the accumulator."""


class AggregateFunction(Function):
    """Folds values into an accumulator that may have another type than input and output."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """Return a new accumulator, for a key without one."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """Add the value, and return the accumulator; may be the same object."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """Return the output for an accumulator."""

    @abstractmethod
    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Merge two accumulators."""


class KeySelector(Function):
    """Extracts the key of a record. Called on both sides of a shuffle: must be deterministic."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """Return the key of a record."""


class NullByteKeySelector(KeySelector):
    """Gives every record the same key."""

    def get_key(self, value: Any) -> Any:
        """Return 0."""
        return 0


class Partitioner(Function):
    """Chooses the subtask for a key."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """Return the index of the target subtask, from 0 to ``num_partitions - 1``."""


class SinkFunction(Function):
    """Takes records out of the job, in the worker."""

    class Context(ABC):
        """The context of the current record; valid only during the call."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the event timestamp of the record in milliseconds, or None if it has none."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time in milliseconds."""

    @abstractmethod
    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        """Called for each record, and again if an epoch is repeated."""

    def finish(self) -> None:
        """Called after the last record of the input: write everything that is buffered.

        It is called again in epochs that may follow, and when an epoch is repeated. A job that
        is stopped with a savepoint continues later: its sinks are finished only if it is drained.
        """

    def end_epoch(self) -> None:
        """Called after the last record of an epoch: send everything, and wait for it.

        The next epoch may run in another process, which does not have what a client of this one
        still has in memory. Fields of the function need not be sent: they move with the subtask.
        """

    def end_round(self) -> None:
        """Called instead of ``end_epoch`` if no checkpoint is taken and the function stays.

        An engine that keeps functions in their processes from one checkpoint to the next calls it
        several times a second. Records may wait in the memory of a client until the next
        ``end_epoch``. By default it calls ``end_epoch``.
        """
        self.end_epoch()


class SourceContext(ABC):
    """Emits the records of a source function."""

    @abstractmethod
    def collect(self, value: Any) -> None:
        """Emit a record; blocks while the job is behind."""

    @abstractmethod
    def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
        """Emit a record with its timestamp in milliseconds; see `SourceFunction`."""

    @abstractmethod
    def emit_watermark(self, timestamp: int) -> None:
        """Declare that no record at or before this timestamp will follow; it never goes back.

        On the epochs engine it takes effect at the end of the epoch in which it is read.
        """

    @abstractmethod
    def mark_as_temporarily_idle(self) -> None:
        """Declare that the source is idle, so that watermarks do not wait for it.

        It ends with the next record or watermark.
        """

    @abstractmethod
    def get_checkpoint_lock(self) -> Any:
        """Return the lock that makes emitting a record and moving the position one step.

        ``with ctx.get_checkpoint_lock(): ctx.collect(x); self.position += 1``. ``collect`` takes
        the lock by itself, so a source without a position does not need it.
        """


class SourceFunction(Function):
    """A source written as a loop. Runs with parallelism 1.

    The loop runs in its own thread (on the epochs engine, in its own process), so it may keep
    state in local variables and fields.

    Attributes:
        gives_timestamps: set it to True in a class whose ``run`` emits timestamps or
            watermarks, because a job is planned before it runs.
    """

    gives_timestamps: ClassVar[bool] = False

    @abstractmethod
    def run(self, ctx: SourceContext) -> None:
        """Emit records until there are no more (a bounded source) or ``cancel`` was called."""

    def cancel(self) -> None:
        """Called from another thread when the job ends: make ``run`` return soon."""


class ParallelSourceFunction(SourceFunction):
    """A source function with an instance in every subtask.

    Each instance determines its share in ``open``, from the index of its subtask.
    """
