"""The events that the coordinator handles, and the instructions that it returns.

Steps are those of the epoch protocol: 1 trigger, 2 load, 3 notify, 4 process, 5 snapshot,
6 persist, 7 acknowledge, 8 agree, 9 complete, 10 commit. Times are milliseconds of one clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """When checkpoints are taken, when they fail, and how many are kept.

    Attributes:
        interval_ms: the time between two triggers; None: no checkpoints, only savepoints.
        timeout_ms: a checkpoint is aborted as expired if its epoch takes longer than this, or its
            state is not stored by then.
        min_pause_ms: the minimum time from a completion to the next trigger.
        max_concurrent: how many checkpoints may be in flight. Since one epoch runs at a time, the
            state or metadata of all but one of them is being written.
        tolerable_failures: how many checkpoints may fail in a row before the job fails.
        retained: how many completed checkpoints are kept.
        retain_on_cancellation: whether they are kept when the job is cancelled.
    """

    interval_ms: int | None
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    max_concurrent: int = 1
    tolerable_failures: int = 0
    retained: int = 1
    retain_on_cancellation: bool = False

    @property
    def enabled(self) -> bool:
        """Return whether checkpoints are taken at all."""
        return self.interval_ms is not None


# Events


@dataclass(frozen=True, slots=True)
class AttemptStarting:
    """The job starts or restarts from a checkpoint in its checkpoint directory.

    ``restored`` is None if it starts from a savepoint, or without a checkpoint.
    """

    now: int
    restored: int | None = None


@dataclass(frozen=True, slots=True)
class EpochStarting:
    """An epoch begins (step 1).

    ``forced``: take a checkpoint even if none is due, if checkpoints are enabled. ``closing``: take
    none, since no epoch follows.
    """

    epoch: int
    now: int
    forced: bool = False
    closing: bool = False


@dataclass(frozen=True, slots=True)
class SubtaskAcknowledged:
    """A subtask acknowledged the epoch (step 7), or has stored its state.

    Attributes:
        name: the name of the subtask, for messages.
        time: when, by the clock of the checkpoint's trigger time; None: not yet.
    """

    level: int
    subtask: int
    name: str
    time: int | None


@dataclass(frozen=True, slots=True)
class EpochAccepted:
    """The driver accepted the epoch (step 8); ``snapshot_failures`` are from step 5."""

    epoch: int
    now: int
    snapshot_failures: tuple[str, ...] = ()
    acknowledged: tuple[SubtaskAcknowledged, ...] = ()


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Abort the checkpoints that have expired while their state was being stored.

    ``acknowledged``: when the subtasks stored their state, by checkpoint, for the checkpoints in
    `Coordinator.expired`.
    """

    now: int
    acknowledged: Mapping[int, tuple[SubtaskAcknowledged, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EpochFailed:
    """The epoch failed and is discarded."""

    epoch: int
    now: int
    reason: str = "the epoch failed"


@dataclass(frozen=True, slots=True)
class MetadataWritten:
    """The metadata is in place (step 9).

    Attributes:
        size: size of all state.
        written: size of the state files that are new with this checkpoint.
        path: where the checkpoint or savepoint is.
    """

    checkpoint: int
    now: int
    size: int
    path: str = ""
    written: int | None = None


@dataclass(frozen=True, slots=True)
class MetadataFailed:
    """The metadata or the savepoint could not be written; there is no partial result."""

    checkpoint: int
    now: int
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """A request for a checkpoint or a savepoint.

    Attributes:
        directory: the parent directory of the savepoint; None requests a checkpoint.
        stop: the job ends with the savepoint.
        drain: before the savepoint, the watermark advances to its maximum: all timers fire, and
            sources are not read any more.
        request: identifies the request; the answer has it too.
        leaves: the job continues from this checkpoint with another plan.
    """

    directory: str | None = None
    stop: bool = False
    drain: bool = False
    request: str = ""
    leaves: bool = False

    def __post_init__(self) -> None:
        if self.drain and not self.stop:
            message = "a job can be drained only when it is stopped; set stop=True as well"
            raise ValueError(message)
        if self.stop and self.directory is None:
            message = "a job stops with a savepoint; name a directory for it"
            raise ValueError(message)

    @property
    def halts(self) -> bool:
        """Return whether nothing is read after the barrier."""
        return self.stop or self.leaves


class Outcome(Enum):
    """How a job ends."""

    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class JobEnding:
    """The job ends; only late results about metadata may follow."""

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
    """Let the starting epoch carry this checkpoint (step 1)."""

    checkpoint_id: int
    timestamp: int
    savepoint: CheckpointRequested | None = None


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Write the checkpoint as of that epoch, and report the result (step 9).

    Attributes:
        savepoint: write this savepoint first, complete and self-contained.
        in_store: write the checkpoint to the job's checkpoint directory. A savepoint at which the
            job stops is written to both. If the job is started again, it then continues after what
            was committed.
    """

    checkpoint_id: int
    epoch: int
    savepoint: CheckpointRequested | None = None
    in_store: bool = True


@dataclass(frozen=True, slots=True)
class DiscardCheckpoint:
    """Discard a checkpoint in the checkpoint directory (step 10)."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Answer a request with the checkpoint and its path, or with the reason why it failed."""

    request: CheckpointRequested
    checkpoint_id: int
    path: str | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class ReportCheckpoint:
    """Report the current state of a checkpoint.

    Attributes:
        is_failure: the checkpoint failed itself, rather than its epoch or the job.
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
    """Mark the checkpoint directory as finished: no restore. NB: before the discards."""


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
    """What `CheckpointListener`s are notified of at the beginning of an epoch (step 3)."""

    completed: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()


# For monitoring


class CheckpointStatus(Enum):
    """The status of a checkpoint, with Flink's names."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """One checkpoint, for users.

    Attributes:
        duration: from trigger to end.
        size: size of all state; ``written``: of the files that are new since the last checkpoint.
        failure: why the checkpoint failed.
        path: where the checkpoint is.
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
