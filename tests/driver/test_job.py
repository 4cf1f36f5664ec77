"""The life of a job, rule by rule: what its machine answers to each event."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.checkpoint.events import Outcome
from holdfast.common.job_status import JobStatus
from holdfast.common.restart_strategy import RestartStrategies
from holdfast.driver.job.machine import JobMachine
from holdfast.driver.job.restart_policy import GiveUp, Restart, RestartPolicy, make_policy
from holdfast.driver.job_events import (
    Abilities,
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
from holdfast.printable import counted
from tests.driver.job_rules import validate
from tests.driver.plans import planned

RUNNING = ReportStatus(JobStatus.RUNNING)
RESTARTING = ReportStatus(JobStatus.RESTARTING)
CANCELLING = ReportStatus(JobStatus.CANCELLING)
FINISHED = EndJob(Outcome.FINISHED)
STOPPED = EndJob(Outcome.STOPPED)
CANCELLED = EndJob(Outcome.CANCELLED)

BOOM = JobExecutionError("boom")
BANG = JobExecutionError("bang")
NARROW, WIDER = planned(1), planned(2)
#: the delay of the restart policy in these tests
DELAY = 50
NO_RESTART = "the restart strategy allows no restart"


def restarted(times: int) -> str:
    """Why a policy with that many restarts gives up."""
    return f"it was restarted {counted(times, 'time')}, which is the maximum"


class Saying(JobExecutionError):
    """Equals any JobExecutionError with that message."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobExecutionError) and str(other) == str(self)

    def __hash__(self) -> int:
        return hash(str(self))


ENDED_BEFORE = Saying("job 'job' has ended before it was rescaled")


class Job:
    """The machine of a job, which is validated after each event."""

    def __init__(
        self,
        *,
        checkpoints: bool = False,
        listeners: bool = False,
        restarts: int = 0,
        reruns: bool = True,
        resizes: bool = True,
        policy: RestartPolicy | None = None,
        plan: Plan = NARROW,
        least_slots: int = 1,
        same_record_limit: int = 0,
    ) -> None:
        abilities = Abilities(reruns, resizes)
        closes = checkpoints or listeners
        traits = JobTraits("job", checkpoints, closes, abilities, least_slots, same_record_limit)
        strategy = RestartStrategies.fixed_delay_restart(restarts, DELAY)
        self.machine = JobMachine(traits, policy or make_policy(strategy), plan)

    def tell(self, *events: JobEvent) -> list[JobInstruction]:
        """Tell the machine of events; returns all that it said."""
        said: list[JobInstruction] = []
        for event in events:
            said += self.machine.handle(event)
            validate(self.machine)
        return said

    def let_go_well(self) -> list[JobInstruction]:
        """Let all that is to be done go well, up to the end; returns all that it said."""
        said: list[JobInstruction] = []
        for _ in range(10):
            if self.machine.ended:
                return said
            said += self.tell(self._done())
        raise AssertionError(f"there is no end: {said}")

    def _done(self) -> JobEvent:
        match self.machine.action:
            case StartAttempt():
                return AttemptStarted()
            case AwaitTurn():
                return TurnCame()
            case RunEpoch(epoch):
                return EpochCommitted(epoch)
            case StopAttempt():
                return AttemptStopped()
            case ChangePlan():
                return PlanChanged()
            case action:
                assert isinstance(action, Wait)
                return TimeIsUp()

    @property
    def status(self) -> JobStatus:
        return self.machine.status


def asking(request: int) -> list[JobInstruction]:
    """What follows a request for the wider plan."""
    told = ReportRescale(request, Cause.UPDATE_REQUIREMENT, WIDER, WIDER)
    return [told, TakeCheckpoint(request)]


def started(**traits: Any) -> Job:
    """A job whose first attempt runs and waits for a turn."""
    job = Job(**traits)
    job.tell(JobStarting(), AttemptStarted())
    return job


def leaving(restarts: int = 0) -> Job:
    """A job whose epoch 1 is the closing epoch before a rescale."""
    job = started(checkpoints=True, restarts=restarts)
    job.tell(RescaleRequested(1, WIDER), TurnCame(), CheckpointEnded(1))
    said = job.tell(EpochCommitted(0, complete=True), TurnCame())
    assert said == [AwaitTurn(), RunEpoch(1, closing=True)]
    return job


def starting_anew(restarts: int = 0) -> Job:
    """A job whose attempt 1 starts, the first with another plan."""
    job = leaving(restarts)
    job.tell(EpochCommitted(1), AttemptStopped())
    assert job.tell(PlanChanged()) == [StartAttempt(1)]
    return job


def waiting(restarts: int = 1, checkpoints: bool = False) -> Job:
    """A job whose first epoch failed, in the wait before its restart."""
    job = started(checkpoints=checkpoints, restarts=restarts)
    job.tell(TurnCame(), ActionFailed(BOOM, 0), AttemptStopped())
    assert job.machine.action == Wait(DELAY)
    return job


# The start


def test_a_job_whose_first_start_fails_is_not_started_again() -> None:
    job = Job(restarts=1)
    said = job.tell(JobStarting(), ActionFailed(BOOM, 0), AttemptStopped())
    assert said[-1] == EndJob(Outcome.FAILED, BOOM)


def test_a_job_that_loses_a_machine_in_its_first_start_is_started_again() -> None:
    job = Job(restarts=1)
    job.tell(JobStarting(), ActionFailed(BOOM, 0, lost=True), AttemptStopped())
    assert job.machine.action == Wait(DELAY)
    assert job.tell(TimeIsUp()) == [StartAttempt(1)]
    assert job.tell(AttemptStarted()) == [RUNNING, AwaitTurn()]


# The end of the input


def test_a_job_without_checkpoints_or_listeners_ends_after_its_last_epoch() -> None:
    job = Job()
    assert job.status is JobStatus.CREATED
    assert job.tell(JobStarting()) == [StartAttempt(0)]
    assert job.status is JobStatus.CREATED
    assert job.tell(AttemptStarted()) == [RUNNING, AwaitTurn()]
    assert job.tell(TurnCame()) == [RunEpoch(0)]
    assert job.tell(EpochCommitted(0)) == [AwaitTurn()]
    assert job.tell(TurnCame()) == [RunEpoch(1)]
    assert job.tell(EpochCommitted(1, finished=True)) == [StopAttempt()]
    assert not job.machine.ended
    assert job.tell(AttemptStopped()) == [FINISHED]
    assert job.machine.ended
    assert job.status is JobStatus.FINISHED


def test_with_listeners_a_closing_epoch_follows_the_last_one() -> None:
    job = started(listeners=True)
    said = job.tell(TurnCame(), EpochCommitted(0, finished=True), TurnCame())
    assert said == [RunEpoch(0), AwaitTurn(), RunEpoch(1, closing=True)]
    assert job.tell(EpochCommitted(1, finished=True)) == [StopAttempt()]
    assert job.tell(AttemptStopped()) == [FINISHED]


def test_with_checkpoints_last_epochs_follow_until_one_completes_a_checkpoint() -> None:
    job = started(checkpoints=True)
    said = job.tell(TurnCame(), EpochCommitted(0, finished=True))
    assert said == [RunEpoch(0), AwaitTurn()]
    # its checkpoint fails
    said = job.tell(TurnCame(), EpochCommitted(1, finished=True))
    assert said == [RunEpoch(1, last=True), AwaitTurn()]
    said = job.tell(TurnCame(), EpochCommitted(2, finished=True, complete=True))
    assert said == [RunEpoch(2, last=True), AwaitTurn()]
    said = job.tell(TurnCame(), EpochCommitted(3, finished=True), AttemptStopped())
    assert said == [RunEpoch(3, closing=True), StopAttempt(), FINISHED]


def test_a_checkpoint_of_the_epoch_that_reads_the_last_record_covers_it() -> None:
    job = started(checkpoints=True)
    said = job.tell(TurnCame(), EpochCommitted(0, finished=True, complete=True), TurnCame())
    assert said == [RunEpoch(0), AwaitTurn(), RunEpoch(1, closing=True)]


def test_a_checkpoint_before_the_last_record_does_not_cover_it() -> None:
    job = started(checkpoints=True)
    job.tell(TurnCame(), EpochCommitted(0, complete=True))
    said = job.tell(TurnCame(), EpochCommitted(1, finished=True), TurnCame())
    assert said == [RunEpoch(1), AwaitTurn(), RunEpoch(2, last=True)]


def test_an_attempt_that_goes_back_reads_again() -> None:
    job = started(checkpoints=True, restarts=1)
    job.tell(TurnCame(), EpochCommitted(0, finished=True), TurnCame())
    job.tell(ActionFailed(BOOM, 0), AttemptStopped(), TimeIsUp(), AttemptStarted())
    assert job.tell(TurnCame()) == [RunEpoch(2)]


# Stop with a savepoint


@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_savepoint_that_stops_the_job_is_followed_by_a_closing_epoch(checkpoints: bool) -> None:
    job = started(checkpoints=checkpoints)
    said = job.tell(TurnCame(), EpochCommitted(0, stops=True), TurnCame())
    assert said == [RunEpoch(0), AwaitTurn(), RunEpoch(1, closing=True)]
    assert job.tell(EpochCommitted(1), AttemptStopped()) == [StopAttempt(), STOPPED]
    assert job.status is JobStatus.FINISHED


def test_a_job_that_is_stopped_with_its_last_record_counts_as_stopped() -> None:
    job = started(checkpoints=True)
    job.tell(TurnCame(), EpochCommitted(0, finished=True, complete=True, stops=True))
    assert job.tell(TurnCame(), EpochCommitted(1), AttemptStopped())[-1] == STOPPED


def test_a_failure_in_the_closing_epoch_of_a_stop_lets_the_job_go_on() -> None:
    job = started(checkpoints=True, restarts=1)
    job.tell(TurnCame(), EpochCommitted(0, stops=True), TurnCame())
    said = job.tell(ActionFailed(BOOM, 0), AttemptStopped())
    assert said == [StopAttempt(), ReportFailure(0, BOOM, DELAY), RESTARTING, Wait(DELAY)]
    job.tell(TimeIsUp(), AttemptStarted())
    assert job.tell(TurnCame(), EpochCommitted(2)) == [RunEpoch(2), AwaitTurn()]
    job.tell(TurnCame(), EpochCommitted(3, finished=True, complete=True))
    assert job.tell(TurnCame(), EpochCommitted(4), AttemptStopped())[-1] == FINISHED


# Cancel


def test_cancel_while_an_epoch_runs() -> None:
    job = started(checkpoints=True)
    job.tell(TurnCame())
    assert job.tell(CancelRequested()) == [CANCELLING]
    said = job.tell(EpochCommitted(0), TurnCame())
    assert said == [AwaitTurn(), RunEpoch(1, closing=True)]
    assert job.tell(EpochCommitted(1), AttemptStopped()) == [StopAttempt(), CANCELLED]
    assert job.status is JobStatus.CANCELED


def test_cancel_while_waiting_for_a_turn() -> None:
    job = started()
    assert job.tell(CancelRequested()) == [CANCELLING]
    said = job.tell(TurnCame(), EpochCommitted(0), AttemptStopped())
    assert said == [RunEpoch(0, closing=True), StopAttempt(), CANCELLED]


def test_cancel_while_the_first_attempt_starts() -> None:
    job = Job()
    assert job.tell(JobStarting(), CancelRequested()) == [StartAttempt(0), CANCELLING]
    # it never counts as running
    said = job.tell(AttemptStarted(), TurnCame(), EpochCommitted(0), AttemptStopped())
    assert said == [AwaitTurn(), RunEpoch(0, closing=True), StopAttempt(), CANCELLED]


def test_cancel_before_the_start() -> None:
    job = Job()
    assert job.tell(CancelRequested(), JobStarting()) == [CANCELLING, StartAttempt(0)]
    said = job.tell(AttemptStarted(), TurnCame(), EpochCommitted(0), AttemptStopped())
    assert said == [AwaitTurn(), RunEpoch(0, closing=True), StopAttempt(), CANCELLED]


def test_cancel_while_a_later_attempt_starts() -> None:
    job = waiting()
    assert job.tell(TimeIsUp(), CancelRequested()) == [StartAttempt(1), CANCELLING]
    said = job.tell(AttemptStarted(), TurnCame(), EpochCommitted(1), AttemptStopped())
    assert said == [AwaitTurn(), RunEpoch(1, closing=True), StopAttempt(), CANCELLED]


def test_cancel_during_the_wait_before_a_restart_ends_the_job_at_once() -> None:
    job = waiting()
    assert job.tell(CancelRequested()) == [CANCELLING, CANCELLED]
    assert job.status is JobStatus.CANCELED


@pytest.mark.parametrize("late", [TimeIsUp(), ActionFailed(BANG, 1)])
def test_the_end_of_a_wait_may_still_be_told_when_it_was_cut_short(late: JobEvent) -> None:
    job = waiting()
    job.tell(CancelRequested())
    assert job.tell(late) == []
    assert job.machine.action == CANCELLED
    assert job.status is JobStatus.CANCELED
    with pytest.raises(InternalError):
        job.tell(AttemptStopped())


def test_cancel_during_the_wait_answers_a_rescale() -> None:
    job = waiting()
    job.tell(RescaleRequested(1, WIDER))
    said = job.tell(CancelRequested())
    assert said == [CANCELLING, AnswerRescale(1, ENDED_BEFORE), CANCELLED]


def test_cancel_during_the_closing_epoch_of_a_rescale() -> None:
    job = leaving()
    assert job.tell(CancelRequested()) == [CANCELLING]
    said = job.tell(EpochCommitted(1), AttemptStopped())
    assert said == [StopAttempt(), AnswerRescale(1, ENDED_BEFORE), CANCELLED]


def test_cancel_while_an_attempt_is_stopped_for_a_rescale() -> None:
    job = leaving()
    said = job.tell(EpochCommitted(1), CancelRequested(), AttemptStopped())
    assert said == [StopAttempt(), CANCELLING, AnswerRescale(1, ENDED_BEFORE), CANCELLED]


@pytest.mark.parametrize("outcome", [PlanChanged(), PlanRefused(BOOM)])
def test_cancel_while_the_plan_changes(outcome: JobEvent) -> None:
    job = leaving()
    job.tell(EpochCommitted(1), AttemptStopped())
    said = job.tell(CancelRequested(), outcome) + job.let_go_well()
    assert said[-1] == CANCELLED
    assert len([i for i in said if isinstance(i, AnswerRescale)]) == 1
    assert all(epoch.closing for epoch in said if isinstance(epoch, RunEpoch))


def test_cancel_after_the_last_record_and_before_its_checkpoint() -> None:
    job = started(checkpoints=True)
    job.tell(TurnCame(), EpochCommitted(0, finished=True), CancelRequested())
    said = job.tell(TurnCame(), EpochCommitted(1, finished=True), AttemptStopped())
    assert said == [RunEpoch(1, closing=True), StopAttempt(), CANCELLED]


def test_cancel_while_the_checkpoint_of_the_last_record_fails() -> None:
    job = started(checkpoints=True)
    job.tell(TurnCame(), CancelRequested())
    said = job.tell(EpochCommitted(0, finished=True), TurnCame())
    assert said == [AwaitTurn(), RunEpoch(1, closing=True)]
    assert job.tell(EpochCommitted(1, finished=True), AttemptStopped())[-1] == CANCELLED


def test_cancel_while_the_last_record_is_covered_comes_too_late() -> None:
    job = started(checkpoints=True)
    job.tell(TurnCame(), CancelRequested())
    job.tell(EpochCommitted(0, finished=True, complete=True))
    said = job.tell(TurnCame(), EpochCommitted(1, finished=True), AttemptStopped())
    assert said == [RunEpoch(1, closing=True), StopAttempt(), FINISHED]


def test_cancel_after_the_checkpoint_of_the_last_record_comes_too_late() -> None:
    job = started(checkpoints=True)
    job.tell(TurnCame(), EpochCommitted(0, finished=True, complete=True))
    assert job.tell(CancelRequested()) == [CANCELLING]
    said = job.tell(TurnCame(), EpochCommitted(1, finished=True), AttemptStopped())
    assert said == [RunEpoch(1, closing=True), StopAttempt(), FINISHED]


def test_cancel_with_the_last_record_of_a_job_without_checkpoints_comes_too_late() -> None:
    job = started()
    job.tell(TurnCame(), CancelRequested())
    assert job.tell(EpochCommitted(0, finished=True), AttemptStopped())[-1] == FINISHED


def test_cancel_while_the_savepoint_of_a_stop_completes_comes_too_late() -> None:
    job = started(checkpoints=True)
    job.tell(TurnCame(), CancelRequested(), EpochCommitted(0, stops=True))
    assert job.tell(TurnCame(), EpochCommitted(1), AttemptStopped())[-1] == STOPPED


def test_a_cancelled_job_does_not_leave_for_another_plan() -> None:
    job = started(checkpoints=True)
    job.tell(RescaleRequested(1, WIDER), TurnCame(), CheckpointEnded(1), CancelRequested())
    job.tell(EpochCommitted(0, complete=True), TurnCame(), EpochCommitted(1))
    assert job.tell(AttemptStopped()) == [AnswerRescale(1, ENDED_BEFORE), CANCELLED]


def test_cancelling_twice_is_cancelling_once() -> None:
    job = started()
    assert job.tell(CancelRequested(), CancelRequested()) == [CANCELLING]
    assert job.tell(TurnCame(), CancelRequested()) == [RunEpoch(0, closing=True)]
    assert job.tell(EpochCommitted(0), CancelRequested()) == [StopAttempt()]
    assert job.tell(AttemptStopped(), CancelRequested()) == [CANCELLED]


def test_cancel_after_the_end_changes_nothing() -> None:
    job = started()
    job.tell(TurnCame(), EpochCommitted(0, finished=True), AttemptStopped())
    assert job.tell(CancelRequested()) == []
    assert job.machine.action == FINISHED
    assert job.status is JobStatus.FINISHED


# Failures


def test_an_attempt_that_fails_is_stopped_and_another_one_follows_a_wait() -> None:
    job = started(restarts=1)
    job.tell(TurnCame())
    assert job.tell(ActionFailed(BOOM, 7)) == [StopAttempt()]
    said = job.tell(AttemptStopped())
    assert said == [ReportFailure(0, BOOM, DELAY), RESTARTING, Wait(DELAY)]
    assert job.status is JobStatus.RESTARTING
    assert job.tell(TimeIsUp()) == [StartAttempt(1)]
    assert job.machine.attempt == 1
    assert job.tell(AttemptStarted()) == [RUNNING, AwaitTurn()]


def test_an_engine_that_fails_between_two_epochs_ends_the_attempt() -> None:
    job = started(restarts=1)
    said = job.tell(ActionFailed(BOOM, 7), AttemptStopped())
    assert said == [StopAttempt(), ReportFailure(0, BOOM, DELAY), RESTARTING, Wait(DELAY)]


def test_the_job_fails_with_the_failure_after_which_the_policy_gives_up() -> None:
    job = waiting(restarts=1)
    job.tell(TimeIsUp(), AttemptStarted(), TurnCame())
    said = job.tell(ActionFailed(BANG, 9), AttemptStopped())
    assert said == [
        StopAttempt(),
        ReportFailure(1, BANG, None, restarted(1)),
        EndJob(Outcome.FAILED, BANG),
    ]
    assert job.status is JobStatus.FAILED


def test_a_permanent_failure_ends_the_job_at_once() -> None:
    job = started(restarts=9)
    job.tell(TurnCame())
    said = job.tell(ActionFailed(BOOM, 0, permanent=True), AttemptStopped())
    assert said == [StopAttempt(), ReportFailure(0, BOOM, None), EndJob(Outcome.FAILED, BOOM)]


def test_a_job_whose_first_attempt_does_not_start_is_not_restarted() -> None:
    job = Job(restarts=9)
    said = job.tell(JobStarting(), ActionFailed(BOOM, 0), AttemptStopped())
    assert said[1:] == [StopAttempt(), ReportFailure(0, BOOM, None), EndJob(Outcome.FAILED, BOOM)]
    assert job.status is JobStatus.FAILED


def test_a_later_start_that_fails_counts_for_the_policy() -> None:
    job = waiting(restarts=2)
    job.tell(TimeIsUp(), ActionFailed(BANG, 1))
    # its status has not changed meanwhile
    assert job.tell(AttemptStopped()) == [ReportFailure(1, BANG, DELAY), Wait(DELAY)]
    job.tell(TimeIsUp(), ActionFailed(BANG, 2))
    said = job.tell(AttemptStopped())
    assert said == [ReportFailure(2, BANG, None, restarted(2)), EndJob(Outcome.FAILED, BANG)]


def test_the_policy_is_asked_once_for_each_attempt_that_failed_with_its_time() -> None:
    times: list[int] = []

    class Noting(RestartPolicy):
        def on_failure(self, now_ms: int) -> Restart | GiveUp:
            times.append(now_ms)
            return Restart(now_ms)

    job = Job(policy=Noting())
    job.tell(JobStarting(), AttemptStarted(), ActionFailed(BOOM, 7), AttemptStopped())
    assert job.machine.action == Wait(7)
    job.tell(TimeIsUp(), AttemptStarted(), ActionFailed(BOOM, 8), AttemptStopped())
    assert job.machine.action == Wait(8)
    assert times == [7, 8]


def test_an_engine_that_dies_during_the_wait_ends_the_job() -> None:
    job = waiting(restarts=9)
    said = job.tell(ActionFailed(BANG, 1))
    assert said == [ReportFailure(0, BANG, None), EndJob(Outcome.FAILED, BANG)]
    assert job.status is JobStatus.FAILED


@pytest.mark.parametrize("before", [[], [AttemptStarted()], [AttemptStarted(), TurnCame()]])
def test_a_failure_while_cancelling_ends_the_job(before: list[JobEvent]) -> None:
    job = Job(restarts=9)
    job.tell(JobStarting(), *before, CancelRequested())
    said = job.tell(ActionFailed(BOOM, 0), AttemptStopped())
    assert said == [StopAttempt(), ReportFailure(0, BOOM, None), EndJob(Outcome.FAILED, BOOM)]
    assert job.status is JobStatus.FAILED


def test_a_failure_in_the_closing_epoch_of_a_cancelled_job_ends_it() -> None:
    job = started(restarts=9)
    job.tell(CancelRequested(), TurnCame())
    said = job.tell(ActionFailed(BOOM, 0), AttemptStopped())
    assert said == [StopAttempt(), ReportFailure(0, BOOM, None), EndJob(Outcome.FAILED, BOOM)]


# Epochs whose subtasks do not agree


def test_a_discarded_epoch_runs_four_times_and_then_fails() -> None:
    job = started(restarts=1)
    job.tell(TurnCame())
    for _ in range(3):
        assert job.tell(EpochDiscarded(0, BOOM, 5)) == [RunEpoch(0, again=True)]
    said = job.tell(EpochDiscarded(0, BANG, 5), AttemptStopped())
    assert said == [StopAttempt(), ReportFailure(0, BANG, DELAY), RESTARTING, Wait(DELAY)]


def test_each_epoch_has_four_runs() -> None:
    job = started()
    for epoch in range(3):
        job.tell(TurnCame())
        said = job.tell(*[EpochDiscarded(epoch, BOOM, 5)] * 3)
        assert said == [RunEpoch(epoch, again=True)] * 3
        assert job.tell(EpochCommitted(epoch)) == [AwaitTurn()]


def test_a_last_epoch_that_runs_again_is_a_last_epoch() -> None:
    job = started(checkpoints=True)
    job.tell(TurnCame(), EpochCommitted(0, finished=True), TurnCame())
    assert job.tell(EpochDiscarded(1, BOOM, 5)) == [RunEpoch(1, last=True, again=True)]


def test_a_closing_epoch_that_runs_again_is_a_closing_epoch() -> None:
    job = started()
    job.tell(CancelRequested(), TurnCame())
    assert job.tell(EpochDiscarded(0, BOOM, 5)) == [RunEpoch(0, closing=True, again=True)]
    assert job.tell(EpochCommitted(0)) == [StopAttempt()]


def test_a_discarded_epoch_is_a_failure_if_the_engine_cannot_run_it_again() -> None:
    job = started(reruns=False, restarts=1)
    said = job.tell(TurnCame(), EpochDiscarded(0, BOOM, 5), AttemptStopped())
    failed = [ReportFailure(0, BOOM, DELAY), RESTARTING, Wait(DELAY)]
    assert said == [RunEpoch(0), StopAttempt(), *failed]


# Another plan


def test_a_rescale_takes_a_checkpoint_and_goes_on_from_it_with_the_other_plan() -> None:
    job = started(checkpoints=True)
    job.tell(TurnCame())
    assert job.tell(RescaleRequested(7, WIDER)) == asking(7)
    # the epoch that runs has begun without it
    assert job.tell(EpochCommitted(0), TurnCame()) == [AwaitTurn(), RunEpoch(1)]
    assert job.tell(CheckpointEnded(7)) == []
    said = job.tell(EpochCommitted(1, complete=True), TurnCame())
    assert said == [AwaitTurn(), RunEpoch(2, closing=True)]
    assert job.tell(EpochCommitted(2)) == [StopAttempt()]
    assert job.tell(AttemptStopped()) == [RESTARTING, ChangePlan(WIDER)]
    assert job.tell(PlanChanged()) == [StartAttempt(1)]
    assert job.tell(AttemptStarted(1)) == [RUNNING, AnswerRescale(7), AwaitTurn()]
    assert job.tell(TurnCame()) == [RunEpoch(3)]


def test_a_job_can_be_rescaled_again() -> None:
    job = starting_anew()
    job.tell(AttemptStarted())
    assert job.tell(RescaleRequested(2, WIDER)) == asking(2)
    job.tell(TurnCame(), CheckpointEnded(2), EpochCommitted(2, complete=True))
    job.tell(TurnCame(), EpochCommitted(3))
    assert job.tell(AttemptStopped()) == [RESTARTING, ChangePlan(WIDER)]


def test_a_plan_that_is_refused_leaves_the_job_with_its_old_one() -> None:
    job = leaving()
    job.tell(EpochCommitted(1), AttemptStopped())
    assert job.tell(PlanRefused(BOOM)) == [AnswerRescale(1, BOOM), StartAttempt(1)]
    assert job.tell(AttemptStarted(), TurnCame()) == [RUNNING, AwaitTurn(), RunEpoch(2)]
    # it stays, and may be asked again
    assert job.tell(EpochCommitted(2), TurnCame()) == [AwaitTurn(), RunEpoch(3)]
    assert job.tell(RescaleRequested(2, WIDER)) == asking(2)


def test_a_rescale_whose_checkpoint_fails_is_answered_with_that() -> None:
    job = started(checkpoints=True)
    job.tell(RescaleRequested(1, WIDER), TurnCame())
    assert job.tell(CheckpointEnded(1, BOOM)) == [AnswerRescale(1, BOOM)]
    assert job.tell(EpochCommitted(0), TurnCame()) == [AwaitTurn(), RunEpoch(1)]
    assert job.tell(RescaleRequested(2, WIDER)) == asking(2)


@pytest.mark.parametrize("failure", [None, BOOM])
def test_the_checkpoint_of_another_request_is_nothing_to_a_rescale(
    failure: JobExecutionError | None,
) -> None:
    job = started(checkpoints=True)
    job.tell(RescaleRequested(2, WIDER), TurnCame())
    assert job.tell(CheckpointEnded(1, failure)) == []
    assert job.tell(EpochCommitted(0, complete=True), TurnCame()) == [AwaitTurn(), RunEpoch(1)]
    # its own is still to come
    assert job.tell(CheckpointEnded(2, BANG)) == [AnswerRescale(2, BANG)]


def test_one_rescale_at_a_time() -> None:
    job = started(checkpoints=True)
    assert job.tell(RescaleRequested(1, WIDER)) == asking(1)
    refused = Saying("job 'job' is being rescaled already")
    later: list[list[JobEvent]] = [
        [],
        [TurnCame(), CheckpointEnded(1), EpochCommitted(0, complete=True)],
        [TurnCame(), EpochCommitted(1)],
        [AttemptStopped()],
        [PlanChanged()],
    ]
    for request, events in enumerate(later, start=2):
        job.tell(*events)
        assert job.tell(RescaleRequested(request, WIDER)) == [AnswerRescale(request, refused)]
    assert job.tell(AttemptStarted()) == [RUNNING, AnswerRescale(1), AwaitTurn()]


def test_a_job_that_has_ended_is_not_rescaled() -> None:
    job = started()
    job.tell(TurnCame(), EpochCommitted(0, finished=True), AttemptStopped())
    refused = Saying("job 'job' has ended")
    assert job.tell(RescaleRequested(1, WIDER)) == [AnswerRescale(1, refused)]
    assert job.tell(CheckpointEnded(1, BOOM)) == []


def test_an_engine_that_cannot_resize_refuses() -> None:
    job = started(checkpoints=True, resizes=False)
    refused = Saying(
        "job 'job' cannot be rescaled while it runs; stop it with a savepoint and start it again"
    )
    assert job.tell(RescaleRequested(1, WIDER)) == [AnswerRescale(1, refused)]
    assert job.tell(TurnCame(), EpochCommitted(0, complete=True)) == [RunEpoch(0), AwaitTurn()]


def test_a_failure_before_the_checkpoint_of_a_rescale_leaves_it_open() -> None:
    job = started(checkpoints=True, restarts=1)
    job.tell(RescaleRequested(1, WIDER), TurnCame())
    said = job.tell(ActionFailed(BOOM, 0), AttemptStopped())
    assert said == [StopAttempt(), ReportFailure(0, BOOM, DELAY), RESTARTING, Wait(DELAY)]
    assert job.tell(TimeIsUp(), AttemptStarted()) == [StartAttempt(1), RUNNING, AwaitTurn()]
    job.tell(TurnCame(), CheckpointEnded(1), EpochCommitted(1, complete=True))
    assert job.tell(TurnCame()) == [RunEpoch(2, closing=True)]


def test_a_failure_between_its_checkpoint_and_the_other_plan_ends_a_rescale() -> None:
    job = leaving(restarts=1)
    said = job.tell(ActionFailed(BOOM, 0), AttemptStopped())
    failed = [ReportFailure(0, BOOM, DELAY), RESTARTING, Wait(DELAY)]
    assert said == [StopAttempt(), AnswerRescale(1, BOOM), *failed]
    # the job goes on as it was
    said = job.tell(TimeIsUp(), AttemptStarted(), TurnCame(), EpochCommitted(2))
    assert said == [StartAttempt(1), RUNNING, AwaitTurn(), RunEpoch(2), AwaitTurn()]
    assert job.tell(TurnCame()) == [RunEpoch(3)]


def test_a_failure_that_ends_the_job_answers_a_rescale_with_it() -> None:
    job = leaving(restarts=0)
    said = job.tell(ActionFailed(BOOM, 0), AttemptStopped())[1:]
    ended = [ReportFailure(0, BOOM, None, NO_RESTART), EndJob(Outcome.FAILED, BOOM)]
    assert said == [AnswerRescale(1, BOOM), *ended]


def test_a_job_that_finishes_with_the_checkpoint_of_a_rescale_does_not_change() -> None:
    job = started(checkpoints=True)
    job.tell(RescaleRequested(1, WIDER), TurnCame(), CheckpointEnded(1))
    job.tell(EpochCommitted(0, finished=True, complete=True), TurnCame(), EpochCommitted(1))
    assert job.tell(AttemptStopped()) == [AnswerRescale(1, ENDED_BEFORE), FINISHED]


def test_a_job_that_stops_with_the_checkpoint_of_a_rescale_does_not_change() -> None:
    job = started(checkpoints=True)
    job.tell(RescaleRequested(1, WIDER), TurnCame(), CheckpointEnded(1))
    job.tell(EpochCommitted(0, complete=True, stops=True), TurnCame(), EpochCommitted(1))
    assert job.tell(AttemptStopped()) == [AnswerRescale(1, ENDED_BEFORE), STOPPED]


def test_a_rescale_is_open_until_an_attempt_runs_with_the_other_plan() -> None:
    job = starting_anew(restarts=2)
    said = job.tell(ActionFailed(BOOM, 0), AttemptStopped())
    assert said == [StopAttempt(), ReportFailure(1, BOOM, DELAY), Wait(DELAY)]
    job.tell(TimeIsUp(), ActionFailed(BANG, 0), AttemptStopped())
    assert job.tell(TimeIsUp()) == [StartAttempt(3)]
    assert job.tell(AttemptStarted()) == [RUNNING, AnswerRescale(1), AwaitTurn()]


def test_a_rescale_is_answered_if_no_attempt_ever_runs_with_the_other_plan() -> None:
    job = starting_anew(restarts=1)
    job.tell(ActionFailed(BOOM, 0), AttemptStopped(), TimeIsUp(), ActionFailed(BANG, 0))
    said = job.tell(AttemptStopped())
    failed = EndJob(Outcome.FAILED, BANG)
    assert said == [
        ReportFailure(2, BANG, None, restarted(1)),
        AnswerRescale(1, ENDED_BEFORE),
        failed,
    ]


def test_restarts_before_a_rescale_count_after_it() -> None:
    job = waiting(restarts=2, checkpoints=True)
    job.tell(TimeIsUp(), AttemptStarted())
    job.tell(RescaleRequested(1, WIDER), TurnCame(), CheckpointEnded(1))
    job.tell(EpochCommitted(1, complete=True), TurnCame(), EpochCommitted(2), AttemptStopped())
    job.tell(PlanChanged(), AttemptStarted(), TurnCame(), ActionFailed(BOOM, 1), AttemptStopped())
    assert isinstance(job.machine.action, Wait)
    job.tell(TimeIsUp(), AttemptStarted(), TurnCame(), ActionFailed(BANG, 2))
    assert job.tell(AttemptStopped())[-1] == EndJob(Outcome.FAILED, BANG)


def test_a_rescale_is_no_restart() -> None:
    job = starting_anew(restarts=0)
    assert job.tell(AttemptStarted()) == [RUNNING, AnswerRescale(1), AwaitTurn()]


# Numbers of epochs, and statuses


def test_numbers_of_epochs_increase_over_attempts_and_plans() -> None:
    job = waiting(restarts=2, checkpoints=True)
    # the checkpoint that it goes back to is older
    job.tell(TimeIsUp(), AttemptStarted(-1))
    job.tell(RescaleRequested(1, WIDER), TurnCame(), CheckpointEnded(1))
    assert job.machine.action == RunEpoch(1)
    job.tell(EpochCommitted(1, complete=True), TurnCame())
    assert job.machine.action == RunEpoch(2, closing=True)
    job.tell(EpochCommitted(2), AttemptStopped(), PlanChanged(), AttemptStarted(1), TurnCame())
    assert job.machine.action == RunEpoch(3)
    job.tell(ActionFailed(BOOM, 1), AttemptStopped(), TimeIsUp(), AttemptStarted(1), TurnCame())
    assert job.machine.action == RunEpoch(4)


def test_the_first_epoch_follows_that_of_the_checkpoint_the_job_begins_with() -> None:
    job = Job(checkpoints=True)
    job.tell(JobStarting(), AttemptStarted(41))
    assert job.tell(TurnCame(), EpochCommitted(42), TurnCame())[-1] == RunEpoch(43)


def test_statuses_are_reported_when_they_change() -> None:
    job = Job(checkpoints=True, restarts=9)
    failure: list[JobEvent] = [ActionFailed(BOOM, 0), AttemptStopped()]
    start: list[JobEvent] = [TimeIsUp(), AttemptStarted()]
    said = job.tell(JobStarting(), AttemptStarted(), *failure, *start)
    # a start fails, and another one; then it leaves for a plan with which it does not start
    said += job.tell(*failure, TimeIsUp(), *failure, *start)
    said += job.tell(RescaleRequested(1, WIDER), TurnCame(), CheckpointEnded(1))
    said += job.tell(EpochCommitted(0, complete=True), TurnCame(), EpochCommitted(1))
    said += job.tell(AttemptStopped(), PlanChanged(), *failure, *start)
    said += job.tell(CancelRequested(), CancelRequested()) + job.let_go_well()
    statuses = [instruction for instruction in said if isinstance(instruction, ReportStatus)]
    assert statuses == [RUNNING, *[RESTARTING, RUNNING] * 3, CANCELLING]
    # the end itself is not reported before it is carried out
    assert said[-1] == CANCELLED
    assert job.status is JobStatus.CANCELED


# What cannot be


#: how to bring a job to an action, and all events that end it
ACTIONS: list[tuple[list[JobEvent], set[type]]] = [
    ([], {JobStarting}),
    ([JobStarting()], {AttemptStarted, SlotsMissing, ActionFailed}),
    ([AttemptStarted()], {TurnCame, ActionFailed}),
    (
        [RescaleRequested(1, WIDER), TurnCame(), CheckpointEnded(1)],
        {EpochCommitted, EpochDiscarded, ActionFailed},
    ),
    ([EpochCommitted(0, complete=True)], {TurnCame, ActionFailed}),
    ([TurnCame(), EpochCommitted(1)], {AttemptStopped}),
    ([AttemptStopped()], {PlanChanged, PlanRefused}),
    ([PlanChanged(), ActionFailed(BOOM, 0), AttemptStopped()], {TimeIsUp, ActionFailed}),
    ([ActionFailed(BOOM, 1)], set()),
]
ENDINGS: list[JobEvent] = [
    JobStarting(),
    AttemptStarted(),
    SlotsMissing(9, 2, 1, 0),
    StartAbandoned(),  # only if it is cancelled
    TurnCame(),
    EpochCommitted(0),
    EpochDiscarded(0, BOOM, 0),
    EpochAbandoned(0),  # only if it is cancelled
    ActionFailed(BOOM, 0),
    AttemptStopped(),
    PlanChanged(),
    PlanRefused(BOOM),
    TimeIsUp(),
]


def at_action(number: int) -> Job:
    job = Job(checkpoints=True, restarts=1)
    for events, _ in ACTIONS[: number + 1]:
        job.tell(*events)
    return job


@pytest.mark.parametrize("number", range(len(ACTIONS)))
def test_an_action_ends_with_its_own_events_only(number: int) -> None:
    fitting = ACTIONS[number][1]
    for event in ENDINGS:
        job = at_action(number)
        if type(event) in fitting:
            assert job.tell(event)
            continue
        action = job.machine.action
        with pytest.raises(InternalError, match="is carried out") as caught:
            job.tell(event)
        assert str(caught.value) == f"{event} while {action} is carried out"
        assert job.machine.action is action


def test_a_checkpoint_that_is_told_too_late_to_leave_from_is_taken_again() -> None:
    """Otherwise what was read since would be read, and delivered, once more."""
    job = started()
    job.tell(RescaleRequested(1, WIDER), TurnCame(), EpochCommitted(0, complete=True))
    assert job.tell(CheckpointEnded(1)) == [TakeCheckpoint(1)]
    assert job.tell(TurnCame()) == [RunEpoch(1)]
    assert job.tell(CheckpointEnded(1)) == []
    job.tell(EpochCommitted(1, complete=True))
    assert job.tell(TurnCame()) == [RunEpoch(2, closing=True)]


@pytest.mark.parametrize("plan", [PlanChanged(), PlanRefused(BOOM)])
def test_cancel_while_the_plan_changes_starts_nothing(plan: JobEvent) -> None:
    job = started()
    job.tell(RescaleRequested(1, WIDER), TurnCame(), CheckpointEnded(1))
    job.tell(EpochCommitted(0, complete=True), TurnCame(), EpochCommitted(1))
    job.tell(AttemptStopped(), CancelRequested())
    assert job.tell(plan)[-1] == EndJob(Outcome.CANCELLED)


def test_a_cancelled_job_does_not_wait_for_an_epoch_that_does_not_end() -> None:
    job = started()
    assert job.tell(TurnCame(), CancelRequested(), EpochAbandoned(0))[-1] == StopAttempt()
    assert job.tell(AttemptStopped())[-1] == EndJob(Outcome.CANCELLED)


def test_nor_for_the_last_one_in_which_functions_are_closed() -> None:
    job = started()
    job.tell(TurnCame(), CancelRequested(), EpochCommitted(0))
    assert job.tell(TurnCame(), EpochAbandoned(1))[-1] == StopAttempt()
    assert job.tell(AttemptStopped())[-1] == EndJob(Outcome.CANCELLED)


def test_cancel_while_a_failed_attempt_is_stopped_is_as_good_as_one_step_later() -> None:
    job = started()
    job.tell(TurnCame(), ActionFailed(BANG, 1), CancelRequested())
    assert job.tell(AttemptStopped())[-1] == EndJob(Outcome.CANCELLED)


@pytest.mark.parametrize(
    "event", [EpochCommitted(99), EpochDiscarded(99, BANG, 1), EpochAbandoned(99)]
)
def test_the_end_of_another_epoch_is_impossible(event: JobEvent) -> None:
    job = started()
    job.tell(TurnCame())
    with pytest.raises(InternalError, match="is carried out"):
        job.tell(event)


def test_an_impossible_event_is_reported_with_all_that_happened() -> None:
    job = started()
    with pytest.raises(InternalError) as caught:
        job.tell(TimeIsUp())
    assert caught.value.__notes__ == [
        "Last events and instructions of the job:\n"
        "JobStarting()\n"
        "StartAttempt(number=0)\n"
        "AttemptStarted(epoch=-1)\n"
        f"{RUNNING}\n"
        "AwaitTurn()\n"
        "TimeIsUp()"
    ]


def test_the_log_is_added_once_and_long_entries_are_cut_off() -> None:
    job = started()
    job.tell(TurnCame(), ActionFailed(JobExecutionError(1000 * "x"), 0))
    error = InternalError("it cannot be")
    job.machine.log.add_to(error)
    job.machine.log.add_to(error)
    (note,) = error.__notes__
    *_, failed, stop = note.split("\n")
    assert failed.startswith("ActionFailed(failure=JobExecutionError('xxx")
    assert len(failed) == 500
    assert stop == "StopAttempt()"


def test_an_event_may_come_while_the_log_is_added_to_an_error() -> None:
    class Failure(Exception):
        """Its text is made while another thread passes an event to the machine."""

        def __repr__(self) -> str:
            job.machine.log.append(TurnCame())
            return "Failure"

    job = started()
    job.tell(TurnCame(), ActionFailed(Failure(), 0))
    error = InternalError("it cannot be")
    job.machine.log.add_to(error)
    assert "StopAttempt()" in error.__notes__[0]


def test_the_log_keeps_the_last_thousand() -> None:
    job = started()
    for epoch in range(400):
        job.tell(TurnCame(), EpochCommitted(epoch))
    assert len(job.machine.log) == 1000
    log = list(job.machine.log)
    assert log[-4:] == [TurnCame(), RunEpoch(399), EpochCommitted(399), AwaitTurn()]
    assert log[:2] == [TurnCame(), RunEpoch(150)]


@pytest.mark.parametrize("number", range(len(ACTIONS) - 1))
def test_a_runner_that_breaks_ends_the_job_whatever_was_being_done(number: int) -> None:
    job = at_action(number)
    attempt = job.machine.attempt
    answers = [AnswerRescale(1, ENDED_BEFORE)] if number >= 3 else []
    said = job.tell(Broken(BANG))
    assert said == [ReportFailure(attempt, BANG, None), *answers, EndJob(Outcome.FAILED, BANG)]
    assert job.status is JobStatus.FAILED


def test_a_runner_that_breaks_after_the_end_changes_nothing() -> None:
    job = waiting()
    job.tell(CancelRequested())
    assert job.tell(Broken(BANG)) == []
    assert job.machine.action == CANCELLED
    assert job.status is JobStatus.CANCELED
