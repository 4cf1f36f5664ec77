"""A standalone Spark cluster and an S3 store on hosts of their own (`tests.hosts`).

As a program it is there to try jobs on, until Ctrl-C: ``make cluster``.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyspark

from tests.hosts import Hosts, hosts, why_not
from tests.killing import is_daemon, processes
from tests.spark.witness import until

__all__ = ["MASTER", "Cluster", "Store"]

SPARK = Path(pyspark.__file__).parent
MASTER = "spark://h1:7077"
#: settings of all drivers
_ALWAYS = (
    "spark.executor.memory=512m",
    # on a busy machine it takes a while until executors are there
    "spark.scheduler.maxRegisteredResourcesWaitingTime=300s",
)


class Cluster:
    """A master on the first host, and a worker on each of some others.

    Attributes:
        workers: their processes, by host.
    """

    def __init__(
        self,
        made: Hosts,
        logs: Path,
        workers: Sequence[int],
        options: Sequence[str] = (),
        cores: int = 1,
    ) -> None:
        """Start it.

        Args:
            made: where.
            logs: the folder of their logs.
            workers: the hosts of workers.
            options: settings of the master and the workers, as ``key=value``.
            cores: of each worker.
        """
        self.hosts = made
        self._cores = str(cores)
        self._logs = logs
        java = " ".join(f"-D{option}" for option in options)
        self._own = {
            "SPARK_HOME": str(SPARK),
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{java} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        self._start(1, "master.Master", "--port", "7077")
        log = logs / "h1.log"
        until(lambda: "Starting Spark master" in log.read_text())
        self.workers = {k: self.start_worker(k) for k in workers}
        until(lambda: log.read_text().count("Registering worker") >= len(workers))

    def _start(self, k: int, what: str, *arguments: str) -> subprocess.Popen[str]:
        command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}"]
        place = ["--host", f"h{k}", "--webui-port", "0", *arguments]
        return self.hosts.start(k, [*command, *place], self._logs / f"h{k}.log", self._own)

    def start_worker(self, k: int) -> subprocess.Popen[str]:
        """Start the worker of a host."""
        size = ("--cores", self._cores, "--memory", "1g", "--work-dir", "/tmp/work")
        return self._start(k, "worker.Worker", *size, MASTER)

    def executors(self, k: int) -> list[int]:
        """Return the ids of the executors on a host."""
        alive, here = processes(), self.hosts.processes(k)
        mark = "CoarseGrainedExecutorBackend"
        return [pid for pid in here if pid in alive and mark in alive[pid].command]

    def slots(self, k: int) -> list[int]:
        """Return the ids of the Python workers on a host."""
        alive = processes()
        found = [alive[pid] for pid in self.hosts.processes(k) if pid in alive]
        return [p.pid for p in found if is_daemon(p) and is_daemon(alive.get(p.parent))]

    def submit(
        self, k: int, settings: Sequence[str], program: Sequence[str], log: Path | None = None
    ) -> subprocess.Popen[str]:
        """Start a driver on a host; ``settings`` as ``key=value``."""
        return self.hosts.start(k, submit(settings, program), log)


def submit(settings: Sequence[str], program: Sequence[str]) -> list[str]:
    """Return the command that runs a program on the cluster."""
    command = [sys.executable, "-m", "holdfast", "run", "--master", MASTER, "-p", "2"]
    for setting in (*_ALWAYS, *settings):
        command += ["-D", setting]
    return [*command, *program]


class Store:
    """An S3 server on a host, with a bucket ``kept``; it forgets everything when it is closed."""

    def __init__(self, made: Hosts, k: int, log: Path) -> None:
        """Start it."""
        self._process = made.start(k, [sys.executable, "-m", "tests.store", f"h{k}", "9000"], log)
        until(lambda: "ready" in log.read_text())
        self.settings = (
            f"spark.hadoop.fs.s3a.endpoint=http://h{k}:9000",
            "spark.hadoop.fs.s3a.access.key=key",
            "spark.hadoop.fs.s3a.secret.key=secret",
            "spark.hadoop.fs.s3a.endpoint.region=us-east-1",
            "spark.hadoop.fs.s3a.path.style.access=true",
        )

    def stop(self) -> None:
        """Refuse connections."""
        os.kill(self._process.pid, signal.SIGUSR1)

    def start(self) -> None:
        """Take connections again, with the same data."""
        os.kill(self._process.pid, signal.SIGUSR2)


def main() -> int:
    """Let people try jobs on a cluster of three hosts, until Ctrl-C."""
    missing = why_not()
    if missing:
        print(f"no cluster: {missing}", file=sys.stderr)
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt), tempfile.TemporaryDirectory(dir="/var/tmp") as logs:
        _run(Path(logs))
    print("\nstopped")
    return 0


def _run(logs: Path) -> None:
    with hosts(3) as made:
        print("starting three hosts ...", flush=True)
        store = Store(made, 1, logs / "store.log")
        Cluster(made, logs, workers=(2, 3))
        job = submit((*_SETTINGS, *store.settings), ["examples/word_count.py"])
        print(_WELCOME.format(logs=logs, on=made.on, job=shlex.join(job)), flush=True)
        while True:
            signal.pause()


_SETTINGS = (
    "holdfast.engine=resident",
    "execution.checkpointing.dir=s3a://kept/jobs",
    "execution.checkpointing.interval=1s",
)
_WELCOME = f"""
h1 has a standalone master ({MASTER}) and an S3 store (http://h1:9000, bucket 'kept'),
h2 and h3 have a worker with one core each. They share nothing but the store. Logs: {{logs}}

Run a job there, from another terminal, as root:

  {{on}} h1 {{job}}

A shell on a host, such as h2:

  {{on}} h2 bash

Ctrl-C stops everything.
"""


if __name__ == "__main__":
    sys.exit(main())
