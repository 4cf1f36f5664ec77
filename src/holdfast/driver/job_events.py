"""The events that the machine of a job handles, and the instructions that it returns.

An instruction is an effect or an action. Effects are carried out at once. There is one action at a
time, and it ends with exactly one event. Requests may arrive at any time. They change what happens
next, but they do not interrupt an action, except for the wait before a restart.

    action          ends with
    StartAttempt    AttemptStarted, SlotsMissing, StartAbandoned, or ActionFailed
    AwaitTurn       TurnCame, or ActionFailed
    RunEpoch        EpochCommitted, EpochDiscarded, or ActionFailed
    StopAttempt     AttemptStopped
    ChangePlan      PlanChanged, or PlanRefused
    Wait            TimeIsUp, or ActionFailed; cut short by CancelRequested
    EndJob          no event: it is the last action
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from holdfast.checkpoint.events import Outcome
from holdfast.common.job_status import JobStatus
from holdfast.plan.model import Plan


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an engine can do.

    Attributes:
        reruns: run an epoch again within an attempt, from the state before it. An engine whose
            subtasks keep their state between epochs cannot do this: the attempt fails instead.
        resizes: run another plan of the job in the next attempt.
        keeps_state: subtasks keep their state and continue to read between epochs. Their state is
            written for checkpoints only, while the stream continues (`Engine.stored`).
    """

    reruns: bool
    resizes: bool
    keeps_state: bool = False


@dataclass(frozen=True, slots=True)
class JobTraits:
    """What the machine needs to know about a job and its engine.

    Attributes:
        takes_checkpoints: the job ends only when a checkpoint covers everything that was read.
        closes: the last epoch is followed by one that reads nothing, in which listeners are
            notified of the last checkpoint, transactions are committed and functions are closed.
        least_slots: the minimum number of task slots with which the job continues.
        same_record_limit: how many failures on the same record, without a completed checkpoint
            in between, end the job; 0: no number of them does.
    """

    name: str
    takes_checkpoints: bool
    closes: bool
    abilities: Abilities
    least_slots: int = 1
    same_record_limit: int = 0


@dataclass(frozen=True, slots=True)
class FailurePlace:
    """Identifies a failure on a record: two failures with the same place are the same one again.

    Attributes:
        record: the record, as text.
        error: the name of the exception.
        line: where it was raised.
    """

    operator: str
    record: str
    error: str
    line: str


class Cause(Enum):
    """Why the parallelism of a job changes, with the names of Flink's ``triggerCause``."""

    #: a user requested it
    UPDATE_REQUIREMENT = "a user requested it"
    #: an attempt found fewer task slots than it needs
    RECOVERABLE_FAILOVER = "there are fewer task slots"
    #: the job runs with fewer subtasks than wanted, and there are slots for more
    NEW_RESOURCE_AVAILABLE = "there are more task slots"


# Events that end an action


@dataclass(frozen=True, slots=True)
class JobStarting:
    """The first event of a job."""


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """An attempt runs. ``epoch`` is that of the checkpoint it started from; -1 without one."""

    epoch: int = -1


@dataclass(frozen=True, slots=True)
class SlotsMissing:
    """An attempt did not start: even after waiting, there are fewer task slots than it needs.

    ``request`` identifies the change of plan that may follow.
    """

    request: int
    needed: int
    found: int
    now: int


@dataclass(frozen=True, slots=True)
class StartAbandoned:
    """The job was cancelled while an attempt was starting; the start was abandoned."""


@dataclass(frozen=True, slots=True)
class TurnCame:
    """The engine is ready for an epoch."""


@dataclass(frozen=True, slots=True)
class EpochCommitted:
    """All steps of an epoch are done.

    Attributes:
        finished: all sources have ended, and nothing is left to process.
        complete: the epoch completed a checkpoint from which the job can be restored.
        stops: the epoch completed the savepoint with which the job ends.
    """

    epoch: int
    finished: bool = False
    complete: bool = False
    stops: bool = False


@dataclass(frozen=True, slots=True)
class EpochDiscarded:
    """The subtasks of an epoch do not agree on what they read; nothing of it is kept."""

    epoch: int
    failure: BaseException
    now: int


@dataclass(frozen=True, slots=True)
class EpochAbandoned:
    """The job was cancelled while an epoch was running; the epoch was abandoned and discarded."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ActionFailed:
    """An action failed: an epoch, a start, or the engine while nothing ran.

    Attributes:
        permanent: a restart cannot help.
        lost: a machine or a network failed, not the job.
        place: identifies the failure; None if no record is to blame.
        checkpoint: the last completed checkpoint; None if there is none.
    """

    failure: BaseException
    now: int
    permanent: bool = False
    lost: bool = False
    place: FailurePlace | None = None
    checkpoint: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptStopped:
    """Nothing of the attempt runs any more."""


@dataclass(frozen=True, slots=True)
class PlanChanged:
    """The next attempt will run the other plan."""


@dataclass(frozen=True, slots=True)
class PlanRefused:
    """The job cannot run with the other plan; it keeps its plan."""

    failure: BaseException


@dataclass(frozen=True, slots=True)
class TimeIsUp:
    """The wait before a restart is over."""


# Events that can occur at any time


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A user wants to cancel the job."""


@dataclass(frozen=True, slots=True)
class RescaleRequested:
    """A user wants the job to continue with another plan. ``request`` identifies the request."""

    request: int
    plan: Plan = field(repr=False)


@dataclass(frozen=True, slots=True)
class SlotsCame:
    """A stable number of task slots is available, including those that the job already has."""

    request: int
    slots: int


@dataclass(frozen=True, slots=True)
class CheckpointEnded:
    """The checkpoint for a request is complete, or has failed with ``failure``."""

    request: int
    failure: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """The runner itself cannot continue. The job ends, whatever action is in progress."""

    failure: BaseException


#: the events that do not end an action
REQUESTS: Final = (CancelRequested, RescaleRequested, SlotsCame, CheckpointEnded, Broken)

JobEvent: TypeAlias = (
    JobStarting
    | AttemptStarted
    | SlotsMissing
    | StartAbandoned
    | TurnCame
    | EpochCommitted
    | EpochDiscarded
    | EpochAbandoned
    | ActionFailed
    | AttemptStopped
    | PlanChanged
    | PlanRefused
    | TimeIsUp
    | CancelRequested
    | RescaleRequested
    | SlotsCame
    | CheckpointEnded
    | Broken
)


# Effects


@dataclass(frozen=True, slots=True)
class ReportStatus:
    """Report the status of the job."""

    status: JobStatus


@dataclass(frozen=True, slots=True)
class ReportFailure:
    """Report why an attempt ended, and what follows.

    Attributes:
        restart_ms: the delay until the next attempt; None if there is none.
        reason: why there is none, or until when there will be one; may be empty.
    """

    attempt: int
    failure: BaseException
    restart_ms: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TakeCheckpoint:
    """Take a checkpoint with the next epoch, and report how it ended (`CheckpointEnded`)."""

    request: int


@dataclass(frozen=True, slots=True)
class ReportRescale:
    """Report that the job will get another plan, and why; an `AnswerRescale` follows.

    ``wanted``: the plan that the job would have with enough task slots.
    """

    request: int
    cause: Cause
    plan: Plan = field(repr=False)
    wanted: Plan = field(repr=False)


@dataclass(frozen=True, slots=True)
class AnswerRescale:
    """Report to the caller and to the history that the job runs with the new plan, or why not.

    ``superseded``: another plan was requested in the meantime.
    """

    request: int
    failure: BaseException | None = None
    superseded: bool = False


# Actions


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Start an attempt: the first where the job starts, others from the last intact checkpoint."""

    number: int


@dataclass(frozen=True, slots=True)
class AwaitTurn:
    """Wait until the engine is ready for an epoch."""


@dataclass(frozen=True, slots=True)
class RunEpoch:
    """Run an epoch, from its trigger to its commit.

    Attributes:
        last: nothing is left to read; the epoch takes a checkpoint even if none is due.
        closing: nothing is read; listeners are notified and functions closed.
        again: the epoch was discarded, and runs again from the state before it.
    """

    epoch: int
    last: bool = False
    closing: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """Stop the attempt, and wait until nothing of it runs."""


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """Prepare another plan. Nothing runs."""

    plan: Plan = field(repr=False)


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for this long, and check the engine in the meantime."""

    ms: int


@dataclass(frozen=True, slots=True)
class EndJob:
    """End the job: keep or delete its checkpoints, release all resources and waiting threads."""

    outcome: Outcome
    failure: BaseException | None = None


Effect: TypeAlias = ReportStatus | ReportFailure | ReportRescale | TakeCheckpoint | AnswerRescale
Action: TypeAlias = StartAttempt | AwaitTurn | RunEpoch | StopAttempt | ChangePlan | Wait | EndJob
JobInstruction: TypeAlias = Effect | Action

#: the actions that may end with `ActionFailed`
FALLIBLE: Final = (StartAttempt, AwaitTurn, RunEpoch, Wait)
#: the actions that each event may end
ENDS: Final[dict[type, tuple[type, ...]]] = {
    AttemptStarted: (StartAttempt,),
    SlotsMissing: (StartAttempt,),
    StartAbandoned: (StartAttempt,),
    TurnCame: (AwaitTurn,),
    EpochCommitted: (RunEpoch,),
    EpochDiscarded: (RunEpoch,),
    EpochAbandoned: (RunEpoch,),
    ActionFailed: FALLIBLE,
    AttemptStopped: (StopAttempt,),
    PlanChanged: (ChangePlan,),
    PlanRefused: (ChangePlan,),
    TimeIsUp: (Wait,),
}
EPOCH_ENDS: Final = (EpochCommitted, EpochDiscarded, EpochAbandoned)
