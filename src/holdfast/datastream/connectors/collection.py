"""A source over records that the program holds; they are sent to the workers with the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.datastream.connectors.base import SequenceReader, Source, SourceReader

__all__ = ["CollectionSource"]


class CollectionSource(Source):
    """The records of a list, in order, in one subtask."""

    def __init__(self, records: Sequence[Any]) -> None:
        """Keep the records as they are."""
        self.records = records

    @property
    def parallelism_limit(self) -> int | None:
        """One, so that the order is kept; more subtasks share the records in contiguous parts."""
        return 1

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """A contiguous share."""
        count = len(self.records)
        first, last = count * subtask // parallelism, count * (subtask + 1) // parallelism
        return SequenceReader(self.records[first:last])
