"""Which checkpoints of the checkpoint directory a job keeps."""

from __future__ import annotations

from collections.abc import Iterable


class RetainedCheckpoints:
    """The ids of the checkpoints in the directory.

    Attributes:
        completed: those that a restart may return to, oldest first.
    """

    def __init__(self, completed: Iterable[int], number: int) -> None:
        """Start with those that exist; ``number``: how many to keep."""
        self.completed = sorted(completed)
        self._number = number
        #: also there, but newer than the start of this attempt: damaged, or not wanted
        self._passed_over: list[int] = []

    def add(self, checkpoint: int) -> list[int]:
        """Add a checkpoint; return those that are no longer retained."""
        self.completed.append(checkpoint)
        surplus = self.completed[: -self._number]
        self.completed = self.completed[-self._number :]
        discarded = sorted((*self._passed_over, *surplus))
        self._passed_over = []
        return discarded

    def restart(self, restored: int) -> None:
        """Pass over all that are newer than the one that an attempt starts from."""
        self._passed_over += [c for c in self.completed if c > restored]
        self.completed = [c for c in self.completed if c <= restored]

    def clear(self) -> list[int]:
        """Retain none; return all that there were."""
        discarded = sorted((*self.completed, *self._passed_over))
        self.completed, self._passed_over = [], []
        return discarded
