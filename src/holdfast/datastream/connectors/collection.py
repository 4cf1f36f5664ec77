"""A source over records that the program holds; they are sent to the workers with the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.datastream.connectors._sequence import SequenceSource

__all__ = ["CollectionSource"]


class CollectionSource(SequenceSource):
    """The records of a list, in order, in one subtask."""

    def __init__(self, records: Sequence[Any]) -> None:
        """Take the records."""
        self.records = records
        self.batch_type = getattr(records, "batch_type", None)

    @property
    def parallelism_limit(self) -> int | None:
        """Return one, to keep the order; more subtasks share the records in contiguous parts."""
        return 1

    def sequence(self) -> Sequence[Any]:
        """Return all records."""
        return self.records
