"""Iceberg tables of a REST catalog: the server that the Iceberg project tests its clients with."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import load_catalog

from holdfast.common import Duration, WatermarkStrategy
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.iceberg import IcebergSink, IcebergSource
from holdfast.errors import UserFunctionError
from holdfast.testing import LocalExecutor
from services.artifacts import UnavailableError
from services.iceberg import IcebergCatalog
from tests.datastream.iceberg_tables import (
    CATALOG,
    data_files,
    hidden,
    load,
    referred,
    rows,
    transactions,
)

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("status", pa.string())])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergCatalog]:
    """A catalog; a test that ends it starts it again."""
    try:
        running = IcebergCatalog(tmp_path_factory.mktemp("services") / "iceberg")
    except UnavailableError as error:
        pytest.skip(str(error))
    running.start()
    yield running
    running.stop()


@pytest.fixture
def where(server: IcebergCatalog) -> dict[str, str]:
    return {"type": "rest", "uri": server.address}


@pytest.fixture
def name(where: dict[str, str]) -> str:
    """A table that is not there yet, in a new namespace."""
    namespace = f"shop_{uuid.uuid4().hex}"
    load_catalog(CATALOG, **where).create_namespace(namespace)
    return f"{namespace}.orders"


def sink(where: dict[str, str], name: str, upserts: bool = False) -> IcebergSink:
    builder = IcebergSink.builder().set_catalog(CATALOG, where).set_table(name).set_schema(SCHEMA)
    builder.create_if_absent().partition_by("status")
    return (builder.upsert_by("id") if upserts else builder).build()


def job(sink: IcebergSink, records: list[Any]) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.enable_checkpointing(3_600_000)
    env.from_collection(records).rebalance().sink_to(sink)
    return env


def order(number: int, status: str = "new") -> dict[str, Any]:
    return {"id": number, "status": status}


def test_rows_appear_once_and_changes_replace_them(where: dict[str, str], name: str) -> None:
    orders = [order(number) for number in range(40)]
    with LocalExecutor(job(sink(where, name), orders), quota=5) as run:
        run.epoch(checkpoint=True)
        run.epoch()
        run.recover()
        load(where, name).append(pa.Table.from_pylist([order(-1)], SCHEMA))
        run.epoch(checkpoint=True)
        run.recover()
        run.run_to_end()
    assert sorted(row["id"] for row in rows(where, name)) == [-1, *range(40)]
    changes = [order(number % 7, f"change {number}") for number in range(30)]
    with LocalExecutor(job(sink(where, name, upserts=True), changes), quota=5) as run:
        run.epoch(checkpoint=True)
        run.recover()
        run.run_to_end()
    expected = {row["id"]: row["status"] for row in [order(-1), *orders, *changes]}
    found = rows(where, name)
    assert len(found) == len(expected)
    assert {row["id"]: row["status"] for row in found} == expected
    table = load(where, name)
    assert data_files(table) == referred(table)
    assert hidden(table) == []


def test_a_catalog_that_dies_before_the_commit(
    server: IcebergCatalog, where: dict[str, str], name: str
) -> None:
    orders = [order(number) for number in range(20)]
    with LocalExecutor(job(sink(where, name), orders), quota=5) as run:
        run.epoch(checkpoint=True)
        server.stop()
        try:
            with pytest.raises(UserFunctionError, match="check that the catalog runs, and its uri"):
                run.epoch()
        finally:
            server.start()
        run.recover()
        run.run_to_end()
    assert sorted(row["id"] for row in rows(where, name)) == list(range(20))
    found = transactions(load(where, name))
    assert len(found) == len(set(found))


class LosesAnAnswer(ThreadingHTTPServer):
    """Passes requests on to a catalog; the first answer to a commit of the sink is lost."""

    daemon_threads = True

    def __init__(self, catalog: str, status: int) -> None:
        super().__init__(("127.0.0.1", 0), Passing)
        self.catalog = catalog
        #: what is said instead; 0: the connection is closed
        self.status = status
        self.lost: list[int] = []


class Passing(BaseHTTPRequestHandler):
    server: LosesAnAnswer

    def do_GET(self) -> None:
        self.pass_on()

    def do_HEAD(self) -> None:
        self.pass_on()

    def do_POST(self) -> None:
        self.pass_on()

    def pass_on(self) -> None:
        asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind = {"Content-Type": self.headers.get("Content-Type", "application/json")}
        address = self.server.catalog + self.path
        answer = requests.request(self.command, address, data=asked, headers=kind, timeout=60)
        status, said = answer.status_code, answer.content
        if b"holdfast.transaction" in asked and not self.server.lost:
            self.server.lost.append(status)
            status, said = self.server.status, b"{}"
        if not status:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else said)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.mark.parametrize("status", [0, 502, 504])
@pytest.mark.parametrize("upserts", [False, True])
def test_an_answer_that_is_lost_after_the_commit(
    where: dict[str, str], name: str, status: int, upserts: bool
) -> None:
    orders = [order(number) for number in range(10)]
    with LosesAnAnswer(where["uri"], status) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        through = {**where, "uri": f"http://127.0.0.1:{proxy.server_port}"}
        with LocalExecutor(job(sink(through, name, upserts), orders), quota=5) as run:
            run.epoch(checkpoint=True)
            run.epoch()
            committed = len(load(where, name).snapshots())
            run.run_to_end()
        proxy.shutdown()
    assert proxy.lost == [200]
    assert committed == 1
    assert sorted(row["id"] for row in rows(where, name)) == list(range(10))
    table = load(where, name)
    found = transactions(table)
    assert len(found) == len(set(found))
    assert data_files(table) == referred(table)
    assert hidden(table) == []


def test_a_table_is_followed(where: dict[str, str], name: str) -> None:
    table = load_catalog(CATALOG, **where).create_table(name, SCHEMA)
    table.append(pa.Table.from_pylist([order(1), order(2)], SCHEMA))
    builder = IcebergSource.builder().set_catalog(CATALOG, where).set_table(name)
    source = builder.set_row_type(dict).monitor_continuously(Duration.of_millis(0)).build()
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "table")
    with LocalExecutor(stream) as run:
        run.run_until(lambda: len(run.records) == 2)
        table.append(pa.Table.from_pylist([order(3)], SCHEMA))
        run.run_until(lambda: len(run.records) == 3)
    assert sorted(run.records, key=lambda row: row["id"]) == [order(1), order(2), order(3)]


def test_a_namespace_that_is_not_there(where: dict[str, str]) -> None:
    env = job(sink(where, "nowhere.orders"), [order(1)])
    expected = "the namespace 'nowhere' does not exist; there are: "
    with LocalExecutor(env) as run, pytest.raises(UserFunctionError, match=expected):
        run.run_to_end()
