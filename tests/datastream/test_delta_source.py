"""`DeltaSource`: each row of a version once, and new rows as they are appended."""

from __future__ import annotations

import datetime
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Configuration, Duration
from holdfast.common.types import Row
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.delta import DeltaSink, DeltaSource, DeltaSourceBuilder
from holdfast.datastream.connectors.delta.planner import DeltaPlan
from holdfast.datastream.connectors.delta.position import ShareCursor, decode
from holdfast.datastream.connectors.delta.reader import DeltaReader
from holdfast.errors import HoldfastError
from holdfast.testing import LocalExecutor, collect
from tests.datastream.delta_tables import column

AT_ONCE = Duration.of_millis(1)


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def append(uri: str, numbers: Any, **given: Any) -> None:
    write_deltalake(uri, pa.table({"n": list(numbers)}), mode="append", **given)


def environment(**options: str) -> StreamExecutionEnvironment:
    configuration = Configuration({"execution.checkpointing.interval": "1 h", **options})
    return StreamExecutionEnvironment(configuration).set_parallelism(2)


def stream(builder: DeltaSourceBuilder, **options: str) -> Any:
    source = environment(**options).from_source(builder.build(), source_name="table")
    return source.uid("table")


def read(builder: DeltaSourceBuilder, **how: Any) -> list[Any]:
    return list(collect(stream(builder), **how))


def numbers(records: list[Any]) -> list[int]:
    return sorted(record["n"] for record in records)


def test_the_last_version(table: str) -> None:
    append(table, range(5))
    append(table, range(5, 12))
    append(table, [12])
    found = read(DeltaSource.for_table(table), workers=2, quota=2)
    assert numbers(found) == list(range(13))
    assert isinstance(found[0], Row)
    DeltaTable(table).delete("n < 10")
    assert numbers(read(DeltaSource.for_table(table))) == [10, 11, 12]


def test_an_older_version(table: str) -> None:
    append(table, [0])
    append(table, [1])
    append(table, [2])
    assert numbers(read(DeltaSource.for_table(table).set_version(1))) == [0, 1]
    times = {each["version"]: each["timestamp"] for each in DeltaTable(table).history()}
    moment = datetime.datetime.fromtimestamp(times[2] / 1000 + 60, datetime.UTC)
    assert numbers(read(DeltaSource.for_table(table).set_timestamp(moment))) == [0, 1, 2]


def test_all_kinds_of_columns_partitions_and_records(table: str) -> None:
    kinds: dict[str, Any] = {
        "n": pa.array([1, 2], pa.int64()),
        "text": pa.array(["a/b c ä", None], pa.string()),
        "day": pa.array([datetime.date(2026, 1, 1), None], pa.date32()),
        "at": pa.array(
            [datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)] * 2, pa.timestamp("us", "UTC")
        ),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
        "flag": pa.array([True, False]),
        "value": pa.array([1.5, None], pa.float64()),
        "tags": pa.array([["x"], None], pa.list_(pa.string())),
    }
    given = pa.table(kinds)
    parts = ["text", "day", "at", "price", "flag"]
    write_deltalake(table, given, partition_by=parts)
    wanted = given.to_pylist()
    builder = DeltaSource.for_table(table).as_dicts()
    assert sorted(read(builder), key=lambda row: row["n"]) == wanted
    # the same from the log
    builder = DeltaSource.for_table(table).as_dicts().set_starting_version(0)
    run = LocalExecutor(stream(builder.monitor_continuously(AT_ONCE)))
    with run:
        run.run_until(lambda: len(run.records) == 2)
    assert sorted(run.records, key=lambda row: row["n"]) == wanted


@dataclass
class Number:
    """A record of the table."""

    n: int | None


def test_objects_and_some_columns(table: str) -> None:
    write_deltalake(table, pa.table({"n": [1], "more": ["x"]}))
    assert read(DeltaSource.for_table(table).as_objects(Number)) == [Number(1)]
    assert read(DeltaSource.for_table(table).select("more")) == [Row(more="x")]


def test_columns_that_came_later_are_null_in_older_files(table: str) -> None:
    append(table, [1])
    more = pa.table({"n": [2], "more": ["x"]})
    write_deltalake(table, more, mode="append", schema_mode="merge")
    found = read(DeltaSource.for_table(table).as_dicts())
    assert sorted(found, key=str) == [{"n": 1, "more": None}, {"n": 2, "more": "x"}]


# New rows


def test_rows_are_read_as_they_are_appended(table: str) -> None:
    append(table, range(3))
    builder = DeltaSource.for_table(table).monitor_continuously(AT_ONCE)
    with LocalExecutor(stream(builder), quota=2, workers=2) as run:
        run.run_until(lambda: len(run.records) == 3)
        append(table, range(3, 8))
        DeltaTable(table).optimize.compact()  # rewrites files, and no rows
        append(table, [8])
        run.run_until(lambda: len(run.records) == 9)
        assert not run.finished
    assert numbers(run.records) == list(range(9))


def test_only_new_rows(table: str) -> None:
    append(table, range(3))
    builder = DeltaSource.for_table(table).monitor_continuously(AT_ONCE).start_from_latest()
    with LocalExecutor(stream(builder)) as run:
        run.epoch()
        append(table, [3])
        run.run_until(lambda: len(run.records) == 1)
    assert numbers(run.records) == [3]


def test_a_crash_repeats_and_loses_nothing(table: str) -> None:
    append(table, range(7))
    builder = DeltaSource.for_table(table).monitor_continuously(AT_ONCE)
    out = f"{table}-copy"
    env = environment()
    source = env.from_source(builder.build(), source_name="table")
    source.sink_to(DeltaSink.for_table(out, pa.schema([("n", pa.int64())])).build())
    with LocalExecutor(env, quota=2, workers=2) as run:
        run.epoch(checkpoint=True)
        append(table, range(7, 20))
        run.epoch(rerun=[(0, 0)])
        run.recover()
        run.epoch(checkpoint=True)
        run.recover()
        for _ in range(8):
            run.epoch()
        run.epoch(checkpoint=True)
        run.epoch()
    assert column(out, "n") == list(range(20))


def test_changes_are_refused_or_left_out(table: str) -> None:
    append(table, range(3))
    append(table, [9])
    DeltaTable(table).delete("n = 1")
    append(table, [10])
    builder = DeltaSource.for_table(table).monitor_continuously(AT_ONCE).set_starting_version(1)
    with (
        LocalExecutor(stream(builder)) as run,
        pytest.raises(
            HoldfastError, match=r"version 2 of the Delta table '.*' deletes or rewrites"
        ),
    ):
        run.run_until(lambda: False)
    with LocalExecutor(stream(builder.skip_change_commits())) as run:
        run.run_until(lambda: len(run.records) == 2)
    assert numbers(run.records) == [9, 10]


def test_a_savepoint_of_another_parallelism(table: str, tmp_path: Path) -> None:
    for first in range(0, 30, 3):
        append(table, range(first, first + 3))

    def program(parallelism: int, **options: str) -> Any:
        builder = DeltaSource.for_table(table).monitor_continuously(AT_ONCE).set_starting_version(0)
        return stream(builder, **options).set_parallelism(parallelism)

    with LocalExecutor(program(3), quota=2) as run:
        run.epoch()
        path = run.savepoint(tmp_path / "savepoints", stop=True)
    records = list(run.records)
    with LocalExecutor(program(2, **{"execution.state-recovery.path": path}), quota=2) as run:
        append(table, [30, 31])
        run.run_until(lambda: len(records) + len(run.records) >= 32)
    assert numbers(records + run.records) == list(range(32))


# Any history of reading and rescaling


def readers(source: DeltaSource, positions: list[Any] | None, count: int) -> list[DeltaReader]:
    made = [source.create_reader(subtask, count) for subtask in range(count)]
    for reader, position in zip(made, positions or (), strict=False):
        reader.restore(position)
    return made


def close(at_work: list[DeltaReader]) -> None:
    for reader in at_work:
        reader.close()


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of ten versions with files of several row groups; its rows are 0 to 59."""
    uri = str(tmp_path_factory.mktemp("grown") / "table")
    for first in range(0, 60, 6):
        numbers = pa.table({"n": list(range(first, first + 6)), "p": [0, 1, 2] * 2})
        write_deltalake(uri, numbers, mode="append", partition_by=["p"])
    return uri


STEPS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 7), st.one_of(st.none(), st.integers(1, 4))),
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(steps=STEPS, snapshot=st.booleans(), width=st.integers(1, 4))
def test_any_history_reads_each_row_once(
    grown: str, steps: list[Any], snapshot: bool, width: int
) -> None:
    builder = DeltaSource.for_table(grown).monitor_continuously(AT_ONCE)
    source = (builder.set_version(4) if snapshot else builder.set_starting_version(0)).build()
    plan: DeltaPlan = source.create_planner(False).plan()
    at_work = readers(source, None, width)
    found: list[int] = []
    last = plan.beginning.version

    def round_of(limit: int) -> None:
        for reader in at_work:
            reader.follow(plan._replace(until=last))
            for batch in reader.read(limit):
                assert len(batch) <= limit
                found.extend(row["n"] for row in batch)

    for version, limit, parallelism in steps:
        last = max(last, version)
        round_of(limit)
        if parallelism is not None:
            positions = [reader.position() for reader in at_work]
            dealt = list(source.redistribute(positions, parallelism))
            close(at_work)
            at_work = readers(source, dealt, parallelism)
    last = 9
    round_of(10_000)
    close(at_work)
    assert sorted(found) == list(range(60))


def test_a_bounded_source_is_rescaled(grown: str) -> None:
    source = DeltaSource.for_table(grown).build()
    plan = source.create_planner(False).plan()
    first = readers(source, None, 3)
    found: list[int] = []
    for reader in first:
        reader.follow(plan)
        found += [row["n"] for batch in reader.read(7) for row in batch]
    positions = [reader.position() for reader in first]
    second = readers(source, list(source.redistribute(positions, 2)), 2)
    for reader in second:
        reader.follow(plan)
        found += [row["n"] for batch in reader.read(1000) for row in batch]
        assert reader.finished
    close(first + second)
    assert sorted(found) == list(range(60))
    assert decode(first[0].position())[0].cursor != ShareCursor(9, True)


# What cannot be read


def refused(builder: DeltaSourceBuilder, match: str) -> None:
    with pytest.raises(HoldfastError, match=match):
        read(builder)


def test_tables_versions_and_columns_that_are_not_there(table: str) -> None:
    refused(DeltaSource.for_table(table), "there is no Delta table '.*'; correct the address")
    append(table, [1])
    refused(DeltaSource.for_table(table).set_version(7), "has no version 7; the last one is 0")
    refused(
        DeltaSource.for_table(table).select("m"), "has no column 'm', which the source reads; i"
    )
    write_deltalake(f"{table}2", pa.table({"n": ["text"]}))
    builder = DeltaSource.for_table(f"{table}2").as_objects(Number)
    refused(builder, "column 'n' of the Delta table '.*' is string, and the source expects int64")


def test_what_the_source_does_not_know(table: str) -> None:
    append(table, [1])
    early = datetime.datetime(1999, 1, 1, tzinfo=datetime.UTC)
    assert numbers(read(DeltaSource.for_table(table).set_timestamp(early))) == [1]
    builder = DeltaSource.for_table(table).monitor_continuously(AT_ONCE)
    with LocalExecutor(stream(builder)) as run:
        run.run_until(lambda: len(run.records) == 1)
        log = Path(table, "_delta_log")
        entry = log.joinpath(f"{0:020}.json").read_text().splitlines()
        [changed] = [json.loads(line) for line in entry if '"metaData"' in line]
        changed["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
        log.joinpath(f"{1:020}.json").write_text(json.dumps(changed))
        with pytest.raises(HoldfastError, match=r"version 1 of .* gives columns other names in"):
            run.run_until(lambda: False)
    DeltaTable.create(f"{table}2", pa.schema([("n", pa.int64())]))
    feature = TableFeatures.DeletionVectors
    DeltaTable(f"{table}2").alter.add_feature(feature, allow_protocol_versions_increase=True)
    refused(DeltaSource.for_table(f"{table}2"), "has deletionVectors, which DeltaSource cannot")


def test_nothing_new_is_read_while_the_table_cannot_be(
    table: str, caplog: pytest.LogCaptureFixture
) -> None:
    append(table, [1])
    builder = DeltaSource.for_table(table).monitor_continuously(AT_ONCE)
    planner = builder.build().create_planner(restored=False)
    assert planner.plan().until == 0
    append(table, [2])
    log = Path(table, "_delta_log")
    log.rename(f"{table}/away")
    log.symlink_to(log)  # a loop, which is an error to look at
    deadline = time.monotonic() + 300
    while "nothing new is read until" not in caplog.text and time.monotonic() < deadline:
        assert planner.plan().until == 0
    log.unlink()
    Path(f"{table}/away").rename(log)
    while planner.plan().until == 0 and time.monotonic() < deadline:
        pass
    assert planner.plan().until == 1
    assert caplog.text.count("nothing new is read until") == 1


def test_files_and_versions_that_are_gone(table: str) -> None:
    append(table, [1])
    append(table, [2])
    builder = DeltaSource.for_table(table).monitor_continuously(AT_ONCE).set_starting_version(0)
    shutil.copytree(table, f"{table}-copy")
    for path in Path(table).glob("*.parquet"):
        path.unlink()
    with (
        LocalExecutor(stream(builder)) as run,
        pytest.raises(HoldfastError, match=r"the source has not read it, and somebody has deleted"),
    ):
        run.run_until(lambda: False)
    DeltaTable(f"{table}-copy").create_checkpoint()
    Path(f"{table}-copy", "_delta_log", f"{0:020}.json").unlink()
    builder = DeltaSource.for_table(f"{table}-copy").monitor_continuously(AT_ONCE)
    with (
        LocalExecutor(stream(builder.set_starting_version(0))) as run,
        pytest.raises(
            HoldfastError, match=r"version 0 of the Delta table '.*' is not in its log any"
        ),
    ):
        run.run_until(lambda: False)


def test_a_column_that_changes_its_type_is_refused(table: str) -> None:
    append(table, [1])
    builder = DeltaSource.for_table(table).monitor_continuously(AT_ONCE)
    with LocalExecutor(stream(builder)) as run:
        run.run_until(lambda: len(run.records) == 1)
        text = pa.table({"n": ["x"]})
        write_deltalake(table, text, mode="overwrite", schema_mode="overwrite")
        with pytest.raises(HoldfastError, match="is string, and the source expects int64"):
            run.run_until(lambda: False)


def test_mistakes_of_the_program(table: str) -> None:
    builder = DeltaSource.for_table(table)
    with pytest.raises(ValueError, match="that ends reads the rows of one version: call set_vers"):
        DeltaSource.for_table(table).start_from_latest().build()
    with pytest.raises(ValueError, match="expected a time with a time zone"):
        builder.set_timestamp(datetime.datetime(2026, 1, 1))  # noqa: DTZ001 - that is the mistake
    with pytest.raises(TypeError, match="as_objects: expected a dataclass; got <class 'int'>"):
        builder.as_objects(int)
    with pytest.raises(ValueError, match="begins at one place; it was set twice"):
        builder.set_version(1).set_starting_version(2)


@pytest.fixture
def bucket(s3: Any) -> Iterator[Any]:
    from holdfast.filesystem import configure

    configure(s3.options)
    yield s3
    configure({})


def test_from_an_object_store(bucket: Any) -> None:
    uri = f"{bucket.uri}/table"
    env = environment(**bucket.options)
    rows = [Row(n=number) for number in range(9)]
    env.from_collection(rows).sink_to(
        DeltaSink.for_table(uri, pa.schema([("n", pa.int64())])).build()
    )
    with LocalExecutor(env) as run:
        run.run_to_end()
    with LocalExecutor(stream(DeltaSource.for_table(uri), **bucket.options)) as run:
        run.run_to_end()
    assert numbers(run.records) == list(range(9))
