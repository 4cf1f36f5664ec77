"""A standalone Spark cluster, an S3 store and Hadoop on hosts of their own (`tests.hosts`).

As a program it is there to try jobs on, until Ctrl-C: ``make cluster``.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from holdfast.torture.processes import is_daemon, processes
from services.hadoop import Hadoop
from tests.hosts import ROOT, Hosts, hosts, why_not
from tests.jvm import executor_options
from tests.spark.witness import until

__all__ = ["MASTER", "Cluster", "HadoopParts", "Store", "s3_settings", "submit"]

SPARK = Path(pyspark.__file__).parent
MASTER = "spark://h1:7077"
#: seconds, for a process to be ready on a machine that is slow and busy
_PATIENCE = 600
#: settings of all drivers
_ALWAYS = (
    "spark.executor.memory=512m",
    # on a busy machine it takes a while until executors are there
    "spark.scheduler.maxRegisteredResourcesWaitingTime=600s",
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
            "SPARK_DAEMON_JAVA_OPTS": f"{java} {executor_options()}",
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
        self,
        k: int,
        settings: Sequence[str],
        program: Sequence[str],
        log: Path | None = None,
        parallelism: int = 2,
    ) -> subprocess.Popen[str]:
        """Start a driver on a host; ``settings`` as ``key=value``."""
        quick = f"spark.executor.extraJavaOptions={executor_options()}"
        return self.hosts.start(k, submit((quick, *settings), program, parallelism), log)


def submit(settings: Sequence[str], program: Sequence[str], parallelism: int = 2) -> list[str]:
    """Return the command that runs a program on the cluster."""
    command = [sys.executable, "-m", "holdfast", "run", "--master", MASTER, "-p", str(parallelism)]
    for setting in (*_ALWAYS, *settings):
        command += ["-D", setting]
    return [*command, *program]


def s3_settings(k: int) -> tuple[str, ...]:
    """Return the settings of a driver that make it use the S3 server on a host."""
    return (
        f"spark.hadoop.fs.s3a.endpoint=http://h{k}:9000",
        "spark.hadoop.fs.s3a.access.key=key",
        "spark.hadoop.fs.s3a.secret.key=secret",
        "spark.hadoop.fs.s3a.endpoint.region=us-east-1",
        "spark.hadoop.fs.s3a.path.style.access=true",
    )


class Store:
    """An S3 server on a host, with a bucket ``kept``; it forgets everything when it is closed.

    Attributes:
        log: where it writes what it is asked.
        settings: of a driver that uses it.
    """

    def __init__(self, made: Hosts, k: int, log: Path) -> None:
        """Start it."""
        self._process = made.start(k, [sys.executable, "-m", "tests.store", f"h{k}", "9000"], log)
        until(lambda: "ready" in log.read_text())
        self.log = log
        self.settings = s3_settings(k)

    def asked(self, pattern: str) -> list[str]:
        """Return the requests that match, each as it is in the log, but without its colours."""
        # NB: a request is coloured, its method too, if the answer is a part of a file
        plain = re.sub("\x1b\\[[0-9]+m", "", self.log.read_text())
        return re.findall(rf'^.*"(?:{pattern}).*$', plain, re.MULTILINE)

    def stop(self) -> None:
        """Refuse connections."""
        os.kill(self._process.pid, signal.SIGUSR1)

    def start(self) -> None:
        """Take connections again, with the same data."""
        os.kill(self._process.pid, signal.SIGUSR2)


class HadoopParts:
    """Parts of Hadoop on hosts, such as a DataNode; the NameNode is on the first one.

    Attributes:
        folder: what clients call ``HADOOP_CONF_DIR``.
    """

    #: of the files of each part, on its own host
    data = "/tmp/hadoop"
    #: of HDFS, with its own protocol, and with nothing but HTTP
    address, web = "hdfs://h1:8020", "webhdfs://h1:9870"

    def __init__(self, made: Hosts, logs: Path, settings: Mapping[str, str] | None = None) -> None:
        """Write the settings, start nothing.

        Raises:
            UnavailableError: when Hadoop's classes cannot be had.
        """
        self._hosts, self._logs = made, logs
        self.folder = made.common / "hadoop"
        self._hadoop = Hadoop(self.folder, "h1", self.data, settings)

    def start(self, k: int, part: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a part on a host."""
        return self._hosts.start(k, self._hadoop.command(part, *arguments), self.log(k, part))

    def log(self, k: int, part: str) -> Path:
        """Return the log of a part."""
        return self._logs / f"{part}-{k}.log"

    def start_hdfs(self) -> None:
        """Start an empty HDFS on the first host, and wait until it is there."""
        formatted = self.start(1, "namenode", "-format", "-nonInteractive")
        assert formatted.wait(_PATIENCE) == 0, self.log(1, "namenode").read_text()
        self.start(1, "namenode")
        self.start(1, "datanode")
        until(lambda: "registerDatanode" in self.log(1, "namenode").read_text(), _PATIENCE)


def main() -> int:
    """Let people try jobs on a cluster of three hosts, until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="make cluster", description=main.__doc__)
    parser.add_argument("--hdfs", action="store_true", help="with an HDFS on the first host, too")
    given = parser.parse_args()
    missing = why_not()
    if missing:
        print(f"no cluster: {missing}", file=sys.stderr)
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt), tempfile.TemporaryDirectory(dir="/var/tmp") as logs:
        _run(Path(logs), given.hdfs)
    print("\nstopped")
    return 0


def _run(logs: Path, with_hdfs: bool) -> None:
    with hosts(3) as made, _linked(made.on):
        print("starting three hosts ...", flush=True)
        store = Store(made, 1, logs / "store.log")
        Cluster(made, logs, workers=(2, 3))
        hdfs = ""
        if with_hdfs:
            HadoopParts(made, logs).start_hdfs()
            hdfs = f"h1 has an HDFS, too: {HadoopParts.address} or {HadoopParts.web}\n"
        job = submit((*_SETTINGS, *store.settings), ["examples/word_count.py"])
        print(_WELCOME.format(logs=logs, hdfs=hdfs, job=shlex.join(job)), flush=True)
        while True:
            signal.pause()


@contextmanager
def _linked(on: Path) -> Iterator[None]:
    """Let the program that runs a command on a host have a short path, for people."""
    link = ROOT / _ON
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(on)
    try:
        yield
    finally:
        link.unlink(missing_ok=True)


_SETTINGS = (
    "holdfast.engine=resident",
    "execution.checkpointing.dir=s3a://kept/jobs",
    "execution.checkpointing.interval=1s",
)
_ON = "build/on"
_WELCOME = f"""
h1 has a standalone master ({MASTER}) and an S3 store (http://h1:9000, bucket 'kept'),
h2 and h3 have a worker with one core each. They share nothing but the store. Logs: {{logs}}
{{hdfs}}
Run a job there, from another terminal, in this directory, as root:

  {_ON} h1 {{job}}

A shell on a host, such as h2:

  {_ON} h2 bash

Ctrl-C stops everything.
"""


if __name__ == "__main__":
    sys.exit(main())
