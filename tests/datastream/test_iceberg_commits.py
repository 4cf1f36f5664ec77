"""Commits to an Iceberg table happen once, whoever dies when.

The committer writes the files here that writers would have written, one per number.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table

from holdfast.common.types import Row, RowKind
from holdfast.datastream.connectors.iceberg import IcebergSink
from holdfast.datastream.connectors.iceberg.changes import Append, Upsert
from holdfast.datastream.connectors.iceberg.committer import IcebergCommitter
from holdfast.datastream.connectors.iceberg.history import History, look_up
from holdfast.datastream.connectors.iceberg.layout import file_schema
from holdfast.datastream.connectors.iceberg.settings import SinkSettings
from holdfast.datastream.connectors.tables.changes import Appended, Changes
from holdfast.datastream.connectors.tables.committer import TableTransaction
from holdfast.datastream.connectors.tables.files import FileSettings, TableFiles
from holdfast.datastream.functions import SinkFunction
from holdfast.errors import HoldfastError
from holdfast.runtime.failures import OperatorFailed
from tests.datastream.iceberg_tables import (
    CATALOG,
    NAMESPACE,
    TABLE,
    catalog,
    catalog_for,
    column,
    data_files,
    hidden,
    load,
    properties,
    referred,
    rows,
    transactions,
)
from tests.datastream.places import everywhere
from tests.datastream.sink_engine import Failed, Killed, Lost, SinkEngine

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

SCHEMA = pa.schema([("key", pa.int64()), ("number", pa.int64())])
KEYS = 3
#: where commits crash next: before or after the catalog has them
CRASHES: list[str] = []


class Crash(Exception):
    """The process dies."""


class Numbers(IcebergCommitter):
    """Writes a file for each number, and commits it."""

    def invoke(
        self, transaction: TableTransaction, value: Any, context: SinkFunction.Context
    ) -> None:
        self._write(transaction, (value % KEYS, value))

    def _write(self, transaction: TableTransaction, record: Any) -> None:
        key = self.settings.key
        schema = file_schema(self._table.schema(), SCHEMA.names)
        kept = Changes(schema, key) if key else Appended(schema)
        kept.add(record)
        files = TableFiles(self._place, kept.schema, FileSettings(), bool(key), self._attempt, 0)
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
def where(place: str, tmp_path: Path) -> dict[str, str]:
    """The properties of a catalog with a namespace."""
    return catalog_for(place, tmp_path)


@pytest.fixture(autouse=True)
def _no_crashes() -> None:
    CRASHES.clear()


def settings_of(where: Mapping[str, str], upserts: bool = False) -> SinkSettings:
    builder = IcebergSink.builder().set_catalog(CATALOG, where).set_table(TABLE)
    builder.set_schema(SCHEMA).create_if_absent()
    if upserts:
        builder.upsert_by("key")
    return builder.build().for_stream().settings


def committer(where: Mapping[str, str], upserts: bool = False) -> Numbers:
    return Numbers(settings_of(where, upserts))


def numbers(where: Mapping[str, str]) -> list[int]:
    return column(where, "number")


def upserted(records: int) -> dict[int, int]:
    """The table after that many records."""
    return {number % KEYS: number for number in range(records)}


def by_key(where: Mapping[str, str]) -> dict[int, int]:
    found = rows(where)
    assert len(found) == len({row["key"] for row in found})
    return {row["key"]: row["number"] for row in found}


def foreign(where: Mapping[str, str], number: int = -1) -> None:
    """Somebody else appends a row."""
    load(where).append(pa.table({"key": [100 - number], "number": [number]}, SCHEMA))


def test_a_snapshot_appears_with_its_checkpoint(where: dict[str, str]) -> None:
    job = SinkEngine(committer(where))
    job.epoch(3)
    job.epoch(2, checkpoint=True)
    assert numbers(where) == []
    job.epoch(1)
    assert numbers(where) == [0, 1, 2, 3, 4]
    assert len(load(where).snapshots()) == 1
    job.finish()
    table = load(where)
    assert numbers(where) == list(range(6))
    assert data_files(table) == referred(table)
    assert hidden(table) == []
    token = str(transactions(table)[0]).removesuffix("-0")
    assert transactions(table) == [f"{token}-0", f"{token}-1"]


@pytest.mark.parametrize("fate", [Killed(0), Killed(2), Failed(2), Lost()])
def test_runs_that_do_not_count_leave_nothing(where: dict[str, str], fate: Any) -> None:
    job = SinkEngine(committer(where))
    job.epoch(4, fates=[fate], checkpoint=True)
    job.epoch(4, fates=[fate])
    job.restart()
    job.epoch(2, fates=[fate], checkpoint=True)
    job.finish()
    table = load(where)
    assert numbers(where) == list(range(job.position))
    assert data_files(table) == referred(table)
    assert hidden(table) == []


@pytest.mark.parametrize("crash", ["before", "after"])
@pytest.mark.parametrize("upserts", [False, True])
@everywhere
def test_a_crash_around_the_commit(where: dict[str, str], crash: str, upserts: bool) -> None:
    job = SinkEngine(committer(where, upserts), stays=True)
    job.epoch(4, checkpoint=True)
    CRASHES.append(crash)
    with pytest.raises(OperatorFailed):
        job.epoch(1)
    job.restart()
    if crash == "before":  # and once more, in the recovery
        CRASHES.append(crash)
        with pytest.raises(OperatorFailed):
            job.epoch(1)
        job.restart()
    job.epoch(1)
    assert len(load(where).snapshots()) == 1
    job.finish()
    if upserts:
        assert by_key(where) == upserted(job.position)
    else:
        assert numbers(where) == list(range(job.position))


def test_later_commits_wait_for_earlier_ones(where: dict[str, str]) -> None:
    job = SinkEngine(committer(where), stays=True)
    job.epoch(1, checkpoint=True, complete=False)
    job.epoch(1, checkpoint=True)
    CRASHES.extend(["before", "before", "before"])
    with pytest.raises(OperatorFailed):
        job.epoch()
    assert numbers(where) == []
    CRASHES.clear()
    job.restart()
    job.finish()
    assert numbers(where) == [0, 1]
    assert len(load(where).snapshots()) == 2  # a snapshot for each of them, in order


@everywhere
def test_those_taken_for_dead_change_nothing(where: dict[str, str]) -> None:
    job = SinkEngine(committer(where))
    job.epoch(3, checkpoint=True)
    job.epoch(2, checkpoint=True)
    job.restart()
    job.epoch(2, checkpoint=True)
    job.epoch(1)
    for zombie in job.zombies:
        zombie()
    assert numbers(where) == list(range(7))
    job.finish()
    assert numbers(where) == list(range(8))


@everywhere
def test_two_drivers_from_one_checkpoint_commit_it_once(where: dict[str, str]) -> None:
    job = SinkEngine(committer(where), stays=True)
    job.epoch(3, checkpoint=True)
    second = SinkEngine(committer(where), stays=True)
    second.completed, second.position = job.completed, job.position
    second.restart()
    for each in (second, job):
        each.epoch(2, checkpoint=True)
        each.epoch()
    # the transaction of the checkpoint is there once; what each has written after it, too
    assert numbers(where) == [0, 1, 2, 3, 3, 4, 4]


@everywhere
def test_an_older_savepoint_repeats_what_was_committed_after_it(
    where: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    job = SinkEngine(committer(where), stays=True)
    job.epoch(2, checkpoint=True)
    savepoint = job.completed
    job.epoch(2, checkpoint=True)
    job.epoch(0)
    assert numbers(where) == [0, 1, 2, 3]
    first = load(where).snapshots()[0].snapshot_id
    job.completed = savepoint
    job.restart()
    with caplog.at_level(logging.WARNING):
        job.epoch(2, checkpoint=True)
    assert "has 1 later commits of this sink, which stay" in caplog.text
    assert f"set the table back to the snapshot {first}, and start from the same" in caplog.text
    # what the message says
    load(where).manage_snapshots().rollback_to_snapshot(first).commit()
    job.completed = savepoint
    job.restart(function=committer(where))
    job.epoch(2, checkpoint=True)
    job.finish()
    assert numbers(where) == [0, 1, 2, 3]


def test_a_table_that_was_set_back_behind_a_transaction_gets_it_again(
    where: dict[str, str],
) -> None:
    job = SinkEngine(committer(where), stays=True)
    job.epoch(1, checkpoint=True)
    job.epoch(1, checkpoint=True)
    savepoint = job.completed
    job.epoch()
    first = load(where).snapshots()[0].snapshot_id
    load(where).manage_snapshots().rollback_to_snapshot(first).commit()
    assert numbers(where) == [0]
    job.completed = savepoint
    job.restart()
    job.finish()
    assert numbers(where) == [0, 1]


@pytest.mark.parametrize("upserts", [False, True])
def test_others_may_append_and_delete(where: dict[str, str], upserts: bool) -> None:
    job = SinkEngine(committer(where, upserts), stays=True)
    job.epoch(2, checkpoint=True)
    foreign(where, -1)
    job.epoch(2, checkpoint=True)
    load(where).delete("number = 0")
    foreign(where, -2)
    job.finish()
    left = {0, 1, 2, 3} - ({0} if upserts else set())
    expected = sorted({*left, -1, -2} - ({0} if not upserts else set()))
    assert numbers(where) == expected


class Contended(Numbers):
    """Another process commits between the look and the commit, three times."""

    def commit_files(self, transaction: TableTransaction) -> None:
        original, left = Append.stage, [3]

        def stage(change: Append, *args: Any) -> None:
            original(change, *args)
            if left[0]:
                left[0] -= 1
                foreign(self.settings.address.properties, -1 - left[0])

        Append.stage = stage  # type: ignore[method-assign]
        try:
            super().commit_files(transaction)
        finally:
            Append.stage = original  # type: ignore[method-assign]


def test_a_commit_in_between_is_waited_for(where: dict[str, str]) -> None:
    job = SinkEngine(Contended(settings_of(where)), stays=True)
    job.epoch(2, checkpoint=True)
    job.epoch()
    assert numbers(where) == [-3, -2, -1, 0, 1]
    table = load(where)
    # manifests of tries that were refused are gone
    there = {str(path) for path in Path(table.location()[7:], "metadata").glob("*.avro")}
    used = {snapshot.manifest_list for snapshot in table.snapshots()} | {
        manifest.manifest_path
        for snapshot in table.snapshots()
        for manifest in snapshot.manifests(table.io)
    }
    assert {f"file://{path}" for path in there} == used


class Doubled(Numbers):
    """A process that was taken for dead commits the same between the look and the commit."""

    def commit_files(self, transaction: TableTransaction) -> None:
        kind = Upsert if self.settings.key else Append
        original = kind.stage

        def stage(change: Any, *args: Any) -> None:
            original(change, *args)
            kind.stage = original  # type: ignore[method-assign]
            other = Numbers(self.settings)
            other._table, other._place = load(self.settings.address.properties), self._place
            other._attempt = self._attempt
            other.commit_files(transaction)

        kind.stage = stage  # type: ignore[method-assign]
        super().commit_files(transaction)


@pytest.mark.parametrize("upserts", [False, True])
@everywhere
def test_one_taken_for_dead_at_the_worst_moment(where: dict[str, str], upserts: bool) -> None:
    """pyiceberg would repeat the commit by itself without a look, and commit twice."""
    job = SinkEngine(Doubled(settings_of(where, upserts)), stays=True)
    job.epoch(2, checkpoint=True)
    job.epoch()
    assert numbers(where) == [0, 1]
    table = load(where)
    assert len(table.snapshots()) == 1
    assert data_files(table) == referred(table)
    assert hidden(table) == []


@pytest.mark.parametrize("lands", [False, True])
def test_an_answer_that_is_lost(
    where: dict[str, str], monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    job = SinkEngine(committer(where), stays=True)
    job.epoch(2, checkpoint=True)
    original, lost = Table._do_commit, []

    def commit(table: Table, **given: Any) -> None:
        if lands or lost:
            original(table, **given)
        if not lost:
            lost.append(1)
            message = "504"
            raise CommitStateUnknownException(message)

    monkeypatch.setattr(Table, "_do_commit", commit)
    job.epoch()
    assert numbers(where) == [0, 1]
    assert len(load(where).snapshots()) == 1


def test_a_commit_that_is_refused_for_ever_fails_the_job_and_loses_nothing(
    where: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SinkEngine(committer(where), stays=True)
    job.epoch(2, checkpoint=True)

    def refuse(*_: Any, **__: Any) -> None:
        message = "somebody was faster"
        raise CommitFailedException(message)

    with monkeypatch.context() as patch:
        patch.setattr(Table, "_do_commit", refuse)
        patch.setattr("holdfast.datastream.connectors.iceberg.commit.pauses", lambda: [0.0] * 3)
        expected = r"could not commit the transaction \w+-0: CommitFailedException: somebody was"
        with pytest.raises(OperatorFailed, match=expected):
            job.epoch()
    job.restart()
    job.epoch()
    assert numbers(where) == [0, 1]


def test_a_table_that_was_replaced_gets_nothing(where: dict[str, str]) -> None:
    job = SinkEngine(committer(where), stays=True)
    job.epoch(2, checkpoint=True)
    catalog(where).drop_table(TABLE)
    catalog(where).create_table(TABLE, SCHEMA)
    with pytest.raises(OperatorFailed, match="cannot load the table: ValueError: Table UUID"):
        job.epoch()
    job.restart()
    expected = r"transaction \w+-0> of the checkpoint is for the table with the id .* has the id"
    with pytest.raises(OperatorFailed, match=expected):
        job.epoch()
    assert rows(where) == []


def test_a_partition_spec_that_changed_gets_nothing(where: dict[str, str]) -> None:
    job = SinkEngine(committer(where), stays=True)
    job.epoch(2, checkpoint=True)
    with load(where).update_spec() as update:
        update.add_identity("key")
    expected = "files are partitioned by nothing, and the table by key now"
    with pytest.raises(OperatorFailed, match=expected):
        job.epoch()
    with load(where).update_spec() as update:
        update.remove_field("key")
    job.restart()
    job.finish()
    assert numbers(where) == [0, 1]


def test_columns_may_be_renamed_and_added_meanwhile(where: dict[str, str]) -> None:
    job = SinkEngine(committer(where), stays=True)
    job.epoch(2, checkpoint=True)
    with load(where).update_schema() as update:
        update.rename_column("number", "amount")
        update.add_column("note", load(where).schema().find_type("key"))
    job.epoch()
    assert column(where, "amount") == [0, 1]
    assert load(where).scan(row_filter="amount > 0").count() == 1  # the bounds are right


def test_a_file_that_is_gone_is_not_referred_to(where: dict[str, str]) -> None:
    job = SinkEngine(committer(where), stays=True)
    job.epoch(2, checkpoint=True)
    for path in data_files(load(where)):
        Path(path.removeprefix("file://")).unlink()
    with pytest.raises(OperatorFailed, match=r"2 of its files are missing, among them '.*part-0-"):
        job.epoch()
    assert rows(where) == []


def test_a_sweep_keeps_files_that_the_table_or_its_history_has(where: dict[str, str]) -> None:
    job = SinkEngine(committer(where), stays=True)
    job.epoch(2, checkpoint=True, complete=None)
    job.epoch(2)
    CRASHES.append("after")
    with pytest.raises(OperatorFailed):
        job.epoch()  # two files are committed, but their marks are still there
    assert len(hidden(load(where))) == 4
    load(where).delete("number = 0")
    before = referred(load(where))
    job.completed = type(job.completed)(0, ())
    job.restart()
    job.epoch()
    table = load(where)
    assert before <= data_files(table)
    assert hidden(table) == []
    assert data_files(table) == referred(table)  # the other two are gone


class TestExpiredSnapshots:
    """What is known when the snapshots are gone that would tell."""

    def expire(self, where: Mapping[str, str]) -> None:
        """Leave only the last snapshot."""
        table = load(where)
        current = table.current_snapshot()
        assert current is not None
        old = [each.snapshot_id for each in table.snapshots() if each != current]
        table.maintenance.expire_snapshots().by_ids(old).commit()

    def committed(self, where: Mapping[str, str]) -> SinkEngine:
        """A job that has committed, whose last checkpoint still has the transaction."""
        foreign(where, -1)
        job = SinkEngine(committer(where), stays=True)
        job.epoch(2, checkpoint=True)
        job.epoch()
        foreign(where, -2)
        foreign(where, -3)
        self.expire(where)
        return job

    @pytest.fixture(autouse=True)
    def _table(self, where: dict[str, str]) -> None:
        catalog(where).create_table(TABLE, SCHEMA)

    def test_the_last_transaction_of_the_sink_is_a_property_of_the_table(
        self, where: dict[str, str]
    ) -> None:
        job = self.committed(where)
        job.restart()
        job.finish()
        assert numbers(where) == [-3, -2, -1, 0, 1]

    def test_the_files_of_the_table_tell(self, where: dict[str, str]) -> None:
        job = self.committed(where)
        self.forget(where)
        job.restart()
        job.finish()
        assert numbers(where) == [-3, -2, -1, 0, 1]

    @pytest.mark.parametrize("answer", ["committed", "missing"])
    def test_the_user_tells(self, where: dict[str, str], answer: str) -> None:
        job = self.committed(where)
        self.forget(where)
        load(where).delete("number >= 0")
        self.expire(where)
        job.restart()
        expected = r"set the table property '(holdfast\.transaction\.\w+-0)' to 'committed' or 'mis"
        with pytest.raises(OperatorFailed, match=expected) as failure:
            job.epoch()
        key = str(failure.value).split("set the table property '")[1].split("'")[0]
        load(where).transaction().set_properties({key: answer}).commit_transaction()
        job.restart()
        job.epoch()
        assert numbers(where) == [-3, -2, -1, *([0, 1] if answer == "missing" else [])]

    def forget(self, where: Mapping[str, str]) -> None:
        table = load(where)
        last = [key for key in table.properties if key.startswith("holdfast.last-transaction.")]
        table.transaction().remove_properties(*last).commit_transaction()

    def test_an_old_snapshot_does_not_matter(self, where: dict[str, str]) -> None:
        foreign(where)
        foreign(where)
        foreign(where)
        self.expire(where)
        metadata = load(where).metadata
        assert [look_up(metadata, "a", 0, begun_at) for begun_at in (1, 2, 3)] == [
            History.UNKNOWN,  # one of the sequence number 2 has expired
            History.MISSING,
            History.MISSING,
        ]


def test_deletions_of_keys_that_are_not_there_are_a_snapshot(where: dict[str, str]) -> None:
    """Or a process that was taken for dead would delete what came after."""

    class Deleting(Numbers):
        def invoke(self, transaction: Any, value: Any, context: Any) -> None:
            self._write(transaction, Row.of_kind(RowKind.DELETE, key=value, number=None))

    job = SinkEngine(Deleting(settings_of(where, upserts=True)), stays=True)
    job.epoch(1, checkpoint=True)
    job.epoch()
    assert len(load(where).snapshots()) == 1
    assert hidden(load(where)) == []


def test_two_jobs_write_at_the_same_time(where: dict[str, str]) -> None:
    catalog(where).create_table(TABLE, SCHEMA)
    failures: list[BaseException] = []

    def write() -> None:
        try:
            job = SinkEngine(committer(where), stays=True)
            for _ in range(4):
                job.epoch(1, checkpoint=True)
            job.finish()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert numbers(where) == [0, 0, 1, 1, 2, 2, 3, 3]


ROUNDS = st.fixed_dictionaries(
    {
        "records": st.integers(0, 3),
        "checkpoint": st.booleans(),
        "complete": st.sampled_from([True, True, False, None]),
    }
)
CRASH = st.sampled_from(["before", "after", "foreign"])
#: whether subtasks of the next attempt stay
RESTARTS = st.booleans()
GHOSTS = st.integers(0, 8)
HISTORIES = st.lists(st.one_of(ROUNDS, ROUNDS, CRASH, RESTARTS, GHOSTS), max_size=12)


def replay(job: SinkEngine, event: Any, where: Mapping[str, str]) -> None:
    if event == "foreign":
        foreign(where)
    elif isinstance(event, str):
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


@settings(max_examples=20, deadline=None)
@given(history=HISTORIES, upserts=st.booleans())
def test_any_history_shows_each_record_once(history: list[Any], upserts: bool) -> None:
    CRASHES.clear()
    with tempfile.TemporaryDirectory() as folder:
        where = properties(Path(folder))
        catalog(where).create_namespace(NAMESPACE)
        catalog(where).create_table(TABLE, SCHEMA)
        job = SinkEngine(committer(where, upserts), stays=True)
        for event in history:
            replay(job, event, where)
        CRASHES.clear()
        job.epoch(1)
        job.finish()
        others = [-1] * history.count("foreign")
        if upserts:
            own = upserted(job.position).values()
            assert numbers(where) == sorted([*others, *own])
        else:
            assert numbers(where) == [*others, *range(job.position)]
        table = load(where)
        assert data_files(table) == referred(table)
        assert hidden(table) == []


def test_settings_of_the_committer_travel(where: dict[str, str]) -> None:
    copied = cloudpickle.loads(cloudpickle.dumps(committer(where)))
    assert isinstance(copied.settings, SinkSettings)
    assert "sqlite" not in repr(copied.settings)  # properties may be secret


def test_a_snapshot_names_its_job_and_its_checkpoint(where: dict[str, str]) -> None:
    job = SinkEngine(committer(where))
    job.epoch(1, checkpoint=True)
    job.epoch(1, checkpoint=True)
    job.finish()
    found = [snapshot.summary for snapshot in load(where).snapshots()]
    assert [each and each.get("holdfast.checkpoint-id") for each in found] == ["1", "2"]
    assert {each and each.get("holdfast.job-name") for each in found} == {"test"}
    assert {each and each.get("holdfast.job-id") for each in found} == {"test"}
