"""The simulation finds bugs in the life of a job: each breaks one rule of `JobMachine`."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.checkpoint.events import Outcome
from holdfast.common import JobStatus
from holdfast.driver.job import machine as job_module
from holdfast.driver.job import plan_changes
from holdfast.driver.job.actions import JobActions
from holdfast.driver.job.attempt_course import AttemptCourse, Goal
from holdfast.driver.job.machine import JobMachine
from holdfast.driver.job.plan_changes import PlanChanges
from holdfast.driver.job.rescaling import rescaled
from holdfast.driver.job.restart_policy import Restart
from holdfast.driver.job_events import (
    Action,
    ActionFailed,
    AnswerRescale,
    AttemptStarted,
    AwaitTurn,
    CancelRequested,
    ChangePlan,
    Effect,
    EndJob,
    EpochCommitted,
    EpochDiscarded,
    JobInstruction,
    PlanRefused,
    RescaleRequested,
    RunEpoch,
    StartAttempt,
    StopAttempt,
    Wait,
)
from holdfast.plan.model import Plan
from tests.simulation.test_planted_bugs import assert_found


@pytest.fixture(autouse=True)
def _without_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine checks of itself is switched off: what becomes of the job tells the bug."""
    monkeypatch.setattr("tests.simulation.reign.validate", lambda machine: None)


def test_an_attempt_starts_while_the_one_before_still_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    action_failed = JobMachine._action_failed

    def hasty(self: JobMachine, event: ActionFailed) -> list[JobInstruction]:
        action_failed(self, event)
        return self._after_failure(event)

    monkeypatch.setattr(JobMachine, "_action_failed", hasty)
    assert_found(among=50)


def test_numbers_of_epochs_begin_anew_with_each_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """So what a task of a former attempt writes late has the name of this one's state."""
    attempt_started = JobMachine._attempt_started

    def anew(self: JobMachine, event: AttemptStarted) -> list[JobInstruction]:
        self._course.epoch = -1
        return attempt_started(self, event)

    monkeypatch.setattr(JobMachine, "_attempt_started", anew)
    assert_found(among=50)


def test_the_job_finishes_before_a_checkpoint_covers_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new_goal = AttemptCourse._new_goal

    def careless(self: AttemptCourse, event: EpochCommitted, covered: bool) -> Goal:
        return Goal.FINISH if event.finished else new_goal(self, event, covered)

    monkeypatch.setattr(AttemptCourse, "_new_goal", careless)
    assert_found(among=50)


def test_the_last_epoch_waits_for_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """So nobody knows when the job will end."""
    next_epoch = JobMachine._next_epoch

    def patient(self: JobMachine) -> RunEpoch:
        order = next_epoch(self)
        return RunEpoch(order.epoch, closing=order.closing)

    monkeypatch.setattr(JobMachine, "_next_epoch", patient)
    assert_found(among=50)


def test_no_closing_epoch_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So listeners do not hear of the last checkpoint."""
    committed = AttemptCourse.committed

    def abrupt(self: AttemptCourse, event: EpochCommitted, covered: bool) -> Action:
        action = committed(self, event, covered)
        return action if self.goal is Goal.READ else StopAttempt()

    monkeypatch.setattr(AttemptCourse, "committed", abrupt)
    assert_found(among=50)


def test_a_stop_is_remembered_though_the_attempt_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the next attempt ends at once, as if it had its savepoint."""

    def forgetful(self: JobMachine) -> StartAttempt:
        self.attempt += 1
        self._failed = None
        return StartAttempt(self.attempt)

    monkeypatch.setattr(JobMachine, "_next_attempt", forgetful)
    assert_found(among=200)


def test_cancelling_is_forgotten_with_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt_started = JobMachine._attempt_started

    def forgetful(self: JobMachine, event: AttemptStarted) -> list[JobInstruction]:
        self._cancelled = False
        return attempt_started(self, event)

    monkeypatch.setattr(JobMachine, "_attempt_started", forgetful)
    assert_found(among=500)


def test_a_job_that_waits_cannot_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads on instead."""
    requested = JobMachine._cancel_requested

    def deaf(self: JobMachine) -> list[JobInstruction]:
        return [] if isinstance(self.action, Wait) else requested(self)

    monkeypatch.setattr(JobMachine, "_cancel_requested", deaf)
    assert_found(among=200)


def test_cancelling_cuts_short_what_must_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def rash(self: JobMachine) -> list[JobInstruction]:
        if self.ended or self._cancelled:
            return []
        self._cancelled = True
        return self._end(Outcome.CANCELLED)

    monkeypatch.setattr(JobMachine, "_cancel_requested", rash)
    assert_found(among=50)


def test_a_cancelled_job_changes_its_plan_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """And reads on with the other one."""

    def stubborn(self: JobMachine) -> list[JobInstruction]:
        if self._failed is not None:
            return self._after_failure(self._failed)
        if self._course.goal is Goal.LEAVE:
            assert self.plans.rescaling is not None
            self._cancelled = False
            return [*self._report(JobStatus.RESTARTING), ChangePlan(self.plans.rescaling.plan)]
        return self._end(job_module._OUTCOMES[self._course.goal])

    monkeypatch.setattr(JobMachine, "_attempt_stopped", stubborn)
    assert_found(among=1000)


def test_a_second_request_takes_the_place_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the first is never answered."""
    requested = JobMachine._rescale_requested

    def polite(self: JobMachine, event: RescaleRequested) -> list[JobInstruction]:
        self.plans.rescaling = None
        return requested(self, event)

    monkeypatch.setattr(JobMachine, "_rescale_requested", polite)
    assert_found(among=200)


def test_a_request_is_forgotten_when_the_job_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(
        self: JobMachine, outcome: Outcome, failure: BaseException | None = None
    ) -> list[JobInstruction]:
        self.status = job_module.STATUSES[outcome]
        return [EndJob(outcome, failure)]

    monkeypatch.setattr(JobMachine, "_end", silent)
    assert_found(among=200)


def test_a_rescaling_is_answered_before_the_job_runs_like_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint_ended = PlanChanges.checkpoint_ended

    def early(self: PlanChanges, event: Any, in_epoch: bool) -> list[Effect]:
        told = checkpoint_ended(self, event, in_epoch)
        return [*told, AnswerRescale(event.request)] if self.is_covered else told

    monkeypatch.setattr(PlanChanges, "checkpoint_ended", early)
    assert_found(among=200)


def test_a_refused_plan_is_taken_for_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = JobMachine._handle

    def blind(self: JobMachine, event: Any) -> list[JobInstruction]:
        return self._plan_changed() if isinstance(event, PlanRefused) else handle(self, event)

    monkeypatch.setattr(JobMachine, "_handle", blind)
    assert_found(among=200)


def test_the_job_leaves_before_its_checkpoint_is_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So it goes back, although nothing failed."""
    requested = JobMachine._rescale_requested

    def hasty(self: JobMachine, event: RescaleRequested) -> list[JobInstruction]:
        told = requested(self, event)
        if self.plans.rescaling is not None:
            self.plans.rescaling.covered = True
        return told

    monkeypatch.setattr(JobMachine, "_rescale_requested", hasty)
    assert_found(among=500)


def test_restarts_are_counted_anew_after_a_change_of_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    change = JobActions._change_plan

    def anew(self: JobActions, plan: Any) -> Any:
        policy: Any = self._control.machine._restarts.policy
        policy._restarts = 0
        return change(self, plan)

    monkeypatch.setattr(JobActions, "_change_plan", anew)
    assert_found(among=1000)


def test_the_policy_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Always:
        def on_failure(self, now_ms: int) -> Restart:
            return Restart(10)

    made = JobMachine.__init__

    def lenient(self: JobMachine, traits: Any, policy: Any, plan: Any) -> None:
        made(self, traits, Always(), plan)  # type: ignore[arg-type]

    monkeypatch.setattr(JobMachine, "__init__", lenient)
    assert_found(among=200)


def test_a_discarded_epoch_is_run_again_though_the_engine_cannot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def again(self: JobMachine, event: EpochDiscarded) -> list[JobInstruction]:
        assert isinstance(self.action, RunEpoch)
        return [RunEpoch(event.epoch, self.action.last, self.action.closing, again=True)]

    monkeypatch.setattr(JobMachine, "_epoch_discarded", again)
    assert_found(among=200)


def test_a_cancelled_job_reads_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = JobMachine._handle

    def slow(self: JobMachine, event: Any) -> list[JobInstruction]:
        if isinstance(event, CancelRequested) and isinstance(self.action, AwaitTurn):
            self._course.epoch += 1
        return handle(self, event)

    def next_epoch(self: JobMachine) -> RunEpoch:
        return self._course.next_epoch()

    monkeypatch.setattr(JobMachine, "_handle", slow)
    monkeypatch.setattr(JobMachine, "_next_epoch", next_epoch)
    assert_found(among=200)


# Fewer slots than before


def test_what_is_wanted_is_forgotten_with_the_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = JobMachine._narrow

    def content(self: JobMachine, plan: Plan) -> list[JobInstruction]:
        told = narrow(self, plan)
        self.plans.wanted = plan
        return told

    monkeypatch.setattr(JobMachine, "_narrow", content)
    assert_found(among=100, resident=True)


def test_operators_that_have_few_subtasks_get_as_many_as_there_are_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def alike(plan: Plan, slots: int) -> Plan | None:
        return rescaled(plan, {op.uid: slots for op in plan.operators.values()}) if slots else None

    monkeypatch.setattr(plan_changes, "fitting", alike)
    assert_found(among=100, resident=True)


def test_nobody_is_told_that_the_job_runs_with_fewer_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(self: PlanChanges, failure: BaseException | None) -> list[Effect]:
        self.narrowing = None
        return []

    monkeypatch.setattr(PlanChanges, "answer_narrowing", silent)
    assert_found(among=100, resident=True)
