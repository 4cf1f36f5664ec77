"""What a source and a sink are.

A ``Source`` is a description that travels in the graph; a ``SourceReader`` does the reading in a
worker. Reading is a function of the position: a reader that is put back to a position and asked
for as many records gives the same records again. So an epoch can be run again after a failure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from holdfast.errors import JobDefinitionError

__all__ = ["DeliveryGuarantee", "Sink", "Source", "SourceReader"]


class DeliveryGuarantee(Enum):
    """What a sink promises when a job fails and recovers."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


class SourceReader(ABC):
    """Reads the share of one subtask."""

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
