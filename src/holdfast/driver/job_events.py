"""What the machine of a job is told, and what it tells: events and instructions.

An instruction is an effect or an action. Effects are carried out at once. There is one action at a
time, and it ends with exactly one event. Requests may come at any moment; they change what follows,
and only the wait before a restart is cut short by them.

    action          ends with
    StartAttempt    AttemptStarted, SlotsMissing, StartAbandoned, or ActionFailed
    AwaitTurn       TurnCame, or ActionFailed
    RunEpoch        EpochCommitted, EpochDiscarded, or ActionFailed
    StopAttempt     AttemptStopped
    ChangePlan      PlanChanged, or PlanRefused
    Wait            TimeIsUp, or ActionFailed; cut short by CancelRequested
    EndJob          nothing: it is the last
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from holdfast.checkpoint.events import Outcome
from holdfast.common.job_status import JobStatus
from holdfast.plan.model import Plan

__all__ = [
    "ENDS",
    "EPOCH_ENDS",
    "FALLIBLE",
    "REQUESTS",
    "Abilities",
    "Action",
    "ActionFailed",
    "AnswerRescale",
    "AttemptStarted",
    "AttemptStopped",
    "AwaitTurn",
    "Broken",
    "CancelRequested",
    "Cause",
    "ChangePlan",
    "CheckpointEnded",
    "Effect",
    "EndJob",
    "EpochAbandoned",
    "EpochCommitted",
    "EpochDiscarded",
    "JobEvent",
    "JobInstruction",
    "JobStarting",
    "JobTraits",
    "PlanChanged",
    "PlanRefused",
    "ReportFailure",
    "ReportRescale",
    "ReportStatus",
    "RescaleRequested",
    "RunEpoch",
    "SlotsCame",
    "SlotsMissing",
    "StartAbandoned",
    "StartAttempt",
    "StopAttempt",
    "TakeCheckpoint",
    "TimeIsUp",
    "TurnCame",
    "Wait",
]


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an engine can do.

    Attributes:
        reruns: run an epoch again within an attempt, from the state before it. An engine whose
            subtasks keep their state between epochs cannot: its attempt fails instead.
        resizes: run another plan of the job in the next attempt.
        keeps_state: subtasks keep their state and go on reading between epochs. Their state is
            written for checkpoints only, while the stream goes on (`Engine.stored`).
    """

    reruns: bool
    resizes: bool
    keeps_state: bool = False


@dataclass(frozen=True, slots=True)
class JobTraits:
    """What the machine has to know of a job and of what runs it.

    Attributes:
        takes_checkpoints: the job ends only when a checkpoint covers all that was read.
        closes: an epoch that reads nothing follows the last one, in which listeners hear of the
            last checkpoint, transactions are committed and functions closed.
        least_slots: with fewer task slots than that the job does not go on.
    """

    name: str
    takes_checkpoints: bool
    closes: bool
    abilities: Abilities
    least_slots: int = 1


class Cause(Enum):
    """Why a job gets another parallelism, in the words of Flink's ``triggerCause``."""

    #: somebody asked for it
    UPDATE_REQUIREMENT = "somebody asked for it"
    #: an attempt has found fewer task slots than it needs
    RECOVERABLE_FAILOVER = "there are fewer task slots"
    #: the job runs with fewer subtasks than are wanted, and there are slots for more
    NEW_RESOURCE_AVAILABLE = "there are more task slots"


# Events that end an action


@dataclass(frozen=True, slots=True)
class JobStarting:
    """The first event of a job."""


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """An attempt runs. ``epoch``: that of the checkpoint that it began with; -1 without one."""

    epoch: int = -1


@dataclass(frozen=True, slots=True)
class SlotsMissing:
    """An attempt did not start: there are fewer task slots than it needs, and it has waited.

    ``request`` tells the change of plan that may follow from others.
    """

    request: int
    needed: int
    found: int
    now: int


@dataclass(frozen=True, slots=True)
class StartAbandoned:
    """The job is cancelled, and the start of an attempt was not waited for."""


@dataclass(frozen=True, slots=True)
class TurnCame:
    """The engine is ready for an epoch."""


@dataclass(frozen=True, slots=True)
class EpochCommitted:
    """All steps of an epoch are done.

    Attributes:
        finished: all sources have ended, and nothing is left to process.
        complete: it completed a checkpoint that the job can go back to.
        stops: it completed the savepoint with which the job is to end.
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
    """The job is cancelled, and the epoch that runs was not waited for; nothing of it is kept."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ActionFailed:
    """What was to be done failed: an epoch, a start, or the engine while nothing ran.

    ``permanent``: no restart can help. ``lost``: the fault is that of a machine or a network, not
    of the job.
    """

    failure: BaseException
    now: int
    permanent: bool = False
    lost: bool = False


@dataclass(frozen=True, slots=True)
class AttemptStopped:
    """Nothing of the attempt runs any more."""


@dataclass(frozen=True, slots=True)
class PlanChanged:
    """The next attempt will run the other plan."""


@dataclass(frozen=True, slots=True)
class PlanRefused:
    """The job cannot run like that; it keeps its plan."""

    failure: BaseException


@dataclass(frozen=True, slots=True)
class TimeIsUp:
    """The wait before a restart is over."""


# Events that come at any moment


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody wants the job to end now."""


@dataclass(frozen=True, slots=True)
class RescaleRequested:
    """Somebody wants the job to go on with another plan. ``request`` tells requests apart."""

    request: int
    plan: Plan = field(repr=False)


@dataclass(frozen=True, slots=True)
class SlotsCame:
    """So many task slots are there for the job, with those that it has, and not just since now."""

    request: int
    slots: int


@dataclass(frozen=True, slots=True)
class CheckpointEnded:
    """The checkpoint that a request needs is complete, or there is none, for that reason."""

    request: int
    failure: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """The runner itself cannot go on: the job ends, whatever was being done."""

    failure: BaseException


#: what does not end an action
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
    """Let everybody know that the job is in that status."""

    status: JobStatus


@dataclass(frozen=True, slots=True)
class ReportFailure:
    """Let everybody know why an attempt ended, and what follows.

    ``restart_ms``: when the next one begins; None if there is none.
    """

    attempt: int
    failure: BaseException
    restart_ms: int | None


@dataclass(frozen=True, slots=True)
class TakeCheckpoint:
    """Take a checkpoint with the next epoch, and tell how it ended (`CheckpointEnded`)."""

    request: int


@dataclass(frozen=True, slots=True)
class ReportRescale:
    """Let everybody know that the job is to get another plan, and why; an answer follows.

    ``wanted``: the plan that the job would have if there were slots enough.
    """

    request: int
    cause: Cause
    plan: Plan = field(repr=False)
    wanted: Plan = field(repr=False)


@dataclass(frozen=True, slots=True)
class AnswerRescale:
    """Tell who asked, and everybody: the job runs with the other plan; or why it does not.

    ``superseded``: another plan was asked for in the meantime.
    """

    request: int
    failure: BaseException | None = None
    superseded: bool = False


# Actions


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Start an attempt: the first where the job begins, others from the last whole checkpoint."""

    number: int


@dataclass(frozen=True, slots=True)
class AwaitTurn:
    """Wait until the engine is ready for an epoch."""


@dataclass(frozen=True, slots=True)
class RunEpoch:
    """Run an epoch, from its trigger to its commit.

    Attributes:
        last: nothing is left to read: it carries a checkpoint, whatever the time.
        closing: nothing is read; listeners are told, functions closed.
        again: it was discarded, and runs from the state before it.
    """

    epoch: int
    last: bool = False
    closing: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """End what runs of the attempt, and wait until nothing of it does."""


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """Make everything ready for another plan; nothing runs."""

    plan: Plan = field(repr=False)


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for that long, and watch the engine meanwhile."""

    ms: int


@dataclass(frozen=True, slots=True)
class EndJob:
    """End the job: keep or drop its checkpoints, leave nothing behind, release who waits."""

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
