"""Parts of a job that no records connect: one that stands still does not hold up the others."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from holdfast.common import JobStatus
from holdfast.datastream import DataStream, SinkFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.driver.reports import attempts_of
from holdfast.savepoint import Savepoint
from holdfast.testing import LocalExecutor
from tests.gates import Exists, Numbers
from tests.runtime.resident.test_jobs import Count, FailOnce, checkpointed, environment
from tests.runtime.resident.threads import PATIENCE, start

KEYS = 10
RECORDS = 20_000


class Stuck(SinkFunction):
    """Waits for a word before it takes anything."""

    go = threading.Event()

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        assert Stuck.go.wait(PATIENCE)


class Free(SinkFunction):
    """Takes everything; the slots are threads of this process."""

    taken: ClassVar[Counter[Any]] = Counter()

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        with _lock:
            Free.taken[value] += 1


_lock = threading.Lock()


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    Stuck.go.clear()
    Free.taken.clear()
    yield
    Stuck.go.set()


def test_while_one_path_stands_still_the_other_one_comes_to_its_end(tmp_path: Path) -> None:
    env = environment()
    stuck = env.from_source(NumberSequenceSource(0, 5_000_000), source_name="stuck")
    stuck.map(lambda n: (n, "x" * 1000)).rebalance().add_sink(Stuck())
    numbers = env.from_source(NumberSequenceSource(0, RECORDS - 1), source_name="free")
    numbers.key_by(lambda n: n % KEYS).process(Count()).rebalance().add_sink(Free())
    job = start(env, tmp_path)
    deadline = time.monotonic() + PATIENCE
    while Free.taken.total() < RECORDS:
        assert time.monotonic() < deadline, f"{Free.taken.total()} of {RECORDS}"
        time.sleep(0.01)
    assert Free.taken == exact(RECORDS)
    assert job.runner.status is JobStatus.RUNNING
    job.runner.cancel()
    Stuck.go.set()
    assert job.runner.over.wait(PATIENCE)


def exact(records: int) -> Counter[Any]:
    each = range(1, records // KEYS + 1)
    return Counter((key, count) for key in range(KEYS) for count in each)


def two_counts(env: StreamExecutionEnvironment, source: Any, *before: FailOnce) -> DataStream:
    """Two parts, each with state; return the first one."""
    for name in ("first", "second"):
        numbers = env.from_source(source, source_name=name).uid(name)
        for function in before:
            numbers = numbers.map(function)
        counts = numbers.key_by(lambda n: n % KEYS).process(Count()).uid(f"{name} counts")
        if name == "first":
            result = counts
    counts.add_sink(Free()).uid("free")
    return result


def test_a_failure_and_a_change_of_parallelism_concern_all_parts(tmp_path: Path) -> None:
    env = checkpointed(holdfast_epoch_max__records="200")
    source = Numbers(RECORDS, {5000: Exists(tmp_path / "go on")})
    job = start(two_counts(env, source, FailOnce(19_000, tmp_path / "failed")), tmp_path / "job")
    job.runner.rescale({"first counts": 1, "second counts": 3}).result(PATIENCE)
    (tmp_path / "go on").touch()
    last: dict[int, int] = {}
    for key, count in job.records:
        last[key] = max(count, last.get(key, 0))
    assert last == dict.fromkeys(range(KEYS), RECORDS // KEYS)
    assert set(Free.taken) == set(exact(RECORDS)), "at least once"
    failures = [attempt.failure for attempt in attempts_of(job.runner.history)]
    assert sum(failure is not None for failure in failures) == 1


def test_a_savepoint_starts_the_job_on_other_engines(tmp_path: Path) -> None:
    """There all parts share their levels."""
    gate = {2000: Exists(tmp_path / "go on")}
    settings = {"execution_checkpointing_interval": "1 h"}
    with LocalExecutor(two_counts(environment(**settings), Numbers(4000, gate)), quota=300) as run:
        while len(run.records) < 2000:
            run.epoch()
        first = run.savepoint(tmp_path)
    again = {**settings, "execution_state__recovery_path": first}
    job = start(two_counts(environment(**again), Numbers(3000, gate)), tmp_path / "job")
    (tmp_path / "go on").touch()
    job.runner.checkpoint().result(PATIENCE)
    assert Counter(job.records) == exact(3000) - exact(2000)
    assert Free.taken == exact(3000)


def test_its_savepoint_has_each_state_once(tmp_path: Path) -> None:
    gate = {2000: Exists(tmp_path / "go on")}
    env = environment(execution_checkpointing_interval="1 h")
    job = start(two_counts(env, Numbers(4000, gate)), tmp_path / "job")
    records = iter(job.records)
    assert len([next(records) for _ in range(2000)]) == 2000
    deadline = time.monotonic() + PATIENCE
    while Free.taken.total() < 2000:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    path = job.runner.savepoint(str(tmp_path / "savepoints"), stop=True).result(PATIENCE)
    savepoint = Savepoint.read(path)
    for name in ("first counts", "second counts"):
        found = {row["key"]: row["value"] for row in savepoint.keyed_state(name, "count")}
        assert found == dict.fromkeys(range(KEYS), 200)
    env = environment(execution_state__recovery_path=path)
    (tmp_path / "go on").touch()
    with LocalExecutor(two_counts(env, Numbers(3000, gate)), quota=300) as run:
        run.run_to_end()
        assert Counter(run.records) == exact(3000) - exact(2000)
