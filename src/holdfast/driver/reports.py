"""What a program is told of its job, in the shapes that `JobClient` has: made from the history."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.checkpoint.events import CheckpointRecord, CheckpointStatus
from holdfast.driver.book import EpochReport
from holdfast.history.events import (
    AttemptBegan,
    AttemptFailed,
    CheckpointSeen,
    EpochEnded,
    StateLoaded,
)
from holdfast.history.job import JobHistory

__all__ = ["AttemptReport", "attempts_of", "checkpoints_of", "epochs_of"]


@dataclass(frozen=True)
class AttemptReport:
    """One start of a job, for people.

    Attributes:
        number: counts from 0 with each start of the program.
        started: when, in seconds.
        checkpoint: the id of the checkpoint that it began with; None for the beginning.
        failure: what it ended with, if it failed.
        failed: when it failed, in seconds.
    """

    number: int
    started: float
    checkpoint: int | None = None
    failure: str | None = None
    failed: float | None = None
    loaded: StateLoaded | None = None


def attempts_of(history: JobHistory) -> tuple[AttemptReport, ...]:
    """Return the last attempts, oldest first."""
    return history.look(_attempts)


def _attempts(history: JobHistory) -> tuple[AttemptReport, ...]:
    failures = {failure.number: failure for failure in history.failures}
    return tuple(_attempt(began, failures.get(began.number)) for began in history.attempts)


def _attempt(began: AttemptBegan, failed: AttemptFailed | None) -> AttemptReport:
    report = AttemptReport(began.number, began.time / 1000, began.checkpoint, loaded=began.loaded)
    if failed is None:
        return report
    return replace(report, failure=failed.trace, failed=failed.time / 1000)


def epochs_of(history: JobHistory) -> list[EpochReport]:
    """Return the last epochs, oldest first."""
    return [_epoch(ended) for ended in history.look(lambda told: list(told.epochs))]


def _epoch(ended: EpochEnded) -> EpochReport:
    return EpochReport(
        epoch=ended.epoch,
        started=ended.started / 1000,
        seconds=ended.seconds,
        read=ended.read,
        records=ended.records,
        quota=ended.quota,
        steps=ended.steps,
        memory=ended.processes,
        state_bytes=ended.state,
    )


def checkpoints_of(history: JobHistory) -> tuple[CheckpointRecord, ...]:
    """Return the last checkpoints and savepoints, oldest first."""
    seen = history.look(lambda told: list(told.checkpoints.values()))
    return tuple(_checkpoint(one) for one in sorted(seen, key=lambda one: one.id))


def _checkpoint(seen: CheckpointSeen) -> CheckpointRecord:
    complete = seen.status == CheckpointStatus.COMPLETED.name
    return CheckpointRecord(
        id=seen.id,
        status=CheckpointStatus[seen.status],
        trigger_timestamp=seen.triggered,
        end_timestamp=seen.ended,
        duration=None if seen.ended is None else max(0, seen.ended - seen.triggered),
        size=seen.size if complete else None,
        written=seen.written if complete else None,
        savepoint=seen.savepoint,
        failure=seen.failure,
        path=seen.path,
    )
