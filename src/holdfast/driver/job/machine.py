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

Its parts are pure as well: the course of an attempt (`holdfast.driver.job.attempt_course`), the
changes of plan (`holdfast.driver.job.plan_changes`), and the restarts
(`holdfast.driver.job.restarts`).
"""

from __future__ import annotations

from typing import Final, assert_never

from holdfast.checkpoint.events import Outcome
from holdfast.common.job_status import JobStatus
from holdfast.driver.job.attempt_course import AttemptCourse, Goal
from holdfast.driver.job.event_log import EventLog
from holdfast.driver.job.plan_changes import PlanChanges
from holdfast.driver.job.restart_policy import RestartPolicy
from holdfast.driver.job.restarts import Restarts
from holdfast.driver.job.too_few_slots import too_few
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
    ChangePlan,
    CheckpointEnded,
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
    ReportStatus,
    RescaleRequested,
    RunEpoch,
    SlotsCame,
    SlotsMissing,
    StartAbandoned,
    StartAttempt,
    StopAttempt,
    TimeIsUp,
    TurnCame,
    Wait,
)
from holdfast.errors import InternalError, JobExecutionError
from holdfast.plan.model import Plan


class JobMachine:
    """Decides what a job does next.

    Invariant: there is one action at a time, and the last is `EndJob`.

    Invariant: an attempt starts only when nothing of the previous one runs.

    Invariant: the numbers of epochs strictly increase, over attempts and plans. Consequence: files
    that a task of an earlier attempt writes late never become state.

    Invariant: a job that takes checkpoints finishes only when one covers everything it has read.

    Invariant: every change of plan is answered at the latest when the job ends.

    Attributes:
        status: the status to report.
        action: the action in progress.
        attempt: the number of the attempt.
        plans: the plans of the job, and the changes from one to another.
        log: the last events and instructions.
    """

    def __init__(self, traits: JobTraits, policy: RestartPolicy, plan: Plan) -> None:
        """Start with a job that was not started yet; ``policy`` is used until the job ends."""
        self._traits = traits
        self._restarts = Restarts(policy, traits.same_record_limit)
        self.plans = PlanChanges(traits, plan)
        self.status = JobStatus.CREATED
        self.action: Action | None = None
        self.attempt = 0
        self._course = AttemptCourse(traits)
        self._cancelled = False
        #: the missing slots at the last start
        self._missing: SlotsMissing | None = None
        #: why the attempt is being stopped, if it failed; and whether the job was cancelled before
        self._failed: ActionFailed | None = None
        self._failed_cancelling = False
        #: whether a request ended the wait before a restart; the event that ends it may still come
        self._cut_short = False
        self.log = EventLog()

    @property
    def ended(self) -> bool:
        """Return whether only the end of the job is left to be carried out."""
        return isinstance(self.action, EndJob)

    @property
    def is_closing(self) -> bool:
        """Return whether the next epoch of the attempt closes it."""
        return self._cancelled or self._course.goal is not Goal.READ

    @property
    def is_ending(self) -> bool:
        """Return whether the job ends with this attempt, without a failure."""
        heading = self._course.goal
        return self._failed is None and heading in (Goal.FINISH, Goal.STOP, Goal.CANCEL)

    def handle(self, event: JobEvent) -> list[JobInstruction]:
        """Handle an event; return the instructions to carry out now, in order.

        At most one of them, the last, is an action. Raise an InternalError, with the log as a note,
        if the event is impossible in the current state.
        """
        self.log.append(event)
        try:
            self._check(event)
            instructions = self._handle(event)
        except InternalError as error:
            self.log.add_to(error)
            raise
        if instructions and isinstance(instructions[-1], Action):
            self.action = instructions[-1]
        self.log.extend(instructions)
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
                return [self._course.committed(event, self.plans.is_covered)]
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
                in_epoch = isinstance(self.action, RunEpoch)
                return [*self.plans.checkpoint_ended(event, in_epoch)]
            case Broken():
                return [] if self.ended else self._end_failed(event.failure)
            case _:
                assert_never(event)

    # Attempts

    def _attempt_started(self, event: AttemptStarted) -> list[JobInstruction]:
        self._course.start_after(event.epoch)
        answers = self.plans.answer_started(None)
        return [*self._report(JobStatus.RUNNING), *answers, AwaitTurn()]

    def _next_attempt(self) -> StartAttempt:
        self.attempt += 1
        self._course.begin_attempt()
        self._failed = self._missing = None
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
        goal, change = self._course.goal, self.plans.rescaling
        if goal is Goal.LEAVE and not self._cancelled:
            assert change is not None
            return [*self._report(JobStatus.RESTARTING), ChangePlan(change.plan)]
        return self._end(_OUTCOMES[goal])

    # Epochs

    def _next_epoch(self) -> RunEpoch:
        if self._cancelled:
            self._course.cancel()
        return self._course.next_epoch()

    def _epoch_discarded(self, event: EpochDiscarded) -> list[JobInstruction]:
        assert isinstance(self.action, RunEpoch)
        again = self._course.again(self.action)
        if again is not None:
            return [again]
        return self._action_failed(ActionFailed(event.failure, event.now))

    def _abandoned(self) -> StopAttempt:
        """Stop the attempt of a cancelled job without the epoch in which functions are closed."""
        self._course.cancel()
        return StopAttempt()

    # Failures

    def _action_failed(self, event: ActionFailed) -> list[JobInstruction]:
        if isinstance(self.action, Wait):
            return self._end_failed(event.failure)
        self._failed, self._failed_cancelling = event, self._cancelled
        return [StopAttempt()]

    def _after_failure(self, event: ActionFailed) -> list[JobInstruction]:
        answers = self.plans.answer_covered(event.failure)
        if not self._may_restart(event):
            cancelled = self._cancelled and not self._failed_cancelling
            outcome = Outcome.CANCELLED if cancelled else Outcome.FAILED
            return [*answers, *self._end_failed(event.failure, outcome)]
        told = self._restarts.decide(event, self.attempt)
        if told.restart_ms is None:
            return [*answers, told, *self._end(Outcome.FAILED, told.failure)]
        return [*answers, told, *self._report(JobStatus.RESTARTING), Wait(told.restart_ms)]

    def _may_restart(self, event: ActionFailed) -> bool:
        """Return whether the restart policy decides at all.

        A job that never ran is not restarted: its caller gets the failure, unless a machine was
        lost at that moment. A cancelled job is not restarted either. It ends as failed if it failed
        while it was being cancelled.
        """
        started = self.status is not JobStatus.CREATED or event.lost
        return started and not event.permanent and not self._cancelled

    # Fewer task slots than before

    def _slots_missing(self, event: SlotsMissing) -> StopAttempt:
        if self._cancelled:
            return self._abandoned()
        self._missing = event
        self._failed = ActionFailed(too_few(self._traits, self.plans.wanted, event), event.now)
        self._failed_cancelling = False
        return StopAttempt()

    def _may_narrow(self) -> bool:
        """Return whether the job can continue with fewer slots at all."""
        able = self._traits.takes_checkpoints and self._traits.abilities.resizes
        return able and self._restarts.policy.restarts and self.status is not JobStatus.CREATED

    def _narrower(self) -> Plan | None:
        """Return the plan that fits the available slots, if the job should change to it."""
        if self._missing is None or self._cancelled or not self._may_narrow():
            return None
        return self.plans.fitting(self._missing)

    def _narrow(self, plan: Plan) -> list[JobInstruction]:
        assert self._missing is not None
        assert self._failed is not None
        told = self.plans.narrow(self._missing, plan, self._failed.failure)
        return [*told, *self._report(JobStatus.RESTARTING), ChangePlan(plan)]

    def _slots_came(self, event: SlotsCame) -> list[JobInstruction]:
        return [] if self.ended or self._cancelled else [*self.plans.slots_came(event)]

    # Requests

    def _cancel_requested(self) -> list[JobInstruction]:
        if self.ended or self._cancelled:
            return []
        self._cancelled = True
        report = self._report(JobStatus.CANCELLING)
        self._cut_short = isinstance(self.action, Wait)
        return [*report, *self._end(Outcome.CANCELLED)] if self._cut_short else report

    def _rescale_requested(self, event: RescaleRequested) -> list[JobInstruction]:
        problem = "has ended" if self.ended else self.plans.problem()
        if problem is not None:
            refused = JobExecutionError(f"job '{self._traits.name}' {problem}")
            return [AnswerRescale(event.request, refused)]
        return [*self.plans.request(event)]

    def _plan_changed(self) -> list[JobInstruction]:
        self.plans.put_in_place()
        return self._go_on()

    def _plan_refused(self, event: PlanRefused) -> list[JobInstruction]:
        if self.plans.narrowing is None:
            return [*self.plans.answer(event.failure), *self._go_on()]
        assert self._failed is not None
        answers = self.plans.answer_narrowing(event.failure)
        return [*answers, *self._after_failure(ActionFailed(event.failure, self._failed.now))]

    # The end

    def _end_failed(
        self, failure: BaseException, outcome: Outcome = Outcome.FAILED, reason: str = ""
    ) -> list[JobInstruction]:
        """End the job with a failed attempt that is not followed by another."""
        error = failure if outcome is Outcome.FAILED else None
        return [ReportFailure(self.attempt, failure, None, reason), *self._end(outcome, error)]

    def _end(self, outcome: Outcome, failure: BaseException | None = None) -> list[JobInstruction]:
        ended = JobExecutionError(f"job '{self._traits.name}' has ended before it was rescaled")
        self.status = STATUSES[outcome]
        return [*self.plans.answer_all(ended), EndJob(outcome, failure)]

    def _report(self, status: JobStatus) -> list[JobInstruction]:
        """Report a status; a cancelled job stays CANCELLING until it ends."""
        wanted = JobStatus.CANCELLING if self._cancelled else status
        if wanted is self.status:
            return []
        self.status = wanted
        return [ReportStatus(wanted)]


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
