"""How long each step of an epoch took is in its report, and in the history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import pytest

from holdfast.common import Configuration
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    SinkFunction,
)
from holdfast.errors import JobExecutionError
from holdfast.runtime import stopwatch
from holdfast.testing import LocalExecutor

SETTINGS = {"execution.checkpointing.interval": "1h"}


class Clock:
    """Time goes by only where a test says so."""

    now = 0.0

    @classmethod
    def perf_counter(cls) -> float:
        return cls.now

    @classmethod
    def pass_a_second(cls) -> None:
        cls.now += 1


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "time", Clock)


class Slow(SinkFunction, CheckpointListener):
    """A second goes by in one of its methods."""

    def __init__(self, method: str = "") -> None:
        self._method = method

    def _called(self, method: str) -> None:
        if method == self._method:
            Clock.pass_a_second()

    def invoke(self, value: Any, context: Any) -> None:
        self._called("invoke")

    def end_epoch(self) -> None:
        self._called("end_epoch")

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._called("notify_checkpoint_complete")


class Locked(SinkFunction, CheckpointedFunction):
    """Takes part in no checkpoint."""

    def invoke(self, value: Any, context: Any) -> None:
        pass

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        pass

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        raise RuntimeError("the ledger is locked")


def started(sink: SinkFunction) -> LocalExecutor:
    env = StreamExecutionEnvironment(Configuration(SETTINGS))
    env.from_collection(list(range(10))).add_sink(sink)
    return LocalExecutor(env, quota=1)


@pytest.fixture
def run() -> Iterator[LocalExecutor]:
    with started(Slow()) as running:
        running.epoch()
        yield running


@pytest.mark.parametrize(
    ("step", "method"),
    [
        ("notify", "notify_checkpoint_complete"),
        ("process", "invoke"),
        ("flush", "end_epoch"),
    ],
)
def test_steps_of_subtasks(step: str, method: str) -> None:
    with started(Slow(method)) as run:
        run.epoch(checkpoint=True)
        steps = run.epoch().steps
    assert {name for name, seconds in steps.items() if seconds == 1} == {step}


def slowed(work: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*args: Any, **more: Any) -> Any:
        Clock.pass_a_second()
        return work(*args, **more)

    return slow


@pytest.mark.parametrize(
    ("step", "work"),
    [
        ("trigger", "checkpoints.epoch_starting"),
        ("trigger", "epochs._planners.plans"),
        ("agree", "book.accept"),
        ("agree", "recorder.epoch"),
        ("deliver", "epochs._delivery.deliver"),
        ("complete", "checkpoints.store.write"),
        ("commit", "checkpoints.store.collect"),
        ("commit", "checkpoints.forget_files"),
    ],
)
def test_steps_of_the_driver(
    run: LocalExecutor, monkeypatch: pytest.MonkeyPatch, step: str, work: str
) -> None:
    owner, _, name = f"_job.{work}".rpartition(".")
    place = attrgetter(owner)(run)
    monkeypatch.setattr(place, name, slowed(getattr(place, name)))
    report = run.epoch(checkpoint=True)
    assert {name for name, seconds in report.steps.items() if seconds == 1} == {step}


def test_the_history_has_what_the_report_has(run: LocalExecutor) -> None:
    report = run.epoch(checkpoint=True)
    told = run._job.recorder.history.epochs[-1]
    assert told.epoch == report.epoch
    assert told.steps == pytest.approx(report.steps, abs=1e-6)


def test_an_epoch_is_told_though_its_checkpoint_fails_the_job() -> None:
    with started(Locked()) as run:
        with pytest.raises(JobExecutionError, match="the ledger is locked"):
            run.epoch(checkpoint=True)
        (told,) = run._job.recorder.history.epochs
    assert told.checkpoint == 1
    assert "complete" not in told.steps


def test_what_comes_more_than_once_adds_up() -> None:
    steps = stopwatch.Stopwatch()
    with steps.timed("load"):
        Clock.pass_a_second()
    with pytest.raises(ValueError, match="no"), steps.timed("load"):
        slowed(int)("no")
    assert steps.seconds == {"load": 2.0}
