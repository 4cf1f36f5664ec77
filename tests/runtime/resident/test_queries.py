"""Queries of a job on resident slots: the value of the moment, of every kind of state."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Time, WatermarkStrategy
from holdfast.common.watermark_strategy import TimestampAssigner
from holdfast.datastream import DataStream, StreamExecutionEnvironment
from holdfast.datastream.window import TimeWindow, TumblingEventTimeWindows
from holdfast.runtime.operators.windows.contents import CONTENTS
from holdfast.state.errors import StateLookupError, StateStorageError
from tests.gates import Exists, Numbers
from tests.runtime.resident.threads import PATIENCE, Started, start
from tests.savepoint.jobs import BACKENDS, Everything, configuration, model
from tests.savepoint.test_column_states import ORDERS, RESULT, Totals, totals_of

KEYS = ["a", "b", 3, (1, "x")]
RECORDS = [(KEYS[n % 4], n) for n in range(48)]


def given(env: StreamExecutionEnvironment, records: list[Any], folder: Path) -> DataStream:
    """Records in their order; the job does not end before it is stopped."""
    source = Numbers(len(records), {len(records): Exists(folder / "never")})
    numbers = env.from_source(source, source_name="numbers").uid("numbers").set_parallelism(1)
    return numbers.map(records.__getitem__).set_parallelism(1)


def environment(folder: Path, *settings: str) -> StreamExecutionEnvironment:
    config = configuration(folder, *settings)
    return StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(2)


def started(stream: DataStream, folder: Path, records: int) -> Started:
    """A job that has given so many records."""
    job = start(stream, folder / "job")
    assert len(list(itertools.islice(job.records, records))) == records
    return job


def cancel(job: Started) -> None:
    job.runner.cancel()
    assert job.runner.over.wait(PATIENCE)


def everything(folder: Path, *settings: str) -> DataStream:
    keyed = given(environment(folder, *settings), RECORDS, folder).key_by(lambda record: record[0])
    return keyed.process(Everything()).uid("everything").name("Everything")


def check(job: Started) -> None:
    """Each state has the values that the records have left."""
    for state, values in model(RECORDS).items():
        found = {key: job.runner.query_state("everything", state, key) for key in KEYS}
        assert found == values, state
    assert job.runner.query_state("Everything", "last", "nobody") is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_value_of_the_moment_of_every_kind_of_state(tmp_path: Path, backend: str) -> None:
    job = started(everything(tmp_path, backend), tmp_path, len(RECORDS))
    check(job)
    with pytest.raises(StateLookupError, match="no state 'other'; it has 'all', 'by tens', "):
        job.runner.query_state("everything", "other", "a")
    cancel(job)
    with pytest.raises(StateStorageError, match="has ended"):
        job.runner.query_state("everything", "last", "a")


@pytest.mark.parametrize("backend", BACKENDS)
def test_state_that_was_restored_and_not_used_since(tmp_path: Path, backend: str) -> None:
    job = started(everything(tmp_path, backend), tmp_path, len(RECORDS))
    savepoint = job.runner.savepoint(str(tmp_path / "savepoints"), stop=True).result(PATIENCE)
    job.wait()
    again = start(everything(tmp_path, backend, savepoint), tmp_path / "again")
    again.runner.checkpoint().result(PATIENCE)
    check(again)
    cancel(again)


class Millis(TimestampAssigner):
    """A record is a key and its time."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_windows_by_their_time(tmp_path: Path, backend: str) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Millis())
    pairs = given(environment(tmp_path, backend), RECORDS[:30], tmp_path)
    keyed = pairs.assign_timestamps_and_watermarks(strategy).key_by(lambda pair: pair[0])
    tens = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    sums = tens.reduce(lambda x, y: (x[0], x[1] + y[1])).uid("sums")
    job = start(sums, tmp_path / "job")

    def sum_of(key: Any, begin: int, end: int) -> Any:
        return job.runner.query_state("sums", CONTENTS, key, TimeWindow(begin, end))

    eventually(lambda: sum_of("a", 20, 30), ("a", 20 + 24 + 28))
    eventually(lambda: sum_of("b", 20, 30), ("b", 21 + 25 + 29))
    assert job.runner.query_state("sums", CONTENTS, "b", (20, 30)) == ("b", 21 + 25 + 29)
    eventually(lambda: sum_of("a", 0, 10), None)
    assert sum_of("nobody", 20, 30) is None
    cancel(job)


def test_columns(tmp_path: Path) -> None:
    orders = [(f"u{n % 7}", n % 2, n) for n in range(60)]
    stream = given(environment(tmp_path), orders, tmp_path).to_batches(ORDERS).set_parallelism(1)
    totals = stream.key_by("user").process_batches(Totals(), RESULT).uid("totals").map(tuple)
    job = started(totals, tmp_path, len(orders))
    expected = totals_of(orders, 0)
    for user, total in expected.items():
        assert job.runner.query_state("totals", "total", user) == total
        newest = max(amount for name, _, amount in orders if name == user)
        assert job.runner.query_state("totals", "largest", user) == newest
        # a value with a time-to-live
        assert job.runner.query_state("totals", "last", user) == newest
    assert job.runner.query_state("totals", "total", "nobody") is None
    assert job.runner.query_state("totals", "total", 7) is None
    cancel(job)


def eventually(ask: Callable[[], Any], expected: Any) -> None:
    """Ask until this is the answer."""
    deadline = time.monotonic() + PATIENCE
    while (found := ask()) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
