"""A source of consecutive numbers, divided over its subtasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.datastream.connectors.base import Source, SourceReader

__all__ = ["NumberSequenceSource"]

_BATCH = 4096


class NumberSequenceSource(Source):
    """The numbers from ``start`` to ``end``, both included; a subtask emits its share in order."""

    def __init__(self, start: int, end: int) -> None:
        """Check the bounds; an empty sequence is an error as in Flink."""
        if start > end:
            msg = f"NumberSequenceSource: start {start} is above end {end}"
            raise ValueError(msg)
        self.start = start
        self.end = end

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """Contiguous shares that differ by at most one number."""
        count = self.end - self.start + 1
        first = self.start + count * subtask // parallelism
        last = self.start + count * (subtask + 1) // parallelism
        return _NumberReader(range(first, last))


class _NumberReader(SourceReader):
    def __init__(self, numbers: range) -> None:
        self._numbers = numbers
        self._next = 0

    def restore(self, position: Any) -> None:
        self._next = position

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        stop = min(self._next + limit, len(self._numbers))
        while self._next < stop:
            batch = self._numbers[self._next : min(self._next + _BATCH, stop)]
            self._next += len(batch)
            yield batch

    def position(self) -> Any:
        return self._next

    @property
    def finished(self) -> bool:
        return self._next >= len(self._numbers)
