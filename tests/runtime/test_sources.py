"""Sources: readers with a position, and the loops of source functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.datastream import (
    ParallelSourceFunction,
    RuntimeContext,
    SourceFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.collection import CollectionSource
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import CheckpointListener, SourceContext
from holdfast.testing import LocalExecutor, collect
from tests.endless import Endless

if TYPE_CHECKING:
    from tests.conftest import Executor


class Counts(SourceFunction):
    def __init__(self, count: int) -> None:
        self.count = count
        self.position = 0

    def run(self, ctx: SourceContext) -> None:
        while self.position < self.count:
            with ctx.get_checkpoint_lock():
                ctx.collect(self.position)
                self.position += 1


class Share(ParallelSourceFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.first = runtime_context.get_index_of_this_subtask()
        self.step = runtime_context.get_number_of_parallel_subtasks()

    def run(self, ctx: SourceContext) -> None:
        for number in range(self.first, 20, self.step):
            ctx.collect((self.first, number))


def test_a_loop(env: StreamExecutionEnvironment, executor: Executor) -> None:
    numbers = env.add_source(Counts(500), "counter")
    assert executor.collect(numbers.map(lambda n: -n).set_parallelism(1)) == [
        -n for n in range(500)
    ]


def test_parallel_loops(env: StreamExecutionEnvironment) -> None:
    got = collect(env.add_source(Share()).set_parallelism(3))
    assert sorted(got) == sorted((n % 3, n) for n in range(20))


def test_a_plain_loop_runs_once(env: StreamExecutionEnvironment) -> None:
    assert "parallelism=1" in env.set_parallelism(4).add_source(Counts(1))._environment.explain()


def test_an_epoch_that_runs_again_reads_the_same(env: StreamExecutionEnvironment) -> None:
    numbers = env.add_source(Counts(300)).map(lambda n: n).set_parallelism(1)
    with LocalExecutor(numbers, quota=10, workers=2) as run:
        while not run.finished:
            run.epoch(rerun=True, kill=True)
    assert run.records == list(range(300))


def test_a_loop_without_an_end(env: StreamExecutionEnvironment) -> None:
    with LocalExecutor(env.add_source(Endless()), quota=50) as run:
        run.run_until(lambda: len(run.records) >= 120)
        run.cancel()
    assert run.records == list(range(len(run.records)))
    assert run.finished


def test_a_job_that_does_not_end_in_time(env: StreamExecutionEnvironment) -> None:
    with (
        LocalExecutor(env.add_source(Endless()), quota=5) as run,
        pytest.raises(TimeoutError, match=r"is not done after 0\.0 s"),
    ):
        run.run_to_end(timeout=0.0)


class Told(Counts, CheckpointListener):
    """Writes down the checkpoints that it is told of."""

    def __init__(self, count: int, told: Path) -> None:
        super().__init__(count)
        self._told = told

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        with self._told.open("a") as file:
            file.write(f"{checkpoint_id} ")


@pytest.fixture
def checkpointed(env: StreamExecutionEnvironment, tmp_path: Path) -> StreamExecutionEnvironment:
    env.enable_checkpointing(3_600_000)
    env.get_checkpoint_config().set_checkpoint_storage_dir(str(tmp_path / "checkpoints"))
    return env


def test_a_loop_that_has_ended_is_told_of_checkpoints(
    checkpointed: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    others = checkpointed.from_collection("abcdefghij" * 100)
    with LocalExecutor(others.union(checkpointed.add_source(Told(5, told))), quota=5) as run:
        run.run_until(lambda: 4 in run.records)
        run.epoch(checkpoint=True)
        run.epoch(checkpoint=True)
        run.run_to_end()
        ids = [record.id for record in run.checkpoints]
    assert ids == [1, 2, 3], "two on order, and the last one"
    assert told.read_text().split() == ["1", "2", "3"]


def test_a_loop_begins_anew_with_each_attempt(checkpointed: StreamExecutionEnvironment) -> None:
    with LocalExecutor(checkpointed.add_source(Counts(50)), quota=10) as run:
        run.run_until(lambda: len(run.records) >= 20)
        assert run.recover() is None
        run.records.clear()
        run.run_to_end()
    assert run.records == list(range(50)), "its position was in its fields, not in state"


@pytest.mark.parametrize("parallelism", [1, 2, 3, 7])
@pytest.mark.parametrize("quota", [1, 4, 100])
def test_every_number_once(env: StreamExecutionEnvironment, parallelism: int, quota: int) -> None:
    numbers = env.from_source(NumberSequenceSource(3, 12)).set_parallelism(parallelism)
    assert sorted(collect(numbers, quota=quota, workers=2)) == list(range(3, 13))


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_a_collection_in_parts(env: StreamExecutionEnvironment, parallelism: int) -> None:
    words = env.from_source(CollectionSource(["a", "b", "c"])).set_parallelism(parallelism)
    assert sorted(collect(words, quota=1)) == ["a", "b", "c"]


def test_numbers_that_run_backwards() -> None:
    with pytest.raises(ValueError, match="start 2 is above end 1"):
        NumberSequenceSource(2, 1)


def test_several_sources_end_when_the_last_does(env: StreamExecutionEnvironment) -> None:
    short: Any = env.from_collection([1])
    long = env.from_collection(range(10))
    with LocalExecutor(short.union(long), quota=2) as run:
        run.run_to_end()
    assert len(run.reports) == 5
    assert len(run.records) == 11
