"""Fewer task slots than before: what the machine of a job decides."""

from __future__ import annotations

import re
from typing import Any

import pytest

from holdfast.checkpoint.events import Outcome
from holdfast.common.job_status import JobStatus
from holdfast.driver.job.slot_watch import SlotWatch
from holdfast.driver.job_events import (
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
    JobInstruction,
    JobStarting,
    PlanChanged,
    PlanRefused,
    ReportRescale,
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
from holdfast.plan.model import Plan
from tests.driver.plans import planned, widths
from tests.driver.test_job import BANG, BOOM, CANCELLED, DELAY, RUNNING, Job, Saying, started

FOUR = planned(4, source=2)


def restarting(**traits: Any) -> Job:
    """A job on four slots whose second attempt starts."""
    job = started(**{"checkpoints": True, "restarts": 1, "plan": FOUR, **traits})
    said = job.tell(TurnCame(), ActionFailed(BOOM, 0), AttemptStopped(), TimeIsUp())
    assert said[-1] == StartAttempt(1)
    return job


def change_of(said: list[JobInstruction]) -> Plan:
    """The plan that the job is to change to, which is the last thing that was said."""
    change = said[-1]
    assert isinstance(change, ChangePlan)
    return change.plan


def reduced(slots: int = 2, **traits: Any) -> Job:
    """A job that was on four slots, and runs on fewer."""
    job = restarting(**traits)
    job.tell(SlotsMissing(1, 4, slots, 0), AttemptStopped(), PlanChanged(), AttemptStarted(5))
    assert job.machine.action == AwaitTurn()
    return job


def test_a_job_goes_on_with_what_fits() -> None:
    job = restarting()
    assert job.tell(SlotsMissing(1, 4, 3, 0)) == [StopAttempt()]
    said = job.tell(AttemptStopped())
    plan = change_of(said)
    assert said[:-1] == [ReportRescale(1, Cause.RECOVERABLE_FAILOVER, plan, FOUR)]
    # who has fewer subtasks than there are slots keeps them
    assert widths(plan) == {"source": 2, "count": 3, "print": 1}
    assert job.tell(PlanChanged()) == [StartAttempt(2)]
    assert job.tell(AttemptStarted(5)) == [RUNNING, AnswerRescale(1), AwaitTurn()]
    assert job.machine.plans.is_reduced
    # the restart strategy allows one failure, which was the lost slot
    assert job.tell(TurnCame(), ActionFailed(BANG, 9), AttemptStopped())[-1] == EndJob(
        Outcome.FAILED, BANG
    )


def test_state_stays_in_its_key_groups() -> None:
    plan = change_of(restarting().tell(SlotsMissing(1, 4, 1, 0), AttemptStopped()))
    groups = {op.uid: op.max_parallelism for op in plan.operators.values()}
    assert groups["count"] == FOUR.operators[next(iter(FOUR.operators)) + 1].max_parallelism
    assert [op.uid for op in plan.operators.values()] == [op.uid for op in FOUR.operators.values()]


def test_it_goes_back_to_what_is_wanted_from_a_new_checkpoint() -> None:
    job = reduced()
    told = ReportRescale(2, Cause.NEW_RESOURCE_AVAILABLE, FOUR, FOUR)
    assert job.tell(SlotsCame(2, 4)) == [told, TakeCheckpoint(2)]
    said = job.tell(TurnCame(), CheckpointEnded(2), EpochCommitted(6, complete=True), TurnCame())
    assert said[-1] == RunEpoch(7, closing=True)
    assert change_of(job.tell(EpochCommitted(7), AttemptStopped())) is FOUR
    said = job.tell(PlanChanged(), AttemptStarted(6))
    assert said == [StartAttempt(3), RUNNING, AnswerRescale(2), AwaitTurn()]
    assert not job.machine.plans.is_reduced
    assert job.tell(SlotsCame(3, 9)) == []


def test_slots_that_are_lost_twice_do_not_change_what_is_wanted() -> None:
    job = reduced(3, restarts=2)
    job.tell(TurnCame(), ActionFailed(BOOM, 0), AttemptStopped(), TimeIsUp())
    said = job.tell(SlotsMissing(2, 3, 1, 0), AttemptStopped())
    assert widths(change_of(said)) == {"source": 1, "count": 1, "print": 1}
    job.tell(PlanChanged(), AttemptStarted(5))
    assert job.machine.plans.wanted is FOUR
    # as many as there are: two of four
    told, _ = job.tell(SlotsCame(3, 2))
    assert isinstance(told, ReportRescale)
    assert widths(told.plan) == {"source": 2, "count": 2, "print": 1}


def test_slots_that_are_lost_again_before_the_start_narrow_it_further() -> None:
    job = restarting()
    job.tell(SlotsMissing(1, 4, 3, 0), AttemptStopped(), PlanChanged())
    job.tell(SlotsMissing(2, 3, 2, 0))
    said = job.tell(AttemptStopped())
    assert [type(one) for one in said] == [AnswerRescale, ReportRescale, ChangePlan]
    assert said[0].request == 1  # type: ignore[union-attr]
    assert widths(change_of(said))["count"] == 2


@pytest.mark.parametrize("slots", [0, 1, 2])
def test_slots_that_are_no_more_change_nothing(slots: int) -> None:
    assert reduced().tell(SlotsCame(2, slots)) == []


def test_nothing_is_asked_for_twice() -> None:
    job = reduced()
    job.tell(SlotsCame(2, 4))
    assert job.tell(SlotsCame(3, 4)) == []


@pytest.mark.parametrize(
    ("traits", "found", "message"),
    [
        (
            {"checkpoints": False},
            2,
            "job 'job' needs 4 task slots and found 2 ('holdfast.slots.wait'); start more "
            "executors, or take checkpoints, which let a job continue with fewer",
        ),
        (
            {"least_slots": 3},
            2,
            "job 'job' needs 4 task slots and found 2 ('holdfast.slots.wait'); it continues with 3 "
            "or more ('holdfast.slots.min'); start more executors, or lower that number",
        ),
        (
            {},
            0,
            "job 'job' needs 4 task slots and found 0 ('holdfast.slots.wait'); it continues with 1 "
            "or more ('holdfast.slots.min'); start more executors, or lower that number",
        ),
        (
            {"resizes": False},
            2,
            "job 'job' needs 4 task slots and found 2 ('holdfast.slots.wait'); start more "
            "executors",
        ),
    ],
)
def test_a_job_that_cannot_go_on_with_fewer_fails_in_one_line(
    traits: dict[str, Any], found: int, message: str
) -> None:
    job = restarting(**traits)
    job.tell(SlotsMissing(1, 4, found, 0))
    said = job.tell(AttemptStopped())
    assert said[-1] == EndJob(Outcome.FAILED, Saying(message))


def test_the_restart_strategy_may_let_it_wait_on() -> None:
    job = restarting(restarts=2, least_slots=3)
    said = job.tell(SlotsMissing(1, 4, 2, 0), AttemptStopped())
    assert said[-1] == Wait(DELAY)
    assert job.tell(TimeIsUp(), AttemptStarted()) == [StartAttempt(2), RUNNING, AwaitTurn()]


def test_a_job_that_never_ran_is_not_narrowed() -> None:
    job = Job(checkpoints=True, restarts=5, plan=FOUR)
    said = job.tell(JobStarting(), SlotsMissing(1, 4, 2, 0), AttemptStopped())
    assert isinstance(said[-1], EndJob)
    assert said[-1].outcome is Outcome.FAILED


def test_without_restarts_a_job_that_is_being_rescaled_is_not_narrowed() -> None:
    job = started(checkpoints=True, restarts=0, plan=planned(1))
    job.tell(RescaleRequested(1, FOUR), TurnCame(), CheckpointEnded(1))
    job.tell(EpochCommitted(0, complete=True), TurnCame(), EpochCommitted(1), AttemptStopped())
    job.tell(PlanChanged(), SlotsMissing(2, 4, 2, 0))
    assert isinstance(job.tell(AttemptStopped())[-1], EndJob)


def test_a_rescale_that_finds_too_few_slots_is_answered_and_still_wanted() -> None:
    job = started(checkpoints=True, restarts=1, plan=planned(1))
    job.tell(RescaleRequested(1, FOUR), TurnCame(), CheckpointEnded(1))
    job.tell(EpochCommitted(0, complete=True), TurnCame(), EpochCommitted(1), AttemptStopped())
    said = job.tell(PlanChanged(), SlotsMissing(2, 4, 2, 0), AttemptStopped())
    answer = said[-3]
    assert isinstance(answer, AnswerRescale)
    assert re.search(r"needs 4 task slots and found 2", str(answer.failure))
    assert widths(change_of(said))["count"] == 2
    job.tell(PlanChanged(), AttemptStarted(0))
    assert job.machine.plans.wanted is FOUR


def test_a_request_sets_what_is_wanted() -> None:
    job, three = reduced(), planned(3)
    job.tell(RescaleRequested(2, three), TurnCame(), CheckpointEnded(2))
    job.tell(EpochCommitted(6, complete=True), TurnCame(), EpochCommitted(7), AttemptStopped())
    assert job.machine.plans.wanted is FOUR
    job.tell(PlanChanged())
    assert job.machine.plans.wanted is three
    assert not job.machine.plans.is_reduced


def test_a_request_goes_before_a_return_that_has_no_checkpoint_yet() -> None:
    job, three = reduced(), planned(3)
    job.tell(SlotsCame(2, 4))
    superseded, told, checkpoint = job.tell(RescaleRequested(3, three))
    assert isinstance(superseded, AnswerRescale)
    assert (superseded.request, superseded.superseded) == (2, True)
    assert told == ReportRescale(3, Cause.UPDATE_REQUIREMENT, three, three)
    assert checkpoint == TakeCheckpoint(3)
    # its checkpoint is nobody's now
    job.tell(TurnCame())
    assert job.tell(CheckpointEnded(2)) == []


def test_a_return_whose_checkpoint_fails_is_tried_again() -> None:
    job = reduced()
    job.tell(SlotsCame(2, 4))
    assert job.tell(CheckpointEnded(2, BOOM)) == [AnswerRescale(2, BOOM)]
    assert job.tell(SlotsCame(3, 4))[-1] == TakeCheckpoint(3)


def test_a_return_that_is_refused_leaves_the_job_as_it_is() -> None:
    job = reduced()
    job.tell(SlotsCame(2, 4), TurnCame(), CheckpointEnded(2))
    job.tell(EpochCommitted(6, complete=True), TurnCame(), EpochCommitted(7), AttemptStopped())
    assert job.tell(PlanRefused(BOOM)) == [AnswerRescale(2, BOOM), StartAttempt(3)]
    assert job.machine.plans.is_reduced


def test_a_narrower_plan_that_is_refused_is_a_failure() -> None:
    job = restarting()
    job.tell(SlotsMissing(1, 4, 2, 0), AttemptStopped())
    said = job.tell(PlanRefused(BANG))
    assert said[0] == AnswerRescale(1, BANG)
    assert said[-1] == EndJob(Outcome.FAILED, BANG)
    job = restarting(restarts=2)
    job.tell(SlotsMissing(1, 4, 2, 0), AttemptStopped())
    assert job.tell(PlanRefused(BANG))[-1] == Wait(DELAY)
    assert job.machine.plans.plan is FOUR


# Cancelled


def test_a_start_that_waits_for_slots_is_cut_short() -> None:
    job = restarting()
    job.tell(CancelRequested())
    assert job.tell(StartAbandoned()) == [StopAttempt()]
    assert job.tell(AttemptStopped()) == [CANCELLED]


def test_a_job_that_is_cancelled_while_it_waits_for_slots_has_not_failed() -> None:
    job = restarting()
    job.tell(CancelRequested())
    assert job.tell(SlotsMissing(1, 4, 2, 0), AttemptStopped()) == [StopAttempt(), CANCELLED]


def test_a_job_that_is_cancelled_while_its_plan_changes_does_not_start_again() -> None:
    job = restarting()
    job.tell(SlotsMissing(1, 4, 2, 0), AttemptStopped(), CancelRequested())
    answer, end = job.tell(PlanChanged())
    assert isinstance(answer, AnswerRescale)
    assert end == CANCELLED
    assert job.status is JobStatus.CANCELED


def test_a_job_that_breaks_down_leaves_no_change_open() -> None:
    job = restarting()
    job.tell(SlotsMissing(1, 4, 2, 0), AttemptStopped())
    assert AnswerRescale in [type(said) for said in job.tell(Broken(BOOM))]


# Slots that come and go


def test_slots_count_when_their_number_stays_the_same() -> None:
    watch = SlotWatch(10)
    assert [watch.look(lambda: 4, now) for now in (10, 20)] == [None, 4]
    assert [watch.look(lambda n=n: n, now) for n, now in ((3, 30), (4, 40), (4, 50))] == [
        None,
        None,
        4,
    ]
    assert watch.look(lambda: 4, 60) is None  # a number counts once
    watch.forget()
    assert watch.look(lambda: 4, 70) is None


def test_slots_are_not_looked_for_all_the_time() -> None:
    looks = []

    def count() -> int:
        looks.append(1)
        return 4

    watch = SlotWatch(10)
    for now in range(10, 50):
        watch.look(count, now)
    assert len(looks) == 4
