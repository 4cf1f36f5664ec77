"""Rows of DataFrame sinks are written once, whoever dies when; without Spark."""

from __future__ import annotations

import json
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from holdfast.checkpoint.errors import CheckpointCorruptionError
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.errors import JobDefinitionError, JobExecutionError
from holdfast.filesystem import (
    FileSystemError,
    LocalFileSystem,
    LockedError,
    MissingFileError,
    configure,
    file_system_of,
)
from holdfast.filesystem.arrow import ArrowFileSystem
from holdfast.spark.dataframe_writer import SAVED_ROWS, SparkWriters, _Sink
from holdfast.spark.published_rows import publish
from holdfast.spark.row_transactions import RowTransaction, RowTransactions, delete_staged
from holdfast.spark.writer_places import at_least_once
from holdfast.state.errors import StateMigrationError


class Died(Exception):
    """The driver dies."""


class Steps:
    """Dies at the n-th call of the file system or of the writer."""

    def __init__(self) -> None:
        self.left = -1

    def __call__(self) -> None:
        if self.left == 0:
            self.left = -1
            raise Died
        self.left -= 1


STEPS = Steps()


@pytest.fixture(autouse=True, scope="module")
def _steps() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("move", "delete", "delete_tree", "write", "read", "sync_files"):
            patch.setattr(LocalFileSystem, name, _stepwise(getattr(LocalFileSystem, name)))
        yield


def _stepwise(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        STEPS()
        result = method(*args, **named)
        STEPS()
        return result

    return call


class Driver:
    """Drivers of one job, one after another; rows are numbers."""

    def __init__(self, folder: str) -> None:
        self.out = Path(folder, "out")
        self.staging = Path(folder, "rows", "job")
        self.staging.mkdir(parents=True)
        self.checkpoint: tuple[int, bytes | None] = (0, None)
        self.position = 0
        self.ids = 0
        self.begin()

    def begin(self) -> None:
        """Another driver starts from the last complete checkpoint."""
        self.position = self.checkpoint[0]
        self.completed: list[int] = []
        self.transactions = RowTransactions(self.commit)
        self.transactions.begin_attempt(self.checkpoint[1])

    def commit(self, transaction: RowTransaction) -> None:
        def write(to: str) -> None:
            STEPS()
            for number, file in enumerate(transaction.files):
                # as Spark does: names are new with every write, and there are partitions
                directory = Path(to.removeprefix("file://"), f"part={number % 2}")
                directory.mkdir(parents=True, exist_ok=True)
                (directory / f"part-{uuid.uuid4().hex}.json").write_bytes(Path(file).read_bytes())
                STEPS()
            Path(to.removeprefix("file://"), "_SUCCESS").touch()

        publish(str(self.out), transaction, write)

    def epoch(self, records: int, checkpoint: bool, complete: bool) -> None:
        """Run an epoch, after the notification of what is complete."""
        self.transactions.complete(self.completed)
        self.completed = []
        numbers = list(range(self.position, self.position + records))
        for number in numbers:
            file = self.staging / f"{uuid.uuid4().hex}.parquet"
            file.write_text(json.dumps([number]))
            self.transactions.collect("sink", [str(file)])
        self.position += records
        if checkpoint:
            self.ids += 1
            saved = self.transactions.save(self.ids)
            if complete:
                self.checkpoint = (self.position, saved)
                self.completed.append(self.ids)

    def finish(self) -> None:
        self.epoch(0, True, True)
        self.epoch(0, False, False)

    def shown(self) -> list[int]:
        """What a reader sees, who ignores hidden files."""
        found = [path for path in self.out.rglob("*") if path.is_file()]
        visible = [
            path
            for path in found
            if not any(part[0] in "._" for part in path.relative_to(self.out).parts)
        ]
        return sorted(number for path in visible for number in json.loads(path.read_text()))


EPOCHS = st.tuples(st.integers(0, 3), st.booleans(), st.booleans())
DEATHS = st.integers(0, 30)
HISTORIES = st.lists(st.one_of(EPOCHS, EPOCHS, DEATHS, st.none()), max_size=14)


@settings(max_examples=80, deadline=None)
@given(history=HISTORIES)
def test_any_history_shows_each_row_once(history: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        STEPS.left = -1
        driver = Driver(folder)
        for event in history:
            if isinstance(event, int):
                STEPS.left = event
                continue
            try:
                driver.begin() if event is None else driver.epoch(*event)
            except Died:
                driver.begin()
            shown = driver.shown()
            assert len(shown) == len(set(shown)), "nothing is seen twice"
            assert set(shown) <= set(range(driver.checkpoint[0])), "nothing is seen too early"
        STEPS.left = -1
        driver.finish()
        assert driver.shown() == list(range(driver.position)), "nothing is lost"


def test_a_death_at_every_step(tmp_path: Path) -> None:
    for step in range(200):
        (tmp_path / str(step)).mkdir()
        driver = Driver(str(tmp_path / str(step)))
        driver.epoch(3, True, True)
        driver.epoch(2, True, True)
        STEPS.left = step
        try:
            driver.epoch(0, False, False)
        except Died:
            driver.begin()
        else:
            STEPS.left = -1
            assert step > 10
            return
        assert driver.shown() == list(range(5))
        driver.begin()  # and once more, from the same checkpoint
        assert driver.shown() == list(range(5))
    pytest.fail("never came to an end")


def test_a_death_at_every_step_on_an_object_store(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A move is a copy and a deletion there."""

    def move(self: Any, source: str, target: str) -> None:
        self._arrow.copy_file(source, target)
        STEPS()
        self.delete(source)

    def write(to: str) -> None:
        system, folder = file_system_of(to)
        # as Spark does: names are new with every write
        with system.open_output(f"{folder}/part=0/{uuid.uuid4().hex}") as file:
            file.write(b"rows")

    monkeypatch.setattr(ArrowFileSystem, "move", move)
    for name in ("move", "delete_tree", "write"):
        monkeypatch.setattr(ArrowFileSystem, name, _stepwise(getattr(ArrowFileSystem, name)))
    transaction = RowTransaction("sink", "token", 0, ("file",))
    configure(s3.options)
    for step in range(100):
        address = f"{s3.uri}/{step}"
        STEPS.left = step
        try:
            publish(address, transaction, write)
            ends = STEPS.left >= 0
        except Died:
            ends = False
            publish(address, transaction, write)
        STEPS.left = -1
        system, base = file_system_of(address)
        assert len(system.list_directory(f"{base}/part=0")) == 1
        if ends:
            publish(address, transaction, lambda to: pytest.fail("it was published"))
            assert step > 5
            configure({})
            return
    pytest.fail("never came to an end")


@pytest.mark.parametrize("every_start", [False, True])
def test_rows_of_a_savepoint_stay_though_no_checkpoint_has_them(
    tmp_path: Path, every_start: bool
) -> None:
    driver = Driver(str(tmp_path))
    staged = driver.staging.parent if every_start else driver.staging
    driver.epoch(2, True, True)
    driver.epoch(3, False, False)
    saved = driver.transactions.save(9, savepoint=True)
    driver.epoch(1, False, False)
    driver.begin()  # it knows nothing of the savepoint
    delete_staged(str(staged))
    assert len(list(driver.staging.glob("*.parquet"))) == 3
    driver.checkpoint = (5, saved)
    driver.begin()
    assert driver.shown() == list(range(5))
    delete_staged(str(staged))
    assert not staged.exists()


def test_published_files_may_be_moved_away(tmp_path: Path) -> None:
    driver = Driver(str(tmp_path))
    driver.epoch(3, True, True)
    driver.epoch(0, False, False)
    for path in driver.out.rglob("part-*"):
        path.unlink()
    driver.begin()
    assert driver.shown() == []


def test_rows_on_the_disk_of_another_host_are_an_error(tmp_path: Path) -> None:
    transaction = RowTransaction("sink", "token", 0, ("file",))
    with pytest.raises(MissingFileError, match=r"there is no file: .* that all hosts share"):
        publish(str(tmp_path), transaction, lambda to: None)
    publish(str(tmp_path), transaction, lambda to: _write_one(Path(to.removeprefix("file://"))))
    assert [path.name for path in tmp_path.glob("part*")] == ["part-0"]


def test_two_drivers_do_not_publish_at_the_same_time(tmp_path: Path) -> None:
    transaction = RowTransaction("sink", "token", 0, ("file",))

    def write(to: str) -> None:
        with pytest.raises(LockedError, match=r"another driver publishes .* Stop one of the two"):
            publish(str(tmp_path), transaction, lambda to: pytest.fail("it has no lock"))
        _write_one(Path(to.removeprefix("file://")))

    publish(str(tmp_path), transaction, write)
    publish(str(tmp_path), transaction, lambda to: pytest.fail("it was published"))
    assert [path.name for path in tmp_path.glob("part*")] == ["part-0"]


def test_partitions_of_a_column_that_begins_with_an_underscore(tmp_path: Path) -> None:
    """Spark reads them, though it ignores other names that begin so."""
    transaction = RowTransaction("sink", "token", 0, ("file",))

    def write(to: str) -> None:
        folder = Path(to.removeprefix("file://"))
        for name in ("_temporary", "_year=2026", ".hidden=1"):
            (folder / name).mkdir(parents=True)
            (folder / name / "part-0").touch()
        (folder / "_SUCCESS").touch()

    publish(str(tmp_path), transaction, write)
    assert [path.name for path in tmp_path.iterdir() if path.name[0] != "."] == ["_year=2026"]
    assert (tmp_path / "_year=2026" / "part-0").exists()


def test_files_are_durable_before_they_are_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a machine that dies would leave the name of a directory with damaged files."""
    durable: list[str] = []
    write = LocalFileSystem.write

    def sync_files(self: Any, paths: Any) -> None:
        durable.extend(Path(path).name for path in paths)

    def write_json(self: Any, path: str, data: bytes, *more: Any) -> None:
        assert durable == ["part-0"]
        write(self, path, data, *more)

    monkeypatch.setattr(LocalFileSystem, "sync_files", sync_files)
    monkeypatch.setattr(LocalFileSystem, "write", write_json)
    transaction = RowTransaction("sink", "token", 0, ("file",))
    publish(str(tmp_path), transaction, lambda to: _write_one(Path(to.removeprefix("file://"))))
    assert durable == ["part-0", "part-0"]


def _write_one(directory: Path) -> None:
    directory.mkdir()
    (directory / "part-0").touch()


def test_what_can_be_exactly_once() -> None:
    assert DataFrameSink("parquet", "/x").at_least_once == ""
    assert DataFrameSink("delta", table="t").at_least_once == ""
    assert "mode is 'overwrite'" in DataFrameSink("csv", "/x", mode="overwrite").at_least_once
    assert "has no path" in DataFrameSink("parquet", table="t").at_least_once
    assert "the format is 'jdbc'; these can be" in DataFrameSink("jdbc", "/x").at_least_once


def _place(monkeypatch: pytest.MonkeyPatch, path: str) -> str:
    """Why a sink with this path is at least once, if Spark can get there."""
    places = "holdfast.spark.writer_places"
    monkeypatch.setattr(f"{places}.qualified", lambda session, name, sink: sink.path)
    return at_least_once(None, "lake", DataFrameSink("parquet", path))  # type: ignore[arg-type]


def test_a_place_is_tried_and_nothing_is_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    for name in ("there", "new"):
        assert _place(monkeypatch, str(tmp_path / name)) == ""
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_a_bucket_that_is_not_there_is_an_error(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(s3.options)
    expected = r"'lake': cannot write to 's3a://no-such-bucket/out': .*NO_SUCH_BUCKET.*; let the"
    with pytest.raises(JobDefinitionError, match=expected):
        _place(monkeypatch, "s3a://no-such-bucket/out")
    configure({})


def test_a_place_that_only_spark_knows_is_at_least_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "only Spark, and not Holdfast, can access 'wasb://" in _place(monkeypatch, "wasb://a/b")
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    assert "pip install 'holdfast[hdfs]'" in _place(monkeypatch, "hdfs://no-package/out")


@pytest.mark.parametrize(
    "address", ["/etc/passwd", "/etc/rows/../passwd.parquet", "/rows/x.parquet", "x", "/rows/a/b"]
)
def test_a_forged_checkpoint_names_no_other_files(address: str) -> None:
    """They would be read and deleted."""
    written: list[RowTransaction] = []
    forged = msgspec.json.encode([RowTransaction("sink", "token", 0, (address,))])
    with pytest.raises(CheckpointCorruptionError, match=r"expected a file such as|plain name"):
        RowTransactions(written.append).begin_attempt(forged)
    assert not written


def test_a_damaged_checkpoint_is_told() -> None:
    with pytest.raises(CheckpointCorruptionError, match="damaged"):
        RowTransactions(lambda _: None).begin_attempt(b"[{")


def test_a_checkpoint_that_fails_halfway_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job may go on after it, and the next checkpoint has the rest."""
    broken = ["b"]

    def sync_files(self: Any, paths: Any) -> None:
        if broken and broken[0] in str(paths):
            broken.clear()
            raise FileSystemError("no answer")

    monkeypatch.setattr(LocalFileSystem, "sync_files", sync_files)
    transactions = RowTransactions(lambda _: None)
    transactions.begin_attempt(None)
    for name in ("a", "b", "c"):
        transactions.collect(f"sink {name}", [str(tmp_path / name)])
    monkeypatch.setattr(transactions, "_token", "token")
    with pytest.raises(FileSystemError, match="no answer"):
        transactions.save(1)
    saved = msgspec.json.decode(transactions.save(2), type=list[RowTransaction])
    assert [(each.sink, each.number) for each in saved] == [
        ("sink a", 0),
        ("sink b", 1),
        ("sink c", 2),
    ]


def _writers(may_drop: bool = False) -> Any:
    """The writers of a job with one sink, without Spark."""
    writers: Any = SparkWriters.__new__(SparkWriters)
    writers._sinks = {0: _Sink("out", "rows", DataFrameSink("parquet", "/x"), StructType())}
    writers._may_drop = may_drop
    writers.transactions = RowTransactions(writers._commit)
    return writers


def _start(own: bool, *transactions: RowTransaction) -> Any:
    saved = {SAVED_ROWS: msgspec.json.encode(transactions)} if transactions else {}
    return SimpleNamespace(own=own, metadata=SimpleNamespace(spark=saved))


def test_rows_of_earlier_starts_are_swept(tmp_path: Path) -> None:
    """But not by a start from another checkpoint: the last one may still need them."""
    rows = tmp_path / "rows"
    for job in ("job", "killed"):
        (rows / job).mkdir(parents=True)
        (rows / job / "1.parquet").touch()
    for start in (None, _start(own=False)):
        _writers().begin_attempt(None, "", start, str(rows / "job"))
        assert [path.name for path in rows.iterdir()] == ["killed"]
    _writers().begin_attempt(None, "", _start(own=True), str(rows / "job"))
    assert not rows.exists()


def test_rows_of_a_sink_that_is_gone_are_not_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "rows" / "job" / "1.parquet"
    file.parent.mkdir(parents=True)
    file.touch()
    start = _start(True, RowTransaction("renamed", "token", 0, (str(file),)))
    expected = r"uid 'renamed', and this job has no such sink; give .* 'execution\.state-recovery"
    with pytest.raises(StateMigrationError, match=expected):
        _writers().begin_attempt(None, "", start, str(file.parent))
    assert file.exists()
    _writers(may_drop=True).begin_attempt(None, "", start, str(file.parent))
    assert "uid 'renamed', and this job has no such sink; they are dropped" in caplog.text
    assert not file.exists()


def test_staged_rows_that_are_gone_are_one_clear_error(tmp_path: Path) -> None:
    sink = _Sink("out", "rows", DataFrameSink("parquet", "/x"), StructType())
    gone = str(tmp_path / "gone.parquet")
    writers = _writers()
    with pytest.raises(
        JobExecutionError, match=r"'out': .*gone\.parquet' is gone .*uid than 'rows'"
    ):
        writers._write(None, None, sink, [gone])
