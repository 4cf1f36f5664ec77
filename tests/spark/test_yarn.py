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
from tests.cluster import SPARK, HadoopParts
from tests.hosts import Hosts, hosts, why_not
from tests.spark.test_hosts import (
    CHECKPOINTED,
    DISTURBED,
    PATIENCE,
    PAUSE,
    WAITING,
    check_exact,
    kill_an_executor,
    let_go,
    result_of,
    write_job,
)
from tests.spark.witness import until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.engine("resident"),
    pytest.mark.timeout(1800),
]

#: the command line of an application master; in cluster mode it is the driver's JVM, too
MASTER = r"^\S*java .*deploy\.yarn\.ApplicationMaster "
#: room for one executor and one application master on each host, and not for two executors
SETTINGS = {"yarn.nodemanager.resource.memory-mb": "1500"}
#: what a JVM starts sooner with
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SIZES = (
    "spark.executor.instances=2",
    "spark.executor.memory=512m",
    "spark.executor.memoryOverhead=256m",
    "spark.driver.memory=512m",
    "spark.driver.memoryOverhead=128m",
    "spark.yarn.am.memory=512m",
    "spark.yarn.am.memoryOverhead=128m",
    f"spark.executor.extraJavaOptions={QUICK}",
    f"spark.driver.extraJavaOptions={QUICK}",
    f"spark.yarn.am.extraJavaOptions={QUICK}",
    # all hosts have the jars of this environment: they need not be uploaded
    f"spark.yarn.jars=local:{SPARK}/jars/*",
    WAITING,
)
#: where other hosts find the driver's page, and what asks it there
PAGE = ("-D", "rest.address=0.0.0.0", "-D", "rest.port=8081", "-D", "rest.token=secret")
#: below Spark's page, which YARN's proxy shows; it does not pass tokens on
IN_SPARK = ("-D", "rest.spark-ui=READ")
ASK = """
import sys, urllib.request
question = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer secret"})
print(urllib.request.urlopen(question, timeout=60).read().decode())
"""
#: asks through the proxy of the ResourceManager, for the application that runs
ASK_PROXY = """
import json, urllib.request
manager = "http://h1:8088"
listed = urllib.request.urlopen(f"{manager}/ws/v1/cluster/apps?states=RUNNING", timeout=60)
(application,) = json.load(listed)["apps"]["app"]
page = f"{manager}/proxy/{application['id']}/holdfast"
for path in ("/", "/jobs/overview"):
    print(urllib.request.urlopen(page + path, timeout=60).read().decode())
"""


class Yarn:
    """The cluster, and clients on its first host."""

    def __init__(self, made: Hosts, logs: Path) -> None:
        self.hosts = made
        self._hadoop = HadoopParts(made, logs, SETTINGS)
        self._hadoop.start(1, "resourcemanager")
        for k in (2, 3):
            self._hadoop.start(k, "nodemanager")
        self._hadoop.start_hdfs()
        manager = self._hadoop.log(1, "resourcemanager")
        until(lambda: manager.read_text().count(" registered with capability") >= 2, PATIENCE)

    def run(self, *command: str) -> subprocess.Popen[str]:
        """Start a client on the first host."""
        own = {"HADOOP_CONF_DIR": str(self._hadoop.folder), "SPARK_HOME": str(SPARK)}
        return self.hosts.start(1, command, environment=own)

    def printed(self, attempt: int) -> list[tuple[int, str]]:
        """Return what the application masters of such attempts have printed, and their hosts."""
        logs = HadoopParts.data.removeprefix("/tmp/") + "/logs"
        pattern = f"{logs}/*/container_*_{attempt:02}_000001/stdout"
        return [
            (k, path.read_text()) for k in (2, 3) for path in self.hosts.temporary(k).glob(pattern)
        ]


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
    settings = [*DISTURBED, f"execution.checkpointing.dir={checkpoints}"]
    given = [argument for setting in settings for argument in ("-D", setting)]
    return ["run", "-p", "2", "--engine", "resident", *given]


def test_client_mode_an_executor_is_killed(yarn: Yarn) -> None:
    write_job(yarn.hosts, PAUSE)
    sizes = [argument for size in SIZES for argument in ("-D", size)]
    job = of_job(f"{HadoopParts.web}/client")
    command = [sys.executable, "-m", "holdfast", *job, "--master", "yarn", *sizes]
    kill_an_executor(yarn.hosts, yarn.run(*command, "/tmp/job.py"))


def test_cluster_mode_the_application_master_is_killed_and_started_again(yarn: Yarn) -> None:
    write_job(yarn.hosts, PAUSE)
    sizes = [argument for size in SIZES for argument in ("--conf", size)]
    command = [str(SPARK / "bin" / "spark-submit"), "--master", "yarn", "--deploy-mode", "cluster"]
    command += [*sizes, "--conf", "spark.yarn.maxAppAttempts=2"]
    command += ["--conf", f"spark.pyspark.python={sys.executable}", "--files", "/tmp/job.py"]
    job = of_job(f"{HadoopParts.address}/cluster")
    client = yarn.run(*command, holdfast.__main__.__file__, *job, *PAGE, *IN_SPARK, "job.py")

    def reached() -> list[int]:
        return [k for k, text in yarn.printed(1) if re.search(f"^{CHECKPOINTED}", text, re.M)]

    until(lambda: bool(reached()) or client.poll() is not None, PATIENCE)
    assert client.poll() is None, client.communicate()[0]
    (host,) = reached()
    page = yarn.run(sys.executable, "-c", ASK, f"http://h{host}:8081/jobs/overview")
    assert '"RUNNING"' in result_of(page)
    through_proxy = result_of(yarn.run(sys.executable, "-c", ASK_PROXY))
    assert "<title>Holdfast</title>" in through_proxy, through_proxy
    assert '"RUNNING"' in through_proxy, through_proxy
    yarn.hosts.kill(host, MASTER)
    let_go(yarn.hosts)
    text = result_of(client)
    assert client.returncode == 0, text
    ((_, printed),) = yarn.printed(2)
    check_exact(printed)
    assert re.search(r"continues from checkpoint \d+", printed), printed
