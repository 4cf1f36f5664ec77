"""A job that starts from an older checkpoint is told what its table has since, and the way back."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from holdfast.datastream.connectors.tables.committer import TableCommitter
from holdfast.datastream.connectors.tables.place import TablePlace
from tests.datastream import test_delta_commits as delta
from tests.datastream import test_iceberg_commits as iceberg
from tests.datastream.sink_engine import SinkEngine

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")


@dataclass
class Table:
    """A table and its sink.

    Attributes:
        sink: makes the sink of another program.
        numbers: the records that are in the table.
        undo: does what the log says.
    """

    sink: Callable[[], Any]
    numbers: Callable[[], list[int]]
    undo: Callable[[str], None]
    log: pytest.LogCaptureFixture

    def started_from(self, job: SinkEngine, saved: Any) -> int | None:
        """Start another program from a checkpoint; return how many commits it is told of."""
        self.log.clear()
        job.completed = saved
        job.restart(function=self.sink())
        with self.log.at_level(logging.WARNING):
            job.epoch()
        told = re.findall(r"has (\d+) later commits of this sink, which stay", self.log.text)
        assert len(told) < 2
        return int(told[0]) if told else None


def _delta(folder: Path, log: pytest.LogCaptureFixture) -> Table:
    table = str(folder / "table")

    def undo(text: str) -> None:
        (version,) = re.findall(r"call DeltaTable\(\.\.\.\)\.restore\((\d+)\)", text)
        DeltaTable(table).restore(int(version))

    return Table(lambda: delta.committer(table), lambda: delta.numbers(table), undo, log)


def _iceberg(folder: Path, log: pytest.LogCaptureFixture) -> Table:
    where = iceberg.properties(folder)
    iceberg.catalog(where).create_namespace(iceberg.NAMESPACE)

    def undo(text: str) -> None:
        (snapshot,) = re.findall(r"set the table back to the snapshot (\d+),", text)
        iceberg.load(where).manage_snapshots().rollback_to_snapshot(int(snapshot)).commit()

    return Table(lambda: iceberg.committer(where), lambda: iceberg.numbers(where), undo, log)


@pytest.fixture(params=["delta", "iceberg"])
def table(
    request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> Table:
    return (_delta if request.param == "delta" else _iceberg)(tmp_path, caplog)


@pytest.mark.parametrize("pending", [True, False])
@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_later_commits_are_told_and_can_be_undone(
    table: Table, pending: bool, restarts: int
) -> None:
    """Whether the checkpoint has rows to commit, and however many attempts came after it."""
    job = SinkEngine(table.sink(), stays=True)
    job.epoch(2, checkpoint=True)
    if not pending:
        job.epoch(checkpoint=True)
    saved = job.completed
    for _ in range(restarts):
        job.restart()
        job.epoch()
    for _ in range(2):
        job.epoch(1, checkpoint=True)
    job.epoch()
    assert table.numbers() == [0, 1, 2, 3]
    assert table.started_from(job, saved) == 2
    table.undo(table.log.text)
    assert table.numbers() == [0, 1]
    assert table.started_from(job, saved) is None
    job.epoch(2, checkpoint=True)
    job.finish()
    assert table.numbers() == [0, 1, 2, 3]


@pytest.mark.parametrize("stays", [False, True])
def test_a_job_that_goes_on_is_told_nothing(table: Table, stays: bool) -> None:
    job = SinkEngine(table.sink(), stays=stays)
    for _ in range(3):
        job.epoch(1, checkpoint=True)
        assert table.started_from(job, job.completed) is None
        job.epoch(1, checkpoint=True, complete=None)
        job.epoch(1, checkpoint=True)
        job.epoch()
        assert table.started_from(job, job.completed) is None
        job.epoch(checkpoint=True)
        assert table.started_from(job, job.completed) is None
    job.finish()
    assert table.numbers() == list(range(9))


def test_it_is_told_once_and_not_at_each_restart(table: Table) -> None:
    job = SinkEngine(table.sink(), stays=True)
    job.epoch(1, checkpoint=True)
    saved = job.completed
    job.epoch(1, checkpoint=True)
    job.epoch()
    assert table.started_from(job, saved) == 1
    job.epoch(1, checkpoint=True)
    job.epoch()
    assert table.started_from(job, job.completed) is None
    assert table.started_from(job, saved) == 2
    assert table.numbers() == [0, 1, 1]


def test_other_sinks_of_the_table_do_not_count(table: Table) -> None:
    """Of other jobs, also of those that are started again without a checkpoint."""
    job, other = (SinkEngine(table.sink(), stays=True) for _ in range(2))
    job.epoch(1, checkpoint=True)
    job.epoch(checkpoint=True)
    for _ in range(3):
        other.epoch(1, checkpoint=True)
    other.finish()
    assert table.started_from(job, job.completed) is None
    job.finish()
    assert table.numbers() == [0, 0, 1, 2]


def test_rows_of_a_savepoint_that_come_after_later_commits(table: Table) -> None:
    """The job that took it has failed, gone back behind it, and gone on."""
    job = SinkEngine(table.sink(), stays=True)
    job.epoch(1, checkpoint=True)
    saved = job.savepoint(1)
    job.restart()
    job.epoch(1, checkpoint=True)
    job.epoch()
    assert table.numbers() == [0, 1]
    assert table.started_from(job, saved) == 1
    assert table.numbers() == [0, 1, 1]
    if "restore(" not in table.log.text and "snapshot" not in table.log.text:
        assert "Going back to an older version would lose rows of the checkpoint" in table.log.text
        return
    table.undo(table.log.text)
    table.started_from(job, saved)
    assert table.numbers() == [0, 1]


class Old(TableCommitter):
    """Saves where it writes, and nothing else."""

    user_context_type = TablePlace  # type: ignore[assignment]

    def initialize_user_context(self) -> Any:
        return self._place


class OldDelta(Old, delta.Numbers):
    """As the versions before had it."""


class OldIceberg(Old, iceberg.Numbers):
    """As the versions before had it."""


def test_a_savepoint_of_an_earlier_version_can_be_used(table: Table) -> None:
    function = table.sink()
    function.__class__ = OldDelta if isinstance(function, delta.Numbers) else OldIceberg
    job = SinkEngine(function, stays=True)
    job.epoch(2, checkpoint=True)
    assert table.started_from(job, job.completed) is None
    job.epoch(1, checkpoint=True)
    saved = job.completed
    job.epoch(1, checkpoint=True)
    job.epoch()
    assert table.started_from(job, saved) == 1
    assert table.numbers() == [0, 1, 2, 3]


def test_a_table_that_was_restored_to_a_time_is_searched_up_to_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was undone is not known, so nothing is said about it."""
    table, path = _delta(tmp_path, caplog), str(tmp_path / "table")
    job = SinkEngine(table.sink(), stays=True)
    job.epoch(1, checkpoint=True)
    saved = job.completed
    job.epoch(1, checkpoint=True)
    job.epoch()
    first = DeltaTable(path).history()[1]
    assert first["version"] == 1
    DeltaTable(path).restore(datetime.fromtimestamp(first["timestamp"] / 1000, UTC))
    assert table.numbers() == [0]
    assert table.started_from(job, saved) is None


def test_a_long_history_is_not_searched_as_a_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.datastream.connectors.delta.committer._SEARCHED", 2)
    table = _delta(tmp_path, caplog)
    job = SinkEngine(table.sink(), stays=True)
    job.epoch(1, checkpoint=True)
    saved = job.completed
    for _ in range(4):
        job.epoch(1, checkpoint=True)
    job.epoch()
    assert table.started_from(job, saved) == 2
    assert "The checkpoint was taken at version 0; find the version before them in" in caplog.text
