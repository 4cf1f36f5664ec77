"""The field of `tests.spark.host_faults`: a job under fire, its cluster, its store and its ledger.

Host 1 has the master and the ledger, 2 to 4 a worker each, 5 the store of checkpoints; the driver
is on 6 or 7. The job runs until it is told to end.
"""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import Cluster, Store
from tests.hosts import ROOT, Hosts, hosts
from tests.spark.ledger import Ledger

__all__ = ["DRIVERS", "HEARTBEAT", "STORE", "WORKERS", "Field", "Shape", "field"]

LEDGER, WORKERS, STORE, DRIVERS = 1, (2, 3, 4), 5, (6, 7)
PORT, RATE = 9100, 100
HEARTBEAT = 2.0
#: for a job to have results again, and to end, on a machine that is slow and busy; in seconds
PATIENCE = 900.0

#: Spark's own time limits are minutes: a host that is gone would be one for that long
DAEMONS = ("spark.worker.timeout=6", "spark.decommission.enabled=true")


@dataclass(frozen=True)
class Shape:
    """How large the job and its cluster are.

    Attributes:
        subtasks: of each operator; there are as many sources of numbers.
        cores: of each worker.
        settings: of the job, besides those that it always has.
    """

    engine: str = "resident"
    subtasks: int = 2
    cores: int = 2
    settings: tuple[str, ...] = ()


def _settings(shape: Shape) -> tuple[str, ...]:
    return (
        *shape.settings,
        f"holdfast.heartbeat.timeout={HEARTBEAT:g}s",
        f"holdfast.engine={shape.engine}",
        "execution.checkpointing.interval=300ms",
        "execution.checkpointing.dir=s3a://kept/jobs",
        "execution.checkpointing.tolerable-failed-checkpoints=1000",
        "restart-strategy.type=fixed-delay",
        "restart-strategy.fixed-delay.attempts=1000000",
        "restart-strategy.fixed-delay.delay=100ms",
        f"spark.cores.max={shape.subtasks}",
        "spark.executor.cores=1",
        "spark.executor.heartbeatInterval=2s",
        "spark.network.timeout=12s",
        "spark.network.timeoutInterval=2s",
        "spark.decommission.enabled=true",
        "spark.speculation=true",
        "spark.speculation.interval=100ms",
        "spark.speculation.multiplier=1.1",
        "spark.hadoop.fs.s3a.attempts.maximum=2",
        "spark.hadoop.fs.s3a.connection.timeout=5s",
        "spark.hadoop.fs.s3a.connection.establish.timeout=5s",
    )


class Field:
    """The job under fire, and all that it runs on.

    Attributes:
        restarts: how often drivers had started the job again when that was last asked.
    """

    def __init__(self, made: Hosts, logs: Path, shape: Shape, choose: random.Random) -> None:
        """Start everything."""
        self.hosts, self.choose, self.restarts = made, choose, 0
        self._logs, self._shape = logs, shape
        self.ledger = Ledger(made.listen(LEDGER, PORT))
        self.store = Store(made, STORE, logs / "store.log")
        self.cluster = Cluster(made, logs, WORKERS, DAEMONS, shape.cores)
        self._drivers: list[subprocess.Popen[str]] = []
        self.driver_host = DRIVERS[0]
        self.start_driver(self.driver_host)

    def start_driver(self, k: int) -> None:
        """Start the program on a host, for the first time or again."""
        log = self._logs / f"driver-{len(self._drivers) + 1}.log"
        program = str(ROOT / "tests" / "spark" / "ledger_job.py")
        subtasks = self._shape.subtasks
        command = [program, f"h{LEDGER}:{PORT}", str(RATE), str(subtasks)]
        settings = (*_settings(self._shape), *self.store.settings)
        self._drivers.append(self.cluster.submit(k, settings, command, log, subtasks))
        self.driver_host = k

    @property
    def driver(self) -> subprocess.Popen[str]:
        """The driver that was started last."""
        return self._drivers[-1]

    @property
    def log(self) -> str:
        """What the last driver has said."""
        return (self._logs / f"driver-{len(self._drivers)}.log").read_text()

    def new_restarts(self) -> int:
        """Return how often drivers have started the job again since this was asked last."""
        known = self.restarts
        # the console of `holdfast run` says so, too, in other words
        self.restarts = self.said("failed: .*; it restarts in")
        return self.restarts - known

    def said(self, pattern: str) -> int:
        """Return how many times drivers have said something."""
        logs = (self._logs / f"driver-{n}.log" for n in range(1, len(self._drivers) + 1))
        return sum(len(re.findall(pattern, log.read_text())) for log in logs)

    def victim(self) -> int:
        """Return a host on which a slot is; waits until there is one."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [k for k in WORKERS if self.cluster.slots(k)]
            return bool(found)

        self.until(look, "there is a slot")
        return self.choose.choice(found)

    def has_results_since(self, moment: float) -> float | None:
        """Return when all sources had results of after a moment; None if they do not have them."""
        return self.ledger.results_since(moment, self._shape.subtasks)

    def results_since(self, moment: float) -> float:
        """Wait until all sources have results of after a moment; return when they had."""
        found: list[float | None] = [None]

        def look() -> bool:
            found[0] = self.has_results_since(moment)
            return found[0] is not None

        self.until(look, "there are new results")
        assert found[0] is not None
        return found[0]

    def until(self, reached: Callable[[], bool], what: str) -> None:
        """Look again and again; the job must not end before."""
        deadline = time.monotonic() + PATIENCE
        while not reached():
            self.check(what)
            assert time.monotonic() < deadline, self._report(f"it takes too long until {what}")
            time.sleep(0.02)

    def check(self, what: str) -> None:
        """Raise an error if the job has ended, or its results cannot be right any more."""
        assert not self.ledger.problems, self._report(str(self.ledger.problems[:5]))
        ended = self.driver.poll() is not None
        assert not ended, self._report(f"the job ended before {what}")

    def finish(self) -> list[str]:
        """Let the job end; return what is wrong with its results."""
        self.ledger.end()
        try:
            self.driver.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(self._report("the job does not end")) from None
        assert self.driver.returncode == 0, self._report("the job failed at its end")
        return self.ledger.verify(self._shape.subtasks)

    def _report(self, what: str) -> str:
        return f"{what}\n{self.log[-6000:]}"


@contextmanager
def field(logs: Path, seed: int, shape: Shape | None = None) -> Iterator[Field]:
    """A job under fire, until the end of the block."""
    with hosts(max(DRIVERS)) as made:
        running = Field(made, logs, shape or Shape(), random.Random(seed))
        try:
            yield running
        finally:
            running.ledger.close()
