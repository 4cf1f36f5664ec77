"""The last checkpoints of a job, for monitoring."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.checkpoint.events import CheckpointCounts, CheckpointRecord, CheckpointStatus

__all__ = ["CheckpointHistory"]


class CheckpointHistory:
    """A bounded history, and counts that are not bounded.

    Invariant: at most ``limit`` records, and those in progress; the oldest ended one goes first.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._records: dict[int, CheckpointRecord] = {}
        self.counts = CheckpointCounts()

    def records(self) -> tuple[CheckpointRecord, ...]:
        """Return all that are remembered, oldest first."""
        return tuple(self._records.values())

    def triggered(self, checkpoint: int, now: int, savepoint: bool) -> None:
        """Add a checkpoint in progress."""
        self._records[checkpoint] = CheckpointRecord(
            checkpoint, CheckpointStatus.IN_PROGRESS, now, savepoint=savepoint
        )
        self.counts = replace(self.counts, triggered=self.counts.triggered + 1)
        self._trim()

    def completed(
        self, checkpoint: int, now: int, size: int, written: int | None = None, path: str = ""
    ) -> None:
        """End a checkpoint well."""
        self._end(
            checkpoint,
            now,
            CheckpointStatus.COMPLETED,
            size=size,
            written=written,
            path=path or None,
        )
        self.counts = replace(self.counts, completed=self.counts.completed + 1)

    def failed(
        self, checkpoint: int, now: int, failure: str, late: frozenset[tuple[int, int]]
    ) -> None:
        """End a checkpoint; ``late`` are the subtasks that acknowledged after it had expired."""
        self._end(checkpoint, now, CheckpointStatus.FAILED, failure=failure, late=late)
        self.counts = replace(self.counts, failed=self.counts.failed + 1)

    def _end(self, checkpoint: int, now: int, status: CheckpointStatus, **figures: Any) -> None:
        record = self._records[checkpoint]
        self._records[checkpoint] = replace(
            record,
            status=status,
            end_timestamp=now,
            duration=max(0, now - record.trigger_timestamp),
            **figures,
        )
        self._trim()

    def _trim(self) -> None:
        ended = [r.id for r in self.records() if r.status is not CheckpointStatus.IN_PROGRESS]
        for checkpoint in ended[: max(0, len(self._records) - self._limit)]:
            del self._records[checkpoint]
