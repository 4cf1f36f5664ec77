"""A source over records that the program holds; they are sent to the workers with the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.datastream.connectors.base import Source, SourceReader

__all__ = ["CollectionSource"]

_BATCH = 4096


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
        return _ListReader(
            self.records, count * subtask // parallelism, count * (subtask + 1) // parallelism
        )


class _ListReader(SourceReader):
    def __init__(self, records: Sequence[Any], first: int, last: int) -> None:
        self._records = records
        self._next = first
        self._last = last

    def restore(self, position: Any) -> None:
        self._next = position

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        stop = min(self._next + limit, self._last)
        while self._next < stop:
            batch = self._records[self._next : min(self._next + _BATCH, stop)]
            self._next += len(batch)
            yield batch

    def position(self) -> Any:
        return self._next

    @property
    def finished(self) -> bool:
        return self._next >= self._last
