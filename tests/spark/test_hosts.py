"""A standalone cluster on three hosts that share no directory: nothing but an object store."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, Store
from tests.hosts import Hosts, hosts, why_not

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.engine("resident"),
    pytest.mark.timeout(1800),
]

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

#: counts by key, and knows which checkpoint is complete; part of programs that define ``KEYS``
COUNT = """
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
""".strip()

#: Runs jobs, one after the other. Each is slow until there is a file ``/tmp/go``; prints which
#: checkpoint is complete; in the end the largest count of each key, and who counted.
JOB = """
import json, logging, os, socket, time

from holdfast.common import Configuration, Types
from holdfast.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from holdfast.datastream.functions import CheckpointListener
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.state import ValueStateDescriptor
from pyspark.sql import SparkSession

KEYS, NUMBERS = {keys}, {numbers}


class Slow(MapFunction):
    def map(self, value):
        if {pause} and not os.path.exists("/tmp/go"):
            time.sleep({pause})
        return value


{count}

logging.basicConfig()
logging.getLogger("holdfast.driver.recording").setLevel(logging.INFO)


def run(settings):
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(settings))
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


for settings in {jobs}:
    run(settings)
    # its slots may need a moment to end, and the next one needs them
    tracker = SparkSession.getActiveSession().sparkContext.statusTracker()
    while tracker.getActiveJobsIds():
        time.sleep(0.05)
"""


class Jobs:
    """Runs the job on a cluster, with the driver on the first host.

    Attributes:
        hosts, cluster: where.
    """

    def __init__(self, made: Hosts, logs: Path) -> None:
        self.hosts = made
        self.cluster = Cluster(made, logs, workers=(2, 3))

    def start(self, *settings: str) -> subprocess.Popen[str]:
        """Start a driver with the program that is on the first host."""
        given = ("spark.executor.memory=512m", WAITING, "holdfast.heartbeat.timeout=60s", *settings)
        return self.cluster.submit(1, given, ["/tmp/job.py"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    missing = why_not()
    if missing:
        pytest.skip(f"no hosts: {missing}")
    with hosts(3) as made:
        yield Jobs(made, tmp_path_factory.mktemp("logs"))


def write_job(made: Hosts, pause: float, *others: dict[str, str]) -> None:
    """Write the program to the first host, as ``/tmp/job.py``.

    ``others``: the settings of jobs that it runs after the first one.
    """
    jobs = ({}, *others)
    program = JOB.format(keys=KEYS, numbers=NUMBERS, pause=pause, count=COUNT, jobs=jobs)
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


def kill_an_executor(made: Hosts, driver: subprocess.Popen[str]) -> str:
    """Kill the executor of a host after some checkpoints; every count must be exact.

    Returns what the driver has printed.
    """
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
    assert "it restarts in" in text, text
    assert re.search(r"from checkpoint \d+", text), text
    return text


def check_exact(text: str, spread: bool = True) -> None:
    """Check the last line: every number was counted once; if it is spread, on both hosts."""
    found = re.search(r"^END (.*)$", text, re.MULTILINE)
    assert found is not None, text
    counts, machines = json.loads(found[1])
    assert counts == [[key, NUMBERS // KEYS] for key in range(KEYS)]
    assert machines == ["h2", "h3"] if spread else {*machines} <= {"h2", "h3"}


def test_without_checkpoints_or_with_a_directory_that_others_do_not_see(cluster: Jobs) -> None:
    """Two jobs of one driver, which takes most of the time.

    The one without checkpoints needs nothing but the network, the other one is refused.
    """
    checkpoints = {
        "execution.checkpointing.interval": "1s",
        "execution.checkpointing.dir": "/tmp/kept",
    }
    write_job(cluster.hosts, 0.0, checkpoints)
    driver = cluster.start()
    text = result_of(driver)
    check_exact(text)
    assert driver.returncode == 1, text
    message = (
        r"there is no directory '/tmp/kept/.*' on host 'h[23]'; it is the directory of its "
        r"checkpoints: set 'execution.checkpointing.dir' to a place that the driver and all "
    )
    assert re.search(message, text), text


def test_executors_that_do_not_find_the_driver_are_told_with_what_to_check(cluster: Jobs) -> None:
    write_job(cluster.hosts, 0.0)
    driver = cluster.start(
        "holdfast.engine=resident",
        "spark.driver.bindAddress=10.77.0.1",
        # no host has it
        "spark.driver.host=10.77.0.99",
        "spark.scheduler.maxRegisteredResourcesWaitingTime=5s",
    )
    text = result_of(driver)
    assert driver.returncode == 1, text
    last = text.splitlines()[-1]
    assert "; no executor has registered with the driver at '10.77.0.99:" in last, text
    assert "they cannot connect to it: check spark.driver.host, spark.driver.bindAddress" in last


def test_an_executor_is_killed_and_the_job_goes_on_from_the_store(
    cluster: Jobs, tmp_path: Path
) -> None:
    store = Store(cluster.hosts, 1, tmp_path / "store.log")
    write_job(cluster.hosts, PAUSE)
    directory = "execution.checkpointing.dir=s3a://kept/jobs"
    driver = cluster.start(*DISTURBED, directory, *store.settings)
    text = kill_an_executor(cluster.hosts, driver)
    # the disk of the killed executor's host is as it was, and the slot came back to it
    loaded = re.findall(
        r"continues from checkpoint \d+: (\d+) bytes of state were read from the checkpoint "
        r"storage, (\d+) from copies",
        text,
    )
    assert loaded, text
    assert all(stored == "0" and int(local) > 0 for stored, local in loaded), text
    # the store itself says the same: state files were written, and never read
    assert store.asked(r"PUT /kept/\S+/state/\S+")
    assert not store.asked(r"GET /kept/\S+/state/\S+")
