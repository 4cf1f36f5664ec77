"""The life of a job: a state machine with events in, instructions out.

It has no clock, no thread, no file and no Spark. A runner passes events to it and carries out its
instructions (`holdfast.driver.job.runner`); an engine runs the epochs (`holdfast.driver.engine`).

    start ─► await turn ◄─► run epoch ─► stop ─┬─► end
      ▲                                        ├─► change plan ─┐
      │                                        └─► wait ────────┤
      └─────────────────────────────────────────────────────────┘

An attempt reads until it has a goal: to finish, to stop with a savepoint, to change to another
plan, or to be cancelled. Then a closing epoch follows, and the attempt is stopped. A failure stops
it as well; the restart policy then decides what follows.

Too few task slots are no failure if the job can continue with fewer. It then continues with a plan
that fits. When there are enough slots again, it takes a checkpoint and returns to the wanted plan.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

from holdfast.checkpoint.events import Outcome
from holdfast.common.job_status import JobStatus
from holdfast.datastream.engines import needed_slots
from holdfast.driver.job.repeated_failures import RepeatedFailures, repeated
from holdfast.driver.job.rescaling import fitting, too_few
from holdfast.driver.job.restart_policy import GiveUp, RestartPolicy
from holdfast.driver.job_events import (
    ENDS,
    EPOCH_ENDS,
    REQUESTS,
    Action,
    ActionFailed,
    AnswerRescale,
    AttemptStarted,
    AttemptStopped,
    AwaitTurn,
    Broken,
    CancelRequested,
    Cause,
    ChangePlan,
    CheckpointEnded,
    Effect,
    EndJob,
    EpochAbandoned,
    EpochCommitted,
    EpochDiscarded,
    JobEvent,
    JobInstruction,
    JobStarting,
    JobTraits,
    PlanChanged,
    PlanRefused,
    ReportFailure,
    ReportRescale,
    ReportStatus,
    RescaleRequested,
    RunEpoch,
    SlotsCame,
    SlotsMissing,
    StartAbandoned,
    StartAttempt,
    StopAttempt,
    TakeCheckpoint,
    TimeIsUp,
    TurnCame,
    Wait,
)
from holdfast.errors import InternalError, JobExecutionError
from holdfast.plan.model import Plan

#: maximum number of runs of an epoch whose subtasks do not agree
_TRIES: Final = 4
#: how many events and instructions are kept for the message of an internal error
_LOGGED: Final = 1000
_TITLE: Final = "Last events and instructions of the job:"
#: maximum length of each of them in the message
_LONGEST: Final = 500


class Goal(Enum):
    """What an attempt is heading for."""

    READ = "read on"
    FINISH = "finish"
    STOP = "stop with a savepoint"
    LEAVE = "leave for another plan"
    CANCEL = "be cancelled"


@dataclass(slots=True)
class _Rescaling:
    """A change of plan.

    Attributes:
        by_user: a user requested it, so the plan becomes the wanted one.
        covered: the checkpoint from which the job will continue is complete.
        changed: the new plan is in place.
    """

    request: int
    plan: Plan
    by_user: bool = True
    covered: bool = False
    changed: bool = False


class JobMachine:
    """Decides what a job does next.

    Invariant: there is one action at a time, and the last is `EndJob`.

    Invariant: an attempt starts only when nothing of the previous one runs.

    Invariant: the numbers of epochs strictly increase, over attempts and plans. Consequence: files
    that a task of an earlier attempt writes late never become state.

    Invariant: a job that takes checkpoints finishes only when one covers everything it has read.

    Invariant: every request for another plan is answered once, at the latest when the job ends. So
    is every change of plan that the machine itself decides on.

    Invariant: a plan with fewer subtasks than wanted is derived from the wanted plan. Consequence:
    a job that lost slots more than once returns to the plan that it had before the first loss.

    Attributes:
        status: the status to report.
        action: the action in progress.
        attempt: the number of the attempt.
        plan: the plan that runs, or will run with the next attempt.
        wanted: the plan that would run with enough task slots.
    """

    def __init__(self, traits: JobTraits, policy: RestartPolicy, plan: Plan) -> None:
        """Start with a job that was not started yet; ``policy`` is used until the job ends."""
        self._traits = traits
        self._policy = policy
        self.plan = self.wanted = plan
        self.status = JobStatus.CREATED
        self.action: Action | None = None
        self.attempt = 0
        self._goal = Goal.READ
        self._cancelled = False
        self._rescaling: _Rescaling | None = None
        #: the missing slots at the last start; and the change to a plan that fits, until it runs
        self._missing: SlotsMissing | None = None
        self._narrowing: _Rescaling | None = None
        #: why the attempt is being stopped, if it failed; and whether the job was cancelled before
        self._failed: ActionFailed | None = None
        self._failed_cancelling = False
        self._repeats = RepeatedFailures(traits.same_record_limit)
        self._finished = False
        #: the last epoch that was started, in any attempt
        self._epoch = -1
        self._tries = 0
        #: whether a request ended the wait before a restart; the event that ends it may still come
        self._cut_short = False
        self._log: deque[JobEvent | JobInstruction] = deque(maxlen=_LOGGED)

    @property
    def ended(self) -> bool:
        """Return whether only the end of the job is left to be carried out."""
        return isinstance(self.action, EndJob)

    @property
    def is_reduced(self) -> bool:
        """Return whether the job has fewer subtasks than are wanted."""
        return self.plan is not self.wanted

    @property
    def is_closing(self) -> bool:
        """Return whether the next epoch of the attempt closes it."""
        return self._cancelled or self._goal is not Goal.READ

    @property
    def is_ending(self) -> bool:
        """Return whether the job ends with this attempt, without a failure."""
        return self._failed is None and self._goal in (Goal.FINISH, Goal.STOP, Goal.CANCEL)

    @property
    def log(self) -> tuple[JobEvent | JobInstruction, ...]:
        """Return the last events and instructions, oldest first."""
        return tuple(self._log)

    def add_log_to(self, error: BaseException) -> None:
        """Add the log to an error as a note, unless it has it already."""
        if not any(note.startswith(_TITLE) for note in getattr(error, "__notes__", ())):
            error.add_note("\n".join([_TITLE, *(repr(entry)[:_LONGEST] for entry in self._log)]))

    def handle(self, event: JobEvent) -> list[JobInstruction]:
        """Handle an event; return the instructions to carry out now, in order.

        At most one of them, the last, is an action. Raise an InternalError, with the log as a note,
        if the event is impossible in the current state.
        """
        self._log.append(event)
        try:
            self._check(event)
            instructions = self._handle(event)
        except InternalError as error:
            self.add_log_to(error)
            raise
        if instructions and isinstance(instructions[-1], Action):
            self.action = instructions[-1]
        self._log.extend(instructions)
        return instructions

    def _check(self, event: JobEvent) -> None:
        if isinstance(event, REQUESTS):
            return
        if self._cut_short and isinstance(event, TimeIsUp | ActionFailed):
            return
        expected = ENDS.get(type(event))
        fits = self.action is None if expected is None else isinstance(self.action, expected)
        if isinstance(event, EPOCH_ENDS) and isinstance(self.action, RunEpoch):
            fits = event.epoch == self.action.epoch
        if isinstance(event, EpochAbandoned | StartAbandoned):
            fits = fits and self._cancelled
        if not fits:
            raise InternalError(f"{event} while {self.action} is carried out")

    def _handle(self, event: JobEvent) -> list[JobInstruction]:
        if self._cut_short and not isinstance(event, REQUESTS):
            return []
        match event:
            case JobStarting():
                return [StartAttempt(0)]
            case AttemptStarted():
                return self._attempt_started(event)
            case TurnCame():
                return [self._next_epoch()]
            case EpochCommitted():
                return [self._epoch_committed(event)]
            case EpochDiscarded():
                return self._epoch_discarded(event)
            case EpochAbandoned() | StartAbandoned():
                return [self._abandoned()]
            case SlotsMissing():
                return [self._slots_missing(event)]
            case ActionFailed():
                return self._action_failed(event)
            case AttemptStopped():
                return self._attempt_stopped()
            case PlanChanged():
                return self._plan_changed()
            case PlanRefused():
                return self._plan_refused(event)
            case TimeIsUp():
                return [self._next_attempt()]
            case CancelRequested():
                return self._cancel_requested()
            case RescaleRequested():
                return self._rescale_requested(event)
            case SlotsCame():
                return self._slots_came(event)
            case CheckpointEnded():
                return self._checkpoint_ended(event)
            case Broken():
                return self._broken(event)
            case _:
                assert_never(event)

    # Attempts

    def _attempt_started(self, event: AttemptStarted) -> list[JobInstruction]:
        self._epoch = max(self._epoch, event.epoch)
        answers = self._answer_narrowing(None)
        answers += self._answer(None) if self._plan_is_changed else []
        return [*self._report(JobStatus.RUNNING), *answers, AwaitTurn()]

    def _next_attempt(self) -> StartAttempt:
        self.attempt += 1
        self._goal, self._failed, self._finished = Goal.READ, None, False
        self._missing = None
        return StartAttempt(self.attempt)

    def _go_on(self) -> list[JobInstruction]:
        """Continue after a change of plan, unless the job was cancelled in the meantime."""
        return self._end(Outcome.CANCELLED) if self._cancelled else [self._next_attempt()]

    def _attempt_stopped(self) -> list[JobInstruction]:
        narrower = self._narrower()
        if narrower is not None:
            return self._narrow(narrower)
        if self._failed is not None:
            return self._after_failure(self._failed)
        if self._goal is Goal.LEAVE and not self._cancelled:
            assert self._rescaling is not None
            return [*self._report(JobStatus.RESTARTING), ChangePlan(self._rescaling.plan)]
        return self._end(_OUTCOMES[self._goal])

    # Epochs

    def _next_epoch(self) -> RunEpoch:
        if self._cancelled and self._goal is Goal.READ:
            self._goal = Goal.CANCEL
        self._epoch += 1
        self._tries = 1
        closing = self._goal is not Goal.READ
        return RunEpoch(self._epoch, last=self._finished and not closing, closing=closing)

    def _epoch_committed(self, event: EpochCommitted) -> Action:
        if self._goal is not Goal.READ:
            return StopAttempt()
        self._finished = event.finished
        self._goal = self._new_goal(event)
        if self._goal is Goal.FINISH and not self._traits.closes:
            return StopAttempt()
        return AwaitTurn()

    def _new_goal(self, event: EpochCommitted) -> Goal:
        if event.stops:
            return Goal.STOP
        if event.finished and (event.complete or not self._traits.takes_checkpoints):
            return Goal.FINISH
        covered = self._rescaling is not None and self._rescaling.covered
        return Goal.LEAVE if covered else Goal.READ

    def _epoch_discarded(self, event: EpochDiscarded) -> list[JobInstruction]:
        if self._traits.abilities.reruns and self._tries < _TRIES:
            self._tries += 1
            assert isinstance(self.action, RunEpoch)
            return [RunEpoch(event.epoch, self.action.last, self.action.closing, again=True)]
        return self._action_failed(ActionFailed(event.failure, event.now))

    def _abandoned(self) -> StopAttempt:
        """Stop the attempt of a cancelled job without the epoch in which functions are closed."""
        if self._goal is Goal.READ:
            self._goal = Goal.CANCEL
        return StopAttempt()

    # Failures

    def _action_failed(self, event: ActionFailed) -> list[JobInstruction]:
        if isinstance(self.action, Wait):
            return self._end_failed(event.failure)
        self._failed, self._failed_cancelling = event, self._cancelled
        return [StopAttempt()]

    def _after_failure(self, event: ActionFailed) -> list[JobInstruction]:
        answers = self._answer_if_covered(event.failure)
        if not self._may_restart(event):
            cancelled = self._cancelled and not self._failed_cancelling
            outcome = Outcome.CANCELLED if cancelled else Outcome.FAILED
            return [*answers, *self._end_failed(event.failure, outcome)]
        decision = self._policy.on_failure(event.now)
        count = self._repeats.count(event.place, event.checkpoint)
        if isinstance(decision, GiveUp):
            return [*answers, *self._end_failed(event.failure, reason=decision.reason)]
        if self._repeats.is_too_often(count):
            failure, reason = repeated(event.failure, count), self._repeats.note(count)
            return [*answers, *self._end_failed(failure, reason=reason)]
        return [
            *answers,
            ReportFailure(
                self.attempt, event.failure, decision.after_ms, self._repeats.note(count)
            ),
            *self._report(JobStatus.RESTARTING),
            Wait(decision.after_ms),
        ]

    def _may_restart(self, event: ActionFailed) -> bool:
        """Return whether the restart policy decides at all.

        A job that never ran is not restarted: its caller gets the failure, unless a machine was
        lost at that moment. A cancelled job is not restarted either. It ends as failed if it failed
        while it was being cancelled.
        """
        started = self.status is not JobStatus.CREATED or event.lost
        return started and not event.permanent and not self._cancelled

    def _answer_if_covered(self, failure: BaseException) -> list[Effect]:
        """Abandon a change of plan whose checkpoint is complete, but whose plan is not in place."""
        leaving = self._rescaling is not None and self._rescaling.covered
        return self._answer(failure) if leaving and not self._plan_is_changed else []

    # Fewer task slots than before

    def _slots_missing(self, event: SlotsMissing) -> StopAttempt:
        if self._cancelled:
            return self._abandoned()
        self._missing = event
        self._failed = ActionFailed(too_few(self._traits, self.wanted, event), event.now)
        self._failed_cancelling = False
        return StopAttempt()

    def _may_narrow(self) -> bool:
        """Return whether the job can continue with fewer slots at all."""
        able = self._traits.takes_checkpoints and self._traits.abilities.resizes
        return able and self._policy.restarts and self.status is not JobStatus.CREATED

    def _narrower(self) -> Plan | None:
        """Return the plan that fits the available slots, if the job should change to it."""
        missing = self._missing
        if missing is None or self._cancelled or not self._may_narrow():
            return None
        enough = missing.found >= self._traits.least_slots
        return fitting(self.wanted, missing.found) if enough else None

    def _narrow(self, plan: Plan) -> list[JobInstruction]:
        assert self._missing is not None
        assert self._failed is not None
        request, failure = self._missing.request, self._failed.failure
        answers = self._answer_narrowing(failure)
        answers += self._answer(failure) if self._plan_is_changed else []
        self._narrowing = _Rescaling(request, plan, by_user=False)
        told = ReportRescale(request, Cause.RECOVERABLE_FAILOVER, plan, self.wanted)
        return [*answers, told, *self._report(JobStatus.RESTARTING), ChangePlan(plan)]

    def _slots_came(self, event: SlotsCame) -> list[JobInstruction]:
        busy = self.ended or self._cancelled or self._rescaling is not None
        if busy or not self.is_reduced:
            return []
        wider = fitting(self.wanted, event.slots)
        if wider is None or needed_slots(wider) <= needed_slots(self.plan):
            return []
        self._rescaling = _Rescaling(event.request, wider, by_user=False)
        told = ReportRescale(event.request, Cause.NEW_RESOURCE_AVAILABLE, wider, self.wanted)
        return [told, TakeCheckpoint(event.request)]

    # Requests

    def _cancel_requested(self) -> list[JobInstruction]:
        if self.ended or self._cancelled:
            return []
        self._cancelled = True
        report = self._report(JobStatus.CANCELLING)
        self._cut_short = isinstance(self.action, Wait)
        return [*report, *self._end(Outcome.CANCELLED)] if self._cut_short else report

    def _rescale_requested(self, event: RescaleRequested) -> list[JobInstruction]:
        problem = self._rescale_problem()
        if problem is not None:
            refused = JobExecutionError(f"job '{self._traits.name}' {problem}")
            return [AnswerRescale(event.request, refused)]
        superseded = self._answer(_SUPERSEDED, superseded=True)
        self._rescaling = _Rescaling(event.request, event.plan)
        told = ReportRescale(event.request, Cause.UPDATE_REQUIREMENT, event.plan, event.plan)
        return [*superseded, told, TakeCheckpoint(event.request)]

    def _rescale_problem(self) -> str | None:
        if self.ended:
            return "has ended"
        if self._rescaling is not None and (self._rescaling.by_user or self._rescaling.covered):
            return "is being rescaled already"
        if not self._traits.abilities.resizes:
            return "cannot be rescaled while it runs; stop it with a savepoint and start it again"
        return None

    def _checkpoint_ended(self, event: CheckpointEnded) -> list[JobInstruction]:
        if self._rescaling is None or self._rescaling.request != event.request:
            return []
        if event.failure is not None:
            return [*self._answer(event.failure)]
        if not isinstance(self.action, RunEpoch):
            # records that were read since then would be read again by the next attempt
            return [TakeCheckpoint(event.request)]
        self._rescaling.covered = True
        return []

    @property
    def _plan_is_changed(self) -> bool:
        return self._rescaling is not None and self._rescaling.changed

    def _plan_changed(self) -> list[JobInstruction]:
        change = self._narrowing or self._rescaling
        assert change is not None
        change.changed = True
        self.plan = change.plan
        if change.by_user:
            self.wanted = change.plan
        return self._go_on()

    def _plan_refused(self, event: PlanRefused) -> list[JobInstruction]:
        if self._narrowing is None:
            return [*self._answer(event.failure), *self._go_on()]
        assert self._failed is not None
        answers = self._answer_narrowing(event.failure)
        return [*answers, *self._after_failure(ActionFailed(event.failure, self._failed.now))]

    def _answer(self, failure: BaseException | None, superseded: bool = False) -> list[Effect]:
        """Answer the pending request for another plan, if there is one."""
        rescaling, self._rescaling = self._rescaling, None
        return [] if rescaling is None else [AnswerRescale(rescaling.request, failure, superseded)]

    def _answer_narrowing(self, failure: BaseException | None) -> list[Effect]:
        """Report the result of the change to fewer slots, if there is one."""
        narrowing, self._narrowing = self._narrowing, None
        return [] if narrowing is None else [AnswerRescale(narrowing.request, failure)]

    # The end

    def _broken(self, event: Broken) -> list[JobInstruction]:
        if self.ended:
            return []
        return self._end_failed(event.failure)

    def _end_failed(
        self, failure: BaseException, outcome: Outcome = Outcome.FAILED, reason: str = ""
    ) -> list[JobInstruction]:
        """End the job with a failed attempt that is not followed by another."""
        error = failure if outcome is Outcome.FAILED else None
        return [ReportFailure(self.attempt, failure, None, reason), *self._end(outcome, error)]

    def _end(self, outcome: Outcome, failure: BaseException | None = None) -> list[JobInstruction]:
        ended = JobExecutionError(f"job '{self._traits.name}' has ended before it was rescaled")
        self.status = STATUSES[outcome]
        return [*self._answer_narrowing(ended), *self._answer(ended), EndJob(outcome, failure)]

    def _report(self, status: JobStatus) -> list[JobInstruction]:
        """Report a status; a cancelled job stays CANCELLING until it ends."""
        wanted = JobStatus.CANCELLING if self._cancelled else status
        if wanted is self.status:
            return []
        self.status = wanted
        return [ReportStatus(wanted)]


_SUPERSEDED: Final = JobExecutionError("another parallelism was requested in the meantime")
_OUTCOMES: Final = {
    Goal.FINISH: Outcome.FINISHED,
    Goal.STOP: Outcome.STOPPED,
    Goal.CANCEL: Outcome.CANCELLED,
    Goal.LEAVE: Outcome.CANCELLED,
}
#: Flink's status for each outcome
STATUSES: Final = {
    Outcome.FINISHED: JobStatus.FINISHED,
    Outcome.STOPPED: JobStatus.FINISHED,
    Outcome.CANCELLED: JobStatus.CANCELED,
    Outcome.FAILED: JobStatus.FAILED,
}
