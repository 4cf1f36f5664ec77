"""Reads sequences in memory, by ranges of their indices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from holdfast.datastream.connectors.base import Source, SourceReader

_BATCH = 4096

#: indices from the first, inclusive, to the last, exclusive
Range = tuple[int, int]


class SequenceSource(Source):
    """The records of a sequence, divided between the subtasks in contiguous parts."""

    @abstractmethod
    def sequence(self) -> Sequence[Any]:
        """Return all records."""

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """Return a reader; shares are contiguous and differ by at most one record."""
        records = self.sequence()
        return _SequenceReader(records, deal([(0, len(records))], parallelism)[subtask])

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        """Divide the remaining records into contiguous shares."""
        return deal([left for position in positions for left in position], parallelism)


class _SequenceReader(SourceReader):
    """Reads a subtask's share of a sequence; the position is the rest of it, as ranges."""

    def __init__(self, records: Sequence[Any], share: list[Range]) -> None:
        self._records = records
        self._left = share
        self._most = getattr(records, "at_once", _BATCH)

    def restore(self, position: Any) -> None:
        """Continue with these ranges."""
        self._left = list(position)

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        """Yield slices of the sequence."""
        while limit > 0 and self._left:
            first, last = self._left[0]
            stop = min(last, first + limit, first + self._most)
            self._left[:1] = [(stop, last)] if stop < last else []
            limit -= stop - first
            yield self._records[first:stop]

    def position(self) -> Any:
        """Return the ranges that are left."""
        return tuple(self._left)

    @property
    def finished(self) -> bool:
        """Return whether the end is reached."""
        return not self._left


def deal(ranges: Sequence[Range], parallelism: int) -> list[list[Range]]:
    """Divide ranges into contiguous shares that differ by at most one index."""
    total = sum(last - first for first, last in ranges)
    bounds = [total * subtask // parallelism for subtask in range(parallelism + 1)]
    return [list(_cut(ranges, low, high)) for low, high in pairwise(bounds)]


def _cut(ranges: Sequence[Range], low: int, high: int) -> Iterator[Range]:
    """Return the part between two positions of the concatenated ranges."""
    place = 0
    for first, last in ranges:
        begin, end = max(low - place, 0), min(high - place, last - first)
        if begin < end:
            yield first + begin, first + end
        place += last - first
