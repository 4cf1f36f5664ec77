"""A source of consecutive numbers, divided over its subtasks."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.datastream.connectors._sequence import SequenceSource

__all__ = ["NumberSequenceSource"]


class NumberSequenceSource(SequenceSource):
    """The numbers from ``start`` to ``end``, both included; a subtask emits its share in order."""

    def __init__(self, start: int, end: int) -> None:
        """Check the bounds; an empty sequence is an error as in Flink."""
        if start > end:
            message = f"NumberSequenceSource: start {start} is above end {end}"
            raise ValueError(message)
        self.start = start
        self.end = end

    def sequence(self) -> Sequence[int]:
        """Return all numbers."""
        return range(self.start, self.end + 1)
