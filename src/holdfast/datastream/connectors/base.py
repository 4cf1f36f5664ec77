"""What a source and a sink are.

A ``Source`` is a description that travels in the graph; a ``SourceReader`` does the reading in a
worker. Reading is a function of the position: a reader that is put back to a position and asked
for as many records gives the same records again. So an epoch can be run again after a failure.

Where the end of what there is moves while an epoch runs, as in a topic, an ``EpochPlanner`` in the
driver says before each epoch how far it goes; reading is then a function of position and plan.

An engine that never runs an epoch again calls ``run_free`` of both: readers then read on as records
come, and plans say only which splits there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from holdfast.errors import JobDefinitionError

if TYPE_CHECKING:
    from holdfast.datastream.output_tag import OutputTag
    from holdfast.metrics import MetricGroup

__all__ = ["DeliveryGuarantee", "EpochPlanner", "Sink", "Source", "SourceReader", "SplitRecords"]


class DeliveryGuarantee(Enum):
    """What a sink promises when a job fails and recovers."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


class SplitRecords(list[Any]):
    """A batch of records of one split: a partition, say, with a watermark of its own.

    Attributes:
        split: which one.
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
    """Says in the driver how far the readers of a source go in the next epoch."""

    def run_free(self) -> None:
        """Called once, before ``plan``, if the readers run free: they read on beyond the plan.

        ``plan`` is then called several times a second, and should answer from memory.
        """

    @abstractmethod
    def plan(self) -> Any:
        """What all readers are told; picklable. If the epoch is run again, they hear the same.

        Raises:
            HoldfastError: when the job cannot go on; the restart strategy decides then.
        """

    def close(self) -> None:
        """Let go of connections."""


class SourceReader(ABC):
    """Reads the share of one subtask."""

    #: the splits that it reads now, if its records come as ``SplitRecords``; none that has ended,
    #: since time would wait for it
    splits: Collection[Hashable] | None = None

    def open(self, metrics: MetricGroup) -> None:
        """Called once, before anything else."""

    def run_free(self) -> None:
        """Called once, before reading, by an engine that never reads an epoch again.

        Read on beyond the plan as records come. ``read`` must not wait for records then: it is
        called again after a few milliseconds. By default reading stays as it is.
        """

    def follow(self, plan: Any) -> None:
        """Hear what the planner said for the epoch that is read next; after ``restore``."""

    def pause(self, splits: Collection[Hashable]) -> None:
        """Leave these splits out of the next ``read``: they are ahead of their watermark group.

        Called for sources whose watermarks are aligned. If a reader ignores it, the subtask is
        aligned by the watermark of the slowest of its splits.
        """

    def snapshot_state(self, checkpoint_id: int) -> None:
        """A checkpoint is taken of what ``position`` returns after this call."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """A checkpoint is complete; as with a ``CheckpointListener``."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """A checkpoint was given up."""

    def notify_epoch_accepted(self) -> None:
        """In a job without checkpoints: what was read up to the position is part of the job."""

    @abstractmethod
    def restore(self, position: Any) -> None:
        """Go to a position that ``position`` returned earlier, perhaps in another process."""

    @abstractmethod
    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        """Batches of records, ``limit`` in all at most; ends early when there is no more now."""

    @abstractmethod
    def position(self) -> Any:
        """Where the reader stands after the batches that were taken from it; picklable."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether there will never be another record."""

    def close(self) -> None:
        """Let go of connections."""


class Source(ABC):
    """A source of records; picklable."""

    #: Set by sources that are rows of a Spark DataFrame; nothing else may set it.
    reads_rows: bool = False

    @property
    def parallelism_limit(self) -> int | None:
        """The parallelism where the user gives none; None for the environment's."""
        return None

    @property
    def listens(self) -> bool:
        """Whether readers have something to do when the last epoch is accepted."""
        return False

    @property
    def side_outputs(self) -> bool:
        """Whether readers put records aside, for ``DataStream.get_side_output``."""
        return False

    def create_planner(self, restored: bool) -> EpochPlanner | None:
        """What plans the epochs of an attempt, in the driver; None where reading needs no plan.

        Args:
            restored: whether the readers go on from positions that were saved.
        """
        return None

    @abstractmethod
    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """A reader for one subtask, at the beginning of its share."""

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        """Positions for another number of subtasks: what those of before had not read yet.

        Raises:
            JobDefinitionError: when the source does not say how; its parallelism is fixed then.
        """
        raise JobDefinitionError(
            f"{type(self).__name__} was saved by {len(positions)} subtasks and does not say how "
            f"{parallelism} subtasks go on from there; set the old parallelism, or override "
            "redistribute(positions, parallelism)"
        )


class Sink(ABC):
    """A sink to use with ``DataStream.sink_to``: makes the function that takes the records."""

    #: what the operator is called in plans and messages
    name: str = "Sink"

    @abstractmethod
    def create_function(self) -> Any:
        """A ``SinkFunction``; called in the program, sent to the workers."""
