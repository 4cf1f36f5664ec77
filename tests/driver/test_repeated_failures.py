"""A record that fails again after each restart ends the job; whatever else fails does not."""

from __future__ import annotations

import pickle

import pytest

from holdfast.checkpoint.events import Outcome
from holdfast.common.configuration import Configuration
from holdfast.common.options.restart import restart_strategy, same_record_limit
from holdfast.common.restart_strategy import RestartStrategies
from holdfast.driver.job.machine import JobMachine
from holdfast.driver.job.repeated_failures import place_of, repeated
from holdfast.driver.job.restart_policy import make_policy
from holdfast.driver.job_events import (
    Abilities,
    ActionFailed,
    AttemptStarted,
    AttemptStopped,
    EndJob,
    FailurePlace,
    JobInstruction,
    JobStarting,
    JobTraits,
    ReportFailure,
    TimeIsUp,
    TurnCame,
    Wait,
)
from holdfast.driver.outcome import LostSlotError
from holdfast.errors import RepeatedFailureError, UserFunctionError
from holdfast.runtime.failures import FailureReporter, OperatorFailed, is_transient, to_exception
from holdfast.state.errors import StateTypeError
from tests.driver.job_rules import validate
from tests.driver.plans import planned

TRACE = 'Traceback (most recent call last):\n  File "job.py", line 7, in parse\nValueError: bad\n'
BAD = UserFunctionError("parse", 0, "'x'", "ValueError: bad", TRACE)
BAD_PLACE = FailurePlace("parse", "'x'", "ValueError", "job.py:7")
OTHER = UserFunctionError("parse", 1, "'y'", "ValueError: bad", TRACE)
OTHER_PLACE = FailurePlace("parse", "'y'", "ValueError", "job.py:7")
LOST = LostSlotError("slot 1 is gone")
DELAY = 50


class Job:
    """A running job that restarts forever, with a limit of failures on the same record."""

    def __init__(self, limit: int) -> None:
        traits = JobTraits("job", True, True, Abilities(True, True), same_record_limit=limit)
        strategy = RestartStrategies.exponential_delay_restart(DELAY, DELAY, 1.5, 10**6, 0.0)
        self.machine = JobMachine(traits, make_policy(strategy), planned(1))
        self.machine.handle(JobStarting())

    def fail(
        self,
        failure: BaseException,
        place: FailurePlace | None = None,
        checkpoint: int | None = None,
        lost: bool = False,
    ) -> list[JobInstruction]:
        """Run an attempt that fails in its first epoch; returns what follows."""
        self.machine.handle(AttemptStarted())
        self.machine.handle(TurnCame())
        event = ActionFailed(failure, 0, lost=lost, place=place, checkpoint=checkpoint)
        self.machine.handle(event)
        said = self.machine.handle(AttemptStopped())
        validate(self.machine)
        if isinstance(self.machine.action, Wait):
            self.machine.handle(TimeIsUp())
        return said

    def bad(self, checkpoint: int | None = None) -> bool:
        """Fail on the bad record; returns whether that ends the job."""
        self.fail(BAD, BAD_PLACE, checkpoint)
        return self.machine.ended


def test_the_same_record_ends_the_job_at_the_limit() -> None:
    job = Job(3)
    first = job.fail(BAD, BAD_PLACE)
    assert first[0] == ReportFailure(0, BAD, DELAY)
    second = job.fail(BAD, BAD_PLACE)
    note = "failure 2 of at most 3 on the same record, without a checkpoint in between"
    assert second[0] == ReportFailure(1, BAD, DELAY, note)
    report, end = job.fail(BAD, BAD_PLACE)
    assert isinstance(report, ReportFailure)
    assert isinstance(end, EndJob)
    assert report.restart_ms is None
    assert report.reason.startswith("failure 3 of at most 3 on the same record")
    assert end.outcome is Outcome.FAILED
    assert end.failure is report.failure
    assert isinstance(end.failure, RepeatedFailureError)


def test_a_limit_of_one_allows_no_restart_of_such_a_failure() -> None:
    assert Job(1).bad()


def test_without_a_limit_the_policy_decides_alone() -> None:
    job = Job(0)
    assert not any(job.bad() for _ in range(100))


def test_a_completed_checkpoint_starts_the_count_again() -> None:
    job = Job(3)
    assert not any(job.bad(checkpoint) for checkpoint in (1, 1, 2, 2, 3, 3, 4, 4))
    assert job.bad(4)


def test_the_first_checkpoint_counts_as_well() -> None:
    job = Job(2)
    assert not job.bad()
    assert not job.bad(1)
    assert job.bad(1)


def test_two_bad_records_that_take_turns_end_the_job() -> None:
    job = Job(3)
    for _ in range(2):
        assert not job.bad()
        job.fail(OTHER, OTHER_PLACE)
    assert job.bad()


def test_other_failures_neither_count_nor_start_the_count_again() -> None:
    job = Job(2)
    for _ in range(5):
        job.fail(LOST, lost=True)
    assert not job.bad()
    for _ in range(5):
        job.fail(LOST, lost=True)
    assert not job.machine.ended
    assert job.bad()


def test_a_strategy_that_gives_up_earlier_has_its_way() -> None:
    traits = JobTraits("job", True, True, Abilities(True, True), same_record_limit=2)
    policy = make_policy(RestartStrategies.fixed_delay_restart(1, DELAY))
    machine = JobMachine(traits, policy, planned(1))
    machine.handle(JobStarting())
    for restart in (False, True):
        if restart:
            machine.handle(TimeIsUp())
        machine.handle(AttemptStarted())
        machine.handle(ActionFailed(BAD, 0, place=BAD_PLACE))
        said = machine.handle(AttemptStopped())
    reason = "it was restarted 1 time, which is the maximum"
    assert said == [ReportFailure(1, BAD, None, reason), EndJob(Outcome.FAILED, BAD)]


# What identifies a failure


def test_a_value_that_does_not_fit_its_state_ends_the_job_too() -> None:
    unfit = StateTypeError("state 's' of operator 'op', key 'a': value is declared Integer")
    place = place_of(unfit)
    assert place is not None
    assert place == place_of(StateTypeError(str(unfit)))
    assert place != place_of(StateTypeError("state 's' of operator 'op', key 'b': another value"))
    job = Job(2)
    job.fail(unfit, place)
    assert not job.machine.ended
    _, end = job.fail(unfit, place)
    assert isinstance(end, EndJob)
    assert end.failure is unfit


def test_a_failure_on_a_record_has_a_place() -> None:
    assert place_of(BAD) == BAD_PLACE


def test_the_subtask_the_message_and_addresses_of_objects_make_no_difference() -> None:
    def failure(subtask: int, address: str, error: str) -> UserFunctionError:
        return UserFunctionError("parse", subtask, f"<Order at {address}>", error, TRACE)

    one = place_of(failure(0, "0x7f00a1", "ValueError: at 12:00"))
    assert one == place_of(failure(1, "0x7f00b2", "ValueError: at 12:01"))
    assert one is not None


@pytest.mark.parametrize(
    "failure",
    [
        UserFunctionError("other", 0, "'x'", "ValueError: bad", TRACE),
        UserFunctionError("parse", 0, "'z'", "ValueError: bad", TRACE),
        UserFunctionError("parse", 0, "'x'", "KeyError: 'bad'", TRACE),
        UserFunctionError("parse", 0, "'x'", "ValueError: bad", TRACE.replace("7", "8")),
    ],
    ids=["operator", "record", "error", "line"],
)
def test_another_failure_has_another_place(failure: UserFunctionError) -> None:
    assert place_of(failure) not in (None, BAD_PLACE)


def test_no_record_is_to_blame_for_a_lost_slot_or_a_failure_outside_of_a_record() -> None:
    assert place_of(LOST) is None
    assert place_of(UserFunctionError("parse", 0, None, "ValueError: bad in open()", TRACE)) is None


class OperationalError(Exception):
    """As in Python's database interface."""


class ServiceUnavailable(Exception):
    """As in the client of a cloud service."""


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError("no"),
        TimeoutError(),
        OSError("gone"),
        OperationalError("server closed the connection"),
        ServiceUnavailable(),
        type("ReadTimeout", (Exception,), {})(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_something_outside_that_does_not_answer_is_no_bad_record(error: Exception) -> None:
    assert is_transient(error)
    wrapped = RuntimeError("cannot look up the price")
    wrapped.__cause__ = error
    with pytest.raises(OperatorFailed) as failed:
        FailureReporter("lookup", 0).at("x", wrapped)
    failure = to_exception(failed.value.failure)
    assert isinstance(failure, UserFunctionError)
    assert failure.record == "'x'"
    assert place_of(failure) is None


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), ZeroDivisionError()])
def test_errors_of_the_data_are_not_transient(error: Exception) -> None:
    assert not is_transient(error)
    error.__context__ = error.__cause__ = TypeError()
    error.__cause__.__cause__ = error  # a circle
    assert not is_transient(error)


# The error, and the setting


def test_the_error_says_what_where_how_often_and_what_to_do() -> None:
    error = repeated(BAD, 8)
    assert isinstance(error, RepeatedFailureError)
    assert (error.operator, error.record, error.error) == ("parse", "'x'", "ValueError: bad")
    text = str(error)
    assert text.startswith("ValueError: bad\n  in operator 'parse', subtask 0\n  record: 'x'\n")
    assert 'File "job.py", line 7, in parse' in text
    assert "This was failure 8 on the same record, without a completed checkpoint" in text
    assert "side output" in text
    assert "'holdfast.restart.same-record-limit' to a higher number, or to 0" in text
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (RepeatedFailureError, text)


def limit_of(**settings: str) -> int:
    keys = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
    configuration = Configuration(keys)
    policy = make_policy(restart_strategy(configuration))
    return same_record_limit(configuration, policy.is_unlimited)


CHECKPOINTS = {"execution__checkpointing__interval": "1s"}


def test_only_a_strategy_without_a_limit_has_a_default() -> None:
    assert limit_of(**CHECKPOINTS) == 8
    assert limit_of(restart_strategy__type="exponential-delay") == 8
    attempts = {"restart_strategy__exponential_delay__attempts_before_reset_backoff": "20"}
    assert limit_of(restart_strategy__type="exponential-delay", **attempts) == 0
    assert limit_of() == 0
    assert limit_of(restart_strategy__type="fixed-delay") == 0
    assert limit_of(restart_strategy__type="failure-rate") == 0


def test_what_is_set_applies_to_every_strategy() -> None:
    limit = {"holdfast__restart__same_record_limit": "3"}
    assert limit_of(restart_strategy__type="fixed-delay", **limit) == 3
    assert limit_of(**CHECKPOINTS, **limit) == 3
    assert limit_of(**CHECKPOINTS, holdfast__restart__same_record_limit="0") == 0
    with pytest.raises(ValueError, match="same-record-limit must be at least 0; got -1"):
        limit_of(holdfast__restart__same_record_limit="-1")
