"""Sinks with a writer in each subtask and one committer for all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.common import Types
from holdfast.datastream import OutputTag, StreamExecutionEnvironment
from holdfast.datastream.connectors.base import CommittingSink
from holdfast.datastream.functions import SinkFunction, SinkWriter, TwoPhaseCommitSinkFunction
from holdfast.errors import JobTypeError
from holdfast.testing import LocalExecutor

#: the commits of the table that the test is about, each a list of files
TABLE: list[list[list[Any]]] = []
ODD = OutputTag("odd", Types.INT())


class Writer(SinkWriter):
    """Collects records; odd numbers go to a side output if that is asked for."""

    def __init__(self, aside: bool) -> None:
        self._aside = aside
        self._rows: list[Any] = []

    def write(self, value: Any, context: SinkFunction.Context) -> Iterable[Any] | None:
        if self._aside and value % 2:
            return [(ODD, value)]
        self._rows.append(value)
        return None

    def prepare_commit(self) -> Iterable[Any]:
        rows, self._rows = self._rows, []
        return [rows] if rows else []

    def abandon(self) -> None:
        self._rows = []


@dataclass
class Commit:
    """What is committed together."""

    name: str = ""
    files: list[list[int]] = field(default_factory=list)


class Committer(TwoPhaseCommitSinkFunction):
    """Adds all files of a checkpoint to the table at once, unless they are there."""

    transaction_type = Commit

    def begin_transaction(self) -> Commit:
        return Commit()

    def invoke(self, transaction: Commit, value: Any, context: SinkFunction.Context) -> None:
        transaction.files.append(value)

    def pre_commit(self, transaction: Commit) -> None:
        """The files are there."""

    def merge_transactions(self, transactions: list[Any]) -> list[Any]:
        files = [rows for each in transactions for rows in each.files]
        return [Commit("", files)] if files else []

    def commit(self, transaction: Commit) -> None:
        if transaction.files not in TABLE:
            TABLE.append(transaction.files)

    def abort(self, transaction: Commit) -> None:
        """The files stay."""


class TableSink(CommittingSink):
    name = "Sink: Table"

    def __init__(self, aside: bool = False) -> None:
        self._aside = aside

    def create_writer(self) -> SinkWriter:
        return Writer(self._aside)

    def create_function(self) -> Committer:
        return Committer()


@pytest.fixture(autouse=True)
def _empty_table() -> None:
    TABLE.clear()


def environment() -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    return env.enable_checkpointing(3_600_000)


def rows() -> list[int]:
    return sorted(value for commit in TABLE for file in commit for value in file)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_files_of_all_writers_are_committed_together(workers: int) -> None:
    env = environment()
    env.from_collection(range(20)).rebalance().sink_to(TableSink()).uid("table").name("Table")
    with LocalExecutor(env, quota=4, workers=workers) as run:
        run.epoch()
        run.epoch(checkpoint=True)
        assert TABLE == []
        run.epoch()
        assert [len(commit) for commit in TABLE] == [4]  # two epochs, two writers
        run.run_to_end()
    assert rows() == list(range(20))
    plan = run.plan
    assert [(op.uid, op.name) for op in plan.operators.values()][-2:] == [
        ("table", "Table"),
        ("table: committer", "Table: committer"),
    ]
    assert [op.parallelism for op in plan.operators.values()][-2:] == [2, 1]


def test_a_crash_repeats_and_loses_nothing() -> None:
    env = environment()
    env.from_collection(range(20)).rebalance().sink_to(TableSink())
    with LocalExecutor(env, quota=4) as run:
        run.epoch(checkpoint=True)
        run.epoch()
        run.recover()
        run.epoch(rerun=[(1, 0)])
        run.epoch(checkpoint=True)
        run.recover()
        run.run_to_end()
    assert rows() == list(range(20))


def test_records_that_do_not_fit_go_to_a_side_output() -> None:
    env = environment()
    sink = env.from_collection(range(6)).sink_to(TableSink(aside=True))
    with LocalExecutor(sink.get_side_output(ODD)) as run:
        run.run_to_end()
    assert sorted(run.records) == [1, 3, 5]
    assert rows() == [0, 2, 4]


def test_a_sink_without_side_outputs_says_so() -> None:
    sink = environment().from_collection([1]).print()
    with pytest.raises(JobTypeError, match=r"'Sink: Print to Std\. Out' has no side outputs"):
        sink.get_side_output(ODD)
