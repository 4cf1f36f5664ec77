"""How many checkpoints of a job may fail one after another."""

from __future__ import annotations

from holdfast.checkpoint.events import FailJob


class FailureTolerance:
    """Counts consecutive failures of checkpoints."""

    def __init__(self, tolerable: int) -> None:
        """Start with no failures; ``tolerable``: how many the job survives."""
        self._tolerable = tolerable
        self._failures = 0

    def reset(self) -> None:
        """Start again with no failures."""
        self._failures = 0

    def count(self, checkpoint: int, reason: str) -> list[FailJob]:
        """Count a failure; if it is one too many, the job fails."""
        self._failures += 1
        if self._failures <= self._tolerable:
            return []
        self._failures = 0
        why = f"at most {self._tolerable} consecutive failures are tolerated"
        return [FailJob(f"checkpoint {checkpoint} failed, and {why}: {reason}")]
