"""Iceberg tables that are written while a worker is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.common import Configuration
from holdfast.datastream import MapFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.iceberg import IcebergSink, IcebergSinkBuilder
from tests.datastream.iceberg_tables import (
    CATALOG,
    NAMESPACE,
    catalog,
    data_files,
    hidden,
    load,
    properties,
    referred,
    rows,
    transactions,
)
from tests.gates import Covered, Numbers

pytestmark = [pytest.mark.spark, pytest.mark.engine("resident")]

NUMBERS, KEYS = 3000, 50
SCHEMA = pa.schema([("key", pa.int64()), ("n", pa.int64())])
APPENDED, UPSERTED = f"{NAMESPACE}.appended", f"{NAMESPACE}.upserted"


class KillOnce(MapFunction):
    """Kills its process at a number, the first time."""

    def __init__(self, done: Path, at: int) -> None:
        self._done = done
        self._at = at

    def map(self, value: int) -> tuple[int, int]:
        if value == self._at and not self._done.exists():
            self._done.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return value % KEYS, value


def test_a_killed_worker_costs_an_attempt_and_no_row(tmp_path: Path) -> None:
    where = properties(tmp_path)
    catalog(where).create_namespace(NAMESPACE)
    checkpoints = tmp_path / "checkpoints"
    env = StreamExecutionEnvironment(
        Configuration(
            {
                "holdfast.directory": str(tmp_path / "jobs"),
                "execution.checkpointing.interval": "200 ms",
                "execution.checkpointing.dir": str(checkpoints),
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "3",
                "restart-strategy.fixed-delay.delay": "0 s",
            }
        )
    ).set_parallelism(2)

    def builder(name: str) -> IcebergSinkBuilder:
        made = IcebergSink.builder().set_catalog(CATALOG, where).set_table(name)
        return made.set_schema(SCHEMA).create_if_absent()

    # NB: half of the rows are in the table before the kill
    covered = Covered(checkpoints / "iceberg")
    source = env.from_source(Numbers(NUMBERS, {NUMBERS // 2: covered}), source_name="numbers")
    pairs = source.map(KillOnce(tmp_path / "killed", NUMBERS * 3 // 4))
    pairs.sink_to(builder(APPENDED).partition_by("bucket(2, key)").build()).uid("appended")
    pairs.sink_to(builder(UPSERTED).upsert_by("key").build()).uid("upserted")
    client = env.execute_async("iceberg")
    client.get_job_execution_result().result()
    first, second = client.get_attempts()
    assert "has ended" in first.failure
    assert second.checkpoint is not None
    assert sorted(row["n"] for row in rows(where, APPENDED)) == list(range(NUMBERS))
    # numbers of one key come from both sources, so the last one of either is right
    kept = rows(where, UPSERTED)
    found = {row["key"]: row["n"] for row in kept}
    assert len(kept) == len(found) == KEYS
    assert all(n % KEYS == key and n >= NUMBERS - 2 * KEYS for key, n in found.items())
    for table in (load(where, APPENDED), load(where, UPSERTED)):
        assert data_files(table) == referred(table)
        assert hidden(table) == []
        assert len(set(transactions(table))) == len(table.snapshots()) > 1
