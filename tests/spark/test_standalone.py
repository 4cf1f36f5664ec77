"""A job on a standalone cluster: a master and a worker, each a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent
JOB = """
import logging

from holdfast.datastream import SourceFunction, StreamExecutionEnvironment
from pyspark.sql import SparkSession


class Numbers(SourceFunction):
    def run(self, ctx):
        for number in range(100):
            ctx.collect(number)
        logging.warning("all sent")

    def cancel(self):
        pass


env = StreamExecutionEnvironment.get_execution_environment()
sums = env.add_source(Numbers(), "numbers").key_by(lambda n: n % 3).sum()
print(sorted(sums.execute_and_collect())[-3:], SparkSession.getActiveSession().sparkContext.master)
"""


@contextmanager
def daemon(log: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A part of Spark, until the end of the block."""
    command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    local = ["--host", "127.0.0.1", "--webui-port", "0"]
    environment = {**os.environ, "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1"}
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
            process.wait(60)


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


def test_a_job_on_a_master_and_a_worker(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    log = tmp_path / "master.log"
    with daemon(log, "master.Master", "--port", "0") as master:
        address = address_in(log, master)
        resources = ["--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work")]
        with daemon(tmp_path / "worker.log", "worker.Worker", *resources, address):
            command = [sys.executable, "-m", "holdfast", "run", "--master", address, "-p", "2"]
            command += ["-D", f"holdfast.directory={tmp_path / 'shared'}"]
            command += ["-D", "spark.executor.memory=512m", "job.py"]
            done = subprocess.run(
                command,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=240,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT / "src"),
                    "HOLDFAST_RUNTIME_DIR": str(tmp_path / "user"),
                },
            )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"[1617, 1650, 1683] {address}\n"
    # the executor's own output is in a file of the worker's
    assert done.stderr.count("[Source: numbers #0] all sent\n") == 1
    # the executors have got the package from the driver
    assert list((tmp_path / "work").rglob("holdfast.zip"))
    # and nothing is left, of that or of the job
    assert [*(tmp_path / "user").iterdir(), *(tmp_path / "shared").iterdir()] == []
