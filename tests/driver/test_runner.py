"""A job in a thread of its own, with requests from others, on an engine in this process."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.events import CheckpointStatus
from holdfast.checkpoint.saved_image import SavedImage
from holdfast.common import Configuration, JobStatus
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.state_backend import state_settings
from holdfast.driver.engine import PlannedJob
from holdfast.driver.job.attempts import AttemptRunner
from holdfast.driver.job.runner import JobRunner
from holdfast.driver.job_events import StartAttempt
from holdfast.driver.outcome import AbandonedError, SlotsMissingError
from holdfast.driver.reports import attempts_of, checkpoints_of, epochs_of
from holdfast.errors import (
    ConfigurationError,
    InternalError,
    JobCancelledError,
    JobDefinitionError,
    JobExecutionError,
    SparkLostError,
)
from holdfast.plan.model import Plan
from holdfast.testing import LocalExecutor, ManualClock
from holdfast.testing.engine import ExecutorEngine
from tests.endless import Endless

#: in seconds, for what happens in another thread
LONGEST = 240


class Engine(ExecutorEngine):
    """Fails where a test says so, once."""

    def __init__(self) -> None:
        settings = state_settings(Configuration())
        super().__init__(1, None, ManualClock(), None, settings)
        self.failing: dict[str, BaseException] = {}
        self.started: list[int] = []
        self.slots: int | None = None
        self.waiting = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def _perhaps_fail(self, where: str) -> None:
        if where in self.failing:
            raise self.failing.pop(where)

    def prepare(self, job: PlannedJob) -> None:
        self._perhaps_fail("prepare")
        super().prepare(job)

    def start(self, attempt: int, start: SavedImage | None) -> None:
        self._perhaps_fail("start")
        self.started.append(attempt)

    def await_turn(self, due_ms: int | None = None) -> None:
        self.waiting.set()
        assert self.may_go_on.wait(LONGEST)
        self._perhaps_fail("await_turn")

    def available_slots(self) -> int | None:
        return self.slots

    def check(self) -> None:
        self._perhaps_fail("check")

    def stop(self) -> None:
        super().stop()
        self._perhaps_fail("stop")


SETTINGS = {
    "execution.checkpointing.interval": "1h",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1",
    "restart-strategy.fixed-delay.delay": "0 s",
    "holdfast.epoch.max-records": "10",
}


def make(scratch: Path, engine: Engine, **settings: str) -> JobRunner:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    configuration = Configuration({**SETTINGS, **given})
    env = StreamExecutionEnvironment(configuration).set_parallelism(2)
    env.add_source(Endless()).uid("source").key_by(lambda n: n % 5).sum().uid("sums")
    plan = env._take_plan("running")
    return JobRunner(engine, plan, "job", configuration, scratch)


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.let_go()


@pytest.fixture
def job(tmp_path: Path, engine: Engine) -> Iterator[JobRunner]:
    made = make(tmp_path, engine)
    yield made
    ended(made)


def ended(job: JobRunner) -> None:
    if job.machine.action is not None:
        job.cancel()
        assert job.over.wait(LONGEST)
    else:
        job.checkpoints.store.release()


@contextmanager
def held(engine: Engine) -> Iterator[None]:
    """The job waits for its turn meanwhile."""
    engine.waiting.clear()
    engine.may_go_on.clear()
    assert engine.waiting.wait(LONGEST)
    try:
        yield
    finally:
        engine.may_go_on.set()


def waiting_for_restart(scratch: Path, engine: Engine) -> JobRunner:
    """A job whose attempt was lost, and that does nothing for an hour."""
    job = make(scratch, engine, **{"restart-strategy_fixed-delay_delay": "1 h"})
    job.start()
    with held(engine):
        engine.failing["await_turn"] = JobExecutionError("lost")
    while job.status is not JobStatus.RESTARTING:
        job.over.wait(0.01)
    return job


def parallelism_of(plan: Plan, uid: str) -> int:
    return next(op.parallelism for op in plan.operators.values() if op.uid == uid)


def at_once(number: int, do: Callable[[], Any]) -> list[Any]:
    """What a call gives or raises, in so many threads at once."""
    gate, results = threading.Barrier(number), []

    def call() -> None:
        gate.wait(LONGEST)
        try:
            results.append(do())
        except JobExecutionError as error:
            results.append(error)

    threads = [threading.Thread(target=call) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST)
    return results


def test_a_job_runs_in_its_thread_until_it_is_cancelled(job: JobRunner) -> None:
    job.start()
    assert job.checkpoint().result(LONGEST) == 1
    assert job.status is JobStatus.RUNNING
    job.cancel()
    assert job.over.wait(LONGEST)
    assert job.status is JobStatus.CANCELED
    assert isinstance(job.error, JobCancelledError)
    assert epochs_of(job.history)[-1].read == 0


def test_only_one_of_many_requests_to_rescale_is_taken(job: JobRunner, engine: Engine) -> None:
    job.start()
    with held(engine):
        answers = at_once(8, lambda: job.rescale({"sums": 1}))
    refused = [answer for answer in answers if isinstance(answer, JobExecutionError)]
    assert {str(error) for error in refused} == {"job 'running' is being rescaled already"}
    (taken,) = [answer for answer in answers if not isinstance(answer, JobExecutionError)]
    taken.result(LONGEST)
    assert len(refused) == 7
    assert parallelism_of(job.plan, "sums") == 1


def test_what_is_known_of_a_job_outlives_a_change_of_plan(job: JobRunner) -> None:
    job.start()
    first = job.checkpoint().result(LONGEST)
    job.rescale({"sums": 1}).result(LONGEST)
    after = job.checkpoint().result(LONGEST)
    seen = [(one.id, one.status) for one in checkpoints_of(job.history)]
    assert seen == [(id, CheckpointStatus.COMPLETED) for id in (first, first + 1, after)]
    assert [attempt.checkpoint for attempt in attempts_of(job.history)] == [None, first + 1]


def test_restarts_are_counted_over_a_change_of_plan(job: JobRunner, engine: Engine) -> None:
    job.start()
    job.checkpoint().result(LONGEST)
    with held(engine):
        engine.failing["await_turn"] = JobExecutionError("first")
    job.checkpoint().result(LONGEST)
    job.rescale({"sums": 1}).result(LONGEST)
    with held(engine):
        engine.failing["await_turn"] = JobExecutionError("second")
    assert job.over.wait(LONGEST)
    assert str(job.error) == "second"
    assert engine.started == [0, 1, 2]


def test_the_log_says_how_long_a_restart_took_and_why(
    job: JobRunner, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "holdfast.driver.recording")
    job.start()
    job.checkpoint().result(LONGEST)
    with held(engine):
        engine.failing["await_turn"] = JobExecutionError("lost")
    job.checkpoint().result(LONGEST)
    first, second = (attempt.measured for attempt in attempts_of(job.history))
    assert first is not None
    assert second is not None
    assert (first.number, first.stop, first.delay) == (0, 0.0, 0.0)
    assert None not in (second.load, second.first_result)
    (line,) = [text for text in caplog.messages if "restarted in" in text]
    seconds = r"\d+\.\d\d s"
    assert re.fullmatch(
        rf"job 'running' restarted in {seconds}: {seconds} until its previous attempt had stopped, "
        rf"{seconds} delay, {seconds} until it had its task slots, {seconds} until its state was "
        rf"loaded, {seconds} until its first result",
        line,
    )


def test_what_is_asked_for_while_a_job_is_rescaled_is_answered(
    job: JobRunner, engine: Engine, tmp_path: Path
) -> None:
    job.start()
    with held(engine):
        rescaled = job.rescale({"sums": 1})
        checkpoint, savepoint = job.checkpoint(), job.savepoint(str(tmp_path / "savepoints"))
    rescaled.result(LONGEST)
    assert checkpoint.result(LONGEST) == 1
    assert Path(savepoint.result(LONGEST)).is_relative_to(tmp_path / "savepoints")


def test_a_plan_that_the_engine_refuses_leaves_the_job_as_it_was(
    job: JobRunner, engine: Engine
) -> None:
    job.start()
    engine.failing["prepare"] = JobDefinitionError("not enough slots")
    with pytest.raises(JobDefinitionError, match="not enough slots"):
        job.rescale({"sums": 1}).result(LONGEST)
    job.checkpoint().result(LONGEST)
    assert job.status is JobStatus.RUNNING
    assert parallelism_of(job.plan, "sums") == 2


def test_a_job_that_waits_for_a_restart_can_be_cancelled(tmp_path: Path, engine: Engine) -> None:
    job = waiting_for_restart(tmp_path, engine)
    job.cancel()
    assert job.over.wait(LONGEST)
    assert job.status is JobStatus.CANCELED
    (attempt,) = attempts_of(job.history)
    assert attempt.failure == "lost"


def test_an_engine_that_dies_during_the_wait_ends_the_job(tmp_path: Path, engine: Engine) -> None:
    job = waiting_for_restart(tmp_path, engine)
    engine.failing["check"] = SparkLostError("gone")
    assert job.over.wait(LONGEST)
    assert job.status is JobStatus.FAILED
    assert str(job.error) == "gone"


def test_a_job_that_does_not_start_leaves_nothing(tmp_path: Path, engine: Engine) -> None:
    engine.failing["start"] = JobExecutionError("no room")
    job = make(tmp_path, engine)
    with pytest.raises(JobExecutionError, match="no room"):
        job.start()
    assert job.status is JobStatus.FAILED
    assert job.history.status == "FAILED"
    with pytest.raises(CheckpointError, match="there is no checkpoint: the job has ended"):
        job.checkpoint().result(0)
    with pytest.raises(JobExecutionError, match="job 'running' has ended"):
        job.rescale({"sums": 1})


@pytest.mark.parametrize(
    ("key", "value"),
    [("holdfast.slots.stable", "soon"), ("holdfast.slots.min", "0"), ("restart-strategy", "hope")],
)
def test_a_wrong_setting_leaves_the_checkpoint_directory_unlocked(
    tmp_path: Path, engine: Engine, key: str, value: str
) -> None:
    job = make(tmp_path, engine)
    ended(job)
    wrong = Configuration({**SETTINGS, key: value})
    wrong.remove_config("restart-strategy.type")
    with pytest.raises(ConfigurationError) as caught:
        JobRunner(engine, job.plan, "job", wrong, tmp_path)
    assert caught.value.__traceback__ is not None  # keeps the runner, and so its lock if it has one
    ended(make(tmp_path, engine))


def test_a_start_that_fails_later_is_tried_again(job: JobRunner, engine: Engine) -> None:
    job.start()
    with held(engine):
        engine.failing["start"] = engine.failing["await_turn"] = JobExecutionError("no room")
    assert job.over.wait(LONGEST)
    assert job.status is JobStatus.FAILED
    assert [attempt.failure for attempt in attempts_of(job.history)] == ["no room", "no room"]


def test_a_job_goes_on_with_fewer_slots_and_back(
    tmp_path: Path, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    job = make(tmp_path, engine, holdfast_slots_stable="0 s")
    job.start()
    job.checkpoint().result(LONGEST)
    with held(engine):
        engine.failing["await_turn"] = JobExecutionError("lost")
        engine.failing["start"] = SlotsMissingError(2, 1)
    with held(engine):
        assert parallelism_of(job.plan, "sums") == 1
        assert [seen.cause for seen in job.history.rescales.values()] == ["RECOVERABLE_FAILOVER"]
        engine.slots = 2
    until(lambda: [seen.ended is None for seen in job.history.rescales.values()] == [False, False])
    assert parallelism_of(job.plan, "sums") == 2
    fewer, back = job.history.rescales.values()
    assert (fewer.reason, back.reason) == ("SUCCEEDED", "SUCCEEDED")
    assert (fewer.slots_before, fewer.slots_after, fewer.slots_desired) == (2, 1, 2)
    assert (back.cause, back.slots_after) == ("NEW_RESOURCE_AVAILABLE", 2)
    # what was lost was a failure, and that there were too few slots was none
    assert [attempt.failure for attempt in attempts_of(job.history)] == ["lost", None, None, None]
    told = "job 'running' will run on 1 instead of 2 task slots (2 are wanted): "
    assert f"{told}there are fewer task slots" in caplog.messages
    ended(job)


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_start_that_waits_for_slots_can_be_cancelled(
    job: JobRunner, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(attempt: int, start: SavedImage | None) -> None:
        assert cancelled.wait(LONGEST)
        raise AbandonedError("the job is cancelled")

    cancelled = threading.Event()
    job.start()
    with held(engine):
        monkeypatch.setattr(engine, "abandon", cancelled.set)
        monkeypatch.setattr(engine, "start", wait)
        engine.failing["await_turn"] = JobExecutionError("lost")
    until(lambda: job.machine.action == StartAttempt(1))
    job.cancel()
    assert job.over.wait(LONGEST)
    assert job.status is JobStatus.CANCELED


def test_an_attempt_that_does_not_stop_well_ends_all_the_same(
    job: JobRunner, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    job.start()
    engine.failing["stop"] = RuntimeError("busy")
    job.cancel()
    assert job.over.wait(LONGEST)
    assert job.status is JobStatus.CANCELED
    assert "job 'running': an attempt did not stop cleanly: busy" in caplog.messages


def test_an_internal_error_has_what_happened_as_a_note(
    job: JobRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.start()
    job.checkpoint().result(LONGEST)
    monkeypatch.setattr(
        AttemptRunner, "run_epoch", lambda self, order, *_: StartAttempt(order.epoch)
    )
    assert job.over.wait(LONGEST)
    assert isinstance(job.error, InternalError)
    (note,) = job.error.__notes__
    _, *log = note.splitlines()
    assert log[:3] == ["JobStarting()", "StartAttempt(number=0)", "AttemptStarted(epoch=-1)"]
    assert job.status is JobStatus.FAILED


def test_a_local_job_can_be_rescaled(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment(Configuration(SETTINGS)).set_parallelism(2)
    sums = env.from_collection(range(20)).key_by(lambda n: n % 2).sum().uid("sums")
    with LocalExecutor(sums.set_parallelism(2), quota=5) as run:
        run.epoch()
        done = run._job.rescale({"sums": 1})
        run.run_until(done.done)
        assert parallelism_of(run.plan, "sums") == 1
        run.run_to_end()
    assert max(run.records) == sum(range(1, 20, 2))
