"""A job under fire: processes of all kinds are killed, and the driver is started again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.torture.processes import executors_of, loops_of, processes, workers_of
from tests.jvm import executor_options

ROOT = Path(__file__).parents[1]
#: in seconds, for a machine that is slow and busy
LONGEST = 900


def cluster() -> dict[str, str]:
    """The settings of a Spark with two executors, each a process of its own."""
    return {
        "spark.master": "local-cluster[2,1,1024]",
        "spark.executor.extraJavaOptions": executor_options(),
        # on a busy machine it takes a while until both are there
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        # who is dead is asked once
        "spark.shuffle.io.maxRetries": "1",
        "spark.shuffle.io.retryWait": "100ms",
    }


class Run:
    """The job under fire: a driver with its family, started again whenever it is killed."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self._folder = folder
        self._command = command
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
        """What the drivers have said last."""
        return (self._folder / "log").read_text()[-20_000:]

    def said(self, text: str) -> bool:
        """Whether a driver has ever said this."""
        return text in (self._folder / "log").read_text()

    def _family(self, kind: str) -> list[int]:
        """The processes of a kind that belong to the driver that runs now."""
        if kind == "driver":
            return [self.driver.pid]
        alive = processes()
        if kind == "source":
            return loops_of(str(self._folder), alive)
        find = executors_of if kind == "executor" else workers_of
        return find(self.driver.pid, alive)


@contextmanager
def started(folder: Path, command: Sequence[str]) -> Iterator[Run]:
    """The job, until the block ends."""
    run = Run(folder, command)
    try:
        yield run
    finally:
        run.close()
