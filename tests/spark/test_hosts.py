"""A standalone cluster on three hosts that share no directory: nothing but an object store."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, Store
from tests.hosts import Hosts, hosts, why_not

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.engine("resident")]

KEYS, NUMBERS = 10, 40_000

#: prints which checkpoint is complete; in the end the largest count of each key, and who counted
JOB = """
import json, socket, time

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


class Jobs:
    """Runs the job on a cluster, with the driver on the first host."""

    def __init__(self, made: Hosts, logs: Path) -> None:
        self.hosts = made
        self._cluster = Cluster(made, logs, workers=(2, 3))

    def run(self, pause: float, *settings: str) -> subprocess.Popen[str]:
        """Start a driver."""
        program = self.hosts.temporary(1) / "job.py"
        program.write_text(JOB.format(keys=KEYS, numbers=NUMBERS, pause=pause))
        return self._cluster.submit(1, settings, ["/tmp/job.py"])

    def kill_executor(self, k: int) -> None:
        """Kill the executor of a host."""
        for pid in self._cluster.executors(k):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    missing = why_not()
    if missing:
        pytest.skip(f"no hosts: {missing}")
    with hosts(3) as made:
        yield Jobs(made, tmp_path_factory.mktemp("logs"))


def result_of(driver: subprocess.Popen[str]) -> str:
    """Everything that a driver prints from here on."""
    text, _ = driver.communicate(timeout=240)
    return text


def check_exact(text: str) -> None:
    """Check the last line: every number was counted once, on both hosts."""
    found = re.search(r"^END (.*)$", text, re.MULTILINE)
    assert found is not None, text
    counts, machines = json.loads(found[1])
    assert counts == [[key, NUMBERS // KEYS] for key in range(KEYS)]
    assert machines == ["h2", "h3"]


def test_a_job_without_checkpoints_needs_nothing_but_the_network(cluster: Jobs) -> None:
    check_exact(result_of(cluster.run(0.0)))


def test_checkpoints_in_a_directory_that_others_do_not_see_are_refused(cluster: Jobs) -> None:
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
    cluster: Jobs, tmp_path: Path
) -> None:
    store = Store(cluster.hosts, 1, tmp_path / "store.log")
    driver = cluster.run(
        0.05,
        "execution.checkpointing.interval=200ms",
        "execution.checkpointing.dir=s3a://kept/jobs",
        "restart-strategy.type=fixed-delay",
        "restart-strategy.fixed-delay.attempts=5",
        "restart-strategy.fixed-delay.delay=100ms",
        *store.settings,
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
