"""Commits to a Delta table happen once, whoever dies when.

The committer writes the files here that writers would have written, one per number.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.datastream.connectors.delta import DeltaSink, SchemaEvolution
from holdfast.datastream.connectors.delta.committer import DeltaCommitter
from holdfast.datastream.connectors.delta.table import TableSettings
from holdfast.datastream.connectors.tables.changes import Appended, Changes
from holdfast.datastream.connectors.tables.committer import TableTransaction
from holdfast.datastream.connectors.tables.files import FileSettings, TableFiles
from holdfast.datastream.connectors.tables.place import TablePlace
from holdfast.datastream.connectors.tables.written import WrittenFile
from holdfast.datastream.functions import SinkFunction
from holdfast.errors import HoldfastError
from holdfast.runtime.failures import OperatorFailed
from tests.datastream.delta_tables import column, data_files, hidden, load, referred, rows
from tests.datastream.places import everywhere
from tests.datastream.sink_engine import Failed, Killed, Lost, SinkEngine

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

SCHEMA = pa.schema([("key", pa.int64()), ("number", pa.int64())])
KEYS = 3
#: where commits crash next: before or after the version is written
CRASHES: list[str] = []


class Crash(Exception):
    """The process dies."""


class Numbers(DeltaCommitter):
    """Writes a file for each number, and commits it."""

    def invoke(
        self, transaction: TableTransaction, value: Any, context: SinkFunction.Context
    ) -> None:
        key = self.settings.key
        kept = Changes(SCHEMA, key) if key else Appended(SCHEMA)
        kept.add((value % KEYS, value))
        files = TableFiles(self.place, kept.schema, FileSettings(), bool(key), self._attempt, 0)
        files.add(kept.take(sorts_out=False)[0])
        transaction.files.extend(files.close())

    def commit_files(self, transaction: TableTransaction) -> None:
        crash = CRASHES.pop() if CRASHES else ""
        if crash == "before":
            raise Crash
        super().commit_files(transaction)
        if crash == "after":
            raise Crash


@pytest.fixture
def table(place: str) -> str:
    return f"{place}/table"


@pytest.fixture(autouse=True)
def _no_crashes() -> None:
    CRASHES.clear()


def committer(uri: str, upserts: bool = False) -> Numbers:
    builder = DeltaSink.for_table(uri, SCHEMA)
    if upserts:
        builder.upsert_by("key")
    function = builder.build().for_stream().create_function()
    return Numbers(function.place, function.settings)


def numbers(uri: str) -> list[int]:
    return column(uri, "number")


def upserted(records: int) -> dict[int, int]:
    """The table after that many records."""
    return {number % KEYS: number for number in range(records)}


def test_a_version_appears_with_its_checkpoint(table: str) -> None:
    job = SinkEngine(committer(table))
    job.epoch(3)
    job.epoch(2, checkpoint=True)
    assert numbers(table) == []
    job.epoch(1)
    assert numbers(table) == [0, 1, 2, 3, 4]
    assert DeltaTable(table).version() == 1
    job.finish()
    assert numbers(table) == list(range(6))
    assert data_files(table) == referred(table)
    assert hidden(table) == []


@pytest.mark.parametrize("fate", [Killed(0), Killed(2), Failed(2), Lost()])
def test_runs_that_do_not_count_leave_nothing(table: str, fate: Any) -> None:
    job = SinkEngine(committer(table))
    job.epoch(4, fates=[fate], checkpoint=True)
    job.epoch(4, fates=[fate])
    job.restart()
    job.epoch(2, fates=[fate], checkpoint=True)
    job.finish()
    assert numbers(table) == list(range(job.position))
    assert data_files(table) == referred(table)
    assert hidden(table) == []


@pytest.mark.parametrize("crash", ["before", "after"])
@pytest.mark.parametrize("upserts", [False, True])
@everywhere
def test_a_crash_around_the_commit(table: str, crash: str, upserts: bool) -> None:
    job = SinkEngine(committer(table, upserts), stays=True)
    job.epoch(4, checkpoint=True)
    CRASHES.append(crash)
    with pytest.raises(OperatorFailed):
        job.epoch(1)
    job.restart()
    CRASHES.append(crash)
    if crash == "before":  # and once more, in the recovery
        with pytest.raises(OperatorFailed):
            job.epoch(1)
        job.restart()
    job.epoch(1)
    assert load(table).version() == 1
    CRASHES.clear()
    job.finish()
    if upserts:
        assert {row["key"]: row["number"] for row in rows(table)} == upserted(job.position)
    else:
        assert numbers(table) == list(range(job.position))


@pytest.mark.parametrize("stays", [False, True])
def test_without_checkpoints_each_epoch_is_committed(table: str, stays: bool) -> None:
    job = SinkEngine(committer(table), checkpoints=False, stays=stays)
    job.epoch(2, fates=[] if stays else [Lost()])
    CRASHES.append("after")
    with pytest.raises(OperatorFailed):
        job.epoch(1)
    job.epoch(1)
    job.finish()
    assert numbers(table) == [0, 1, 2]
    assert data_files(table) == referred(table)


def test_later_commits_wait_for_earlier_ones(table: str) -> None:
    job = SinkEngine(committer(table), stays=True)
    job.epoch(1, checkpoint=True, complete=False)
    job.epoch(1, checkpoint=True)
    CRASHES.append("before")  # the first of the two; the second one must not hide that
    with pytest.raises(OperatorFailed):
        job.epoch()
    job.restart()
    job.finish()
    assert numbers(table) == [0, 1]
    assert DeltaTable(table).version() == 2  # a version for each of them, in order


@everywhere
def test_those_taken_for_dead_change_nothing(table: str) -> None:
    job = SinkEngine(committer(table))
    job.epoch(3, checkpoint=True)
    job.epoch(2, checkpoint=True)
    job.restart()
    job.epoch(2, checkpoint=True)
    job.epoch(1)
    for zombie in job.zombies:
        zombie()
    assert numbers(table) == list(range(7))
    job.finish()
    assert numbers(table) == list(range(8))


@everywhere
def test_two_drivers_from_one_checkpoint_commit_it_once(table: str) -> None:
    job = SinkEngine(committer(table), stays=True)
    job.epoch(3, checkpoint=True)
    second = SinkEngine(committer(table), stays=True)
    second.completed, second.position = job.completed, job.position
    second.restart()
    for each in (second, job):
        each.epoch(2, checkpoint=True)
        each.epoch()
    # the transaction of the checkpoint is there once; what each has written after it, too
    assert numbers(table) == [0, 1, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("upserts", [False, True])
@everywhere
def test_two_processes_at_the_same_time_commit_once(table: str, upserts: bool) -> None:
    """One of them may be taken for dead: it has the same transaction."""
    first = committer(table, upserts)
    first.settings.ensure()
    first._attempt = 0
    rounds = 8 if table.startswith("/") else 3
    for round_ in range(rounds):
        transaction = first.begin_transaction()
        for number in range(3):
            first.invoke(transaction, 3 * round_ + number, None)  # type: ignore[arg-type]
        transaction.token, transaction.number = "token", round_
        transaction.table = str(load(table).metadata().id)
        others = [Numbers(first.place, first.settings) for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(each.commit, transaction) for each in others]:
                done.result()
        assert load(table).version() == round_ + 1
    if upserts:
        assert {row["key"]: row["number"] for row in rows(table)} == upserted(3 * rounds)
    else:
        assert numbers(table) == list(range(3 * rounds))


@everywhere
def test_subtasks_create_the_table_at_the_same_time(place: str) -> None:
    for number in range(4):
        uri = f"{place}/{number}"
        settings, ready = committer(uri).settings, threading.Barrier(4)

        def create(settings: TableSettings = settings, ready: threading.Barrier = ready) -> str:
            ready.wait()
            settings.ensure()
            found = settings.address.load()
            assert found is not None
            return str(found.metadata().id)

        with ThreadPoolExecutor(4) as pool:
            ids = {done.result() for done in [pool.submit(create) for _ in range(4)]}
        assert len(ids) == 1
        assert load(uri).version() == 0


def test_subtasks_add_a_column_at_the_same_time(table: str) -> None:
    narrow = pa.schema([SCHEMA.field("key")])
    DeltaTable.create(table, narrow)
    sink = DeltaSink.for_table(table, SCHEMA).set_schema_evolution(SchemaEvolution.ADD_COLUMNS)
    settings, ready = sink.build().for_stream().create_function().settings, threading.Barrier(4)

    def add() -> None:
        ready.wait()
        settings.ensure()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(add) for _ in range(4)]:
            done.result()
    assert pa.schema(load(table).schema().to_arrow()).names == ["key", "number"]
    assert load(table).version() == 1


@everywhere
def test_jobs_that_write_at_the_same_time_overwrite_no_version(table: str) -> None:
    """In an object store, a version is put there if it does not exist."""

    def write() -> None:
        job = SinkEngine(committer(table), stays=True)
        for _ in range(3):
            job.epoch(1, checkpoint=True)
        job.finish()

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(write) for _ in range(3)]:
            done.result()
    assert numbers(table) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert load(table).version() == 9


@everywhere
def test_an_older_savepoint_repeats_what_was_committed_after_it(
    table: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = SinkEngine(committer(table), stays=True)
    job.epoch(2, checkpoint=True)
    savepoint = job.completed
    job.epoch(2, checkpoint=True)
    job.epoch(0)
    assert numbers(table) == [0, 1, 2, 3]
    job.completed = savepoint
    job.restart()
    with caplog.at_level(logging.WARNING):
        job.epoch(2, checkpoint=True)
    assert "has 1 later commits of this sink, which stay" in caplog.text
    assert "call DeltaTable(...).restore(1), and start it from the same" in caplog.text
    # what the message says
    load(table).restore(1)
    job.completed = savepoint
    job.restart(function=committer(table))
    job.epoch(2, checkpoint=True)
    job.finish()
    assert numbers(table) == [0, 1, 2, 3]


def test_others_may_append_and_compact(table: str) -> None:
    job = SinkEngine(committer(table), stays=True)
    job.epoch(2, checkpoint=True)
    write_deltalake(table, pa.table({"key": [9], "number": [-1]}, SCHEMA), mode="append")
    job.epoch(2, checkpoint=True)
    DeltaTable(table).optimize.compact()
    job.finish()
    assert numbers(table) == [-1, 0, 1, 2, 3]


def test_a_table_that_was_replaced_gets_nothing(table: str) -> None:
    job = SinkEngine(committer(table), stays=True)
    job.epoch(2, checkpoint=True)
    files = data_files(table)
    for path in Path(table, "_delta_log").iterdir():
        path.unlink()
    DeltaTable.create(table, SCHEMA)
    with pytest.raises(
        OperatorFailed, match=r"was replaced: <2 files for .*, transaction .*-0> is"
    ):
        job.epoch()
    assert data_files(table) == files
    assert rows(table) == []


def test_a_table_that_is_gone_or_another_one_gets_nothing(table: str) -> None:
    job = SinkEngine(committer(table), stays=True)
    job.epoch(2, checkpoint=True)
    job.restart(function=committer(f"{table}-other"))
    with pytest.raises(OperatorFailed, match=r"is for another table than the sink's, '.*-other'"):
        job.epoch()
    job = SinkEngine(committer(table), stays=True)
    job.epoch(2, checkpoint=True)
    shutil.rmtree(Path(table, "_delta_log"))
    with pytest.raises(OperatorFailed, match=r"the Delta table '.*' is gone: somebody has deleted"):
        job.epoch()


class Contended(Numbers):
    """Somebody changes the table whenever it commits."""

    def _append(self, table: DeltaTable, transaction: TableTransaction) -> None:
        other = DeltaTable(table.table_uri)
        other.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
        super()._append(table, transaction)


def test_a_commit_is_not_tried_for_ever(table: str) -> None:
    function = committer(table)
    job = SinkEngine(Contended(function.place, function.settings), stays=True)
    job.epoch(2, checkpoint=True)
    message = r"(?s)could not be committed in 20 tries, .*Metadata changed.*kept in the checkpoint"
    with pytest.raises(OperatorFailed, match=message):
        job.epoch()
    assert numbers(table) == []


class Broken(Numbers):
    """Cannot write the log."""

    def _append(self, table: DeltaTable, transaction: TableTransaction) -> None:
        log = Path(table.table_uri.removeprefix("file://"), "_delta_log")
        log.rename(log.with_name("log"))
        log.write_text("")
        try:
            super()._append(table, transaction)
        finally:
            log.unlink()
            log.with_name("log").rename(log)


def test_a_log_that_cannot_be_written_is_named(table: str) -> None:
    function = committer(table)
    job = SinkEngine(Broken(function.place, function.settings), stays=True)
    job.epoch(2, checkpoint=True)
    message = r"cannot commit to the Delta table '.*': .*<2 files for .*> is kept in the checkpoint"
    with pytest.raises(OperatorFailed, match=message):
        job.epoch()
    job.restart(function=function)
    job.finish()
    assert numbers(table) == [0, 1]


def test_a_schema_that_changed_gets_nothing(table: str) -> None:
    job = SinkEngine(committer(table), stays=True)
    job.epoch(2, checkpoint=True)
    narrow = pa.table({"key": ["a"]})
    write_deltalake(table, narrow, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(OperatorFailed, match="has no column 'number', and the sink writes it"):
        job.epoch()
    assert rows(table) == [{"key": "a"}]


def test_a_file_that_is_gone_is_not_referred_to(table: str) -> None:
    job = SinkEngine(committer(table), stays=True)
    job.epoch(2, checkpoint=True)
    for path in data_files(table):
        Path(table, path).unlink()
    with pytest.raises(
        OperatorFailed, match=r"2 of its files are missing, among them '.*part-0-0-"
    ):
        job.epoch()
    assert rows(table) == []


def test_a_sweep_keeps_files_that_the_table_or_its_history_has(table: str) -> None:
    job = SinkEngine(committer(table), stays=True)
    job.epoch(2, checkpoint=True, complete=None)
    job.epoch(2)
    CRASHES.append("after")
    with pytest.raises(OperatorFailed):
        job.epoch()  # two files are committed, but their marks are still there
    assert len(hidden(table)) == 4
    DeltaTable(table).optimize.compact()
    before = referred(table)
    job.completed = type(job.completed)(0, ())
    job.restart()
    job.epoch()
    assert before <= data_files(table)
    assert hidden(table) == []
    assert data_files(table) == referred(table)  # the other two are gone


def test_a_checkpoint_cannot_name_a_file_elsewhere(table: str) -> None:
    class Elsewhere(Numbers):
        def invoke(self, transaction: Any, value: Any, context: Any) -> None:
            transaction.files.append(WrittenFile("../x", 1, 1))

    function = committer(table)
    job = SinkEngine(Elsewhere(function.place, function.settings), stays=True)
    job.epoch(1, checkpoint=True)
    with pytest.raises(OperatorFailed, match=r"'\.\./x' is not a plain relative path"):
        job.epoch()


def test_deletions_of_keys_that_are_not_there_are_a_version(table: str) -> None:
    """Or a process that was taken for dead would delete what came after."""
    from holdfast.common.types import Row, RowKind

    class Deleting(Numbers):
        def invoke(self, transaction: Any, value: Any, context: Any) -> None:
            changes = Changes(SCHEMA, ("key",))
            changes.add(Row.of_kind(RowKind.DELETE, key=value, number=None))
            files = TableFiles(self.place, changes.schema, FileSettings(), True, 0, 0)
            files.add(changes.take(sorts_out=False)[0])
            transaction.files.extend(files.close())

    function = committer(table, upserts=True)
    job = SinkEngine(Deleting(function.place, function.settings), stays=True)
    job.epoch(1, checkpoint=True)
    job.epoch()
    assert DeltaTable(table).version() == 1
    assert hidden(table) == []


ROUNDS = st.fixed_dictionaries(
    {
        "records": st.integers(0, 3),
        "checkpoint": st.booleans(),
        "complete": st.sampled_from([True, True, False, None]),
    }
)
CRASH = st.sampled_from(["before", "after"])
#: whether subtasks of the next attempt stay
RESTARTS = st.booleans()
GHOSTS = st.integers(0, 8)
HISTORIES = st.lists(st.one_of(ROUNDS, ROUNDS, CRASH, RESTARTS, GHOSTS), max_size=12)


def replay(job: SinkEngine, event: Any) -> None:
    if isinstance(event, str):
        CRASHES.append(event)
    elif isinstance(event, bool):
        CRASHES.clear()
        job.restart(stays=event)
    elif isinstance(event, int):
        for ghost in job.ghosts[event : event + 1]:
            with contextlib.suppress(OperatorFailed, HoldfastError):
                ghost()
    else:
        try:
            job.epoch(**event)
        except OperatorFailed:
            CRASHES.clear()
            job.restart()


@settings(max_examples=40, deadline=None)
@given(history=HISTORIES, upserts=st.booleans())
def test_any_history_shows_each_record_once(history: list[Any], upserts: bool) -> None:
    CRASHES.clear()
    with tempfile.TemporaryDirectory() as folder:
        uri = f"{folder}/table"
        job = SinkEngine(committer(uri, upserts), stays=True)
        for event in history:
            replay(job, event)
        CRASHES.clear()
        job.epoch(1)
        job.finish()
        if upserts:
            assert {row["key"]: row["number"] for row in rows(uri)} == upserted(job.position)
        else:
            assert numbers(uri) == list(range(job.position))
            assert data_files(uri) == referred(uri)
        assert hidden(uri) == []


def test_settings_of_the_committer_travel(table: str) -> None:
    import cloudpickle

    copied = cloudpickle.loads(cloudpickle.dumps(committer(table)))
    assert isinstance(copied.settings, TableSettings)
    assert isinstance(copied.place, TablePlace)


def test_a_version_names_its_job_and_its_checkpoint(table: str) -> None:
    job = SinkEngine(committer(table))
    job.epoch(1, checkpoint=True)
    job.epoch(1, checkpoint=True)
    job.finish()
    (second, first) = DeltaTable(table).history()[:2]
    assert (first["holdfast.job-name"], first["holdfast.job-id"]) == ("test", "test")
    assert [each["holdfast.checkpoint-id"] for each in (first, second)] == ["1", "2"]
