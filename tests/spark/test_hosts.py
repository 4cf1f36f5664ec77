"""A standalone cluster on three hosts that share no directory: nothing but an object store."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.hosts import Hosts, hosts, why_not
from tests.spark.witness import until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.engine("resident"),
    pytest.mark.timeout(900),
]

SPARK = Path(pyspark.__file__).parent
MASTER = "spark://h1:7077"
KEYS, NUMBERS = 10, 40_000
#: seconds for each number until the job may be fast
PAUSE = 0.02
#: seconds, on a machine that is slow and busy
PATIENCE = 600
#: for so long the executors of a new session are waited for
WAITING = f"spark.scheduler.maxRegisteredResourcesWaitingTime={PATIENCE}s"
#: the command line of an executor
EXECUTOR = r"^\S*java .*CoarseGrainedExecutorBackend "
#: what a job prints when a checkpoint with results of it is complete
CHECKPOINTED = r"checkpoint ([3-9]|\d\d)"
#: what a job has that is disturbed
DISTURBED = (
    "execution.checkpointing.interval=200ms",
    "restart-strategy.type=fixed-delay",
    "restart-strategy.fixed-delay.attempts=5",
    "restart-strategy.fixed-delay.delay=100ms",
)

#: is slow until there is a file ``/tmp/go``; prints which checkpoint is complete; in the end the
#: largest count of each key, and who counted
JOB = """
import json, os, socket, time

from holdfast.common import Types
from holdfast.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from holdfast.datastream.functions import CheckpointListener
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.state import ValueStateDescriptor

KEYS, NUMBERS = {keys}, {numbers}


class Slow(MapFunction):
    def map(self, value):
        if {pause} and not os.path.exists("/tmp/go"):
            time.sleep({pause})
        return value


class Count(KeyedProcessFunction, CheckpointListener):
    def open(self, context):
        self.complete = 0
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value % KEYS, count, socket.gethostname(), self.complete

    def notify_checkpoint_complete(self, checkpoint_id):
        self.complete = checkpoint_id


env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_source(NumberSequenceSource(0, NUMBERS - 1), source_name="numbers")
found, hosts, last = {{}}, set(), 0
results = numbers.map(Slow()).key_by(lambda n: n % KEYS).process(Count()).execute_and_collect()
for key, count, host, complete in results:
    found[key] = max(count, found.get(key, 0))
    hosts.add(host)
    if complete != last:
        last = complete
        print("checkpoint", complete, flush=True)
print("END", json.dumps([sorted(found.items()), sorted(hosts)]), flush=True)
"""


class Cluster:
    """A master on the first host, a worker on each of the others, and drivers on the first."""

    def __init__(self, made: Hosts, logs: Path) -> None:
        self.hosts = made
        self._spark = str(SPARK / "bin" / "spark-class")
        own = {"SPARK_HOME": str(SPARK), "SPARK_NO_DAEMONIZE": "1"}
        master = ["org.apache.spark.deploy.master.Master", "--host", "h1", "--port", "7077"]
        self._log = logs / "master.log"
        self.processes = [
            made.start(1, [self._spark, *master, "--webui-port", "0"], self._log, own)
        ]
        until(lambda: "Starting Spark master" in self._log.read_text())
        worker = ["org.apache.spark.deploy.worker.Worker", "--webui-port", "0", "--cores", "1"]
        for k in (2, 3):
            place = ["--host", f"h{k}", "--memory", "1g", "--work-dir", "/tmp/work", MASTER]
            log = logs / f"worker-{k}.log"
            self.processes.append(made.start(k, [self._spark, *worker, *place], log, own))
        until(lambda: self._log.read_text().count("Registering worker") == 2)

    def run(self, pause: float, *settings: str) -> subprocess.Popen[str]:
        """Start a driver."""
        write_job(self.hosts, pause)
        command = [sys.executable, "-m", "holdfast", "run", "--master", MASTER, "-p", "2"]
        for setting in ("spark.executor.memory=512m", WAITING, *settings):
            command += ["-D", setting]
        return self.hosts.start(1, [*command, "/tmp/job.py"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    missing = why_not()
    if missing:
        pytest.skip(f"no hosts: {missing}")
    with hosts(3) as made:
        yield Cluster(made, tmp_path_factory.mktemp("logs"))


def write_job(made: Hosts, pause: float) -> None:
    """Write the program to the first host, as ``/tmp/job.py``."""
    program = JOB.format(keys=KEYS, numbers=NUMBERS, pause=pause)
    (made.temporary(1) / "job.py").write_text(program)
    for k in (2, 3):
        (made.temporary(k) / "go").unlink(missing_ok=True)


def let_go(made: Hosts) -> None:
    """Let the job be as fast as it can be."""
    for k in (2, 3):
        (made.temporary(k) / "go").touch()


def result_of(driver: subprocess.Popen[str]) -> str:
    """Everything that a driver prints from here on."""
    text, _ = driver.communicate(timeout=PATIENCE)
    return text


def kill_an_executor(made: Hosts, driver: subprocess.Popen[str]) -> None:
    """Kill the executor of a host after some checkpoints; every count must be exact."""
    assert driver.stdout is not None
    text = ""
    for line in driver.stdout:
        text += line
        if re.match(CHECKPOINTED, line):
            made.kill(3, EXECUTOR)
            let_go(made)
            break
    text += result_of(driver)
    check_exact(text)
    assert "it starts again" in text, text
    assert re.search(r"from checkpoint \d+", text), text


def check_exact(text: str) -> None:
    """Check the last line: every number was counted once, on both hosts."""
    found = re.search(r"^END (.*)$", text, re.MULTILINE)
    assert found is not None, text
    counts, machines = json.loads(found[1])
    assert counts == [[key, NUMBERS // KEYS] for key in range(KEYS)]
    assert machines == ["h2", "h3"]


def test_a_job_without_checkpoints_needs_nothing_but_the_network(cluster: Cluster) -> None:
    check_exact(result_of(cluster.run(0.0)))


def test_checkpoints_in_a_directory_that_others_do_not_see_are_refused(cluster: Cluster) -> None:
    settings = ("execution.checkpointing.interval=1s", "execution.checkpointing.dir=/tmp/kept")
    driver = cluster.run(0.0, *settings)
    text = result_of(driver)
    assert driver.returncode == 1, text
    message = (
        r"there is no directory '/tmp/kept/.*' on host 'h[23]'; it is the directory of its "
        r"checkpoints: set 'execution.checkpointing.dir' to a place that the driver and all "
    )
    assert re.search(message, text), text


def test_an_executor_is_killed_and_the_job_goes_on_from_the_store(
    cluster: Cluster, tmp_path: Path
) -> None:
    store = [sys.executable, "-m", "moto.server", "-H", "h1", "-p", "9000"]
    cluster.hosts.start(1, store, tmp_path / "store.log")
    make = (
        "import boto3, time\n"
        "client = boto3.client('s3', endpoint_url='http://h1:9000', region_name='us-east-1',"
        " aws_access_key_id='k', aws_secret_access_key='s')\n"
        "for _ in range(200):\n"
        "    try: client.create_bucket(Bucket='kept'); break\n"
        "    except Exception: time.sleep(0.1)\n"
    )
    made = cluster.hosts.start(1, [sys.executable, "-c", make])
    assert made.wait(60) == 0, made.communicate()[0]
    driver = cluster.run(
        PAUSE,
        *DISTURBED,
        "execution.checkpointing.dir=s3a://kept/jobs",
        "spark.hadoop.fs.s3a.endpoint=http://h1:9000",
        "spark.hadoop.fs.s3a.access.key=k",
        "spark.hadoop.fs.s3a.secret.key=s",
        "spark.hadoop.fs.s3a.path.style.access=true",
    )
    kill_an_executor(cluster.hosts, driver)
