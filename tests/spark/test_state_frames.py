"""State as DataFrames, DataFrames as state, and a running job that is asked for a key's state."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Types
from holdfast.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from holdfast.datastream.functions import SinkFunction, SourceFunction
from holdfast.datastream.state import MapStateDescriptor, ValueStateDescriptor
from holdfast.savepoint import KeyedState, Savepoint, SavepointWriter, StateLookupError, Timers
from holdfast.state.errors import StateStorageError
from holdfast.testing import LocalExecutor
from tests.golden.make import GOLDEN
from tests.savepoint.jobs import configuration, descriptors, everything, model

pytestmark = [pytest.mark.spark, pytest.mark.matrix]

RECORDS = [(f"k{n % 50}", n) for n in range(1, 400)]
CUT = 300


def test_a_checkpoint_as_dataframes(spark: Any) -> None:
    (version,) = GOLDEN.iterdir()
    savepoint = Savepoint.read(next((version / "golden").glob("chk-*")))
    uid = next(uid for uid in savepoint.operators if uid.endswith("texts"))
    for state in ("map of named row", "lasting map"):
        data = savepoint.keyed_state(uid, state)
        frame = data.to_dataframe(spark)
        found = frame.toArrow().sort_by("key")
        expected = data.to_arrow().sort_by("key")
        assert found.column_names == expected.column_names
        assert found.to_pylist() == expected.to_pylist(), state
    scalars = savepoint.keyed_state(uid, "value of scalars").to_dataframe(spark, text=True)
    assert dict(scalars.dtypes) == {"key": "string", "value": "string"}
    timers = next(
        savepoint.timers(u).to_dataframe(spark) for u in savepoint.operators if "timers" in u
    )
    assert timers.where("domain = 'EVENT_TIME' and window is null").count() > 0


def test_a_job_starts_from_dataframes(spark: Any, tmp_path: Path) -> None:
    """It gives what one gives that saw all records; executors write a file for each part."""
    with LocalExecutor(everything(configuration(tmp_path / "whole"), RECORDS)) as run:
        run.run_to_end()
    expected, known = model(RECORDS[:CUT]), descriptors()
    states: list[Any] = []
    kinds = {
        "by tens": "map<bigint, string>",
        "total": "struct<f0: bigint, f1: bigint>",
    }
    for name, kind in kinds.items():
        rows = list(expected[name].items())
        frame = spark.createDataFrame(rows, f"who string, what {kind}")
        states.append(KeyedState(known[name], frame, key="who", value="what"))
    states.append(KeyedState(known["largest"], expected["largest"]))
    due = [(key, n) for key, n in RECORDS[:CUT] if n % 7 == 0]
    states.append(Timers(spark.createDataFrame(due, "key string, timestamp bigint")))
    path = SavepointWriter().with_operator("everything", *states).write(tmp_path / "made")
    savepoint = Savepoint.read(path)
    assert savepoint.operators["everything"].parallelism > 1
    assert {s.state: s.entries for s in savepoint.sizes()}["total"] == 50
    config = configuration(tmp_path / "rest", start=path)
    with LocalExecutor(everything(config, RECORDS[CUT:]), parallelism=3) as rest:
        rest.run_to_end()
    later = [r for r in run.records if r[0] == "timer" or r[1] > CUT]
    assert sorted(rest.records, key=repr) == sorted(later, key=repr)


class Endless(SourceFunction):
    """Ten numbers, and then nothing."""

    def __init__(self) -> None:
        self.running = True

    def run(self, ctx: Any) -> None:
        for number in range(10):
            ctx.collect(number)
        while self.running:
            time.sleep(0.01)

    def cancel(self) -> None:
        self.running = False


class Latest(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.latest = context.get_state(ValueStateDescriptor("latest", Types.LONG()))
        self.seen = context.get_map_state(MapStateDescriptor("seen"))

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        self.latest.update(value)
        self.seen.put(value, True)
        yield value


class Nowhere(SinkFunction):
    def invoke(self, value: Any, context: Any) -> None:
        pass


def test_a_running_job_is_asked(spark: Any, engine: str, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).set_buffer_timeout(10)
    stream = env.add_source(Endless()).set_parallelism(1)
    stream.key_by(lambda n: n % 3).process(Latest()).uid("latest").add_sink(Nowhere())
    client = env.execute_async("asked")
    try:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            try:
                if client.query_state("latest", "latest", 0).result(30) == 9:
                    break
            except (StateLookupError, StateStorageError):
                pass  # no epoch has saved it yet; no slot has come yet
            time.sleep(0.05)
        found = [client.query_state("latest", "latest", key).result(30) for key in (0, 1, 2, 5)]
        assert found == [9, 7, 8, None]
        seen = client.query_state("latest", "seen", 1).result(30)
        assert seen == {1: True, 4: True, 7: True}
        with pytest.raises(StateLookupError, match=r"has (saved )?no state 'x'"):
            client.query_state("latest", "x", 1).result(30)
    finally:
        client.cancel().result(60)
    with pytest.raises(OSError, match="job 'asked' has ended"):
        client.query_state("latest", "latest", 0).result(30)
