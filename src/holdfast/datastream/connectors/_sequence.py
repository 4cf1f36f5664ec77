"""Reads sequences that are at hand, in ranges of their indices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from holdfast.datastream.connectors.base import Source, SourceReader

_BATCH = 4096

#: indices from the first up to, and without, the last
Range = tuple[int, int]


class SequenceSource(Source):
    """The records of a sequence, divided over the subtasks in contiguous parts."""

    @abstractmethod
    def sequence(self) -> Sequence[Any]:
        """All records."""

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """Contiguous shares that differ by at most one record."""
        records = self.sequence()
        return _SequenceReader(records, deal([(0, len(records))], parallelism)[subtask])

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        """What is left, in contiguous shares."""
        return deal([left for position in positions for left in position], parallelism)


class _SequenceReader(SourceReader):
    """Reads a subtask's share of a sequence; the position is what is left of it, as ranges."""

    def __init__(self, records: Sequence[Any], share: list[Range]) -> None:
        self._records = records
        self._left = share

    def restore(self, position: Any) -> None:
        """Go on with these ranges."""
        self._left = list(position)

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        """Slices of the sequence."""
        while limit > 0 and self._left:
            first, last = self._left[0]
            stop = min(last, first + limit, first + _BATCH)
            self._left[:1] = [(stop, last)] if stop < last else []
            limit -= stop - first
            yield self._records[first:stop]

    def position(self) -> Any:
        """What is left."""
        return tuple(self._left)

    @property
    def finished(self) -> bool:
        """Whether the end is reached."""
        return not self._left


def deal(ranges: Sequence[Range], parallelism: int) -> list[list[Range]]:
    """Divide ranges into contiguous shares that differ by at most one index."""
    total = sum(last - first for first, last in ranges)
    bounds = [total * subtask // parallelism for subtask in range(parallelism + 1)]
    return [list(_cut(ranges, low, high)) for low, high in pairwise(bounds)]


def _cut(ranges: Sequence[Range], low: int, high: int) -> Iterator[Range]:
    """What lies between two places of all ranges, put one after another."""
    place = 0
    for first, last in ranges:
        begin, end = max(low - place, 0), min(high - place, last - first)
        if begin < end:
            yield first + begin, first + end
        place += last - first
