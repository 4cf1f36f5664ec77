"""A standalone worker is gone for a while: the job goes on with half of its slots, and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from holdfast.rest.client import JobHandle, find_job, jobs_of, servers
from tests.jvm import executor_options
from tests.standalone import ROOT, address_in, daemon

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.engine("resident"),
    pytest.mark.timeout(1800),
]

#: much longer than anything here takes, in seconds
WAIT = 600.0
SETTINGS = {
    "holdfast.engine": "resident",
    # nothing here is silent; a busy machine may be slow
    "holdfast.heartbeat.timeout": "60s",
    "holdfast.slots.wait": "2s",
    "holdfast.slots.stable": "1s",
    "execution.checkpointing.interval": "200ms",
    "restart-strategy.type": "fixed-delay",
    # losing a worker is one failure, and not finding its slots again is none
    "restart-strategy.fixed-delay.attempts": "2",
    "restart-strategy.fixed-delay.delay": "100ms",
    "spark.executor.memory": "512m",
    # a busy machine takes its time to start executors
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "180s",
}

#: Two endless partitions until a file is there. A key counts the records that it got, and fails if
#: one was lost or came twice: the offset of each is known from the count. In the end the largest
#: count of each key is printed.
JOB = """
import json, sys, time
from pathlib import Path

from holdfast.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.base import Source, SourceReader
from holdfast.datastream.state import ValueStateDescriptor

ENOUGH, PARTITIONS, KEYS = Path(sys.argv[1]), 2, 5


class Numbers(Source):
    def create_reader(self, subtask, parallelism):
        return Reader(dict.fromkeys(range(subtask, PARTITIONS, parallelism), 0))

    def redistribute(self, positions, parallelism):
        known = {p: offset for position in positions for p, offset in position.items()}
        return [
            {p: known[p] for p in range(subtask, PARTITIONS, parallelism)}
            for subtask in range(parallelism)
        ]


class Reader(SourceReader):
    def __init__(self, offsets):
        self.offsets = offsets

    def restore(self, position):
        self.offsets = dict(position)

    def read(self, limit):
        time.sleep(0.01)
        for partition, offset in self.offsets.items():
            self.offsets[partition] = offset + 1
            yield [(partition, offset)]

    def position(self):
        return dict(self.offsets)

    @property
    def finished(self):
        return not self.offsets or ENOUGH.exists()


class Count(KeyedProcessFunction):
    def open(self, context):
        self.count = context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value, ctx):
        partition, offset = value
        count = self.count.value() or 0
        if offset != count * KEYS + offset % KEYS:
            raise AssertionError(f"{value} is the record {count} of its key")
        self.count.update(count + 1)
        yield partition, offset % KEYS, count + 1


env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_source(Numbers(), source_name="numbers").uid("numbers")
counts = numbers.key_by(lambda r: (r[0], r[1] % KEYS)).process(Count()).uid("count")
found = {}
for partition, key, count in counts.execute_and_collect("fewer"):
    found[partition, key] = max(count, found.get((partition, key), 0))
print("END", json.dumps([[found[p, k] for k in range(KEYS)] for p in range(PARTITIONS)]))
"""


@contextmanager
def worker(folder: Path, name: str, master: str) -> Iterator[None]:
    """A worker with one slot."""
    resources = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / name)]
    with daemon(folder / f"{name}.log", "worker.Worker", *resources, master):
        yield


class Driver:
    """A driver, and what it prints.

    Attributes:
        job: what is asked of its job.
    """

    job: JobHandle

    def __init__(self, folder: Path, master: str) -> None:
        command = [sys.executable, "-m", "holdfast", "run", "--master", master, "-p", "2"]
        own = {
            "execution.checkpointing.dir": f"{folder}/kept",
            "spark.executor.extraJavaOptions": executor_options(),
        }
        for key, value in {**SETTINGS, **own}.items():
            command += ["-D", f"{key}={value}"]
        self._log = folder / "driver.log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "job.py", str(folder / "enough")],
                cwd=folder,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            )

    @property
    def text(self) -> str:
        return self._log.read_text()

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait, for as long as the driver lives."""
        deadline = time.monotonic() + WAIT
        while not reached():
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.1)

    def runs(self) -> bool:
        """Whether its job can be asked."""
        try:
            self.job = find_job(jobs_of(servers()), "fewer")
        except HoldfastError:
            return False
        return True

    def read_on(self) -> None:
        """Wait until the job has read more, and taken checkpoints of it."""
        done = self.completed() + 1
        self.until(lambda: self.completed() > done)

    def completed(self) -> int:
        return int(self.job.ask("/checkpoints")["counts"]["completed"])


@contextmanager
def driven(folder: Path, master: str) -> Iterator[Driver]:
    """A driver, until the end of the block."""
    driver = Driver(folder, master)
    try:
        yield driver
    finally:
        driver.process.kill()
        driver.process.wait()


def rows(job: JobHandle) -> list[tuple[Any, ...]]:
    """The changes of parallelism, oldest first: cause, result, slots before, after and wanted."""
    told = []
    for row in reversed(job.ask("/rescales/history")):
        (slots,) = row["slots"].values()
        numbers = (slots["preRescaleSlots"], slots["postRescaleSlots"], slots["desiredSlots"])
        told.append((row["triggerCause"], row["terminalState"], *numbers))
    return told


def widths(job: JobHandle) -> list[int]:
    return [vertex["parallelism"] for vertex in job.ask()["vertices"]]


def test_a_job_goes_on_with_half_of_its_slots_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_RUNTIME_DIR", str(tmp_path / "user"))
    (tmp_path / "job.py").write_text(JOB)
    fewer = ("RECOVERABLE_FAILOVER", "COMPLETED", 2, 1, 2)
    back = ("NEW_RESOURCE_AVAILABLE", "COMPLETED", 1, 2, 2)
    log = tmp_path / "master.log"
    with ExitStack() as until_the_end:
        master = until_the_end.enter_context(daemon(log, "master.Master", "--port", "0"))
        address = address_in(log, master)
        until_the_end.enter_context(worker(tmp_path, "stays", address))
        with worker(tmp_path, "goes", address):
            driver = until_the_end.enter_context(driven(tmp_path, address))
            driver.until(driver.runs)
            job = driver.job
            driver.until(lambda: driver.completed() > 0)
            assert widths(job) == [2, 2]
        driver.until(lambda: rows(job) == [fewer])
        assert widths(job) == [1, 1]
        driver.read_on()
        until_the_end.enter_context(worker(tmp_path, "comes", address))
        driver.until(lambda: rows(job) == [fewer, back])
        assert widths(job) == [2, 2]
        driver.read_on()
        check_rows(job)
        (tmp_path / "enough").touch()
        assert driver.process.wait(WAIT) == 0, driver.text
    check_exact(driver.text)
    assert "job 'fewer' runs on 1 task slot instead of 2; 2 are wanted" in driver.text


def check_rows(job: JobHandle) -> None:
    """Check what else the rows say."""
    back, fewer = job.ask("/rescales/history")
    for row in (back, fewer):
        assert row["terminatedReason"] == "SUCCEEDED"
        assert row["endTimestampInMillis"] - row["startTimestampInMillis"] == row["duration"]
    assert fewer["duration"] >= 2000, "it has waited for slots"
    for vertex in fewer["vertices"].values():
        assert vertex["preRescaleParallelism"] == vertex["desiredParallelism"] == 2
        assert vertex["postRescaleParallelism"] == 1
    counts = job.ask("/rescales/overview")["rescalesCounts"]
    assert counts == {"ignored": 0, "inProgress": 0, "completed": 2, "failed": 0}
    # the exception is that of the lost slot; too few slots are none
    assert job.ask("/attempts")["failures"] == 1


def check_exact(text: str) -> None:
    """Check the last line: each partition was counted from its beginning to its end."""
    last = [line for line in text.splitlines() if line.startswith("END ")]
    assert last, text
    for counts in json.loads(last[0][4:]):
        total = sum(counts)
        assert counts == [-(-(total - key) // len(counts)) for key in range(len(counts))]
        assert total > 0
