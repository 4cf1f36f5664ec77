"""A job with the default restart strategy and a record that fails: when it ends, and when not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Configuration, JobStatus
from holdfast.common.watermark_strategy import WatermarkStrategy
from holdfast.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.errors import RepeatedFailureError
from tests.runtime.resident.threads import Started, start

BAD = 7


class Picky(MapFunction):
    """Fails on a record, in the first attempts."""

    def __init__(self, error: type[Exception], attempts: int) -> None:
        self._error, self._attempts = error, attempts

    def open(self, runtime_context: RuntimeContext) -> None:
        self._fails = runtime_context.get_attempt_number() < self._attempts

    def map(self, value: int) -> int:
        if value == BAD and self._fails:
            msg = "not this one"
            raise self._error(msg)
        return value


class Late(KeyedProcessFunction):
    """Fails when a timer fires."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(100)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        msg = "too late"
        raise ValueError(msg)


def environment(**settings: str) -> StreamExecutionEnvironment:
    """Checkpoints are on, so the job restarts forever; it does not wait long."""
    delays = {
        f"restart-strategy.exponential-delay.{name}": "1 ms"
        for name in ("initial-backoff", "max-backoff")
    }
    given = {"execution.checkpointing.interval": "1h", **delays, **settings}
    return StreamExecutionEnvironment(Configuration(given)).set_parallelism(1)


def run(tmp_path: Path, error: type[Exception], attempts: int = 10**6, **settings: str) -> Started:
    env = environment(**settings)
    env.from_collection(range(10)).map(Picky(error, attempts)).name("picky").print()
    return start(env, tmp_path)


def failed_on(job: Started) -> RepeatedFailureError:
    with pytest.raises(RepeatedFailureError) as caught:
        job.wait()
    assert job.runner.status is JobStatus.FAILED
    return caught.value


def test_a_bad_record_ends_the_job(tmp_path: Path) -> None:
    job = run(tmp_path, ValueError)
    error = failed_on(job)
    assert (error.operator, error.record, error.error) == ("picky", "7", "ValueError: not this one")
    assert "This was failure 8 on the same record" in str(error)
    failures = list(job.runner.history.failures)
    assert [failure.restart is None for failure in failures] == [False] * 7 + [True]
    assert failures[1].reason.startswith("failure 2 of at most 8 on the same record")
    assert {failure.record for failure in failures} == {"7"}


def test_the_number_can_be_set(tmp_path: Path) -> None:
    job = run(tmp_path, ValueError, **{"holdfast.restart.same-record-limit": "2"})
    failed_on(job)
    assert len(job.runner.history.failures) == 2


def test_there_need_be_no_limit(tmp_path: Path) -> None:
    job = run(tmp_path, ValueError, 12, **{"holdfast.restart.same-record-limit": "0"})
    job.wait()
    assert len(job.runner.history.failures) == 12


def test_an_outage_is_survived(tmp_path: Path) -> None:
    job = run(tmp_path, ConnectionRefusedError, 12)
    job.wait()
    assert len(job.runner.history.failures) == 12


def test_a_timer_takes_the_place_of_the_record(tmp_path: Path) -> None:
    env = environment(**{"holdfast.restart.same-record-limit": "2"})
    numbers = env.from_collection([BAD])
    timed = numbers.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps())
    timed.key_by(lambda number: number).process(Late()).name("late").print()
    error = failed_on(start(env, tmp_path))
    assert error.record == "the timer of key 7 for 100"
    assert error.error == "ValueError: too late in on_timer()"
