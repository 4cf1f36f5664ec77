"""Any order of outcomes and requests that a runner can produce keeps the promises of a job."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from holdfast.checkpoint.events import Outcome
from holdfast.common.job_status import JobStatus
from holdfast.common.restart_strategy import RestartStrategies
from holdfast.datastream.engines import needed_slots
from holdfast.driver.job.machine import JobMachine
from holdfast.driver.job.repeated_failures import place_of
from holdfast.driver.job.restart_policy import make_policy
from holdfast.driver.job.too_few_slots import fitting
from holdfast.driver.job_events import (
    Abilities,
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
    EndJob,
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
from holdfast.errors import JobExecutionError, RepeatedFailureError, UserFunctionError
from holdfast.plan.model import Plan
from tests.driver.job_rules import validate
from tests.driver.plans import planned

TRAITS = st.builds(
    JobTraits,
    name=st.just("job"),
    takes_checkpoints=st.sampled_from([True, True, True, False]),
    closes=st.booleans(),
    abilities=st.builds(Abilities, st.booleans(), st.sampled_from([True, True, False])),
    least_slots=st.sampled_from([1, 1, 2, 3]),
    same_record_limit=st.sampled_from([0, 1, 2, 3]),
)
#: mostly things go well, and mostly nothing ends
SELDOM = st.sampled_from([False] * 14 + [True])
OFTEN = st.sampled_from([True, True, False])
ENDS = {
    Outcome.FINISHED: JobStatus.FINISHED,
    Outcome.STOPPED: JobStatus.FINISHED,
    Outcome.CANCELLED: JobStatus.CANCELED,
    Outcome.FAILED: JobStatus.FAILED,
}
FOUR = planned(4, source=2)
#: failures on two records
BAD = {record: UserFunctionError("parse", 0, record, "ValueError: bad", "") for record in "xy"}
#: the delay before each restart
DELAY = 10
#: how often an epoch is run in all
RUNS = 4
#: the actions from a cancel to the end, at most, if all go well: change of plan, start, turn,
#: closing epoch, stop
LONGEST_END = 5


@dataclass
class Attempt:
    """What happened in an attempt."""

    runs: bool = False
    #: all sources have ended; and a checkpoint covers that
    finished: bool = False
    covered: bool = False
    #: the savepoint is complete with which the job is to stop
    stops: bool = False
    #: its closing epoch was begun
    closing: bool = False
    failure: BaseException | None = None
    permanent: bool = False
    #: the record it failed on, and how many checkpoints were complete then
    record: tuple[str, int] | None = None
    #: the job was being cancelled when it failed
    cancelling: bool = False
    #: the slots that it found, if they were too few
    found: int | None = None
    #: its start was not waited for
    abandoned: bool = False
    stopped: bool = False


@dataclass
class Rescale:
    """What happened to a change of plan: somebody asked for it, or slots have come or gone."""

    plan: Plan
    cause: Cause = Cause.UPDATE_REQUIREMENT
    #: everybody was told of it
    told: bool = False
    #: what it was answered with
    answers: list[BaseException | None] = field(default_factory=list)
    #: a checkpoint was asked for; it is complete; an epoch ended after that; there is none
    taken: bool = False
    complete: bool = False
    seen: bool = False
    failed: bool = False
    #: its plan is in place
    in_place: bool = False

    @property
    def asks(self) -> bool:
        """Whether it has yet to hear of its checkpoint."""
        return self.taken and not self.complete and not self.failed

    @property
    def is_in_the_way(self) -> bool:
        """Whether nobody else may ask for another plan."""
        narrowing = self.cause is Cause.RECOVERABLE_FAILOVER
        by_user = self.cause is Cause.UPDATE_REQUIREMENT
        return not self.answers and not narrowing and (by_user or self.complete)

    @property
    def may_leave(self) -> bool:
        """Whether the job may end its attempt for it; after an epoch it has to."""
        return self.complete and not self.answers


class Job(RuleBasedStateMachine):
    """A runner without work: it makes up what comes of each action."""

    @initialize(
        traits=TRAITS, restarts=st.integers(0, 4), patience=st.sampled_from([1, 1, 2, 4, 8])
    )
    def make(self, traits: JobTraits, restarts: int, patience: int) -> None:
        self.traits, self.restarts = traits, restarts
        #: how many actions lie between two disturbances, and how many since the last
        self.patience, self.calm = patience, 0
        strategy = RestartStrategies.fixed_delay_restart(restarts, DELAY)
        self.it = JobMachine(traits, make_policy(strategy), FOUR)
        self.wanted = self.plan = FOUR
        self.now = 0
        self.action: Action | None = None
        self.attempts: list[Attempt] = []
        self.changes = 0
        #: the last epoch that was begun or restored, and how often it was run
        self.epoch, self.runs = -1, 0
        self.rescales: list[Rescale] = []
        self.status = JobStatus.CREATED
        self.cancelled = self.broken = False
        #: all that went wrong
        self.failures: list[BaseException] = []
        #: how many checkpoints are complete; how often each record failed since
        self.complete = 0
        self.bad: Counter[tuple[str, int]] = Counter()

    @precondition(lambda self: self.ended)
    @rule(traits=TRAITS, restarts=st.integers(0, 4), patience=st.integers(1, 8))
    def make_another(self, traits: JobTraits, restarts: int, patience: int) -> None:
        """Ask for all that can be asked when it is too late; then begin with another job."""
        self.ask_for_another_plan()
        self.cancel(late=False)
        self.break_down()
        while any(rescale.asks for rescale in self.rescales):
            self.end_checkpoint(fails=True)
        self.make(traits, restarts, patience)

    @property
    def ended(self) -> bool:
        return isinstance(self.action, EndJob)

    # What comes of an action

    @precondition(lambda self: not self.ended)
    @rule(back=st.integers(0, 3), finishes=SELDOM, completes=OFTEN, stops=SELDOM)
    def go_well(self, back: int, finishes: bool, completes: bool, stops: bool) -> None:
        self.calm += 1
        match self.action:
            case None:
                self.do(JobStarting())
            case StartAttempt(number):
                self.start_attempt(5 if number == 0 else max(-1, self.epoch - back))
            case AwaitTurn():
                self.do(TurnCame())
            case RunEpoch():
                self.commit_epoch(finishes, completes, stops)
            case StopAttempt():
                self.attempts[-1].stopped = True
                self.do(AttemptStopped())
            case ChangePlan(plan):
                change = self.open_rescale(plan)
                change.in_place = True
                self.plan = plan
                if change.cause is Cause.UPDATE_REQUIREMENT:
                    self.wanted = plan
                self.do(PlanChanged())
            case Wait(ms):
                self.now += ms
                self.do(TimeIsUp())

    def start_attempt(self, restored: int) -> None:
        self.attempts[-1].runs = True
        self.epoch = max(self.epoch, restored)
        self.do(AttemptStarted(restored))
        # who asked for the plan knows by now
        assert all(rescale.answers == [None] for rescale in self.rescales if rescale.in_place)

    def commit_epoch(self, finishes: bool, completes: bool, stops: bool) -> None:
        assert isinstance(self.action, RunEpoch)
        epoch, attempt = self.action, self.attempts[-1]
        # a closing epoch reads nothing, and carries no checkpoint
        finishes, stops = finishes and not epoch.closing, stops and not epoch.closing
        complete = completes and self.traits.takes_checkpoints and not epoch.closing
        self.complete += complete
        for number, rescale in enumerate(self.rescales):
            if complete and rescale.asks:
                rescale.complete = True
                self.do(CheckpointEnded(number))
            rescale.seen = rescale.complete
        attempt.finished = attempt.finished or finishes
        attempt.stops = attempt.stops or stops
        attempt.covered = attempt.covered or (complete and attempt.finished)
        self.do(EpochCommitted(epoch.epoch, attempt.finished, complete, stops))

    @precondition(lambda self: self.calm >= self.patience and not self.ended)
    @rule(data=st.data(), after=st.integers(0, 9))
    def go_wrong(self, data: st.DataObject, after: int) -> None:
        self.now += after
        match self.action:
            case StartAttempt():
                data.draw(st.sampled_from([self.fail, self.miss_slots]))(data)
            case AwaitTurn():
                self.fail(data)
            case RunEpoch():
                data.draw(st.sampled_from([self.fail, self.discard_epoch]))(data)
            case ChangePlan(plan):
                rescale, failure = self.open_rescale(plan), JobExecutionError("too wide")
                if rescale.cause is Cause.RECOVERABLE_FAILOVER:
                    self.failures.append(failure)
                self.do(PlanRefused(failure))
                assert rescale.answers == [failure]
            case Wait():
                self.failures.append(JobExecutionError("the engine is dead"))
                self.do(ActionFailed(self.failures[-1], self.now))
                assert self.ended
            case _:
                return
        self.calm = 0

    def fail(self, data: st.DataObject) -> None:
        attempt = self.attempts[-1]
        record = data.draw(st.sampled_from([None, "x", "x", "y"]))
        failure = JobExecutionError("it failed") if record is None else BAD[record]
        self.failures.append(failure)
        attempt.failure, attempt.permanent = failure, not data.draw(st.integers(0, 3))
        attempt.cancelling = self.cancelled
        if record is not None:
            attempt.record = record, self.complete
            self.bad[attempt.record] += 1
        place = place_of(failure)
        self.do(ActionFailed(failure, self.now, attempt.permanent, False, place, self.complete))

    @precondition(lambda self: self.is_reading and self.traits.takes_checkpoints)
    @rule(data=st.data())
    def lose_a_host(self, data: st.DataObject) -> None:
        """Its slots are lost, and the next attempt does not find others."""
        self.attempts[-1].failure = JobExecutionError("a slot is lost")
        self.failures.append(self.attempts[-1].failure)
        self.do(ActionFailed(self.failures[-1], self.now))
        while isinstance(self.action, StopAttempt | Wait):
            self.go_well(back=1, finishes=False, completes=False, stops=False)
        if isinstance(self.action, StartAttempt):
            self.miss_slots(data)

    @property
    def is_reading(self) -> bool:
        return isinstance(self.action, AwaitTurn | RunEpoch) and not self.cancelled

    def miss_slots(self, data: st.DataObject) -> None:
        attempt, needed = self.attempts[-1], needed_slots(self.plan)
        attempt.found = data.draw(st.integers(0, needed - 1))
        attempt.abandoned = self.cancelled
        if attempt.abandoned and data.draw(st.booleans()):
            self.do(StartAbandoned())
            return
        self.rescales.append(Rescale(self.plan, Cause.RECOVERABLE_FAILOVER))
        number = len(self.rescales) - 1
        attempt.failure = None if attempt.abandoned else JobExecutionError("too few slots")
        self.do(SlotsMissing(number, needed, attempt.found, self.now))
        if self.it._failed is not None:
            attempt.failure = self.it._failed.failure
            self.failures.append(attempt.failure)

    def discard_epoch(self, data: st.DataObject) -> None:
        for _ in range(data.draw(st.sampled_from([1, RUNS]))):
            assert isinstance(self.action, RunEpoch)
            again = self.traits.abilities.reruns and self.runs < RUNS
            failure = JobExecutionError("they disagree")
            if not again:
                self.failures.append(failure)
                self.attempts[-1].failure = failure
                self.attempts[-1].cancelling = self.cancelled
            self.do(EpochDiscarded(self.action.epoch, failure, self.now))
            assert isinstance(self.action, RunEpoch) == again
            if not again:
                break

    # What comes at any moment

    @precondition(lambda self: self.calm >= self.patience and not self.ended)
    @rule()
    def ask_for_another_plan(self) -> None:
        self.calm = 0
        free = not any(rescale.is_in_the_way for rescale in self.rescales)
        accepts = free and not self.ended and self.traits.abilities.resizes
        number = len(self.rescales)
        rescale = Rescale(replace(planned(1 + number % 5), name=f"plan {number}"))
        self.rescales.append(rescale)
        self.do(RescaleRequested(len(self.rescales) - 1, rescale.plan))
        assert rescale.taken == accepts
        assert bool(rescale.answers) == (not accepts)

    @precondition(lambda self: self.calm >= self.patience and not self.ended)
    @rule(slots=st.integers(0, 6))
    def see_slots(self, slots: int) -> None:
        """There are slots that the job does not have."""
        free = not any(r.told and not r.answers and not r.in_place for r in self.rescales)
        free = free and all(r.answers for r in self.rescales if r.told)
        wider = fitting(self.wanted, slots)
        grows = wider is not None and needed_slots(wider) > needed_slots(self.plan)
        reduced = self.plan is not self.wanted
        self.rescales.append(Rescale(self.wanted, Cause.NEW_RESOURCE_AVAILABLE))
        self.do(SlotsCame(len(self.rescales) - 1, slots))
        told = self.rescales[-1].told
        assert not told or (reduced and grows and not self.cancelled)
        assert told or not (reduced and grows and free and not self.cancelled)
        if told:
            assert needed_slots(self.rescales[-1].plan) <= slots

    @precondition(lambda self: any(r.asks for r in self.rescales) and not self.ended)
    @rule(fails=SELDOM)
    def end_checkpoint(self, fails: bool) -> None:
        """A checkpoint cannot be; or it is complete, perhaps too late to leave from it."""
        number = [rescale.asks for rescale in self.rescales].index(True)
        rescale = self.rescales[number]
        rescale.failed = fails or not self.traits.takes_checkpoints
        rescale.complete = isinstance(self.action, RunEpoch) and not rescale.failed
        rescale.taken = rescale.complete or rescale.failed
        failure = JobExecutionError("no checkpoint") if rescale.failed else None
        answers = rescale.answers or ([failure] if rescale.failed else [])
        self.do(CheckpointEnded(number, failure))
        assert rescale.answers == answers
        assert rescale.taken or rescale.answers  # another one is taken for it

    @precondition(lambda self: self.calm >= self.patience and not self.ended)
    @rule(late=st.booleans())
    def cancel(self, late: bool) -> None:
        self.calm = 0
        waits = isinstance(self.action, Wait)
        self.cancelled = self.cancelled or not self.ended
        self.do(CancelRequested())
        if waits and late:
            # the runner had waited, and did not know
            self.do(TimeIsUp())

    @precondition(lambda self: self.cancelled and not self.ended)
    @rule()
    def hurry(self) -> None:
        """A job that is cancelled ends soon, if nothing goes wrong any more."""
        actions = 0
        while not self.ended:
            actions += self.action is not None
            assert actions <= LONGEST_END
            self.go_well(back=0, finishes=False, completes=False, stops=False)

    @precondition(lambda self: self.calm >= 3 * self.patience and not self.ended)
    @rule()
    def break_down(self) -> None:
        self.broken = self.broken or not self.ended
        self.failures.append(JobExecutionError("the thread is dead"))
        self.do(Broken(self.failures[-1]))
        assert self.ended

    # What the runner is told

    def do(self, event: JobEvent) -> None:
        """Tell the machine of an event, and look at what it says."""
        ended, cut = self.ended, isinstance(self.action, Wait)
        asking = [rescale for rescale in self.rescales if rescale.asks and not rescale.answers]
        instructions = self.it.handle(event)
        validate(self.it)
        actions = [instruction for instruction in instructions if isinstance(instruction, Action)]
        match event:
            case CancelRequested():
                assert len(actions) == cut
            case Broken():
                assert len(actions) == (not ended)
            case RescaleRequested() | SlotsCame() | CheckpointEnded():
                assert not actions
            case _:
                assert len(actions) == (not ended)
        assert actions == instructions[len(instructions) - len(actions) :]
        if ended:
            assert all(isinstance(refusal, AnswerRescale) for refusal in instructions)
        for instruction in instructions:
            self.obey(instruction)
        assert self.it.action == self.action
        assert (self.it.plans.plan, self.it.plans.wanted) == (self.plan, self.wanted)
        if isinstance(self.action, EndJob):
            assert self.it.status is ENDS[self.action.outcome]
        if isinstance(event, AttemptStopped) and isinstance(self.action, Wait):
            # a failure leaves a request open whose checkpoint is not complete
            assert not any(rescale.answers for rescale in asking)

    def obey(self, instruction: JobInstruction) -> None:
        match instruction:
            case ReportStatus(status):
                self.check_status(status)
                self.status = status
            case ReportFailure(attempt, failure, restart_ms):
                assert attempt == max(0, len(self.attempts) - 1)
                assert failure in self.failures or isinstance(failure, RepeatedFailureError)
                assert restart_ms in (None, DELAY)
            case TakeCheckpoint(request):
                self.rescales[request].taken = True
            case ReportRescale(request, cause, plan, wanted):
                change = self.rescales[request]
                assert cause is change.cause
                assert wanted is (plan if cause is Cause.UPDATE_REQUIREMENT else self.wanted)
                change.told, change.plan = True, plan
            case AnswerRescale(request, failure):
                self.check_answer(self.rescales[request], failure)
                self.rescales[request].answers.append(failure)
                self.rescales[request].in_place &= failure is None
            case _:
                self.check_action(instruction)
                self.action = instruction

    def check_status(self, status: JobStatus) -> None:
        assert status is not self.status
        assert (status is JobStatus.CANCELLING) == self.cancelled
        assert not status.is_globally_terminal_state()

    def check_answer(self, rescale: Rescale, failure: BaseException | None) -> None:
        assert not rescale.answers
        if failure is None:
            assert rescale.in_place
            assert self.attempts[-1].runs

    def check_action(self, action: Action) -> None:
        match action:
            case StartAttempt():
                self.check_start(action)
            case AwaitTurn():
                assert isinstance(self.action, StartAttempt | RunEpoch)
                assert not self.attempts[-1].closing
                assert self.traits.closes or self.attempts[-1].stops or not self.is_done()
            case RunEpoch():
                self.check_epoch(action)
            case StopAttempt():
                self.check_stop()
            case ChangePlan(plan):
                assert isinstance(self.action, StopAttempt)
                assert self.status is JobStatus.RESTARTING
                if self.attempts[-1].found is not None:
                    self.check_narrowing(plan, self.attempts[-1].found)
                else:
                    assert self.attempts[-1].failure is None
                    assert self.open_rescale(plan).complete
                self.changes += 1
            case Wait(ms):
                assert isinstance(self.action, StopAttempt | ChangePlan)
                assert self.attempts[-1].failure is not None
                assert not self.attempts[-1].permanent
                assert not self.is_bad_record()
                assert self.attempts[0].runs
                assert self.status is JobStatus.RESTARTING
                assert ms == DELAY
            case EndJob():
                self.check_end(action)

    def is_bad_record(self) -> bool:
        """Whether the attempt failed on a record that has failed too often."""
        record = self.attempts[-1].record
        return record is not None and 0 < self.traits.same_record_limit <= self.bad[record]

    def check_narrowing(self, plan: Plan, found: int) -> None:
        """A job goes on with fewer slots, from its last checkpoint."""
        assert self.traits.takes_checkpoints
        assert self.traits.abilities.resizes
        assert self.restarts > 0
        assert self.attempts[0].runs
        assert not self.cancelled
        assert self.traits.least_slots <= found
        assert needed_slots(plan) <= found

    def open_rescale(self, plan: Plan) -> Rescale:
        # NB: slots that came and changed nothing are no open change
        told = [r for r in self.rescales if r.told or r.cause is Cause.UPDATE_REQUIREMENT]
        (found,) = [r for r in told if r.plan is plan and not r.answers]
        return found

    def check_start(self, order: StartAttempt) -> None:
        assert order.number == len(self.attempts)
        assert all(attempt.stopped for attempt in self.attempts)
        assert self.action is None or isinstance(self.action, ChangePlan | Wait)
        self.attempts.append(Attempt())
        assert len(self.attempts) - 1 - self.changes <= self.restarts

    def check_epoch(self, order: RunEpoch) -> None:
        attempt = self.attempts[-1]
        assert attempt.runs
        assert attempt.failure is None
        assert self.status is (JobStatus.CANCELLING if self.cancelled else JobStatus.RUNNING)
        if order.again:
            assert isinstance(self.action, RunEpoch)
            assert (order.last, order.closing) == (self.action.last, self.action.closing)
            assert order.epoch == self.epoch
            self.runs += 1
            assert self.runs <= RUNS
            return
        assert isinstance(self.action, AwaitTurn)
        assert order.epoch > self.epoch
        self.epoch, self.runs = order.epoch, 1
        assert not attempt.closing
        ends = self.cancelled or attempt.stops or self.is_done()
        leaves = [rescale for rescale in self.rescales if rescale.may_leave]
        assert order.closing or not (ends or any(rescale.seen for rescale in leaves))
        assert ends or leaves or not order.closing
        assert order.last == (attempt.finished and not order.closing)
        attempt.closing = order.closing

    def is_done(self) -> bool:
        """Whether the attempt has read everything, and nothing of it can be lost."""
        attempt = self.attempts[-1]
        return attempt.covered if self.traits.takes_checkpoints else attempt.finished

    def check_stop(self) -> None:
        attempt = self.attempts[-1]
        assert not attempt.stopped
        if attempt.abandoned:
            assert self.cancelled
        elif attempt.failure is None:
            assert isinstance(self.action, RunEpoch)
            at_once = attempt.finished and not self.traits.closes
            assert attempt.closing or at_once

    def check_end(self, order: EndJob) -> None:
        told = [r for r in self.rescales if r.told or r.cause is Cause.UPDATE_REQUIREMENT]
        assert all(len(rescale.answers) == 1 for rescale in told)
        assert not any(rescale.answers for rescale in self.rescales if rescale not in told)
        attempt = self.attempts[-1]
        failed = self.broken or attempt.failure is not None
        match order.outcome:
            case Outcome.FINISHED:
                assert self.is_done()
                assert not attempt.stops
                assert not failed
            case Outcome.STOPPED:
                assert attempt.stops
                assert not failed
            case Outcome.CANCELLED:
                assert self.cancelled
                assert not self.broken
                assert not attempt.cancelling
                assert failed or not (attempt.stops or self.is_done())
            case Outcome.FAILED:
                assert order.failure is not None
                assert order.failure is self.failures[-1] or self.is_bad_record()
                if isinstance(order.failure, RepeatedFailureError):
                    assert attempt.record is not None
                    assert order.failure.record == attempt.record[0]
        assert (order.failure is not None) == (order.outcome is Outcome.FAILED)
        assert self.broken or isinstance(self.action, StopAttempt | ChangePlan | Wait)


Job.TestCase.settings = hypothesis_settings(max_examples=150, stateful_step_count=60, deadline=None)
TestJob = Job.TestCase
