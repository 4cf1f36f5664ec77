"""A job on Spark whose processes are killed one after the other, from outside.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.recovery.verifying import progress

ROOT = Path(__file__).parents[2]
#: in seconds, for a machine that is slow and busy
LONGEST = 500
SPARK = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # who is dead is asked once
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
}


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

    def __init__(self, folder: Path, module: str, options: dict[str, Any]) -> None:
        self._folder = folder
        self._command = [sys.executable, "-m", module, str(folder)]
        for name, value in options.items():
            self._command += [f"--{name}", str(value)]
        for key, value in (*SPARK.items(), ("holdfast.directory", str(folder / "run"))):
            self._command += ["--spark", f"{key}={value}"]
        self._log = (folder / "log").open("w")
        self._deadline = time.monotonic() + LONGEST
        self.driver = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, cwd=ROOT, stderr=self._log, stdout=self._log)

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

    def wait_for_records(self, count: int) -> None:
        """Wait until so many more records were processed."""
        target = progress(self._folder) + count
        self.wait_until(lambda: progress(self._folder) >= target, f"{target} records")

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
        return (self._folder / "log").read_text()[-20_000:]

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
            mark = f"holdfast.runtime.source_host {self._folder}"
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
def started(folder: Path, module: str, options: dict[str, Any]) -> Iterator[Run]:
    """A module's job, in a folder, with options of its command line."""
    run = Run(folder, module, options)
    try:
        yield run
    finally:
        run.close()
