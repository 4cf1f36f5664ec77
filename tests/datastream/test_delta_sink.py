"""`DeltaSink` in whole jobs: rows once, changes by key, tables that do not fit."""

from __future__ import annotations

import datetime
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from holdfast.common import Configuration, Types
from holdfast.common.types import Row, RowKind
from holdfast.datastream import OutputTag, StreamExecutionEnvironment
from holdfast.datastream.connectors.delta import DeltaSink, SchemaEvolution
from holdfast.errors import HoldfastError, JobDefinitionError
from holdfast.filesystem import configure
from holdfast.testing import LocalExecutor
from tests.datastream.delta_tables import (
    column,
    data_files,
    hidden,
    query,
    referred,
    rows,
)

NUMBERS = pa.schema([pa.field("n", pa.int64(), nullable=False)])
ROW = Types.ROW_NAMED(["id", "status", "n"], [Types.LONG(), Types.STRING(), Types.LONG()])
MISFITS = OutputTag("misfits", Types.PICKLED_BYTE_ARRAY())


@dataclass
class Reading:
    """A record of most kinds of columns."""

    n: int
    name: str | None
    day: datetime.date
    at: datetime.datetime
    value: float | None
    tags: list[str]
    is_late: bool = False


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def environment(parallelism: int = 2, **options: str) -> StreamExecutionEnvironment:
    configuration = Configuration({"execution.checkpointing.interval": "1 h", **options})
    return StreamExecutionEnvironment(configuration).set_parallelism(parallelism)


def run_to_end(env: Any, quota: int = 5, workers: int = 1) -> None:
    with LocalExecutor(env, quota=quota, workers=workers) as run:
        run.epoch(checkpoint=True)
        run.epoch()
        run.recover()
        last = len(run.plan.levels) - 1
        run.epoch(rerun=[(last - 1, 0), (last, 0)])
        run.epoch(checkpoint=True, rerun=[(last - 1, 0), (last, 0)])
        run.run_to_end()


def numbers(count: int) -> list[Row]:
    return [Row(n=number) for number in range(count)]


def reading(n: int) -> Reading:
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=n)
    name = None if n % 3 == 0 else f"sensor/{n} ä"
    return Reading(n, name, datetime.date(2026, 1, 1 + n % 2), at, n / 4, ["x"] * (n % 3))


@pytest.mark.parametrize("workers", [1, 2])
def test_each_row_is_in_the_table_once(table: str, workers: int) -> None:
    env = environment()
    env.from_collection(numbers(40)).rebalance().sink_to(
        DeltaSink.for_table(table, NUMBERS).build()
    )
    run_to_end(env, workers=workers)
    assert column(table, "n") == list(range(40))
    assert data_files(table) == referred(table)
    assert hidden(table) == []


def test_all_kinds_of_columns_and_partitions(table: str) -> None:
    readings = [reading(n) for n in range(30)]
    env = environment()
    sink = DeltaSink.for_table(table, Reading).partition_by("day", "name").build()
    env.from_collection(readings).sink_to(sink)
    run_to_end(env)
    found = sorted(rows(table), key=lambda row: row["n"])
    assert found == [vars(each) for each in readings]
    assert DeltaTable(table).metadata().partition_columns == ["day", "name"]
    folders = {uri.rpartition("/")[0] for uri in DeltaTable(table).file_uris()}
    assert f"{table}/day=2026-01-01/name=__HIVE_DEFAULT_PARTITION__" in folders
    assert f"{table}/day=2026-01-02/name=sensor-1--" in folders


def test_bounds_of_columns_let_readers_leave_files_out(table: str) -> None:
    kind = pa.schema([("n", pa.int64()), ("text", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    at = datetime.datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=datetime.UTC)
    given = [(3, "b", at), (None, "é" * 70, at), (-1, None, at)]
    env = environment(1)
    env.from_collection(given).sink_to(DeltaSink.for_table(table, kind).build())
    with LocalExecutor(env) as run:
        run.run_to_end()
    entry = Path(table, "_delta_log", f"{1:020}.json").read_text()
    [added] = [json.loads(line)["add"] for line in entry.splitlines() if '"add"' in line]
    assert json.loads(added["stats"]) == {
        "numRecords": 3,
        "nullCount": {"n": 1, "text": 1, "at": 0},
        "minValues": {"n": -1, "at": "2026-01-01T12:00:00.000005Z"},
        "maxValues": {"n": 3, "at": "2026-01-01T12:00:00.000005Z"},
    }
    moment = "TIMESTAMP '2026-01-01T12:00:00.000005Z'"
    found = query(DeltaTable(table), f"SELECT n FROM the_table WHERE at = {moment} AND n > 0")
    assert found == [{"n": 3}]


def test_decimals_keep_their_digits(table: str) -> None:
    kind = pa.schema([("d", pa.decimal128(38, 18))])
    value = Decimal("12345678901234567890.123456789012345678")
    env = environment(1)
    env.from_collection([(value,)]).sink_to(DeltaSink.for_table(table, kind).build())
    with LocalExecutor(env) as run:
        run.run_to_end()
    assert rows(table) == [{"d": value}]


def test_files_are_closed_at_the_target_size(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.datastream.connectors.tables.files._GROUP_BYTES", 80)
    monkeypatch.setattr("holdfast.datastream.connectors.tables.writer._BATCH", 10)
    sink = DeltaSink.for_table(table, NUMBERS).set_target_file_size(1).set_compression("none")
    env = environment(1)
    env.from_collection(numbers(40)).sink_to(sink.build())
    with LocalExecutor(env) as run:
        run.run_to_end()
    assert len(DeltaTable(table).file_uris()) == 4
    assert column(table, "n") == list(range(40))


def test_more_partitions_than_open_files(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.datastream.connectors.tables.files._MOST_OPEN", 2)
    monkeypatch.setattr("holdfast.datastream.connectors.tables.files._WAITING_BYTES", 1)
    env = environment(1)
    kind = pa.schema([("n", pa.int64()), ("m", pa.int64())])
    sink = DeltaSink.for_table(table, kind).partition_by("n").build()
    env.from_collection([(n % 5, n) for n in range(20)]).sink_to(sink)
    with LocalExecutor(env) as run:
        run.run_to_end()
    assert column(table, "m") == list(range(20))
    assert all(row["n"] == row["m"] % 5 for row in rows(table))


# Changes by key


def changes(count: int) -> list[Row]:
    """Changes of ten orders; some are deleted, and come back."""
    made = []
    for number in range(count):
        order = number * 7 % 10
        if number % 6 == 5:
            made.append(Row.of_kind(RowKind.DELETE, id=order, status=None, n=None))
        elif number % 6 == 4:
            made.append(Row.of_kind(RowKind.UPDATE_BEFORE, id=order, status="old", n=-1))
        else:
            made.append(Row(id=order, status=f"s{number}", n=number))
    return made


def applied(given: list[Row]) -> dict[int, tuple[Any, Any]]:
    state: dict[int, tuple[Any, Any]] = {}
    for row in given:
        if row.get_row_kind() is RowKind.DELETE:
            state.pop(row.id, None)
        elif row.get_row_kind() is not RowKind.UPDATE_BEFORE:
            state[row.id] = (row.status, row.n)
    return state


def by_id(uri: str) -> dict[int, tuple[Any, Any]]:
    found = rows(uri)
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: (row["status"], row["n"]) for row in found}


@pytest.mark.parametrize("most", [2, 65536])
def test_one_row_per_key(table: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a key has changed in several row groups of a writer."""
    monkeypatch.setattr("holdfast.datastream.connectors.tables.writer._CHANGES", most)
    given = changes(60)
    env = environment()
    env.from_collection(given).sink_to(DeltaSink.for_table(table, ROW).upsert_by("id").build())
    run_to_end(env, quota=11)
    assert by_id(table) == applied(given)
    assert hidden(table) == []


def test_a_stream_by_another_key_and_a_key_that_is_a_partition(table: str) -> None:
    given = changes(40)
    env = environment()
    sink = DeltaSink.for_table(table, ROW).upsert_by("id").partition_by("id").build()
    # NB: all in one subtask, so that they are in order
    env.from_collection(given).key_by(lambda row: 0).sink_to(sink)
    run_to_end(env, quota=7)
    assert by_id(table) == applied(given)


def test_a_function_tells_deletions(table: str) -> None:
    sink = DeltaSink.for_table(table, pa.schema([("id", pa.int64()), ("n", pa.int64())]))
    sink.upsert_by("id", is_deletion=lambda record: record["n"] is None)
    env = environment()
    given = [{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 1, "n": None}]
    env.from_collection(given).sink_to(sink.build())
    with LocalExecutor(env) as run:
        run.run_to_end()
    assert rows(table) == [{"id": 2, "n": 2}]


def test_a_key_cannot_be_null(table: str) -> None:
    env = environment(1)
    sink = DeltaSink.for_table(table, ROW).upsert_by("id").build()
    env.from_collection([Row(id=None, status="x", n=1)]).sink_to(sink)
    with (
        LocalExecutor(env) as run,
        pytest.raises(HoldfastError, match="field 'id' is declared int"),
    ):
        run.run_to_end()


def test_a_record_without_its_key_is_named(table: str) -> None:
    env = environment(1)
    sink = DeltaSink.for_table(table, ROW).upsert_by("id").build()
    env.from_collection([{"status": "x"}]).sink_to(sink)
    with (
        LocalExecutor(env) as run,
        pytest.raises(HoldfastError, match="the key of the table is id, and a record has not all"),
    ):
        run.run_to_end()


def test_changes_need_a_key(table: str) -> None:
    env = environment(1)
    deletion = Row.of_kind(RowKind.DELETE, n=1)
    env.from_collection([deletion]).sink_to(DeltaSink.for_table(table, NUMBERS).build())
    with (
        LocalExecutor(env) as run,
        pytest.raises(HoldfastError, match=r"only appends rows, and got a change \(-D\)"),
    ):
        run.run_to_end()


# Records that do not fit


def test_a_record_that_does_not_fit_fails_the_job(table: str) -> None:
    env = environment(1)
    env.from_collection([Row(n=1), Row(n="two")]).sink_to(
        DeltaSink.for_table(table, NUMBERS).build()
    )
    with (
        LocalExecutor(env) as run,
        pytest.raises(HoldfastError, match=r"(?s)'Sink: Delta'.*field 'n' is declared int64; its"),
    ):
        run.run_to_end()
    assert rows(table) == []


@pytest.mark.parametrize("upserts", [False, True])
def test_or_goes_to_a_side_output(table: str, upserts: bool) -> None:
    env = environment(1)
    builder = DeltaSink.for_table(table, NUMBERS).side_output_misfits(MISFITS)
    if upserts:
        builder.upsert_by("n")
    sink = env.from_collection([Row(n=1), Row(n="two"), Row(n=3)]).sink_to(builder.build())
    with LocalExecutor(sink.get_side_output(MISFITS)) as run:
        run.run_to_end()
    assert run.records == [Row(n="two")]
    assert column(table, "n") == [1, 3]


def test_a_change_that_does_not_fit_leaves_the_one_before_it(table: str) -> None:
    """All of them are changes of the same commit."""
    schema = pa.schema([("key", pa.string()), ("n", pa.int64())])
    changes = [("a", 1), ("a", "two"), ("b", "three"), ("b", 4), ("c", "five"), ("c", "six")]
    env = environment(1)
    builder = DeltaSink.for_table(table, schema).upsert_by("key").side_output_misfits(MISFITS)
    sink = env.from_collection([Row(key=k, n=n) for k, n in changes]).sink_to(builder.build())
    with LocalExecutor(sink.get_side_output(MISFITS)) as run:
        run.run_to_end()
    assert sorted(row["n"] for row in run.records) == ["five", "six", "three", "two"]
    assert {row["key"]: row["n"] for row in rows(table)} == {"a": 1, "b": 4}


def test_an_empty_text_is_not_a_partition(table: str) -> None:
    env = environment(1)
    sink = DeltaSink.for_table(table, pa.schema([("p", pa.string()), ("n", pa.int64())]))
    env.from_collection([("", 1)]).sink_to(sink.partition_by("p").build())
    with (
        LocalExecutor(env) as run,
        pytest.raises(HoldfastError, match="column 'p' has an empty text, which would be read as"),
    ):
        run.run_to_end()


# Tables that do not fit


def start(table: str, schema: pa.Schema = NUMBERS, settings: Any = None, **given: Any) -> None:
    builder = DeltaSink.for_table(table, schema)
    for name, arguments in given.items():
        getattr(builder, name)(*arguments)
    env = environment(1, **(settings or {}))
    env.from_collection([(1,) * len(schema)]).sink_to(builder.build())
    with LocalExecutor(env) as run:
        run.run_to_end()


def refused(table: str, match: str, schema: pa.Schema = NUMBERS, **given: Any) -> None:
    """The job fails in `open`, before a record is written."""
    with pytest.raises(HoldfastError, match=rf"(?s){match}.*in open"):
        start(table, schema, **given)


def test_a_directory_with_something_else(table: str) -> None:
    Path(table).mkdir()
    pq.write_table(pa.table({"n": [1]}), f"{table}/a.parquet")
    refused(table, r"is not a Delta table, and there is 'a\.parquet' in it; name another directory")
    Path(table, "metadata").mkdir()
    refused(table, "there is an Iceberg table in it")
    assert sorted(path.name for path in Path(table).iterdir()) == ["a.parquet", "metadata"]


def test_other_columns(table: str) -> None:
    DeltaTable.create(table, pa.schema([("n", pa.string())]))
    refused(table, "column 'n' of the Delta table '.*' is string, and the sink writes int64")
    shutil.rmtree(table)
    DeltaTable.create(table, pa.schema([("m", pa.int64())]))
    refused(table, "has no column 'n', and the sink writes it; let the sink add columns")
    shutil.rmtree(table)
    strict = pa.schema([("n", pa.int64()), pa.field("m", pa.int64(), nullable=False)])
    DeltaTable.create(table, strict)
    refused(table, "column 'm' of .* cannot be null, and the sink lacks it")
    refused(table, "'m' of .* cannot be null, and the sink's", pa.schema([("m", pa.int64())]))
    assert data_files(table) == set()


def test_columns_are_added_by_choice(table: str) -> None:
    write_deltalake(table, pa.table({"old": [1]}))
    start(table, set_schema_evolution=[SchemaEvolution.ADD_COLUMNS])
    assert sorted(rows(table), key=str) == [{"old": 1, "n": None}, {"old": None, "n": 1}]


def test_other_partitions(table: str) -> None:
    DeltaTable.create(table, NUMBERS, partition_by=["n"])
    refused(table, "is partitioned by 'n', and the sink by nothing; change partition_by")


def test_features_that_the_sink_cannot_write(table: str) -> None:
    DeltaTable.create(table, NUMBERS)
    DeltaTable(table).alter.add_constraint({"positive": "n > 0"})
    refused(table, r"has 'delta\.constraints\.positive', which the sink cannot write")


def test_changes_of_a_table_that_only_takes_appends(table: str) -> None:
    DeltaTable.create(table, NUMBERS, configuration={"delta.appendOnly": "true"})
    refused(table, "only takes appends", upsert_by=["n"])
    start(table)
    assert column(table, "n") == [1]


def test_properties_of_a_table_that_is_created(table: str) -> None:
    start(table, set_table_property=["delta.logRetentionDuration", "interval 3 days"])
    configuration = DeltaTable(table).metadata().configuration
    assert configuration == {"delta.logRetentionDuration": "interval 3 days"}


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(f"{tmp_path}/file/table", r"(cannot|Cannot) .*/file/table")


def test_a_table_that_cannot_be_written(table: str) -> None:
    DeltaTable.create(table, NUMBERS)
    Path(table, "_holdfast").write_text("")  # where the sink would write
    refused(table, r"cannot write to the Delta table '.*': .*; let the job's user write there")


def test_the_package_is_named_if_it_is_missing(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(JobDefinitionError, match=r"pip install 'holdfast\[delta\]'"):
        DeltaSink.for_table(table, NUMBERS)


def test_credentials_are_not_printed(table: str) -> None:
    builder = DeltaSink.for_table(table, NUMBERS).set_storage_option("AWS_SECRET_ACCESS_KEY", "xyz")
    assert "xyz" not in repr(builder.build())


def test_mistakes_of_the_program(table: str) -> None:
    with pytest.raises(JobDefinitionError, match="a Delta table cannot have these columns"):
        DeltaSink.for_table(table, pa.schema([("t", pa.time64("us"))]))
    with pytest.raises(JobDefinitionError, match="cannot be reached over webhdfs://"):
        DeltaSink.for_table("webhdfs://host/table", NUMBERS)
    builder = DeltaSink.for_table(table, pa.schema([("n", pa.int64()), ("f", pa.float64())]))
    with pytest.raises(ValueError, match="upsert_by: there is no column 'x'; the columns are n, f"):
        builder.upsert_by("x")
    with pytest.raises(ValueError, match="upsert_by: name at least one column"):
        builder.upsert_by()
    with pytest.raises(ValueError, match="cannot be split by 'f', which is double; use texts"):
        builder.partition_by("f")
    with pytest.raises(ValueError, match="cannot be split by all of its columns"):
        DeltaSink.for_table(table, NUMBERS).partition_by("n")
    with pytest.raises(ValueError, match=r"set_compression: expected one of zstd.*; got 'best'"):
        builder.set_compression("best")
    with pytest.raises(ValueError, match="expected at least 1 byte; got 0"):
        builder.set_target_file_size(0)
    with pytest.raises(TypeError, match="expected a SchemaEvolution; got 'add'"):
        builder.set_schema_evolution("add")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected an OutputTag; got 'x'"):
        builder.side_output_misfits("x")  # type: ignore[arg-type]


# Lives of a job


def test_stop_with_a_savepoint_start_with_another_parallelism(table: str, tmp_path: Path) -> None:
    def program(parallelism: int, **options: str) -> StreamExecutionEnvironment:
        env = environment(parallelism, **options)
        source = env.from_collection(numbers(40)).uid("numbers").set_parallelism(1)
        source.rebalance().sink_to(DeltaSink.for_table(table, NUMBERS).build()).uid("table")
        return env

    with LocalExecutor(program(2), quota=5) as run:
        run.epoch(checkpoint=True)
        run.epoch()
        savepoint = run.savepoint(str(tmp_path / "saved"), stop=True)
    kept = column(table, "n")
    assert kept == list(range(len(kept)))
    assert kept
    with LocalExecutor(program(3, **{"execution.state-recovery.path": savepoint}), quota=5) as run:
        run.run_to_end()
    assert column(table, "n") == list(range(40))
    assert hidden(table) == []


def test_changes_by_key_go_on_with_another_parallelism(table: str, tmp_path: Path) -> None:
    given = changes(60)
    sink = DeltaSink.for_table(table, ROW).upsert_by("id").build()

    def program(parallelism: int, savepoint: str = "") -> StreamExecutionEnvironment:
        restored = {"execution.state-recovery.path": savepoint} if savepoint else {}
        env = environment(parallelism, **restored)
        env.from_collection(given).uid("changes").sink_to(sink).uid("table")
        return env

    savepoint, seen = "", 0
    for parallelism in (2, 4, 1):
        with LocalExecutor(program(parallelism, savepoint), quota=5) as run:
            run.epoch(checkpoint=True)
            run.epoch()
            run.recover()
            run.epoch()
            savepoint = run.savepoint(str(tmp_path / f"saved by {parallelism}"), stop=True)
        states = [applied(given[:count]) for count in range(seen, len(given))]
        seen += states.index(by_id(table))
        assert hidden(table) == []
    assert seen > 30
    with LocalExecutor(program(3, savepoint)) as run:
        run.run_to_end()
    assert by_id(table) == applied(given)
    assert hidden(table) == []


# An object store


@pytest.fixture
def bucket(s3: Any) -> Iterator[Any]:
    configure(s3.options)
    yield s3
    configure({})


@pytest.mark.parametrize("upserts", [False, True])
def test_on_an_object_store(bucket: Any, upserts: bool) -> None:
    uri = f"{bucket.uri}/table"
    builder = DeltaSink.for_table(uri, NUMBERS)
    if upserts:
        builder.upsert_by("n")
    env = environment(**bucket.options)
    env.from_collection(numbers(12)).rebalance().sink_to(builder.build())
    run_to_end(env)
    assert column(uri, "n") == list(range(12))


def test_a_bucket_that_is_not_there(bucket: Any) -> None:
    uri = "s3a://no-such-bucket/table"
    refused(uri, r"cannot .*'s3a://no-such-bucket.*check that the", settings=bucket.options)
