"""What DeltaSink and IcebergSink write, read row by row by the packages of Spark, and by others.

The packages need an older Spark, in an environment that ``scripts/spark_readers.py`` makes.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from holdfast.common.types import Row, RowKind
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.delta import DeltaSink, SchemaEvolution
from holdfast.datastream.connectors.iceberg import IcebergSink
from holdfast.testing import LocalExecutor
from scripts.spark_readers import ROOT, interpreter, packages
from services.artifacts import UnavailableError
from tests.datastream.delta_tables import query
from tests.datastream.iceberg_tables import catalog
from tests.datastream.spark_reader import plain

pytestmark = pytest.mark.spark

READERS = Path(__file__).parents[1] / "datastream"
KINDS = ("delta", "iceberg")
PLACE = pa.struct([("city", pa.string()), ("at", pa.list_(pa.float64()))])
COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("price", pa.decimal128(12, 3)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("small", pa.int32()),
        ("share", pa.float64()),
        ("is_late", pa.bool_()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("place", PLACE),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)
#: what Spark says of them
TYPE = (
    "struct<id:bigint,name:string,price:decimal(12,3),at:timestamp,day:date,small:int,share:double,"
    "is_late:boolean,raw:binary,tags:array<string>,place:struct<city:string,at:array<double>>,"
    "counts:map<string,bigint>>"
)
BEFORE_1970 = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, datetime.UTC)
MORE = COLUMNS.append(pa.field("added", pa.string()))


def row(number: int, **more: Any) -> Row:
    """A row of all kinds of columns; every third one has nulls wherever there can be."""
    values: dict[str, Any] = {"id": number, "day": _day(number)}
    if number % 3 != 2:
        values |= {
            "name": f"naïve \U0001f600 {number}",
            "price": Decimal(-12_345_678) / 1000 + number,
            "at": BEFORE_1970 + datetime.timedelta(hours=number, microseconds=number),
            "small": -number,
            "share": number / 3,
            "is_late": number % 2 == 0,
            "raw": bytes([0, number, 255]),
            "tags": ["a", None][: number % 3],
            "place": {"city": "Oslo", "at": [59.9, 10.75]},
            "counts": {"x": number},
        }
    return Row(**{**dict.fromkeys(COLUMNS.names), **values, **more})


def _day(number: int) -> datetime.date:
    return datetime.date(2026, 2, 27) + datetime.timedelta(days=number % 3)


@dataclass
class Written:
    """A table, and the rows that must be found in it."""

    kind: str
    where: Any
    path: str
    type: str
    rows: list[dict[str, Any]] = field(default_factory=list)


class Tables:
    """Writes tables of one kind."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind, self._folder = kind, folder
        folder.mkdir()
        uri = f"sqlite:///{folder}/catalog.db"
        self.catalog = {"type": "sql", "uri": uri, "warehouse": f"file://{folder}"}
        if kind == "iceberg":
            catalog(self.catalog).create_namespace("shop")

    def write(
        self, name: str, rows: list[Row], build: Callable[[Any], Any], columns: pa.Schema = COLUMNS
    ) -> None:
        """Run a job that writes rows, in two checkpoints."""
        if self._kind == "delta":
            sink = DeltaSink.for_table(str(self._folder / name), columns)
        else:
            sink = IcebergSink.builder().set_catalog("test", self.catalog)
            sink = sink.set_table(f"shop.{name}").set_schema(columns).create_if_absent()
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
        env.enable_checkpointing(3_600_000)
        keyed = env.from_collection(rows).key_by(lambda row: row["id"])
        keyed.map(lambda row: row).sink_to(build(sink).build())
        with LocalExecutor(env, quota=len(rows) // 2) as run:
            run.epoch(checkpoint=True)
            run.run_to_end()

    def written(self, name: str, rows: list[Row], kind: str = TYPE) -> Written:
        expected = sorted((plain(row) for row in map(_as_dict, rows)), key=lambda row: row["id"])
        if self._kind == "delta":
            path = str(self._folder / name)
            return Written("delta", path, path, kind, expected)
        table = catalog(self.catalog).load_table(f"shop.{name}")
        return Written("iceberg", table, table.metadata_location, kind, expected)


def add_columns(sink: Any) -> Any:
    return sink.set_schema_evolution(SchemaEvolution.ADD_COLUMNS)


def _as_dict(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in row._fields}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """Tables of each kind: appended to, changed by key, and with a column that was added."""
    found = {}
    for kind in KINDS:
        to = Tables(kind, tmp_path_factory.mktemp("tables") / kind)
        rows = [row(number) for number in range(12)]
        to.write("appended", rows, lambda sink: sink.partition_by("day"))
        found[f"{kind} appended"] = to.written("appended", rows)
        gone = [row(number) for number in range(0, 12, 5)]
        for each in gone:
            each.set_row_kind(RowKind.DELETE)
        newer = [row(number, small=100 + number) for number in range(1, 5)]
        to.write("changed", [*rows, *newer], lambda sink: sink.upsert_by("id"))
        to.write("changed", gone, lambda sink: sink.upsert_by("id"))
        kept = [row(number) for number in (6, 7, 8, 9, 11)]
        found[f"{kind} changed"] = to.written("changed", [*newer, *kept])
        to.write("wider", rows[:4], lambda sink: sink)
        more = [row(number, added=f"more {number}") for number in range(4, 8)]
        to.write("wider", more, add_columns, MORE)
        older = [row(number, added=None) for number in range(4)]
        wider = TYPE.removesuffix(">") + ",added:string>"
        found[f"{kind} wider"] = to.written("wider", [*older, *more], wider)
    return found


@pytest.fixture(scope="module")
def jars() -> str:
    """The packages of Spark, if there is the environment for them."""
    if not interpreter().exists():
        pytest.skip("there is no older Spark with the packages: run scripts/spark_readers.py")
    try:
        return ",".join(map(str, packages()))
    except UnavailableError as error:
        pytest.skip(str(error))


def run_there(program: Path, *arguments: Any, expected: int = 0, **variables: str) -> str:
    """Run a program in the environment of the packages; its output."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))
    }
    run = subprocess.run(
        [interpreter(), program, *map(str, arguments)],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == expected, run.stderr[-3000:]
    return run.stdout


def asked(tables: dict[str, Written], folder: Path) -> Path:
    """A file that says which tables are to be read."""
    places = {name: [table.kind, table.path] for name, table in tables.items()}
    (folder / "tables.json").write_text(json.dumps(places))
    return folder / "tables.json"


def test_spark_reads_every_row(tables: dict[str, Written], jars: str, tmp_path: Path) -> None:
    out = run_there(READERS / "spark_reader.py", asked(tables, tmp_path), SPARK_READER_JARS=jars)
    found = json.loads(out.splitlines()[-1])["tables"]
    for name, table in tables.items():
        assert found[name]["type"] == table.type, name
        assert sorted(found[name]["rows"], key=lambda row: row["id"]) == table.rows, name


@pytest.mark.usefixtures("jars")
def test_duckdb_reads_every_row(tables: dict[str, Written], tmp_path: Path) -> None:
    out = run_there(READERS / "duckdb_reader.py", asked(tables, tmp_path))
    found = json.loads(out.splitlines()[-1])["tables"]
    for name, table in tables.items():
        assert sorted(found[name], key=lambda row: row["id"]) == table.rows, name


def test_spark_writes_each_row_of_a_dataframe_sink_to_delta_once(jars: str, tmp_path: Path) -> None:
    program = Path(__file__).with_name("delta_sink_program.py")
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    out = run_there(program, tmp_path, SPARK_READER_JARS=jars, PYTHONPATH=path)
    assert (tmp_path / "broken in the second").exists()
    numbers = list(range(1000))
    assert json.loads(out.splitlines()[-1]) == {"path": numbers, "table": numbers}


def test_a_driver_that_dies_after_the_commit_to_delta_repeats_it_without_effect(
    jars: str, tmp_path: Path
) -> None:
    program = Path(__file__).with_name("delta_death_program.py")
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    for expected in (9, 0):
        out = run_there(
            program, tmp_path, expected=expected, SPARK_READER_JARS=jars, PYTHONPATH=path
        )
    numbers = list(range(300))
    assert json.loads(out.splitlines()[-1]) == {"one": numbers, "two": numbers, "repeated": True}


@pytest.mark.parametrize("kind", KINDS)
def test_their_own_libraries_read_every_row(tables: dict[str, Written], kind: str) -> None:
    for table in tables.values():
        if table.kind == kind:
            found = [plain({**each, "counts": _mapped(each["counts"])}) for each in _read(table)]
            assert sorted(found, key=lambda row: row["id"]) == table.rows


def _read(table: Written) -> list[dict[str, Any]]:
    if table.kind == "delta":
        return query(DeltaTable(table.where), "SELECT * FROM the_table")
    return list(table.where.scan().to_arrow().to_pylist())


def _mapped(pairs: Any) -> Any:
    return None if pairs is None else dict(pairs)
