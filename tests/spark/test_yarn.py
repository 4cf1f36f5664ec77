"""Hadoop on three hosts that share no directory: YARN runs the jobs, HDFS keeps their checkpoints.

The NameNode, a DataNode and the ResourceManager are on the first host, a NodeManager on each of the
others.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast.__main__
from services.artifacts import UnavailableError
from services.hadoop import Hadoop
from tests.hosts import Hosts, hosts, why_not
from tests.spark.test_hosts import (
    DISTURBED,
    SPARK,
    Cluster,
    check_exact,
    kill_an_executor,
    result_of,
    write_job,
)
from tests.spark.witness import until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.engine("resident")]

DATA = "/tmp/hadoop"
#: the command line of an application master; in cluster mode it is the driver's JVM, too
MASTER = r"^\S*java .*deploy\.yarn\.ApplicationMaster "
#: room for one executor and one application master on each host, and not for two executors
SETTINGS = {"yarn.nodemanager.resource.memory-mb": "1500"}
SIZES = {
    "spark.executor.instances": "2",
    "spark.executor.memory": "512m",
    "spark.executor.memoryOverhead": "256m",
    "spark.driver.memory": "512m",
    "spark.driver.memoryOverhead": "128m",
    "spark.yarn.am.memory": "512m",
    "spark.yarn.am.memoryOverhead": "128m",
    # all hosts have the jars of this environment: they need not be uploaded
    "spark.yarn.jars": f"local:{SPARK}/jars/*",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}


class Yarn:
    """The cluster, and clients on its first host."""

    def __init__(self, made: Hosts, logs: Path) -> None:
        self.hosts = made
        self._logs = logs
        self._settings = made.common / "hadoop"
        self._hadoop = Hadoop(self._settings, "h1", DATA, SETTINGS)
        formatted = self._start(1, "namenode", "-format", "-nonInteractive")
        self._start(1, "resourcemanager")
        for k in (2, 3):
            self._start(k, "nodemanager")
        assert formatted.wait(120) == 0, self._log(1, "namenode").read_text()
        self._start(1, "namenode")
        self._start(1, "datanode")
        manager = self._log(1, "resourcemanager")
        until(lambda: manager.read_text().count(" registered with capability") == 2)
        until(lambda: "registerDatanode" in self._log(1, "namenode").read_text())

    def _start(self, k: int, part: str, *arguments: str) -> subprocess.Popen[str]:
        return self.hosts.start(k, self._hadoop.command(part, *arguments), self._log(k, part))

    def _log(self, k: int, part: str) -> Path:
        return self._logs / f"{part}-{k}.log"

    def run(self, *command: str) -> subprocess.Popen[str]:
        """Start a client on the first host."""
        own = {"HADOOP_CONF_DIR": str(self._settings), "SPARK_HOME": str(SPARK)}
        return self.hosts.start(1, command, environment=own)

    def printed(self, attempt: int, file: str) -> dict[int, str]:
        """Return what application masters of such attempts have printed, by host."""
        pattern = f"{DATA.removeprefix('/tmp/')}/logs/*/container_*_{attempt:02}_000001/{file}"
        return {
            k: path.read_text() for k in (2, 3) for path in self.hosts.temporary(k).glob(pattern)
        }


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    missing = why_not()
    if missing:
        pytest.skip(f"no hosts: {missing}")
    with hosts(3) as made:
        try:
            cluster = Yarn(made, tmp_path_factory.mktemp("logs"))
        except UnavailableError as error:
            pytest.skip(f"no Hadoop: {error}")
        yield cluster


def of_job(checkpoints: str) -> list[str]:
    """Return the arguments of ``holdfast run`` for a job that is disturbed."""
    settings = [*DISTURBED, f"execution.checkpointing.dir=webhdfs://h1:9870/{checkpoints}"]
    given = [argument for setting in settings for argument in ("-D", setting)]
    return ["run", "-p", "2", "--engine", "resident", *given]


def test_client_mode_an_executor_is_killed(yarn: Yarn) -> None:
    write_job(yarn.hosts, 0.05)
    sizes = [argument for size in SIZES.items() for argument in ("-D", "=".join(size))]
    command = [sys.executable, "-m", "holdfast", *of_job("client"), "--master", "yarn", *sizes]
    kill_an_executor(yarn.hosts, yarn.run(*command, "/tmp/job.py"))


def test_cluster_mode_the_application_master_is_killed_and_started_again(yarn: Yarn) -> None:
    write_job(yarn.hosts, 0.05)
    sizes = [argument for size in SIZES.items() for argument in ("--conf", "=".join(size))]
    command = [str(SPARK / "bin" / "spark-submit"), "--master", "yarn", "--deploy-mode", "cluster"]
    command += [*sizes, "--conf", "spark.yarn.maxAppAttempts=2"]
    command += ["--conf", f"spark.pyspark.python={sys.executable}", "--files", "/tmp/job.py"]
    client = yarn.run(*command, holdfast.__main__.__file__, *of_job("cluster"), "job.py")

    def reached() -> list[int]:
        texts = yarn.printed(1, "stdout")
        return [k for k, text in texts.items() if re.search("^checkpoint [1-9]", text, re.M)]

    until(lambda: bool(reached()) or client.poll() is not None)
    assert client.poll() is None, client.communicate()[0]
    yarn.hosts.kill(reached()[0], MASTER)
    text = result_of(client)
    assert client.returncode == 0, text
    (printed,) = yarn.printed(2, "stdout").values()
    check_exact(printed)
    (log,) = yarn.printed(2, "stderr").values()
    assert re.search(r"from checkpoint \d+", log), log


def test_standalone_with_checkpoints_on_hdfs(yarn: Yarn, tmp_path: Path) -> None:
    cluster = Cluster(yarn.hosts, tmp_path)
    directory = "execution.checkpointing.dir=webhdfs://h1:9870/standalone"
    kill_an_executor(yarn.hosts, cluster.run(0.05, *DISTURBED, directory))
