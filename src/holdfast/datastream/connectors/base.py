"""The interfaces of sources and sinks.

A ``Source`` is a description in the graph; a ``SourceReader`` reads in a
worker. Reading is a function of the position: a reader that is restored to a position and asked
for as many records returns the same records again. So an epoch can be repeated after a failure.

If more data arrives while an epoch runs, as in a topic, an ``EpochPlanner`` in the
driver decides before each epoch how far it reads; reading is then a function of position and plan.

An engine that never repeats an epoch calls ``run_free`` of both: readers then read records as they
arrive, and plans only list the splits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from holdfast.errors import JobDefinitionError

if TYPE_CHECKING:
    from holdfast.datastream.functions import KeySelector
    from holdfast.datastream.output_tag import OutputTag
    from holdfast.metrics import MetricGroup

__all__ = [
    "CommittingSink",
    "DeliveryGuarantee",
    "EpochPlanner",
    "Sink",
    "Source",
    "SourceReader",
    "SplitRecords",
]


class DeliveryGuarantee(Enum):
    """What a sink guarantees when a job fails and recovers."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


class SplitRecords(list[Any]):
    """A batch of records of one split, such as a partition, which has its own watermark.

    Attributes:
        split: the split.
        aside: records for side outputs, each with its tag and its timestamp.
    """

    def __init__(
        self,
        split: Hashable,
        records: Sequence[Any],
        aside: Sequence[tuple[OutputTag, Any, int | None]] = (),
    ) -> None:
        """Take the records as they are."""
        super().__init__(records)
        self.split = split
        self.aside = aside


class EpochPlanner(ABC):
    """Decides in the driver how far the readers of a source read in the next epoch."""

    def run_free(self) -> None:
        """Called once, before ``plan``, if the readers run free: they read on beyond the plan.

        ``plan`` is then called several times a second, and should answer from memory.
        """

    @abstractmethod
    def plan(self) -> Any:
        """Return the plan for all readers; picklable. A repeated epoch gets the same plan.

        Raises:
            HoldfastError: when the job cannot continue; the restart strategy decides then.
        """

    def close(self) -> None:
        """Close connections."""


class SourceReader(ABC):
    """Reads the share of one subtask."""

    #: the splits that it reads now, if its records come as ``SplitRecords``; not those that have
    #: ended, because the watermark would wait for them
    splits: Collection[Hashable] | None = None

    def open(self, metrics: MetricGroup) -> None:
        """Called once, before anything else."""

    def run_free(self) -> None:
        """Called once, before reading, by an engine that never repeats an epoch.

        Read records beyond the plan as they arrive. ``read`` must not wait for records then: it is
        called again after a few milliseconds. By default nothing changes.
        """

    def follow(self, plan: Any) -> None:
        """Take the plan of the next epoch; called after ``restore``."""

    def pause(self, splits: Collection[Hashable]) -> None:
        """Leave these splits out of the next ``read``: they are ahead of their watermark group.

        Called for sources whose watermarks are aligned. If a reader ignores it, the subtask is
        aligned by the watermark of the slowest of its splits.
        """

    def snapshot_state(self, checkpoint_id: int) -> None:
        """Prepare for a checkpoint, which saves what ``position`` returns after this call."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Take note that a checkpoint is complete; as with a ``CheckpointListener``."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Take note that a checkpoint was aborted."""

    def notify_epoch_accepted(self) -> None:
        """Take note that an epoch was accepted, in a job without checkpoints."""

    @abstractmethod
    def restore(self, position: Any) -> None:
        """Go to a position that ``position`` returned earlier, perhaps in another process."""

    @abstractmethod
    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        """Yield batches of at most ``limit`` records in total; fewer if there are no more now."""

    @abstractmethod
    def position(self) -> Any:
        """Return the position after the batches that were taken; picklable."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Return whether there will never be another record."""

    def close(self) -> None:
        """Close connections."""


class Source(ABC):
    """A source of records; picklable."""

    #: the ``BatchTypeInfo`` of a source whose readers give batches instead of records
    batch_type: Any = None
    #: Set by sources that are rows of a Spark DataFrame; nothing else may set it.
    reads_rows: bool = False

    @property
    def parallelism_limit(self) -> int | None:
        """Return the default parallelism; None for that of the environment."""
        return None

    @property
    def listens(self) -> bool:
        """Return whether readers have something to do when the last epoch is accepted."""
        return False

    @property
    def side_outputs(self) -> bool:
        """Return whether readers emit to side outputs, for ``DataStream.get_side_output``."""
        return False

    def create_planner(self, restored: bool) -> EpochPlanner | None:
        """Return the planner of an attempt's epochs, in the driver; None if none is needed.

        Args:
            restored: whether the readers continue from saved positions.
        """
        return None

    @abstractmethod
    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """Return a reader for one subtask, at the beginning of its share."""

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        """Return positions for another number of subtasks, with what was not read yet.

        Raises:
            JobDefinitionError: when the source does not support it; its parallelism is fixed then.
        """
        raise JobDefinitionError(
            f"{type(self).__name__} was saved by {len(positions)} subtasks and does not say how "
            f"{parallelism} subtasks go on from there; set the old parallelism, or override "
            "redistribute(positions, parallelism)"
        )


class Sink(ABC):
    """A sink for ``DataStream.sink_to``: creates the function that takes the records."""

    #: the name of the operator in plans and messages
    name: str = "Sink"

    def for_batches(self, batch_type: Any) -> Sink | None:
        """Return the sink for a stream of batches of this type; None if it takes only records.

        The functions of such a sink set ``takes_batches``, and are called with a
        ``holdfast.datastream.columns.batch.Batch`` in place of a record.
        """
        return None

    @abstractmethod
    def create_function(self) -> Any:
        """Return a ``SinkFunction``; called in the program, sent to the workers."""


class CommittingSink(Sink):
    """A sink whose subtasks write files, which one committer adds to a table in one step.

    In the graph it is two operators: a writer with the parallelism of the stream, and a committer
    with one subtask.
    """

    def for_stream(self) -> CommittingSink:
        """Return the sink for one stream; to override if each needs something of its own."""
        return self

    def key_selector(self) -> Callable[[Any], Any] | KeySelector | None:
        """Return what finds the key of a record if records of one key must stay in order.

        All records of a key go to the same writer then.
        """
        return None

    @abstractmethod
    def create_writer(self) -> Any:
        """Return a ``SinkWriter``; called in the program, sent to the workers."""

    @abstractmethod
    def create_function(self) -> Any:
        """Return the committer: a ``TwoPhaseCommitSinkFunction`` of what writers have written."""
