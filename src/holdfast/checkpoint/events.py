"""What the coordinator is told, and what it tells: events and instructions.

Steps are those of the epoch protocol: 1 trigger, 2 load, 3 notify, 4 process, 5 snapshot,
6 persist, 7 acknowledge, 8 agree, 9 complete, 10 commit. Times are milliseconds of one clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

__all__ = [
    "AnswerRequest",
    "AttemptStarting",
    "CheckpointRecord",
    "CheckpointRequested",
    "CheckpointSettings",
    "CheckpointStatus",
    "DiscardCheckpoint",
    "EpochAccepted",
    "EpochFailed",
    "EpochStarting",
    "Event",
    "FailJob",
    "InjectBarrier",
    "Instruction",
    "JobEnding",
    "MarkFinished",
    "MetadataFailed",
    "MetadataWritten",
    "Notifications",
    "Outcome",
    "ReportCheckpoint",
    "StopJob",
    "SubtaskAcknowledged",
    "TimePassed",
    "WriteMetadata",
]


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """When checkpoints are taken, when they fail, and how many are kept.

    Attributes:
        interval_ms: the time from one trigger to the next; None: no checkpoints, only savepoints.
        timeout_ms: a checkpoint whose epoch takes longer is aborted as expired, and so is one whose
            state is not stored by then.
        min_pause_ms: the least time from a completion to the next trigger.
        max_concurrent: how many may be in flight; one epoch runs at a time, so all but one of them
            are those whose state or metadata is being written.
        tolerable_failures: how many may fail in a row before the job fails.
        retained: how many completed ones are kept.
        retain_on_cancellation: whether they are kept when the job is cancelled.
    """

    interval_ms: int | None
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    max_concurrent: int = 1
    tolerable_failures: int = 0
    retained: int = 1
    retain_on_cancellation: bool = False

    def __post_init__(self) -> None:
        if self.interval_ms is not None:
            _at_least("interval_ms", self.interval_ms, 1)
        _at_least("timeout_ms", self.timeout_ms, 1)
        _at_least("min_pause_ms", self.min_pause_ms, 0)
        _at_least("max_concurrent", self.max_concurrent, 1)
        _at_least("tolerable_failures", self.tolerable_failures, 0)
        _at_least("retained", self.retained, 1)

    @property
    def enabled(self) -> bool:
        """Return whether checkpoints are taken at all."""
        return self.interval_ms is not None


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        message = f"{name} must be at least {least}; got {value!r}"
        raise ValueError(message)


# Events


@dataclass(frozen=True, slots=True)
class AttemptStarting:
    """The job starts, or starts again, from a checkpoint in its checkpoint directory.

    None: from a savepoint, or from nothing.
    """

    now: int
    restored: int | None = None


@dataclass(frozen=True, slots=True)
class EpochStarting:
    """An epoch begins (step 1).

    ``forced``: if checkpoints are on, take one, whatever the time. ``closing``: take none, since
    nothing goes on after it.
    """

    epoch: int
    now: int
    forced: bool = False
    closing: bool = False


@dataclass(frozen=True, slots=True)
class SubtaskAcknowledged:
    """A subtask acknowledged the epoch (step 7), or has stored its state.

    Attributes:
        name: what people call it.
        time: when, by the clock that also says when the checkpoint was triggered; None: not yet.
    """

    level: int
    subtask: int
    name: str
    time: int | None


@dataclass(frozen=True, slots=True)
class EpochAccepted:
    """The driver accepted the epoch (step 8), with what functions' snapshots raised (step 5)."""

    epoch: int
    now: int
    snapshot_failures: tuple[str, ...] = ()
    acknowledged: tuple[SubtaskAcknowledged, ...] = ()


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Abort the checkpoints that have expired while their state was stored.

    ``acknowledged``: who has stored the state of a checkpoint, and who has not, by checkpoint; for
    those in `Coordinator.expired`.
    """

    now: int
    acknowledged: Mapping[int, tuple[SubtaskAcknowledged, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EpochFailed:
    """The epoch is lost."""

    epoch: int
    now: int
    reason: str = "the epoch failed"


@dataclass(frozen=True, slots=True)
class MetadataWritten:
    """The metadata is in place (step 9).

    Attributes:
        size: of all state.
        written: of the state files that are new with this checkpoint.
        path: where it is; that of the savepoint, if it is one.
    """

    checkpoint: int
    now: int
    size: int
    path: str = ""
    written: int | None = None


@dataclass(frozen=True, slots=True)
class MetadataFailed:
    """The metadata, or the savepoint, could not be written; nothing of it is in place."""

    checkpoint: int
    now: int
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """Somebody asks for a checkpoint, or for a savepoint.

    Attributes:
        directory: below which a savepoint is written; None asks for a checkpoint.
        stop: the job ends with the savepoint.
        drain: before it, time goes to its end: all timers fire, and sources are read no more.
        request: tells requests apart; comes back with the answer.
        leaves: the job goes on from this checkpoint with another plan.
    """

    directory: str | None = None
    stop: bool = False
    drain: bool = False
    request: str = ""
    leaves: bool = False

    def __post_init__(self) -> None:
        if self.drain and not self.stop:
            message = "a job can be drained only when it is stopped; ask for stop=True as well"
            raise ValueError(message)
        if self.stop and self.directory is None:
            message = "a job stops with a savepoint; name a directory for it"
            raise ValueError(message)

    @property
    def halts(self) -> bool:
        """Return whether nothing is to be read after the barrier."""
        return self.stop or self.leaves


class Outcome(Enum):
    """How a job ends."""

    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class JobEnding:
    """The job ends; nothing comes after this but late answers about metadata."""

    now: int
    outcome: Outcome


Event: TypeAlias = (
    AttemptStarting
    | EpochStarting
    | EpochAccepted
    | EpochFailed
    | TimePassed
    | MetadataWritten
    | MetadataFailed
    | CheckpointRequested
    | JobEnding
)


# Instructions


@dataclass(frozen=True, slots=True)
class InjectBarrier:
    """Let the epoch that starts carry this checkpoint (step 1)."""

    checkpoint_id: int
    timestamp: int
    savepoint: CheckpointRequested | None = None


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Write the checkpoint as it stands after that epoch, and tell how it went (step 9).

    Attributes:
        savepoint: write it there first, complete and self-contained.
        in_store: write it to the job's checkpoint directory. A savepoint at which the job stops
            is written to both, so that the job, started again, goes on after what was committed.
    """

    checkpoint_id: int
    epoch: int
    savepoint: CheckpointRequested | None = None
    in_store: bool = True


@dataclass(frozen=True, slots=True)
class DiscardCheckpoint:
    """Let go of a checkpoint in the checkpoint directory (step 10)."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Tell who asked: the checkpoint and where it is, or why there is none."""

    request: CheckpointRequested
    checkpoint_id: int
    path: str | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class ReportCheckpoint:
    """Let everybody know of a checkpoint as it stands now.

    Attributes:
        is_failure: it failed by itself, and not because the epoch or the job did.
        late: the subtasks, as (level, subtask), that acknowledged after it had expired.
    """

    record: CheckpointRecord
    is_failure: bool = False
    late: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class StopJob:
    """Run one more epoch, which reads nothing and carries the notifications; then end the job."""

    savepoint_path: str
    drain: bool = False


@dataclass(frozen=True, slots=True)
class FailJob:
    """Fail the running attempt; the restart policy decides what follows."""

    reason: str


@dataclass(frozen=True, slots=True)
class MarkFinished:
    """Mark the checkpoint directory: there is nothing to go on from. NB: before the discards."""


Instruction: TypeAlias = (
    InjectBarrier
    | WriteMetadata
    | DiscardCheckpoint
    | AnswerRequest
    | ReportCheckpoint
    | StopJob
    | FailJob
    | MarkFinished
)


@dataclass(frozen=True, slots=True)
class Notifications:
    """What `CheckpointListener`s are told at the beginning of an epoch (step 3)."""

    completed: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()


# For monitoring


class CheckpointStatus(Enum):
    """Where a checkpoint is in its life; Flink's words."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """One checkpoint, for people.

    Attributes:
        duration: from trigger to end.
        size: of all state; ``written``: of what is new since the checkpoint before.
        failure: why there is none.
        path: where it is.
    """

    id: int
    status: CheckpointStatus
    trigger_timestamp: int
    end_timestamp: int | None = None
    duration: int | None = None
    size: int | None = None
    written: int | None = None
    savepoint: bool = False
    failure: str | None = None
    path: str | None = None
