"""A program for test_agreement: jobs on two executor processes, one of which is killed in each.

Usage: python -m tests.spark.losing_executors FOLDER JOB..., where a job is one of

- ``fickle``: a source that gives other records each time it is asked,
- ``unchecked``: the same, with the agreement of step 8 switched off.

Each job leaves its results in ``FOLDER/JOB.json``.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from pyspark.sql import SparkSession

from holdfast.common import Configuration
from holdfast.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.base import Source, SourceReader
from holdfast.driver import epoch_book as book
from holdfast.runtime.wire.protocol import EpochTask
from tests.jvm import executor_options

SETTINGS = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    # who is dead is asked once
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
    "spark.executor.extraJavaOptions": executor_options(),
    "holdfast.epoch.max-records": "400",
    "holdfast.engine": "epochs",
}
KEYS, READS, FATAL_READ = 64, 4, 2


class Fickle(Source):
    """Gives, with each read, a record for each key; every read of it has another id."""

    def __init__(self, calls: Path) -> None:
        self._calls = calls

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return FickleReader(self._calls, subtask)


class FickleReader(SourceReader):
    """Writes down each call; only the number of reads is a function of the position."""

    def __init__(self, calls: Path, subtask: int) -> None:
        self._calls = calls
        self._subtask = subtask
        self._reads = 0

    def restore(self, position: Any) -> None:
        self._reads = position

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        call = uuid.uuid4().hex
        with self._calls.open("a") as file:
            file.write(f"{self._subtask} {self._reads} {call}\n")
        records = [(self._subtask, self._reads, call, key) for key in range(KEYS)]
        self._reads += 1
        yield records

    def position(self) -> Any:
        return self._reads

    @property
    def finished(self) -> bool:
        return self._reads >= READS


class KillInBetween(KeyedProcessFunction):
    """Says which records it got; kills the other executor after one subtask has read all of it.

    Subtasks 0 and 1 run at the same time, in the two executors. Subtask 0 has read the output of
    both sources when it strikes, subtask 1 cannot end before that: it waits for its end.
    """

    def __init__(self, marker: Path) -> None:
        self._marker = marker
        self._heard: set[int] = set()

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Any, ctx: Any) -> Any:
        producer, read, call, _ = value
        if read == FATAL_READ and not self._marker.exists():
            self._heard.add(producer)
            if self._subtask == 0 and self._heard == {0, 1}:
                kill_the_other_executor(self._marker)
            elif self._subtask == 1:
                signal.pause()
        yield producer, read, call, self._subtask


def kill_the_other_executor(marker: Path) -> None:
    """Like a machine that is gone: no goodbye."""
    listing = subprocess.run(
        ["ps", "-axww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in listing.splitlines()]
    processes = {int(pid): (int(parent), args) for pid, parent, *args in rows}
    mine = os.getpid()
    while "--executor-id" not in processes[mine][1]:
        mine = processes[mine][0]
    others = [
        pid
        for pid, (_, args) in processes.items()
        if pid != mine and "--executor-id" in args and _app(args) == _app(processes[mine][1])
    ]
    (victim,) = others
    marker.write_text(str(victim))
    os.kill(victim, signal.SIGKILL)


def _app(args: list[str]) -> str:
    return args[args.index("--app-id") + 1]


def fickle(env: StreamExecutionEnvironment, folder: Path, name: str) -> DataStream:
    source = env.from_source(Fickle(folder / f"{name}.calls")).set_parallelism(2)
    return source.key_by(lambda r: r[3]).process(KillInBetween(folder / f"{name}.killed"))


def unchecked(env: StreamExecutionEnvironment, folder: Path, name: str) -> DataStream:
    assert book._check_agreement, "the check that is switched off"
    book._check_agreement = lambda acks: None
    return fickle(env, folder, name)


def run_where_spark_says() -> None:
    """Make each subtask run in the executor that got its task: its end is that of the subtask.

    Otherwise a subtask may run in one executor on behalf of the other one, and both would be lost.
    """
    tasks = book.EpochBook.tasks

    def homeless(*given: Any, **named: Any) -> list[EpochTask]:
        return [replace(task, homes=()) for task in tasks(*given, **named)]

    book.EpochBook.tasks = homeless  # type: ignore[method-assign]


def wait_for_executors() -> None:
    """Until the one that was killed is replaced: two, and the driver."""
    session = SparkSession.getActiveSession()
    status = session.sparkContext._jsc.sc() if session is not None else None
    deadline = time.monotonic() + 400
    while status is not None and status.getExecutorMemoryStatus().size() < 3:
        assert time.monotonic() < deadline, "the executor was not replaced"
        time.sleep(0.1)


def main(folder: Path, jobs: list[str]) -> None:
    """Run the jobs in one session, one after the other."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    run_where_spark_says()
    for name in jobs:
        wait_for_executors()
        env = StreamExecutionEnvironment(Configuration(SETTINGS))
        env.set_parallelism(4).set_buffer_timeout(0)
        job = {"fickle": fickle, "unchecked": unchecked}[name]
        logging.warning("job '%s' begins", name)
        records = list(job(env, folder, name).execute_and_collect(name))
        (folder / f"{name}.json").write_text(json.dumps(records))
    SparkSession.builder.getOrCreate().stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
