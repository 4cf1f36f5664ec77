"""A standalone cluster of Spark on this machine: a master and a worker, each a process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.jvm import executor_options

ROOT = Path(__file__).parents[1]
SPARK = Path(pyspark.__file__).parent
#: seconds for a program, on a machine that is slow and busy
PATIENCE = 900
_SETTINGS = (
    "spark.executor.memory=512m",
    # on a machine that is busy with other things executors take their time to come
    "spark.scheduler.maxRegisteredResourcesWaitingTime=600s",
)
#: hides two folders from a part of Spark, which is found elsewhere then
_HIDE = """
set -e
place=$1 spark=$2 packages=$3 source=$4; shift 4
mkdir -p "$place"
mount --bind "$spark" "$place"
mount -t tmpfs none "$packages"
mount -t tmpfs none "$source"
SPARK_HOME=$place exec "$place/bin/spark-class" "$@"
"""


class Standalone:
    """A running cluster, and how programs are run there.

    Attributes:
        address: of the master.
        folder: its own; the worker has ``work`` there, and the user of the programs ``user``.
    """

    def __init__(self, address: str, folder: Path) -> None:
        """Programs run in that folder."""
        self.address = address
        self.folder = folder

    def run(
        self,
        program: str,
        *settings: str,
        arguments: tuple[str, ...] = ("-p", "2"),
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        (self.folder / "job.py").write_text(program)
        command = [sys.executable, "-m", "holdfast", "run", "--master", self.address, *arguments]
        quick = f"spark.executor.extraJavaOptions={executor_options()}"
        for setting in (*_SETTINGS, quick, *settings):
            command += ["-D", setting]
        return subprocess.run(
            [*command, "job.py"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "src"),
                "HOLDFAST_RUNTIME_DIR": str(self.folder / "user"),
                **(environment or {}),
            },
        )


@contextmanager
def standalone(
    folder: Path, bare: bool = False, settings: Sequence[str] = ()
) -> Iterator[Standalone]:
    """A cluster with two cores, until the end of the block.

    ``bare``: executors see neither this package nor any other of the driver's Python (needs root).
    ``settings``: of the master and the worker.
    """
    log = folder / "master.log"
    with daemon(log, "master.Master", "--port", "0", settings=settings) as master:
        address = address_in(log, master)
        resources = ["--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work")]
        worker = daemon(
            folder / "worker.log",
            "worker.Worker",
            *resources,
            address,
            bare=bare,
            settings=settings,
        )
        with worker:
            yield Standalone(address, folder)


@contextmanager
def daemon(
    log: Path, name: str, *arguments: str, bare: bool = False, settings: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A part of Spark, until the end of the block."""
    command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    local = ["--host", "127.0.0.1", "--webui-port", "0"]
    if bare:
        places = [str(log.parent / "spark"), str(SPARK), str(SPARK.parent), str(ROOT / "src")]
        alone = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _HIDE, "_"]
        command = [*alone, *places, *command[1:]]
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join([executor_options(), *(f"-D{s}" for s in settings)]),
    }
    java = os.environ.get("JAVA_HOME")
    if java is not None:
        environment["PATH"] = f"{java}/bin{os.pathsep}{environment['PATH']}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *local, *arguments], stdout=output, stderr=output, env=environment
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(600)


def address_in(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Where the master is, once it has said so."""
    with log.open() as lines:
        text = ""
        while process.poll() is None:
            text += lines.read()
            found = re.search(r"Starting Spark master at (spark://\S+)", text)
            if found:
                return found[1]
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
    raise AssertionError(f"the master has ended: {log.read_text()}")
