"""Reports about a job in the shapes that `JobClient` returns, made from the history."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.checkpoint.events import CheckpointRecord, CheckpointStatus
from holdfast.history import events
from holdfast.history.job import JobHistory


@dataclass(frozen=True)
class AttemptReport:
    """One attempt of a job, for users.

    Attributes:
        number: counts from 0 at each start of the program.
        started: when it started, in seconds.
        checkpoint: the id of the checkpoint that it started from; None if there was none.
        failure: the stack trace or message, if it failed.
        failed: when it failed, in seconds.
        measured: how long the parts of its start took.
    """

    number: int
    started: float
    checkpoint: int | None = None
    failure: str | None = None
    failed: float | None = None
    loaded: events.StateLoaded | None = None
    measured: events.StartMeasured | None = None


def attempts_of(history: JobHistory) -> tuple[AttemptReport, ...]:
    """Return the last attempts, oldest first."""
    return history.look(_attempts)


def _attempts(history: JobHistory) -> tuple[AttemptReport, ...]:
    failures = {failure.number: failure for failure in history.failures}
    return tuple(_attempt(began, failures.get(began.number)) for began in history.attempts)


def _attempt(began: events.AttemptBegan, failed: events.AttemptFailed | None) -> AttemptReport:
    report = AttemptReport(
        began.number,
        began.time / 1000,
        began.checkpoint,
        loaded=began.loaded,
        measured=began.measured,
    )
    if failed is None:
        return report
    return replace(report, failure=failed.trace, failed=failed.time / 1000)


@dataclass(frozen=True)
class EpochReport:
    """What one epoch did, for users and benchmarks.

    Attributes:
        started: when its Spark job started, in seconds.
        seconds: how long that job took: steps 2 to 7 of the protocol.
        read: number of records read from sources.
        steps: duration of each step: on the driver, or the maximum over all subtasks.
        memory: resident bytes of each worker process.
    """

    epoch: int
    started: float
    seconds: float
    read: int
    records: int
    quota: int
    steps: dict[str, float]
    memory: dict[int, int]
    state_bytes: int


def epochs_of(history: JobHistory) -> list[EpochReport]:
    """Return the last epochs, oldest first."""
    return [report_of(ended) for ended in history.look(lambda told: list(told.epochs))]


def report_of(ended: events.EpochEnded) -> EpochReport:
    """Return what an epoch did, for users."""
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


def _checkpoint(seen: events.CheckpointSeen) -> CheckpointRecord:
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
