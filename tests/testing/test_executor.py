"""The in-process run of a job."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

import holdfast.testing
from holdfast.checkpoint.errors import CheckpointStorageError
from holdfast.common import Types
from holdfast.datastream import DataStream, MapFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.errors import JobDefinitionError
from holdfast.savepoint import Savepoint
from holdfast.testing import CollectingSink, LocalExecutor, collect, run_locally


@pytest.fixture
def totals(env: StreamExecutionEnvironment) -> DataStream:
    numbers = env.from_collection(range(6))
    return numbers.key_by(lambda x: x % 2).sum().uid("totals").name("Totals")


def test_epoch_by_epoch(totals: DataStream) -> None:
    with LocalExecutor(totals, quota=2) as run:
        assert run.epoch().read == 2
        assert sorted(run.records) == [0, 1]
        assert not run.finished
        run.epoch(quota=3)
        assert sorted(run.records) == [0, 1, 2, 4, 6]
        run.epoch()
        assert sorted(run.records) == [0, 1, 2, 4, 6, 9]
        assert run.finished


def test_state_by_uid_and_by_name(totals: DataStream) -> None:
    run = run_locally(totals)
    descriptor = ValueStateDescriptor("reduced")
    assert run.state("totals", descriptor) == run.state("Totals", descriptor) == {0: 6, 1: 9}
    with pytest.raises(LookupError, match=r"0 operators have the name or uid 'x'; there are .*Tot"):
        run.state("x", descriptor)


def test_environment_without_a_stream(env: StreamExecutionEnvironment) -> None:
    kept = CollectingSink()
    env.from_collection([1, 2]).add_sink(kept)
    assert run_locally(env).records == []
    assert sorted(kept.records) == [1, 2]


def test_a_job_that_is_refused_leaves_no_files(
    env: StreamExecutionEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    env.enable_checkpointing(1000)
    env._configuration.set_string("execution.state-recovery.path", str(tmp_path / "none"))
    with pytest.raises(CheckpointStorageError, match="there is no savepoint or checkpoint in"):
        LocalExecutor(env.from_collection([1]))
    gc.collect()
    assert [path for path in tmp_path.rglob("*") if path.name != f"holdfast-{os.getuid()}"] == []


def test_a_savepoint_runs_an_epoch_with_as_many_records_as_the_test_says(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env.enable_checkpointing(3_600_000)
    totals = env.from_collection(range(6)).key_by(lambda n: 0).reduce(lambda a, b: a + b)
    paths = []
    with LocalExecutor(totals.uid("totals"), quota=2) as run:
        run.epoch()
        paths.append(run.savepoint(tmp_path, quota=0))
        assert run.records == [0, 1], "what the test has asked for"
        paths.append(run.savepoint(tmp_path))
        assert run.records == [0, 1, 3, 6]
        paths.append(run.savepoint(tmp_path, quota=0, stop=True))
        assert run.finished
    states = [Savepoint.read(path).keyed_state("totals", "reduced") for path in paths]
    assert [row["value"] for state in states for row in state] == [1, 6, 6]


def test_neither_an_environment_nor_a_stream() -> None:
    with pytest.raises(TypeError, match="expected an environment or a stream; got list"):
        LocalExecutor([1, 2])  # type: ignore[arg-type]


def test_parallelism_does_not_depend_on_the_machine() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).map(abs).print()
    run = LocalExecutor(env, parallelism=3)
    assert [level.parallelism for level in run.plan.levels] == [1, 3]
    assert env._local_parallelism is None


def test_parallelism_of_the_environment_comes_first(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).map(abs).print()
    assert [lv.parallelism for lv in LocalExecutor(env, parallelism=3).plan.levels] == [1, 2]


def test_same_seed_same_order(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection(range(50)).map(abs).set_parallelism(3)
    stream = numbers.rebalance().map(lambda x: x).set_parallelism(2)
    orders = [tuple(collect(stream, seed=seed, quota=7)) for seed in (1, 1, 2, 3, 4)]
    assert orders[0] == orders[1]
    assert len(set(orders)) > 1
    assert {tuple(sorted(order)) for order in orders} == {tuple(range(50))}


def test_dataframes_need_spark(env: StreamExecutionEnvironment) -> None:
    rows = env.from_collection([(1,)], Types.ROW_NAMED(["n"], [Types.INT()]))
    rows.sink_to(DataFrameSink("parquet", "somewhere")).name("lake")
    with pytest.raises(JobDefinitionError, match="'lake' reads or writes a Spark DataFrame"):
        LocalExecutor(env)


class Original(MapFunction):
    made: list[int] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.field = 1

    def __setstate__(self, state: dict[str, object]) -> None:
        self.made.append(1)

    def map(self, value: int) -> int:
        return value


def test_functions_are_pickled_as_on_spark(env: StreamExecutionEnvironment) -> None:
    """Every subtask of every worker has an object of its own."""
    Original.made.clear()
    with LocalExecutor(env.from_collection([1]).map(Original()), workers=3) as run:
        run.run_to_end()
    assert len(Original.made) >= 2


def test_what_is_public() -> None:
    assert holdfast.testing.__all__ == sorted(holdfast.testing.__all__)
    for name in holdfast.testing.__all__:
        assert getattr(holdfast.testing, name).__doc__


def test_every_name_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    assert [name for name in holdfast.testing.__all__ if f"`{name}" not in page] == []
