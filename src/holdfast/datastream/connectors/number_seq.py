"""A source of consecutive numbers, divided over its subtasks."""

from __future__ import annotations

from holdfast.datastream.connectors.base import SequenceReader, Source, SourceReader

__all__ = ["NumberSequenceSource"]


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
        return SequenceReader(range(first, last))
