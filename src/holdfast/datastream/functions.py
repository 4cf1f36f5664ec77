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
from typing import TYPE_CHECKING, Any

from holdfast.metrics import MetricGroup

if TYPE_CHECKING:
    from holdfast.datastream.state import (
        AggregatingState,
        AggregatingStateDescriptor,
        FoldingState,
        FoldingStateDescriptor,
        ListState,
        ListStateDescriptor,
        MapState,
        MapStateDescriptor,
        OperatorStateStore,
        ReducingState,
        ReducingStateDescriptor,
        ValueState,
        ValueStateDescriptor,
    )

__all__ = [
    "AggregateFunction",
    "CheckpointListener",
    "CheckpointedFunction",
    "FilterFunction",
    "FlatMapFunction",
    "FoldFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "KeySelector",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "ListCheckpointed",
    "MapFunction",
    "NullByteKeySelector",
    "ParallelSourceFunction",
    "Partitioner",
    "ProcessFunction",
    "ReduceFunction",
    "RuntimeContext",
    "SinkFunction",
    "SourceContext",
    "SourceFunction",
    "TwoPhaseCommitSinkFunction",
]


class KeyedStateStore(ABC):
    """Where keyed state comes from; it is scoped to the key of the current record."""

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """A state of one value per key."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A state of a list per key."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """A state of a map per key."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """A state that folds what is added with a reduce function."""

    @abstractmethod
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        """A state that folds what is added into an accumulator."""

    @abstractmethod
    def get_folding_state(self, state_descriptor: FoldingStateDescriptor) -> FoldingState[Any, Any]:
        """A state that folds what is added into a value (deprecated, as in Flink)."""


class RuntimeContext(KeyedStateStore):
    """What a function may know of the place where it runs; given to ``open``."""

    @abstractmethod
    def get_task_name(self) -> str:
        """The name of the operator."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """The parallelism of the operator."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """The max parallelism of the operator: the number of its key groups."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """The number of this parallel instance, from 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """How often the job was restarted: 0 in the first attempt."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """The name with the number of this instance and the parallelism: ``name (1/4)``."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """A global job parameter of the ``ExecutionConfig``."""

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """Where the function registers its metrics."""


class Function(ABC):  # noqa: B024 - nothing to implement, but not to be made by itself
    """Base of all functions that are objects."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called before the first record, in every worker process that runs this instance."""

    def close(self) -> None:
        """Called once after the last record. Not when the process is killed."""


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
    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any]:
        """The state at the barrier of a checkpoint."""

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


class ProcessFunction(Function):
    """The general function of a stream without keys."""

    class Context(ABC):
        """What is known of the current record; valid only during the call."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """The event timestamp of the record in milliseconds, or None if it has none."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any] | None:
        """Called for each record; yields (or returns an iterable of) results."""


class KeyedProcessFunction(Function):
    """The general function of a keyed stream: state by ``RuntimeContext``, results by yield."""

    class Context(ABC):
        """What is known of the current record; valid only during the call."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the record."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """The event timestamp of the record in milliseconds, or None if it has none."""

    @abstractmethod
    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any] | None:
        """Called for each record; yields (or returns an iterable of) results."""


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


class SourceContext(ABC):
    """How a source function emits."""

    @abstractmethod
    def collect(self, value: Any) -> None:
        """Emit a record; waits while the job is behind."""

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
    """

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
