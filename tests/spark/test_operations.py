"""A job on Spark, looked at and acted on from outside: over HTTP, and by its history."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Configuration, JobStatus
from holdfast.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.driver.client import JobRunnerClient
from holdfast.rest.client import JobHandle, find_job, jobs_of, servers
from holdfast.rest.site import Files

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.usefixtures("engine")]

KEYS = 10
#: much longer than anything here takes
WAIT = 600.0


class Totals(KeyedProcessFunction):
    """A running count per key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))
        self.total = runtime_context.get_metrics_group().counter("total")

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.total.inc()
        yield value % KEYS, count


def until(reached: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT
    while True:
        found = reached()
        if found:
            return found
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


@pytest.fixture
def started(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[JobRunnerClient, JobHandle]:
    monkeypatch.setenv("HOLDFAST_RUNTIME_DIR", str(tmp_path / "runtime"))
    settings = {
        "holdfast.epoch.max-records": "200",
        "execution.checkpointing.interval": "1h",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "execution.checkpointing.savepoint-dir": str(tmp_path / "savepoints"),
    }
    env = StreamExecutionEnvironment(Configuration(settings)).set_parallelism(2)
    env.set_buffer_timeout(0)
    numbers = env.from_source(NumberSequenceSource(0, 10**9), source_name="numbers").uid("numbers")
    totals = numbers.key_by(lambda n: n % KEYS).process(Totals()).uid("totals").name("Totals")
    totals.map(lambda pair: None).name("End")
    client = env.execute_async("operations")
    assert isinstance(client, JobRunnerClient)
    job = find_job(jobs_of(servers()), "operations")
    return client, job


def test_a_job_is_seen_rescaled_and_stopped(
    started: tuple[JobRunnerClient, JobHandle], tmp_path: Path
) -> None:
    client, job = started
    assert job.id == str(client.get_job_id())

    until(lambda: job.ask("/epochs")["total"] >= 2)
    until(lambda: metrics(job, "Totals -> End")["read-records"] > 0)
    assert metrics(job, "Source: numbers")["write-bytes"] > 0
    until(lambda: count_of_three(job) > 0)
    with urllib.request.urlopen(f"{job.client.url}/metrics") as answer:
        assert b"flink_taskmanager_job_task_operator_total" in answer.read()

    assert job.do("/checkpoints", "/checkpoints", {})["checkpointId"] == 1
    details = job.ask("/checkpoints/details/1")
    assert (details["num_subtasks"], details["status"]) == (4, "COMPLETED")

    before = count_of_three(job)
    widths = job.do("/rescaling?parallelism=3", "/rescaling", method="PATCH")["parallelism"]
    assert set(widths.values()) == {3}
    epochs = job.ask("/epochs")["total"]
    until(lambda: job.ask("/epochs")["total"] > epochs + 1)
    until(lambda: count_of_three(job) > before)
    begun = [(one["checkpoint"], one["origin"]) for one in job.ask("/attempts")["attempts"]]
    assert begun == [(None, "from the start"), (2, "from checkpoint 2")]
    assert job.ask("/exceptions")["exceptionHistory"]["entries"] == []

    location = job.do("/stop", "/savepoints", {"drain": False})["location"]
    assert client.get_job_execution_result().result(WAIT) is not None
    assert client.get_job_status().result() is JobStatus.FINISHED
    check_savepoint(location)
    check_leftovers(tmp_path)

    (ended,) = Files([tmp_path / "checkpoints"]).jobs()
    history = ended.history
    assert (history.id, history.status) == (job.id, "FINISHED")
    assert history.counts.completed == 3
    assert {vertex.parallelism for vertex in history.graph.vertices} == {3}


def metrics(job: JobHandle, vertex: str) -> Any:
    """What is measured of a vertex."""
    return {found["name"]: found["metrics"] for found in job.ask()["vertices"]}[vertex]


def count_of_three(job: JobHandle) -> int:
    """How many numbers that end in 3 the job has counted."""
    answer = job.ask("/state/value?operator=totals&state=count&key=3")
    return int(answer["value"] or 0)


def check_savepoint(location: str) -> None:
    """Every number up to some point was counted once, over the change of parallelism."""
    from holdfast.savepoint import Savepoint

    counts = Savepoint.read(location).keyed_state("totals", "count").to_pylist()
    by_key = Counter({row["key"]: row["value"] for row in counts})
    assert set(by_key) == set(range(KEYS))
    # subtasks of the source read ranges without gaps; each of their ends may be within a ten
    assert max(by_key.values()) - min(by_key.values()) <= 6


def check_leftovers(tmp_path: Path) -> None:
    assert servers() == []
    assert list((tmp_path / "runtime").iterdir()) == []
    assert [t.name for t in threading.enumerate() if t.name.startswith("holdfast-rest")] == []
