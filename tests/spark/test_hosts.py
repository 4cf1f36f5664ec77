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

#: prints which checkpoint is complete; in the end the largest count of each key, and who counted
JOB = """
import json, logging, socket, time

from holdfast.common import Types
from holdfast.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from holdfast.datastream.functions import CheckpointListener
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.state import ValueStateDescriptor

KEYS, NUMBERS = {keys}, {numbers}


class Slow(MapFunction):
    def map(self, value):
        if value % 100 == 0:
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


logging.basicConfig()
logging.getLogger("holdfast.driver.recording").setLevel(logging.INFO)
env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_source(NumberSequenceSource(0, NUMBERS - 1), source_name="numbers")
found, hosts = {{}}, set()
results = numbers.map(Slow()).key_by(lambda n: n % KEYS).process(Count()).execute_and_collect()
for at, (key, count, host, complete) in enumerate(results):
    found[key] = max(count, found.get(key, 0))
    hosts.add(host)
    if at % 1000 == 0:
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
        program = self.hosts.temporary(1) / "job.py"
        program.write_text(JOB.format(keys=KEYS, numbers=NUMBERS, pause=pause))
        command = [sys.executable, "-m", "holdfast", "run", "--master", MASTER, "-p", "2"]
        # on a machine that has much to do executors take their time to come
        patience = (
            "spark.scheduler.maxRegisteredResourcesWaitingTime=180s",
            "holdfast.heartbeat.timeout=60s",
        )
        for setting in ("spark.executor.memory=512m", *patience, *settings):
            command += ["-D", setting]
        return self.hosts.start(1, [*command, "/tmp/job.py"])

    def kill_executor(self, k: int) -> None:
        """Kill the executor of a host."""
        self.hosts.kill(k, "CoarseGrainedExecutorBackend")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    missing = why_not()
    if missing:
        pytest.skip(f"no hosts: {missing}")
    with hosts(3) as made:
        yield Cluster(made, tmp_path_factory.mktemp("logs"))


def result_of(driver: subprocess.Popen[str]) -> str:
    """Everything that a driver prints from here on."""
    text, _ = driver.communicate(timeout=600)
    return text


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
        0.05,
        "execution.checkpointing.interval=200ms",
        "execution.checkpointing.dir=s3a://kept/jobs",
        "restart-strategy.type=fixed-delay",
        "restart-strategy.fixed-delay.attempts=5",
        "restart-strategy.fixed-delay.delay=100ms",
        "spark.hadoop.fs.s3a.endpoint=http://h1:9000",
        "spark.hadoop.fs.s3a.access.key=k",
        "spark.hadoop.fs.s3a.secret.key=s",
        "spark.hadoop.fs.s3a.path.style.access=true",
    )
    assert driver.stdout is not None
    before = ""
    for line in driver.stdout:
        before += line
        if re.match(r"checkpoint [1-9]", line):
            break
    cluster.kill_executor(3)
    text = before + result_of(driver)
    check_exact(text)
    assert "it starts again" in text, text
    assert re.search(r"from checkpoint \d+", text), text
    # the disk of the killed executor's host is as it was, and the slot came back to it
    loaded = re.findall(
        r"goes on from checkpoint \d+: (\d+) bytes of state were read from the checkpoint storage, "
        r"(\d+) were on",
        text,
    )
    assert loaded, text
    assert all(stored == "0" and int(local) > 0 for stored, local in loaded), text
    asked = (tmp_path / "store.log").read_text()
    assert re.search(r'"PUT /kept/\S+/state/\S+', asked), asked
    assert not re.findall(r'^.*"GET /kept/\S+/state/\S+.*$', asked, re.MULTILINE)
