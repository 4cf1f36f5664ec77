"""Step 8: which failures discard an epoch, and which fail it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.driver.outcome import EpochOutcome, sort_out
from holdfast.errors import (
    DisagreementError,
    HoldfastError,
    JobExecutionError,
    UserFunctionError,
)
from holdfast.runtime.epochs.task import FailedRun
from holdfast.runtime.failures import describe_engine_error
from holdfast.runtime.wire.blocks import Block, BlockHeader, Kind
from holdfast.runtime.wire.protocol import Control, encode
from holdfast.runtime.worker.log_lines import LogLine
from holdfast.testing import LocalExecutor


def a_line(message: str) -> LogLine:
    place = ("/job.py", 1, "map", "subtask_0", 42, "node")
    return LogLine("tests.functions", logging.WARNING, message, "", "sums", 0, 1.0, *place)


def fail(run: LocalExecutor, *outcomes: list[HoldfastError]) -> Callable[[], int]:
    """Let the next tries at an epoch come to nothing but these failures; counts all tries."""
    real, left, tries = run._engine.execute, list(outcomes), 0

    def run_levels(*args: Any) -> EpochOutcome:
        nonlocal tries
        tries += 1
        if left:
            log = [[a_line(f"try {tries}")]]
            return EpochOutcome(failures=[describe_engine_error(e) for e in left.pop(0)], log=log)
        return real(*args)

    run._engine.execute = run_levels  # type: ignore[method-assign]
    return lambda: tries


def sums(env: StreamExecutionEnvironment) -> Any:
    return env.from_collection([1, 2, 3]).key_by(lambda x: 0).sum().uid("sums")


def test_a_disagreement_that_a_subtask_finds_discards_the_epoch(
    env: StreamExecutionEnvironment,
) -> None:
    with LocalExecutor(sums(env)) as run:
        tries = fail(run, [DisagreementError("two runs")], [DisagreementError("two runs")])
        run.run_to_end()
        assert tries() == 3
    assert run.records == [1, 3, 6]


def test_what_was_logged_in_discarded_runs_and_before_a_failure_is_handed_over(
    env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalExecutor(sums(env)) as run:
        fail(run, [DisagreementError("two runs")], [JobExecutionError("broken")])
        with pytest.raises(JobExecutionError, match="broken"):
            run.epoch()
    assert [record.getMessage() for record in caplog.records] == [
        "[sums #0] try 1",
        "epoch 0 is discarded and run again: two runs",
        "[sums #0] try 2",
    ]


def test_an_epoch_is_discarded_so_often_and_no_more(env: StreamExecutionEnvironment) -> None:
    with LocalExecutor(sums(env)) as run:
        tries = fail(run, *[[DisagreementError("two runs")]] * 9)
        with pytest.raises(DisagreementError, match="two runs"):
            run.epoch()
        assert tries() == 4


def test_a_failure_goes_before_the_disagreements_that_follow_from_it(
    env: StreamExecutionEnvironment,
) -> None:
    with LocalExecutor(sums(env)) as run:
        tries = fail(run, [DisagreementError("read it"), JobExecutionError("the cause")])
        with pytest.raises(JobExecutionError, match="the cause"):
            run.epoch()
        assert tries() == 1


def refuse(value: Any) -> Any:
    raise ValueError(f"no {value}")


def test_the_user_is_told_of_his_own_exception_whatever_follows_from_it(
    env: StreamExecutionEnvironment,
) -> None:
    """The middle level fails, and hands on nothing of what goes to the last one."""
    numbers = env.from_collection(range(20))
    middle = numbers.key_by(lambda n: n % 5).map(refuse).name("middle")
    last = numbers.union(middle).key_by(lambda n: n % 3).map(lambda n: n)
    for seed in range(10):
        with LocalExecutor(last, seed=seed) as run, pytest.raises(UserFunctionError) as caught:
            run.epoch()
        assert caught.value.operator == "middle"


def test_who_read_a_run_that_failed_says_so(env: StreamExecutionEnvironment) -> None:
    """Others may have read another run of that producer, and the failure itself may be lost."""
    numbers = env.from_collection(range(4)).map(lambda n: n).set_parallelism(2)
    with LocalExecutor(numbers.key_by(lambda n: n).sum()) as run:
        level, task = len(run.plan.levels) - 1, run._book.tasks(0)[-1]
        subtask = run._engine.worker(0)._take(task, 0)
        given: list[Block] = []
        with pytest.raises(FailedRun):
            # NB: nothing from the other producer
            given.extend(subtask.run(task, [last_word_of_a_failed_run(level)]))
    (failure,) = sort_out(given).failures
    assert failure.error == f"subtask 0 of level {level} read runs that failed: failed-run"


def last_word_of_a_failed_run(level: int) -> Block:
    header = BlockHeader(Kind.CONTROL, level, 0, -1, level - 1, 0, 0, 0, "failed-run")
    return Block(header, encode(Control(failed=True)))
