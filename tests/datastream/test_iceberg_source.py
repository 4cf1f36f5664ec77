"""Reading Iceberg tables: each row once, through crashes, moves and changes of the parallelism."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table import Table
from pyiceberg.types import StringType

from holdfast.common import Duration, WatermarkStrategy
from holdfast.common.types import Row
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.base import SourceReader
from holdfast.datastream.connectors.iceberg import (
    ChangedRows,
    IcebergSource,
    IcebergSourceBuilder,
    TableError,
)
from holdfast.errors import HoldfastError
from holdfast.filesystem import configured
from holdfast.testing import LocalExecutor, collect
from tests.datastream.iceberg_tables import (
    CATALOG,
    NAMESPACE,
    TABLE,
    catalog,
    catalog_for,
    delete_by_position,
    load,
    properties,
)

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@dataclass
class Item:
    id: int
    name: str | None


def make(folder: Path, partitions: Sequence[str] = ()) -> dict[str, str]:
    where = properties(folder)
    catalog(where).create_namespace(NAMESPACE)
    table = catalog(where).create_table(TABLE, SCHEMA)
    if partitions:
        with table.update_spec() as update:
            for each in partitions:
                update.add_identity(each)
    return where


@pytest.fixture
def where(tmp_path: Path) -> dict[str, str]:
    return make(tmp_path)


def append(where: Mapping[str, str], ids: Sequence[int]) -> Table:
    table = load(where)
    names = [f"name {number % 2}" for number in ids]
    table.append(pa.table({"id": list(ids), "name": names}, SCHEMA))
    return table


def builder(where: Mapping[str, str]) -> IcebergSourceBuilder:
    return IcebergSource.builder().set_catalog(CATALOG, where).set_table(TABLE)


def following(where: Mapping[str, str]) -> IcebergSourceBuilder:
    return builder(where).set_row_type(dict).monitor_continuously(Duration.of_millis(0))


def stream(source: IcebergSource, parallelism: int = 2) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    env.enable_checkpointing(3_600_000)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "table").uid("table")


def ids(records: Sequence[Any]) -> list[int]:
    return sorted(record["id"] for record in records)


def test_a_snapshot_is_read_once(where: dict[str, str]) -> None:
    append(where, range(10))
    append(where, range(10, 25))
    found = collect(stream(builder(where).build(), 3), workers=2, quota=2)
    assert sorted(found, key=lambda row: row["id"]) == [
        Row(id=number, name=f"name {number % 2}") for number in range(25)
    ]


def test_records_are_what_was_asked_for(where: dict[str, str]) -> None:
    append(where, range(3))
    assert Item(1, "name 1") in collect(stream(builder(where).set_row_type(Item).build()))
    dicts = builder(where).set_row_type(dict).set_columns("id").set_row_filter("id >= 1").build()
    assert sorted(record["id"] for record in collect(stream(dicts))) == [1, 2]
    assert {len(record) for record in collect(stream(dicts))} == {1}


def test_an_earlier_snapshot(where: dict[str, str]) -> None:
    first = append(where, range(3)).current_snapshot()
    assert first is not None
    append(where, range(3, 6))
    by_id = builder(where).set_row_type(dict).start_from_snapshot(first.snapshot_id).build()
    assert ids(collect(stream(by_id))) == [0, 1, 2]
    by_time = builder(where).set_row_type(dict).start_from_timestamp(first.timestamp_ms).build()
    assert ids(collect(stream(by_time))) == [0, 1, 2]
    with pytest.raises(HoldfastError, match="has no snapshot 7, where the source starts; it may"):
        collect(stream(builder(where).start_from_snapshot(7).build()))
    with pytest.raises(HoldfastError, match="has no snapshot from before the time 7 ms, where the"):
        collect(stream(builder(where).start_from_timestamp(7).build()))


def test_an_empty_table(where: dict[str, str]) -> None:
    assert collect(stream(builder(where).build())) == []


def test_rows_that_are_deleted_by_position_are_left_out(where: dict[str, str]) -> None:
    append(where, range(10))
    delete_by_position(load(where), [0, 4, 9])
    source = builder(where).set_row_type(dict).build()
    expected = [1, 2, 3, 5, 6, 7, 8]
    assert ids(collect(stream(source))) == expected
    assert ids(collect(stream(source), workers=2, quota=1)) == expected


def test_row_groups_before_a_position_are_not_read(where: dict[str, str]) -> None:
    table = load(where)
    with table.transaction() as transaction:
        transaction.set_properties({"write.parquet.row-group-limit": "10"})
    append(where, range(35))
    (task,) = load(where).scan().plan_files()
    path = task.file.file_path.removeprefix("file://")
    groups = pq.ParquetFile(path).metadata
    assert groups.num_row_groups == 4
    source = builder(where).set_row_type(dict).set_columns("id").build()
    readers = Readers(source, 1)
    for limit in (7, 3, 15):
        readers.read(0, limit)
    data = Path(path).read_bytes()
    begins = groups.row_group(2).column(0).dictionary_page_offset
    # the first two row groups are destroyed: whoever looked at them would fail
    Path(path).write_bytes(data[:4] + bytes(begins - 4) + data[begins:])
    readers.read(0, 100)
    assert readers.records == list(range(35))


def test_columns_may_be_added_and_renamed(where: dict[str, str]) -> None:
    append(where, [1])
    with load(where).update_schema() as update:
        update.rename_column("name", "title")
        update.add_column("more", StringType())
    found = collect(stream(builder(where).set_row_type(dict).build()))
    assert found == [{"id": 1, "title": "name 1", "more": None}]
    with pytest.raises(HoldfastError, match=r"cannot read .*Could not find column: 'name'"):
        collect(stream(builder(where).set_columns("name").build()))


def test_appended_rows_follow_in_the_order_of_snapshots(where: dict[str, str]) -> None:
    append(where, range(3))
    with LocalExecutor(stream(following(where).build(), 1), quota=2) as run:
        run.run_until(lambda: len(run.records) == 3)
        append(where, [10])
        append(where, [5])
        run.run_until(lambda: len(run.records) == 5)
        assert [record["id"] for record in run.records[3:]] == [10, 5]
        run.epoch(checkpoint=True)
        append(where, [20, 21])
        run.epoch()
        run.recover()
        append(where, [30])
        run.run_until(lambda: len(run.records) >= 10)
        # the epoch after the checkpoint is repeated, and reads the same
        assert ids(run.records) == [0, 1, 2, 5, 10, 20, 20, 21, 21, 30]


def test_an_empty_table_that_is_followed(where: dict[str, str]) -> None:
    with LocalExecutor(stream(following(where).start_from_latest().build())) as run:
        run.epoch(checkpoint=True)
        append(where, [1, 2])
        append(where, [3])
        run.run_until(lambda: len(run.records) == 3)
        run.epoch()
        assert ids(run.records) == [1, 2, 3]


def test_only_later_rows(where: dict[str, str]) -> None:
    append(where, [1])
    append(where, [2]).delete("id = 1")  # not a snapshot that is read
    with LocalExecutor(stream(following(where).start_from_latest().build())) as run:
        run.epoch(checkpoint=True)
        run.epoch()
        run.recover()
        append(where, [3])
        run.run_until(lambda: bool(run.records))
        run.epoch()
        assert ids(run.records) == [3]


def test_changed_rows(where: dict[str, str]) -> None:
    append(where, [1, 2])
    with LocalExecutor(stream(following(where).build())) as run:
        run.run_until(lambda: len(run.records) == 2)
        append(where, [3]).delete("id = 1")
        with pytest.raises(HoldfastError, match=r"changes or deletes rows \(\w+\), and the source"):
            run.run_until(lambda: len(run.records) == 9)
    ignoring = following(where).set_changed_rows(ChangedRows.IGNORE).build()
    with LocalExecutor(stream(ignoring)) as run:
        run.run_until(lambda: len(run.records) == 2)
        append(where, [4]).delete("id = 2")
        append(where, [5])
        run.run_until(lambda: len(run.records) == 4)
        assert ids(run.records) == [2, 3, 4, 5]


def test_a_snapshot_that_has_expired(where: dict[str, str]) -> None:
    append(where, [1])
    with LocalExecutor(stream(following(where).build())) as run:
        run.run_until(lambda: len(run.records) == 1)
        append(where, [2])
        table = append(where, [3])
        old = [each.snapshot_id for each in table.snapshots()[:-1]]
        table.maintenance.expire_snapshots().by_ids(old).commit()
        with pytest.raises(HoldfastError, match=r"does not have the snapshot \d+, at which the so"):
            run.run_until(lambda: len(run.records) == 9)


def test_a_table_that_is_not_there(where: dict[str, str]) -> None:
    source = builder(where).set_table("shop.other").build()
    with pytest.raises(
        HoldfastError, match=r"does not exist; tables of that namespace are: shop.or"
    ):
        collect(stream(source))


def test_a_builder_says_what_is_missing(where: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="an IcebergSource needs to know where the catalog is"):
        IcebergSource.builder().build()
    with pytest.raises(ValueError, match="reads only later rows never ends: call monitor_continuo"):
        builder(where).start_from_latest().build()
    with pytest.raises(TypeError, match="expected a ChangedRows; got 'ignore'"):
        builder(where).set_changed_rows("ignore")  # type: ignore[arg-type]


def test_another_parallelism_goes_on_with_what_is_left(
    where: dict[str, str], tmp_path: Path
) -> None:
    for start in range(0, 60, 10):
        append(where, range(start, start + 10))
    source = builder(where).set_row_type(dict).build()
    records: list[Any] = []
    savepoint = None
    for parallelism in (2, 3, 1, 4):
        run_stream = stream(source, parallelism)
        env = run_stream.get_execution_environment()
        if savepoint is not None:
            env._configuration.set_string("execution.state-recovery.path", savepoint)
        with LocalExecutor(run_stream, quota=3) as run:
            run.epoch()
            if parallelism == 4:
                run.run_to_end()
            else:
                savepoint = run.savepoint(tmp_path / f"savepoint-{parallelism}", stop=True)
            records += run.records
    assert ids(records) == list(range(60))


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_table_on_s3_is_read_with_the_settings_of_the_job(place: str, tmp_path: Path) -> None:
    there = catalog_for(place, tmp_path)
    catalog(there).create_table(TABLE, SCHEMA)
    append(there, range(10))
    bare = {name: value for name, value in there.items() if not name.startswith("s3.")}
    read = stream(following(bare).build())
    for name, value in configured().items():
        read.get_execution_environment()._configuration.set_string(name, value)
    with LocalExecutor(read, quota=3) as run:
        run.run_until(lambda: len(run.records) == 10)
        run.epoch(checkpoint=True)
        append(there, [10, 11])
        run.epoch()
        run.recover()
        run.run_until(lambda: {10, 11} <= set(ids(run.records)))
    assert sorted(set(ids(run.records))) == list(range(12))
    assert ids(run.records)[:10] == list(range(10))


class Readers:
    """The readers of a source, without a job around them."""

    def __init__(self, source: IcebergSource, parallelism: int) -> None:
        self.source = source
        self.planner = source.create_planner(False)
        self.positions: Sequence[Any] = [None] * parallelism
        self.records: list[int] = []

    def read(self, subtask: int, limit: int) -> None:
        """One subtask reads in a process of its own; twice, and the same both times."""
        plan = self.planner.plan()
        runs = []
        for _ in range(2):
            reader = self.reader(subtask)
            reader.follow(plan)
            runs.append([each["id"] for batch in reader.read(limit) for each in batch])
            position = reader.position()
        assert runs[0] == runs[1]
        assert len(runs[0]) <= limit
        self.records += runs[0]
        self.positions = [*self.positions]
        self.positions[subtask] = position

    def reader(self, subtask: int) -> SourceReader:
        reader = self.source.create_reader(subtask, len(self.positions))
        if self.positions[subtask] is not None:
            reader.restore(self.positions[subtask])
        return reader

    def rescale(self, parallelism: int) -> None:
        plan = self.planner.plan()
        for subtask in range(len(self.positions)):
            self.read(subtask, 0)  # all have the plan
        self.positions = self.source.redistribute(self.positions, parallelism)
        self.planner.close()
        assert plan is not None


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(0, 7), st.integers(0, 5)),
        st.tuples(st.just("read"), st.integers(0, 7), st.integers(0, 5)),
        st.tuples(st.just("append"), st.integers(1, 5), st.just(0)),
        st.tuples(st.just("rescale"), st.integers(1, 4), st.just(0)),
    ),
    max_size=14,
)


@settings(max_examples=6, deadline=None)
@given(events=EVENTS)
def test_any_history_reads_each_row_once(events: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        where = make(Path(folder), ["name"])
        append(where, range(6))
        readers, rows = Readers(following(where).build(), 2), 6
        for subtask in range(2):
            readers.read(subtask, 0)
        for event, number, limit in events:
            if event == "append":
                append(where, range(rows, rows + number))
                rows += number
            elif event == "rescale":
                readers.rescale(number)
            else:
                readers.read(number % len(readers.positions), limit)
        for subtask in range(len(readers.positions)):
            readers.read(subtask, 1000)
        assert sorted(readers.records) == list(range(rows))


def test_the_catalog_may_be_away_for_a_while(
    where: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append(where, [1])
    planner = following(where).build().create_planner(False)
    first = planner.plan()

    def away(_: Table) -> Table:
        message = "nobody answers"
        raise ConnectionError(message)

    append(where, [2])
    with monkeypatch.context() as patch:
        patch.setattr(Table, "refresh", away)
        assert planner.plan() == first
        assert planner.plan() == first
    assert caplog.text.count("nothing new is read until the catalog answers again") == 1
    assert planner.plan() != first
    other = following(where).set_table("shop.other").build().create_planner(False)
    with pytest.raises(TableError, match="does not exist"):  # at the start of an attempt it matters
        other.plan()
