"""A store that checks credentials: what is wrong with them is told before the first record."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.connectors.delta import DeltaSink
from holdfast.datastream.connectors.file_system import FileSink
from holdfast.datastream.connectors.iceberg import IcebergSink
from holdfast.datastream.connectors.iceberg.catalog import TableAddress
from holdfast.datastream.formats.parquet import ParquetBulkWriters
from holdfast.errors import HoldfastError, JobDefinitionError
from holdfast.filesystem import configure
from holdfast.spark.writer_places import at_least_once
from holdfast.testing import LocalExecutor
from services.process import free_port
from tests.guarded_store import BUCKET
from tests.recovery.programs import Program
from tests.recovery.test_savepoints import ledger

COLUMNS = pa.schema([("n", pa.int64())])
#: what the server says to each of those who may not write
REFUSALS = {
    "wrong secret": r"signature we calculated does not match",
    "unknown key": r"Access Key Id you provided does not exist",
    "reader": r"Access ?Denied|ACCESS_DENIED",
}
refused = pytest.mark.parametrize("who", REFUSALS)
SEEN: list[int] = []


class Store:
    """The server: its settings for each of those who ask."""

    def __init__(self, address: str, keys: dict[str, list[str]]) -> None:
        self._address = address
        known, _ = keys["writer"]
        self._keys = {**keys, "wrong secret": [known, "no"], "unknown key": ["AKIANOBODY", "no"]}

    def settings(self, who: str) -> dict[str, str]:
        key, secret = self._keys[who]
        return {
            "fs.s3a.endpoint": self._address,
            "fs.s3a.access.key": key,
            "fs.s3a.secret.key": secret,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
        }


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    pytest.importorskip("moto.server", reason="needs the packages of holdfast[dev]")
    port = free_port()
    command = [sys.executable, "-m", "tests.guarded_store", str(port)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        yield Store(f"http://127.0.0.1:{port}", json.loads(server.stdout.readline()))
        server.kill()


@pytest.fixture(autouse=True)
def nothing_seen() -> Iterator[None]:
    SEEN.clear()
    yield
    configure({})


def see(n: int) -> tuple[int]:
    SEEN.append(n)
    return (n,)


def write(sink: Any, settings: dict[str, str]) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    for key, value in settings.items():
        env._configuration.set_string(key, value)
    env.enable_checkpointing(3_600_000)
    env.from_collection(range(3)).map(see).sink_to(sink)
    with LocalExecutor(env) as run:
        run.run_to_end()


class Tables:
    """A place for tables of one kind, or for files."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._place = f"s3://{BUCKET}/{uuid.uuid4().hex}"
        uri = f"sqlite:///{folder}/catalog.db"
        self._catalog = {"type": "sql", "uri": uri, "warehouse": self._place}

    def sink(self) -> Any:
        if self.kind == "delta":
            return DeltaSink.for_table(f"{self._place}/table", COLUMNS).build()
        if self.kind == "files":
            columns = ParquetBulkWriters.for_row_type(COLUMNS)
            return FileSink.for_bulk_format(f"{self._place}/table", columns).build()
        address = TableAddress("shop", self._catalog, "shop.table")
        address.connect().create_namespace_if_not_exists("shop")
        sink = IcebergSink.builder().set_catalog("shop", self._catalog).set_table("shop.table")
        return sink.set_schema(COLUMNS).create_if_absent().build()


@pytest.fixture(params=["delta", "iceberg", "files"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Tables:
    return Tables(request.param, tmp_path)


@pytest.mark.parametrize(
    ("who", "exists"),
    # who cannot even read learns the same of a table that is there
    [*((who, False) for who in REFUSALS), ("reader", True)],
)
def test_a_table_that_may_not_be_written(
    store: Store, tables: Tables, who: str, exists: bool
) -> None:
    if exists:
        write(tables.sink(), store.settings("writer"))
        assert len(SEEN) == 3
        SEEN.clear()
    with pytest.raises(HoldfastError, match=f"(?s) '.*(Denied|DENIED|{REFUSALS[who]})") as told:
        write(tables.sink(), store.settings(who))
    assert SEEN == []
    first, *others = str(told.value).splitlines()
    assert "table'" in first
    assert "check" in first
    assert others[0].strip() == "in open()"


@refused
def test_files_that_spark_writes_and_nobody_may_move(
    store: Store, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """Rows are not silently written at least once."""
    monkeypatch.setattr("holdfast.spark.writer_places.qualified", lambda *args: args[2].path)
    configure(store.settings(who))
    sink = DataFrameSink("parquet", f"s3a://{BUCKET}/{uuid.uuid4().hex}")
    told = rf"operator 'lake': cannot write to 's3a://.*(Denied|DENIED|{REFUSALS[who]}).*; let the"
    with pytest.raises(JobDefinitionError, match=told):
        at_least_once(None, "lake", sink)  # type: ignore[arg-type]


@refused
def test_checkpoints_that_may_not_be_written(store: Store, who: str) -> None:
    place = f"s3a://{BUCKET}/{uuid.uuid4().hex}"
    told = f"cannot make checkpoint directory '{place}/.*(Denied|DENIED|{REFUSALS[who]})"
    with (
        pytest.raises(HoldfastError, match=told),
        Program(ledger, place).started(2, settings=store.settings(who)),
    ):
        pass


def test_those_who_may_write_do(store: Store) -> None:
    place = f"s3a://{BUCKET}/{uuid.uuid4().hex}"
    with Program(ledger, place).started(2, settings=store.settings("writer")) as run:
        run.run_to_end()
