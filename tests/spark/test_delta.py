"""A Delta table that is written while a worker is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.common import Configuration
from holdfast.datastream import MapFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.delta import DeltaSink
from tests.datastream.delta_tables import data_files, hidden, referred, rows
from tests.gates import Covered, Numbers

pytestmark = [pytest.mark.spark, pytest.mark.engine("resident")]

NUMBERS, KEYS = 3000, 50
#: much longer than it takes, in seconds
WAIT = 120.0
SCHEMA = pa.schema([("key", pa.int64()), ("n", pa.int64())])


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


def test_a_killed_worker_costs_an_attempt_and_no_row(spark: Any, tmp_path: Path) -> None:
    appended, upserted = str(tmp_path / "appended"), str(tmp_path / "upserted")
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
    # NB: half of the rows are in the table before the kill, and the gate at the end lets the
    # table be written after it
    covered = Covered(checkpoints / "delta")
    source = env.from_source(Numbers(NUMBERS, {NUMBERS // 2: covered}), source_name="numbers")
    pairs = source.map(KillOnce(tmp_path / "killed", NUMBERS * 3 // 4))
    pairs.sink_to(DeltaSink.for_table(appended, SCHEMA).build()).uid("appended")
    pairs.sink_to(DeltaSink.for_table(upserted, SCHEMA).upsert_by("key").build()).uid("upserted")
    client = env.execute_async("delta")
    client.get_job_execution_result().result(WAIT)
    first, second = client.get_attempts()
    assert "has ended" in first.failure
    assert second.checkpoint is not None
    assert sorted(row["n"] for row in rows(appended)) == list(range(NUMBERS))
    assert data_files(appended) == referred(appended)
    # numbers of one key come from both sources, so the last one of either is right
    found = {row["key"]: row["n"] for row in rows(upserted)}
    assert sorted(found) == list(range(KEYS))
    assert all(n % KEYS == key and n >= NUMBERS - 2 * KEYS for key, n in found.items())
    assert hidden(appended) == hidden(upserted) == []
