"""Compaction of tables beside the commits of a sink: fewer files, the same rows, once."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException

from holdfast.common import Duration, WatermarkStrategy
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.delta import DeltaSink, DeltaSource
from holdfast.datastream.connectors.iceberg import IcebergSink, IcebergSource
from holdfast.datastream.connectors.iceberg.commit import commit_once
from holdfast.datastream.connectors.iceberg.compaction import IcebergCompaction
from holdfast.datastream.connectors.tables.compacting import CompactionThread, TableCompaction
from holdfast.runtime.failures import OperatorFailed
from holdfast.testing import LocalExecutor
from tests.datastream import delta_tables, iceberg_tables
from tests.datastream import test_delta_commits as delta
from tests.datastream import test_iceberg_commits as iceberg
from tests.datastream.sink_engine import SinkEngine

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

EVERY_SECOND = TableCompaction(2, 1 << 20)
#: what is done in the middle of the next compactions
MEANWHILE: list[Callable[[], None]] = []


def _do_meanwhile() -> None:
    if MEANWHILE:
        MEANWHILE.pop()()


@pytest.fixture(autouse=True)
def _nothing_meanwhile() -> Iterator[None]:
    MEANWHILE.clear()
    yield
    MEANWHILE.clear()
    delta.CRASHES.clear()
    iceberg.CRASHES.clear()


class DeltaNumbers(delta.Numbers):
    """Compacts at once instead of beside, so that a test knows when."""

    def _compact_beside(self) -> None:
        self._commits = 0
        CompactionThread("the table", self.compact).run()

    def compact(self) -> None:
        _do_meanwhile()
        super().compact()


class IcebergNumbers(iceberg.Numbers):
    """Compacts at once instead of beside, so that a test knows when."""

    def _compact_beside(self) -> None:
        self._commits = 0
        CompactionThread("the table", self.compact).run()


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch) -> None:
    _hook(monkeypatch)


def _hook(monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite = IcebergCompaction._rewrite

    def and_then(self: IcebergCompaction, table: Any) -> None:
        rewrite(self, table)
        _do_meanwhile()

    monkeypatch.setattr(IcebergCompaction, "_rewrite", and_then)


class Delta:
    """A Delta table of numbers."""

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder / "table")

    def sink(self, upserts: bool = False) -> Any:
        function = delta.committer(self.uri, upserts)
        return DeltaNumbers(function.place, replace(function.settings, compaction=EVERY_SECOND))

    def rows(self) -> list[dict[str, Any]]:
        return delta_tables.rows(self.uri)

    def files(self) -> int:
        return len(DeltaTable(self.uri).file_uris())

    def compactions(self) -> int:
        return sum(entry["operation"] == "OPTIMIZE" for entry in DeltaTable(self.uri).history())

    def append(self) -> None:
        rows = pa.table({"key": [9], "number": [-1]}, delta.SCHEMA)
        write_deltalake(self.uri, rows, mode="append")

    def replay(self, job: SinkEngine, event: Any) -> None:
        delta.replay(job, event)

    def delete(self) -> None:
        DeltaTable(self.uri).delete("number = 0")


class Iceberg:
    """An Iceberg table of numbers."""

    def __init__(self, folder: Path) -> None:
        self.where = iceberg_tables.properties(folder)
        iceberg_tables.catalog(self.where).create_namespace(iceberg_tables.NAMESPACE)

    def sink(self, upserts: bool = False) -> Any:
        found = iceberg.settings_of(self.where, upserts)
        return IcebergNumbers(replace(found, compaction=EVERY_SECOND))

    def rows(self) -> list[dict[str, Any]]:
        return iceberg_tables.rows(self.where)

    def table(self) -> Any:
        return iceberg_tables.load(self.where)

    def files(self) -> int:
        return len(list(self.table().scan().plan_files()))

    def compactions(self) -> int:
        found = [snapshot.summary for snapshot in self.table().snapshots()]
        return sum(each.operation.value == "replace" for each in found)

    def append(self) -> None:
        self.table().append(pa.table({"key": [9], "number": [-1]}, delta.SCHEMA))

    def replay(self, job: SinkEngine, event: Any) -> None:
        iceberg.replay(job, event, self.where)

    def delete(self) -> None:
        self.table().delete("number == 0")


@pytest.fixture(params=[Delta, Iceberg])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path)


def numbers(table: Any) -> list[int]:
    return sorted(row["number"] for row in table.rows())


@pytest.mark.parametrize("upserts", [False, True])
def test_small_files_become_one(table: Any, upserts: bool) -> None:
    job = SinkEngine(table.sink(upserts), stays=True)
    for _ in range(4):
        job.epoch(1 if upserts else 3, checkpoint=True)
    job.finish()
    assert table.compactions() >= 1
    assert table.files() < 4
    if upserts:
        assert {row["key"]: row["number"] for row in table.rows()} == delta.upserted(4)
    else:
        assert numbers(table) == list(range(12))


@pytest.mark.usefixtures("hooked")
def test_somebody_appends_meanwhile(table: Any) -> None:
    job = SinkEngine(table.sink(), stays=True)
    job.epoch(3, checkpoint=True)
    job.epoch(3, checkpoint=True)
    MEANWHILE.append(table.append)
    job.finish()
    assert numbers(table) == [-1, *range(6)]
    assert table.compactions() == 1


@pytest.mark.parametrize("tries", [1, 3])
def test_somebody_commits_just_before_the_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    """The catalog refuses it, and it is tried again with the same files."""
    table = Iceberg(tmp_path)
    left = [table.append] * tries

    def commit_late(*args: Any) -> None:
        if left:
            left.pop()()
        commit_once(*args)

    path = "holdfast.datastream.connectors.iceberg.compaction"
    monkeypatch.setattr(f"{path}.commit_once", commit_late)
    monkeypatch.setattr(f"{path}.pauses", lambda: [0.0] * 9)
    job = SinkEngine(table.sink(), stays=True)
    job.epoch(3, checkpoint=True)
    job.epoch(3, checkpoint=True)
    job.finish()
    assert not left
    assert numbers(table) == [-1] * tries + list(range(6))
    assert table.compactions() == 1
    assert iceberg_tables.hidden(table.table()) == []


def test_a_compaction_that_is_always_refused_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Iceberg(tmp_path)

    def refuse(*_: Any) -> None:
        raise CommitFailedException("somebody else was faster")

    path = "holdfast.datastream.connectors.iceberg.compaction"
    monkeypatch.setattr(f"{path}.commit_once", refuse)
    monkeypatch.setattr(f"{path}.pauses", lambda: [0.0] * 3)
    job = SinkEngine(table.sink(), stays=True)
    job.epoch(3, checkpoint=True)
    job.epoch(3, checkpoint=True)
    job.finish()
    assert numbers(table) == list(range(6))
    assert iceberg_tables.data_files(table.table()) == iceberg_tables.referred(table.table())
    assert iceberg_tables.hidden(table.table()) == []


class Unreliable:
    """A catalog whose answers to the commits of compactions are lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception, tries: int) -> None:
        self.error = error
        self.lands = False
        self.staged: list[tuple[Any, Any]] = []
        path = "holdfast.datastream.connectors.iceberg.compaction"
        monkeypatch.setattr(f"{path}.commit_once", self.commit)
        monkeypatch.setattr(f"{path}.pauses", lambda: [0.0] * tries)

    def commit(self, table: Any, staged: Any) -> None:
        self.staged.append((table, staged))
        if self.lands:
            commit_once(table, staged)
        raise self.error

    def land(self) -> None:
        """Carry out the first commit now."""
        commit_once(*self.staged[0])


def compact_six(table: Iceberg) -> None:
    job = SinkEngine(table.sink(), stays=True)
    job.epoch(3, checkpoint=True)
    job.epoch(3, checkpoint=True)
    job.finish()


@pytest.mark.parametrize("tries", [1, 3])
def test_a_compaction_whose_answer_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    """It is in the table, so its files must stay, even if there is no further try."""
    table = Iceberg(tmp_path)
    catalog = Unreliable(monkeypatch, ConnectionError("lost"), tries)
    catalog.lands = True
    compact_six(table)
    assert len(catalog.staged) == 1
    assert table.compactions() == 1
    assert numbers(table) == list(range(6))


@pytest.mark.parametrize("error", [ConnectionError("lost"), TimeoutError("no answer")])
def test_a_compaction_that_lands_when_it_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Neither its data files nor its manifests may be deleted."""
    table = Iceberg(tmp_path)
    catalog = Unreliable(monkeypatch, error, 3)
    compact_six(table)
    assert table.compactions() == 0
    catalog.land()
    assert table.compactions() == 1
    assert numbers(table) == list(range(6))


@pytest.mark.parametrize("kind", [Delta, Iceberg])
def test_a_job_that_commits_while_it_is_compacted_loses_nothing(kind: Any, tmp_path: Path) -> None:
    """The thread beside the committer, and commits as fast as they go."""
    table = kind(tmp_path)
    function = table.sink()
    base = delta.Numbers if kind is Delta else iceberg.Numbers
    _, arguments = function.__reduce__()
    job = SinkEngine(base(*arguments), stays=True)
    for _ in range(16):
        job.epoch(2, checkpoint=True)
    job.finish()
    assert numbers(table) == list(range(32))
    assert table.compactions() >= 1


@pytest.mark.usefixtures("hooked")
def test_somebody_deletes_a_row_meanwhile(table: Any) -> None:
    job = SinkEngine(table.sink(), stays=True)
    job.epoch(3, checkpoint=True)
    job.epoch(3, checkpoint=True)
    MEANWHILE.append(table.delete)
    job.finish()
    assert numbers(table) == list(range(1, 6))


@pytest.mark.usefixtures("hooked")
def test_a_compaction_that_fails_does_not_fail_the_job(
    table: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError("no space left")

    MEANWHILE.extend([fail, fail])
    job = SinkEngine(table.sink(), stays=True)
    with caplog.at_level(logging.WARNING):
        for _ in range(6):
            job.epoch(2, checkpoint=True)
        job.finish()
    assert "the compaction of the table failed, and is tried again later" in caplog.text
    assert numbers(table) == list(range(12))
    assert table.compactions() == 1  # the third


def test_a_merge_that_began_before_a_compaction_is_tried_again(tmp_path: Path) -> None:
    """Or the rows of its files would be there twice."""
    table = Delta(tmp_path)
    job = SinkEngine(delta.committer(table.uri, upserts=True), stays=True)
    for _ in range(3):
        job.epoch(3, checkpoint=True)
    job.epoch()

    class Overtaken(delta.Numbers):
        def _merge(self, found: DeltaTable, transaction: Any) -> None:
            DeltaTable(table.uri).optimize.compact()
            super()._merge(found, transaction)

    job.epoch(3, checkpoint=True)
    function = delta.committer(table.uri, upserts=True)
    job.restart(function=Overtaken(function.place, function.settings))
    job.finish()
    assert {row["key"]: row["number"] for row in table.rows()} == delta.upserted(12)
    assert len(table.rows()) == 3


def test_files_of_a_compaction_that_was_killed_are_swept_after_a_day(tmp_path: Path) -> None:
    table = Iceberg(tmp_path)
    job = SinkEngine(iceberg.committer(table.where), stays=True)
    job.epoch(3, checkpoint=True)
    job.epoch(3, checkpoint=True)
    job.epoch()
    function = table.sink()
    function._table, function._place = table.table(), job._living[0][1].function._place
    compaction = IcebergCompaction(
        function.settings.address, function._place, 1 << 20, function._compacted_files
    )
    compaction._rewrite(table.table())  # and no more
    job.restart()
    job.epoch()
    assert len(iceberg_tables.hidden(table.table())) == 1  # it may still be committed
    assert compaction._commit(table.table(), float("inf"))
    job.finish()
    assert numbers(table) == list(range(6))


HISTORIES = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {
                "records": st.integers(1, 3),
                "checkpoint": st.just(True),
                "complete": st.sampled_from([True, True, False, None]),
            }
        ),
        st.sampled_from(["before", "after"]),
        st.booleans(),
    ),
    max_size=10,
)


@pytest.mark.parametrize("kind", [Delta, Iceberg])
@settings(max_examples=8, deadline=None)
@given(history=HISTORIES, upserts=st.booleans())
def test_any_history_shows_each_record_once(kind: Any, history: list[Any], upserts: bool) -> None:
    module = delta if kind is Delta else iceberg
    module.CRASHES.clear()
    with tempfile.TemporaryDirectory() as folder:
        table = kind(Path(folder))
        job = SinkEngine(table.sink(upserts), stays=True)
        for event in history:
            table.replay(job, event)
        module.CRASHES.clear()
        job.epoch(1)
        job.finish()
        if upserts:
            found = {row["key"]: row["number"] for row in table.rows()}
            assert found == delta.upserted(job.position)
            assert len(found) == len(table.rows())
        else:
            assert numbers(table) == list(range(job.position))


def test_a_stream_of_a_table_does_not_see_compacted_rows_again(table: Any) -> None:
    job = SinkEngine(table.sink(), stays=True)
    for _ in range(4):
        job.epoch(3, checkpoint=True)
    job.epoch()
    if isinstance(table, Delta):
        source: Any = DeltaSource.for_table(table.uri).set_starting_version(0)
    else:
        first = table.table().snapshots()[0].snapshot_id
        source = IcebergSource.builder().set_catalog(iceberg_tables.CATALOG, table.where)
        source = source.set_table(iceberg_tables.TABLE).start_from_snapshot(first)
    env = StreamExecutionEnvironment.get_execution_environment()
    reader = source.monitor_continuously(Duration.of_millis(1)).build()
    seen = env.from_source(reader, WatermarkStrategy.no_watermarks(), "rows")
    expected = list(range(12))
    with LocalExecutor(seen.map(lambda row: row["number"])) as run:
        run.run_until(lambda: len(run.records) >= len(expected))
        run.epoch()
        run.epoch()
        assert sorted(run.records) == expected
    assert table.compactions() >= 1


def test_settings_of_the_builders(tmp_path: Path) -> None:
    schema = delta.SCHEMA
    for builder in (
        DeltaSink.for_table(str(tmp_path), schema),
        IcebergSink.builder().set_catalog("c", {"type": "sql"}).set_table("a.b").set_schema(schema),
    ):
        with pytest.raises(ValueError, match="compact_every: expected at least 1 commit; got 0"):
            builder.compact_every(0)
        with pytest.raises(ValueError, match="expected files of at least 1 byte; got 0"):
            builder.compact_every(5, 0)
        sink = builder.set_target_file_size(77).compact_every(5).build()
        assert sink.create_function()._compaction == TableCompaction(5, 77)


@pytest.mark.parametrize("crash", ["", "before", "after"])
def test_many_changes_are_several_commits(
    table: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, crash: str
) -> None:
    """Each of them is bounded, and the last change of a key is applied last."""
    monkeypatch.setattr("holdfast.datastream.connectors.tables.committer.MOST_CHANGES", 1)
    module = delta if isinstance(table, Delta) else iceberg
    job = SinkEngine(table.sink(upserts=True), stays=True)
    job.epoch(7, checkpoint=True)
    if crash:
        module.CRASHES.extend([crash, "", ""])  # the third of seven
        with pytest.raises(OperatorFailed):
            job.epoch()
        module.CRASHES.clear()
        job.restart()
    with caplog.at_level(logging.WARNING):
        job.finish()
    assert {row["key"]: row["number"] for row in table.rows()} == delta.upserted(7)
    assert "older checkpoint" not in caplog.text
