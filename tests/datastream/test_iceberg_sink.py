"""Jobs that write Iceberg tables: what is in the tables, and what is refused before a record."""

from __future__ import annotations

import datetime
import random
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.types import LongType, StringType

from holdfast.common import Configuration, Types
from holdfast.common.types import Row, RowKind
from holdfast.datastream import OutputTag, StreamExecutionEnvironment
from holdfast.datastream.connectors.iceberg import (
    IcebergSink,
    IcebergSinkBuilder,
    SchemaEvolution,
)
from holdfast.datastream.connectors.iceberg.catalog import TableAddress, file_io_properties
from holdfast.datastream.connectors.iceberg.layout import PartitionField, parse_partition
from holdfast.errors import ConfigurationError, JobDefinitionError, UserFunctionError
from holdfast.testing import LocalExecutor
from tests.conftest import S3
from tests.datastream.iceberg_tables import (
    CATALOG,
    NAMESPACE,
    TABLE,
    catalog,
    data_files,
    delete_by_position,
    hidden,
    load,
    properties,
    referred,
    rows,
)

NEW_YEAR = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@dataclass
class Order:
    id: int
    country: str | None
    at: datetime.datetime
    status: str = "new"


def order(number: int, status: str = "new") -> Order:
    country = ["DE", "FR/IT é", None][number % 3]
    return Order(number, country, NEW_YEAR + datetime.timedelta(hours=7 * number), status)


@pytest.fixture
def where(tmp_path: Path) -> dict[str, str]:
    found = properties(tmp_path)
    catalog(found).create_namespace(NAMESPACE)
    return found


def builder(where: Mapping[str, str]) -> IcebergSinkBuilder:
    return IcebergSink.builder().set_catalog(CATALOG, where).set_table(TABLE).set_schema(Order)


def environment(
    parallelism: int = 2, options: Mapping[str, str] | None = None
) -> StreamExecutionEnvironment:
    configuration = Configuration(dict(options or {}))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(parallelism).enable_checkpointing(3_600_000)


def write(sink: IcebergSink, records: list[Any], options: Mapping[str, str] | None = None) -> None:
    """Run a job to its end."""
    env = environment(options=options)
    env.from_collection(records).rebalance().sink_to(sink)
    with LocalExecutor(env) as run:
        run.run_to_end()


def write_and_crash(sink: IcebergSink, records: list[Any]) -> None:
    """Run a job with crashes before and after two checkpoints, and with an epoch run again."""
    env = environment()
    env.from_collection(records).rebalance().sink_to(sink)
    with LocalExecutor(env, quota=len(records) // 8) as run:
        run.epoch(rerun=[(1, 0)])
        run.recover()
        run.epoch(checkpoint=True)
        run.epoch()
        run.recover()
        run.epoch(checkpoint=True)
        run.epoch()
        run.run_to_end()


def as_rows(orders: list[Order]) -> list[dict[str, Any]]:
    return sorted((vars(each) for each in orders), key=lambda row: row["id"])


def sorted_rows(where: Mapping[str, str]) -> list[dict[str, Any]]:
    return sorted(rows(where), key=lambda row: row["id"])


def test_rows_of_all_subtasks_appear_once(where: dict[str, str]) -> None:
    orders = [order(number) for number in range(40)]
    write_and_crash(builder(where).create_if_absent({"owner": "shop"}).build(), orders)
    assert sorted_rows(where) == as_rows(orders)
    table = load(where)
    assert table.properties["owner"] == "shop"
    assert [field.required for field in table.schema().fields] == [True, False, True, True]
    assert data_files(table) == referred(table)
    assert hidden(table) == []
    # and by somebody else's reader
    paths = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    found = duckdb.sql(f"select count(*), sum(id) from read_parquet({paths})").fetchall()
    assert found == [(40, sum(range(40)))]


def test_every_file_has_rows_of_one_partition(where: dict[str, str]) -> None:
    orders = [order(number) for number in range(40)]
    sink = builder(where).create_if_absent().partition_by("country", "days(at)", "bucket(2, id)")
    write_and_crash(sink.build(), orders)
    assert sorted_rows(where) == as_rows(orders)
    table = load(where)
    names = [field.name for field in table.spec().fields]
    assert names == ["country", "at_day", "id_bucket"]
    # files of other partitions are left out, and no row is
    for country in ("DE", "FR/IT é"):
        scan = table.scan(row_filter=f"country = '{country}'")
        assert scan.count() == sum(each.country == country for each in orders)
        assert {task.file.partition[0] for task in scan.plan_files()} == {country}
    late = "at >= '2026-01-10T00:00:00+00:00'"
    assert table.scan(row_filter=late).count() == sum(each.at.day >= 10 for each in orders)
    assert len(list(table.scan(row_filter=late).plan_files())) < len(
        list(table.scan().plan_files())
    )


def test_the_partitions_of_a_table_that_exists_are_used(where: dict[str, str]) -> None:
    made = catalog(where).create_table(
        TABLE,
        pa.schema(
            [
                *(("id", pa.int64()), ("country", pa.string()), ("status", pa.string())),
                *(("at", pa.timestamp("us", "UTC")), ("more", pa.float64())),
            ]
        ),
    )
    with made.update_spec() as update:
        update.add_field("country", "truncate[1]")
        update.add_field("at", "hour")
        update.add_field("status", "void")
    orders = [order(number) for number in range(8)]
    write(builder(where).build(), orders)
    found = sorted_rows(where)
    assert [{k: v for k, v in row.items() if k != "more"} for row in found] == as_rows(orders)
    assert {row["more"] for row in found} == {None}
    assert load(where).scan(row_filter="country = 'DE'").count() == 3


@pytest.mark.parametrize("partitions", [(), ("bucket(3, id)", "country")])
def test_the_last_change_of_a_key_wins(where: dict[str, str], partitions: tuple[str, ...]) -> None:
    chance = random.Random(7)
    changes = [
        order(chance.randrange(12), chance.choice(["paid", "sent", "gone"])) for _ in range(60)
    ]
    for each in changes:
        each.country = chance.choice(["DE", "FR"])  # a row may move to another partition
    last = {each.id: each for each in changes}
    sink = builder(where).create_if_absent().partition_by(*partitions)
    sink.upsert_by("id", is_deletion=lambda each: each.status == "gone")
    write_and_crash(sink.build(), changes)
    assert sorted_rows(where) == as_rows([e for e in last.values() if e.status != "gone"])
    table = load(where)
    assert data_files(table) == referred(table)
    assert hidden(table) == []


def test_rows_with_a_kind_are_changes(where: dict[str, str]) -> None:
    row_type = Types.ROW_NAMED(
        ["id", "day", "name"], [Types.LONG(), Types.STRING(), Types.STRING()]
    )
    sink = builder(where).set_schema(row_type).create_if_absent().upsert_by("id", "day").build()

    def row(kind: RowKind, number: int, day: str, name: str | None) -> Row:
        return Row.of_kind(kind, id=number, day=day, name=name)

    many = [row(RowKind.INSERT, number, "mon", "x") for number in range(300)]
    write(sink, [*many, row(RowKind.INSERT, 5, "tue", "y")])
    write(
        sink,
        [
            row(RowKind.UPDATE_BEFORE, 1, "mon", "x"),
            row(RowKind.UPDATE_AFTER, 1, "mon", "z"),
            row(RowKind.DELETE, 5, "mon", None),
            row(RowKind.DELETE, 1000, "mon", None),
        ],
    )
    found = {(each["id"], each["day"]): each["name"] for each in rows(where)}
    expected = {(number, "mon"): "x" for number in range(300)} | {(5, "tue"): "y", (1, "mon"): "z"}
    del expected[5, "mon"]
    assert found == expected
    assert len(rows(where)) == 300


KEYS = {
    "at": (pa.timestamp("us", "UTC"), [NEW_YEAR, NEW_YEAR.replace(day=2)]),
    "local": (pa.timestamp("us"), [datetime.datetime(2026, 1, day) for day in (1, 2)]),  # noqa: DTZ001
    "day": (pa.date32(), [datetime.date(2026, 1, day) for day in (1, 2)]),
    "time": (pa.time64("us"), [datetime.time(hour) for hour in (1, 2)]),
    "price": (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("2.25")]),
    "code": (pa.binary(), [b"a", b"b"]),
    "flag": (pa.bool_(), [False, True]),
    "name": (pa.string(), [40 * "a" + end for end in "xy"]),
}


@pytest.mark.parametrize("most", [0, 200])
def test_keys_of_any_type(
    where: dict[str, str], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("holdfast.datastream.connectors.iceberg.changes._MOST_KEYS", most)
    fields = [(name, column) for name, (column, _) in KEYS.items()]
    schema = pa.schema([*fields, ("n", pa.int64())])
    sink = builder(where).set_schema(schema).create_if_absent().upsert_by(*KEYS).build()
    first, second = ({name: values[at] for name, (_, values) in KEYS.items()} for at in (0, 1))
    write(sink, [{**first, "n": 1}, {**second, "n": 2}])
    write(sink, [{**second, "n": 3}])
    found = sorted(rows(where), key=lambda row: row["n"])
    assert found == [{**first, "n": 1}, {**second, "n": 3}]


def test_upserts_honour_deletes_of_other_engines(where: dict[str, str]) -> None:
    """A file with rows that are deleted by position is copied without them."""
    schema = pa.schema([("id", pa.int64()), ("status", pa.string())])
    made = catalog(where).create_table(TABLE, schema)
    made.append(pa.table({"id": range(4), "status": ["new"] * 4}, schema))
    delete_by_position(load(where), [2])
    assert [row["id"] for row in sorted_rows(where)] == [0, 1, 3]
    sink = builder(where).set_schema(schema).upsert_by("id").build()
    write(sink, [{"id": 1, "status": "paid"}])
    found = [(row["id"], row["status"]) for row in sorted_rows(where)]
    assert found == [(0, "new"), (1, "paid"), (3, "new")]


def test_columns_are_added_if_asked_for(where: dict[str, str]) -> None:
    first = pa.schema([("id", pa.int64())])
    write(builder(where).set_schema(first).create_if_absent().build(), [{"id": 1}])
    wide = builder(where).set_schema(pa.schema([*first, pa.field("note", pa.string(), False)]))
    with pytest.raises(
        UserFunctionError, match=r"has no column 'note'; it has: id; call set_schema_ev"
    ):
        write(wide.build(), [{"id": 2, "note": "b"}])
    wide.set_schema_evolution(SchemaEvolution.ADD_COLUMNS)
    write(wide.build(), [{"id": 2, "note": "b"}])
    assert sorted_rows(where) == [{"id": 1, "note": None}, {"id": 2, "note": "b"}]


def test_subtasks_create_the_table_at_the_same_time(where: dict[str, str]) -> None:
    settings = builder(where).create_if_absent().partition_by("country").build().settings
    with ThreadPoolExecutor(6) as threads:
        made = list(threads.map(lambda _: settings.layout.prepare(settings.address), range(6)))
    assert len({table.metadata.table_uuid for table in made}) == 1


def test_records_that_do_not_fit(where: dict[str, str]) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), False), pa.field("name", pa.string(), False)])
    records = [{"id": 1, "name": "a"}, {"id": 2**40, "name": "b"}, {"id": 3, "name": None}]
    sink = builder(where).set_schema(schema).create_if_absent()
    with pytest.raises(
        UserFunctionError, match="field 'id' is declared int32; its value 109951162777"
    ):
        write(sink.build(), records[:2])
    misfits = OutputTag("misfits")
    env = environment()
    written = env.from_collection(records).sink_to(sink.side_output_misfits(misfits).build())
    with LocalExecutor(written.get_side_output(misfits)) as run:
        run.run_to_end()
    assert sorted(run.records, key=str) == records[1:]
    assert rows(where) == records[:1]


def test_types_that_iceberg_has_not_are_widened(where: dict[str, str]) -> None:
    schema = pa.schema(
        [("small", pa.int8()), ("price", pa.decimal128(10, 2)), ("day", pa.date32())]
    )
    sink = builder(where).set_schema(schema).create_if_absent().build()
    write(sink, [{"small": 1, "price": None, "day": datetime.date(2026, 1, 2)}])
    assert rows(where) == [{"small": 1, "price": None, "day": datetime.date(2026, 1, 2)}]


def test_a_job_that_is_stopped_and_started_with_another_parallelism(
    where: dict[str, str], tmp_path: Path
) -> None:
    sink = builder(where).create_if_absent().build()
    orders = [order(number) for number in range(30)]

    def job(parallelism: int, savepoint: str = "") -> StreamExecutionEnvironment:
        found = {"execution.state-recovery.path": savepoint} if savepoint else {}
        env = environment(parallelism, found)
        source = env.from_collection(orders).uid("orders")
        source.rebalance().sink_to(sink).uid("table")
        return env

    with LocalExecutor(job(2), quota=5) as run:
        run.epoch()
        savepoint = run.savepoint(tmp_path / "savepoint", stop=True)
    before = len(rows(where))
    assert 0 < before < 30
    with LocalExecutor(job(3, savepoint), quota=5) as run:
        run.run_to_end()
    assert sorted_rows(where) == as_rows(orders)


def test_changes_by_key_go_on_with_another_parallelism(
    where: dict[str, str], tmp_path: Path
) -> None:
    orders = [order(number * 7 % 10, f"change {number}") for number in range(60)]
    sink = builder(where).create_if_absent().partition_by("country").upsert_by("id").build()

    def program(parallelism: int, savepoint: str = "") -> StreamExecutionEnvironment:
        restored = {"execution.state-recovery.path": savepoint} if savepoint else {}
        env = environment(parallelism, restored)
        env.from_collection(orders).uid("orders").sink_to(sink).uid("table")
        return env

    def newest(count: int) -> list[dict[str, Any]]:
        return as_rows(list({each.id: each for each in orders[:count]}.values()))

    savepoint, seen = "", 0
    for parallelism in (2, 4, 1):
        with LocalExecutor(program(parallelism, savepoint), quota=5) as run:
            run.epoch(checkpoint=True)
            run.epoch()
            run.recover()
            run.epoch()
            savepoint = run.savepoint(tmp_path / f"saved by {parallelism}", stop=True)
        states = [newest(count) for count in range(seen, len(orders))]
        seen += states.index(sorted_rows(where))
        assert hidden(load(where)) == []
    assert seen > 30
    with LocalExecutor(program(3, savepoint)) as run:
        run.run_to_end()
    assert sorted_rows(where) == newest(len(orders))
    assert hidden(load(where)) == []


def test_tables_on_s3_use_the_settings_of_the_job(s3: S3, tmp_path: Path) -> None:
    warehouse = s3.uri.replace("s3a://", "s3://") + "/warehouse"
    where = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": warehouse}
    there = {**where, **file_io_properties(s3.options, warehouse)}
    catalog(there).create_namespace(NAMESPACE)
    orders = [order(number) for number in range(9)]
    sink = builder(where).create_if_absent().partition_by("country").upsert_by("id").build()
    write(sink, orders, s3.options)
    write(sink, [order(3, "paid")], s3.options)
    orders[3].status = "paid"
    assert sorted_rows(there) == as_rows(orders)


def test_settings_of_one_bucket_are_translated() -> None:
    options = {
        "fs.s3a.endpoint": "minio:9000",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.access.key": "general",
        "fs.s3a.bucket.own.access.key": "own",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.session.token": "token",
        "fs.s3a.endpoint.region": "eu",
        "fs.s3a.path.style.access": "false",
    }
    assert file_io_properties(options, "s3a://own/warehouse") == {
        "s3.endpoint": "http://minio:9000",
        "s3.access-key-id": "own",
        "s3.secret-access-key": "secret",
        "s3.session-token": "token",
        "s3.region": "eu",
        "s3.force-virtual-addressing": "true",
    }
    assert file_io_properties({}, "/warehouse") == {}


class TestWhatIsRefusedBeforeTheFirstRecord:
    """One clear error each."""

    def fails(self, sink: IcebergSinkBuilder, match: str) -> None:
        with pytest.raises(UserFunctionError, match=match):
            write(sink.build(), [order(1)])

    def test_a_catalog_that_cannot_be_reached(self, tmp_path: Path) -> None:
        where = {"type": "sql", "uri": f"sqlite:///{tmp_path}/nowhere/catalog.db"}
        self.fails(
            builder(where),
            "Iceberg table 'shop.orders' of the catalog 'test': cannot connect to the catalog: "
            "OperationalError: .*; check that the database runs, and the uri of the catalog",
        )

    def test_a_rest_catalog_that_does_not_run(self) -> None:
        where = {"type": "rest", "uri": "http://127.0.0.1:9"}
        self.fails(
            builder(where),
            "cannot connect to the catalog: ConnectionError: .*; check that the catalog runs, and",
        )

    def test_a_wrong_credential(self) -> None:
        class Refuse(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(401)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            where = {"type": "rest", "uri": f"http://127.0.0.1:{server.server_port}", "token": "x"}
            expected = "UnauthorizedError: .*; check the credential or token among the catalog's pr"
            self.fails(builder(where), expected)
            server.shutdown()

    def test_a_uri_that_is_none(self) -> None:
        self.fails(builder({"type": "sql", "uri": "what"}), "ArgumentError: .*; check the uri of")

    def test_a_catalog_without_a_type(self) -> None:
        self.fails(builder({"warehouse": "/x"}), "cannot connect to the catalog: .*check the cat")

    def test_a_missing_table(self, where: dict[str, str]) -> None:
        catalog(where).create_table("shop.other", pa.schema([("id", pa.int64())]))
        self.fails(
            builder(where), "does not exist; tables of that namespace are: shop.other; call create"
        )

    def test_a_missing_namespace(self, where: dict[str, str]) -> None:
        self.fails(
            builder(where).set_table("shup.orders").create_if_absent(),
            "the namespace 'shup' does not exist; there are: shop; create it in the catalog, or",
        )

    def test_a_missing_warehouse(self, where: dict[str, str]) -> None:
        found = {key: value for key, value in where.items() if key != "warehouse"}
        self.fails(
            builder(found).create_if_absent(),
            "cannot create the table: ValueError: No default path is set.*; add 'warehouse' to the",
        )

    def test_another_type(self, where: dict[str, str]) -> None:
        catalog(where).create_table(
            TABLE, pa.schema([("id", pa.string()), ("country", pa.int32())])
        )
        narrow = pa.schema([("id", pa.int64())])
        self.fails(
            builder(where).set_schema(narrow),
            "the column 'id' is of type string; the sink declares long; correct the schema of",
        )

    def test_a_required_column_that_is_not_declared(self, where: dict[str, str]) -> None:
        schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("x", pa.int64(), False)])
        catalog(where).create_table(TABLE, schema)
        self.fails(
            builder(where).set_schema(schema.remove(1)),
            "the column 'x' is required, and the schema of the sink does not have it; add it",
        )

    def test_other_partitions(self, where: dict[str, str]) -> None:
        write(builder(where).create_if_absent().partition_by("day(at)").build(), [order(1)])
        self.fails(
            builder(where).partition_by("country", "bucket(4, id)"),
            r"is partitioned by day\(at\); the sink declares country, bucket\(4, id\); correct",
        )

    def test_an_old_format(self, where: dict[str, str]) -> None:
        sink = builder(where).create_if_absent({"format-version": "1"})
        self.fails(sink, "has the format version 1, and the sink needs 2; upgrade an older")

    def test_a_table_of_another_format(self, where: dict[str, str]) -> None:
        location = Path(where["warehouse"].removeprefix("file://"), NAMESPACE, "orders")
        DeltaTable.create(location, pa.schema([("id", pa.int64())]))
        self.fails(
            builder(where).create_if_absent(),
            "there is a Delta table in '.*/shop/orders', where the table would be; choose another",
        )
        assert catalog(where).list_tables(NAMESPACE) == []
        assert sorted(path.name for path in location.iterdir()) == ["_delta_log"]

    def test_a_bucket_that_is_not_there(self, s3: S3, tmp_path: Path) -> None:
        found = f"sqlite:///{tmp_path}/catalog.db"
        where = {"type": "sql", "uri": found, "warehouse": "s3://no-such-bucket/warehouse"}
        catalog(where).create_namespace(NAMESPACE)
        expected = "cannot create the table: .*; check the catalog's properties and the storage set"
        with pytest.raises(UserFunctionError, match=expected):
            write(builder(where).create_if_absent().build(), [order(1)], s3.options)


def test_a_builder_says_what_is_missing(where: dict[str, str]) -> None:
    empty = IcebergSink.builder()
    with pytest.raises(ValueError, match="an IcebergSink needs to know where the catalog is: call"):
        empty.build()
    with pytest.raises(ValueError, match=r"needs the name of a table: set_table\('namespace.name'"):
        empty.set_catalog(CATALOG, where).set_table("orders").build()
    with pytest.raises(ValueError, match="needs to know the columns: call set_schema"):
        empty.set_table(TABLE).build()
    with pytest.raises(
        ValueError, match="upsert_by: 'nr' is not a column of the schema; the colum"
    ):
        builder(where).upsert_by("nr").build()
    with pytest.raises(ValueError, match="partition_by: 'nr' is not a column of the schema"):
        builder(where).partition_by("day(nr)").build()
    with pytest.raises(ValueError, match="expected a positive number of bytes; got 0"):
        builder(where).set_target_file_size(0)
    with pytest.raises(TypeError, match="expected a SchemaEvolution; got 'add'"):
        builder(where).set_schema_evolution("add")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("country", PartitionField("country")),
        ("days(at)", PartitionField("at", "day")),
        ("bucket(16, id)", PartitionField("id", "bucket[16]")),
        (" truncate( 4 , a.b )", PartitionField("a.b", "truncate[4]")),
    ],
)
def test_partition_fields_are_parsed(text: str, field: PartitionField) -> None:
    assert parse_partition(text) == field


@pytest.mark.parametrize("text", ["", "day()", "bucket(id)", "bucket(0, id)", "day(2, at)", "x(y)"])
def test_other_partition_fields_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="partition_by: expected a column, year, month"):
        parse_partition(text)


@pytest.fixture
def _no_pyiceberg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)


@pytest.mark.usefixtures("_no_pyiceberg")
def test_the_missing_package_is_named() -> None:
    with pytest.raises(JobDefinitionError, match=r"pip install 'holdfast\[iceberg\]'"):
        TableAddress(CATALOG, {}, TABLE).connect()


def test_column_types_match_the_table(where: dict[str, str]) -> None:
    """Promotions that Iceberg allows are allowed."""
    catalog(where).create_table(TABLE, pa.schema([("id", pa.int64()), ("name", pa.string())]))
    write(builder(where).set_schema(pa.schema([("id", pa.int32())])).build(), [{"id": 1}])
    assert rows(where) == [{"id": 1, "name": None}]
    types = [field.field_type for field in load(where).schema().fields]
    assert types == [LongType(), StringType()]
