"""Delta and Iceberg tables on a real HDFS: written in parallel, by key, and read again."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.common import WatermarkStrategy
from holdfast.common.types import Row, RowKind
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.delta import DeltaSink, DeltaSource
from holdfast.datastream.connectors.iceberg import IcebergSink, IcebergSource
from holdfast.datastream.connectors.iceberg.catalog import TableAddress
from holdfast.errors import HoldfastError
from holdfast.filesystem import file_system_of
from holdfast.testing import LocalExecutor, collect
from services.hadoop import site_xml

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([("id", pa.int64()), ("city", pa.string()), ("n", pa.int64())])
KINDS = ("delta", "iceberg")


class Tables:
    """Tables of one kind at a place: builders of their sinks, and their sources."""

    def __init__(self, kind: str, place: str, folder: Path) -> None:
        self._kind, self._place = kind, place
        uri = f"sqlite:///{folder}/catalog.db"
        self._catalog = {"type": "sql", "uri": uri, "warehouse": place}

    def sink(self) -> Any:
        if self._kind == "delta":
            return DeltaSink.for_table(f"{self._place}/table", COLUMNS)
        TableAddress("shop", self._catalog, "shop.table").connect().create_namespace_if_not_exists(
            "shop"
        )
        sink = IcebergSink.builder().set_catalog("shop", self._catalog).set_table("shop.table")
        return sink.set_schema(COLUMNS).create_if_absent()

    def source(self) -> Any:
        if self._kind == "delta":
            return DeltaSource.for_table(f"{self._place}/table").build()
        source = IcebergSource.builder().set_catalog("shop", self._catalog)
        return source.set_table("shop.table").build()

    def rows(self) -> list[tuple[Any, ...]]:
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
        rows = env.from_source(self.source(), WatermarkStrategy.no_watermarks(), "table")
        found = collect(rows.map(lambda row: (row["id"], row["city"], row["n"])))
        return sorted(found)


def write(sink: Any, rows: list[Row]) -> None:
    """Run a job with a crash after a checkpoint."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.enable_checkpointing(3_600_000)
    env.from_collection(rows).key_by(lambda row: row["id"]).map(lambda row: row).sink_to(sink)
    with LocalExecutor(env, quota=4) as run:
        run.epoch(checkpoint=True)
        run.epoch()
        run.recover()
        run.run_to_end()


def row(number: int, n: int) -> Row:
    return Row(id=number, city=["Oslo", "Rome"][number % 2], n=n)


@pytest.fixture(params=KINDS)
def tables(request: pytest.FixtureRequest, hdfs: str, tmp_path: Path) -> Tables:
    return Tables(request.param, f"{hdfs}/{uuid.uuid4().hex}", tmp_path)


def test_each_row_is_appended_once(tables: Tables) -> None:
    write(tables.sink().partition_by("city").build(), [row(number, 0) for number in range(8)])
    assert tables.rows() == [tuple(row(number, 0)) for number in range(8)]


def test_rows_are_replaced_and_deleted_by_key(tables: Tables) -> None:
    changes = [row(number % 5, number) for number in range(10)]
    gone = row(4, 0)
    gone.set_row_kind(RowKind.DELETE)
    write(tables.sink().upsert_by("id").build(), [*changes, gone])
    assert tables.rows() == [tuple(row(number, 5 + number)) for number in range(4)]


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_a_name_service(
    kind: str, hdfs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "dfs.ha.namenodes.shop": "down,up",
        "dfs.namenode.rpc-address.shop.down": "127.0.0.1:1",
        "dfs.namenode.rpc-address.shop.up": hdfs.removeprefix("hdfs://"),
        "dfs.client.failover.sleep.base.millis": "1",
    }
    (tmp_path / "hdfs-site.xml").write_text(site_xml(settings))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    tables = Tables(kind, f"hdfs://shop/{uuid.uuid4().hex}", tmp_path)
    write(tables.sink().build(), [row(number, 0) for number in range(4)])
    assert tables.rows() == [tuple(row(number, 0)) for number in range(4)]


def test_a_directory_of_another_user_is_told_before_the_first_record(
    tables: Tables, hdfs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, top = file_system_of(tables._place)
    system.make_directories(top)
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    # NB: the user counts when a connection is made
    tables._place = tables._catalog["warehouse"] = tables._place.replace("127.0.0.1", "localhost")
    with pytest.raises(HoldfastError, match=r"(?s)able '.*Permission denied.*user=stranger"):
        write(tables.sink().build(), [row(1, 1)])
    assert system.list_directory(top) == []
