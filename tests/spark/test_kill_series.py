"""One run of the verifying job, in which processes of all kinds are killed one after the other.

Each kill comes when a random number of records were processed since the last one; by then the
processes are anywhere in an epoch, or between two.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.recovery.verifying import Settings, progress, verify

ROOT = Path(__file__).parents[2]
SEED = 20
KILLS = {"driver": 2, "executor": 4, "worker": 13, "source": 2}
#: in seconds, for a machine that is slow and busy
LONGEST = 500
SPARK = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # who is dead is asked once
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
}

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(LONGEST + 60)]


class Process(NamedTuple):
    """A process as ps shows it."""

    pid: int
    parent: int
    command: str


def processes() -> dict[int, Process]:
    """All that are alive, by pid."""
    listing = subprocess.run(
        ["ps", "-axww", "-o", "pid=,ppid=,stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split(maxsplit=3) for line in listing.splitlines())
    alive = (row for row in rows if len(row) == 4 and not row[2].startswith("Z"))
    return {int(pid): Process(int(pid), int(parent), args) for pid, parent, _, args in alive}


class Run:
    """The job under fire: a driver with its family, started again whenever it is killed."""

    def __init__(self, job: Settings) -> None:
        self._job = job
        self._log = (job.folder / "log").open("w")
        self._deadline = time.monotonic() + LONGEST
        self.driver = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        sizes = ("numbers", "ticks", "parallelism", "epoch", "interval_ms")
        command = [sys.executable, "-m", "tests.recovery.verifying", str(self._job.folder)]
        for size in sizes:
            command += [f"--{size}", str(getattr(self._job, size))]
        for key, value in (*SPARK.items(), ("holdfast.directory", str(self._job.folder / "run"))):
            command += ["--spark", f"{key}={value}"]
        return subprocess.Popen(command, cwd=ROOT, stderr=self._log, stdout=self._log)

    def kill(self, kind: str, choose: random.Random) -> int:
        """Kill a process of this kind, as soon as there is one; returns its pid."""
        found: list[int] = []

        def look() -> bool:
            found[:] = self._family(kind)
            return bool(found)

        self.wait_until(look, f"there is a {kind}")
        victim = choose.choice(found)
        os.kill(victim, signal.SIGKILL)
        if kind == "driver":
            self.driver.wait()
            self.driver = self._start()
        return victim

    def wait_until(self, reached: Callable[[], bool], what: str) -> None:
        """Look again and again; the job must not end, well or badly, before."""
        while not reached():
            assert self.driver.poll() is None, f"the job ended before {what}\n{self.log}"
            assert time.monotonic() < self._deadline, f"it takes too long until {what}\n{self.log}"
            time.sleep(0.005)

    def finish(self) -> None:
        """Wait for the job's own end."""
        self.driver.wait(max(1.0, self._deadline - time.monotonic()))
        assert self.driver.returncode == 0, self.log

    def close(self) -> None:
        """End what is still there after a test that failed."""
        for pid in (*self._family("executor"), self.driver.pid):
            if self.driver.poll() is None:
                os.kill(pid, signal.SIGKILL)
        self.driver.wait()
        self._log.close()

    @property
    def log(self) -> str:
        """What all drivers have said."""
        return (self._job.folder / "log").read_text()[-20_000:]

    def _family(self, kind: str) -> list[int]:
        """The processes of a kind that belong to the driver that runs now."""
        if kind == "driver":
            return [self.driver.pid]
        alive = processes()

        def belongs(process: Process) -> bool:
            while process.parent in alive and process.pid != self.driver.pid:
                process = alive[process.parent]
            return process.pid == self.driver.pid

        if kind == "source":
            mark = f"holdfast.runtime.source_host {self._job.folder}"
            return sorted(p.pid for p in alive.values() if mark in p.command)
        if kind == "executor":
            executors = (p for p in alive.values() if " --executor-id " in p.command)
            return sorted(p.pid for p in executors if belongs(p))
        workers = (p for p in alive.values() if _is_daemon(alive.get(p.parent)) and _is_daemon(p))
        return sorted(p.pid for p in workers if belongs(p))


def _is_daemon(process: Process | None) -> bool:
    """Whether this is the process that Spark starts workers from, or one of these workers."""
    return process is not None and "pyspark.daemon" in process.command


@contextmanager
def started(job: Settings) -> Iterator[Run]:
    run = Run(job)
    try:
        yield run
    finally:
        run.close()


def test_twenty_kills_and_more(tmp_path: Path) -> None:
    choose = random.Random(SEED)
    kinds = [kind for kind, times in KILLS.items() for _ in range(times)]
    choose.shuffle(kinds)
    assert len(kinds) >= 20
    job = Settings(tmp_path, numbers=1_200, ticks=600, epoch=20, interval_ms=300)
    kills: Counter[str] = Counter()
    began = time.monotonic()
    with started(job) as run:
        for kind in kinds:
            target = progress(tmp_path) + choose.randrange(10, 60)
            run.wait_until(lambda: progress(tmp_path) >= target, f"{target} records")  # noqa: B023
            victim = run.kill(kind, choose)
            kills[kind] += 1
            now = time.monotonic() - began
            print(f"{now:6.1f} s, {progress(tmp_path):5} records: {kind} {victim} was killed")
        run.finish()
        assert run.log.count("goes on from checkpoint") >= 1
    assert kills == KILLS
    verify(job)
