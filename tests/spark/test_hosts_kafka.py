"""From Kafka to Kafka, exactly once, on hosts that share nothing but an object store, or an HDFS.

The first host has the driver, Spark's master and the storage, two have an executor each, and the
last one the broker. An executor is killed in the middle, and the cable of the broker is out for a
while. What a consumer of committed records finds then is compared with what must be there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.artifacts import UnavailableError
from services.kafka import KafkaBroker
from tests.cluster import MASTER, Cluster, HadoopParts, Store
from tests.hosts import ROOT, Hosts, hosts, why_not
from tests.jvm import executor_options
from tests.kafka import Kafka
from tests.recovery.kafka_verifying import verify
from tests.recovery.verifying import hold, let_go, progress
from tests.spark.test_hosts import EXECUTOR, PATIENCE, WAITING

DRIVER, WORKERS, BROKER = 1, (2, 3), 4
#: so many numbers, in so many partitions
NUMBERS, PARTITIONS = 2000, 4
#: seconds, for which the broker is away
AWAY = 4.0

#: "s3" and "hdfs", which takes a minute more, and so runs by hand
STORAGES = os.environ.get("HOLDFAST_TEST_STORAGES", "s3").split(",")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]


class Field:
    """The hosts, and all that runs on them."""

    def __init__(self, made: Hosts, logs: Path) -> None:
        """Start everything; the test itself speaks to the broker from the host of the driver."""
        self.hosts, self._logs = made, logs
        self._store = Store(made, DRIVER, logs / "store.log")
        self._has_hdfs = False
        folder, on = made.common / "kafka", (str(made.on), f"h{BROKER}")
        self._broker = KafkaBroker(folder, host=made.address(BROKER), on=on)
        made.there(DRIVER, self._broker.start)
        self.kafka = made.there(DRIVER, lambda: Kafka(self._broker))
        Cluster(made, logs, WORKERS)

    def directory(self, storage: str) -> str:
        """Return where jobs keep their checkpoints on a storage, which is started if need be.

        Raises:
            UnavailableError: when Hadoop's classes cannot be had.
        """
        if storage == "s3":
            return "s3a://kept/jobs"
        if not self._has_hdfs:
            HadoopParts(self.hosts, self._logs).start_hdfs()
            self._has_hdfs = True
        return f"{HadoopParts.address}/jobs"

    def run(self, numbers: str, sums: str, directory: str, log: Path) -> subprocess.Popen[str]:
        """Start a driver; what it prints is in a log."""
        command = [sys.executable, "-m", "tests.recovery.kafka_verifying", "/tmp"]
        command += [self.kafka.address, numbers, sums, "--epoch", "50"]
        for setting in (
            f"spark.master={MASTER}",
            f"execution.checkpointing.dir={directory}",
            "spark.executor.memory=512m",
            f"spark.executor.extraJavaOptions={executor_options()}",
            WAITING,
            *self._store.settings,
        ):
            command += ["--spark", setting]
        return self.hosts.start(DRIVER, command, log)

    def progress_of(self, k: int) -> int:
        """How many records the subtasks of a host have processed."""
        return progress(self.hosts.temporary(k))

    def progress(self) -> int:
        """How many records were processed on all hosts."""
        return sum(map(self.progress_of, WORKERS))

    def close(self) -> None:
        """End the broker."""
        self._broker.kill()


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    missing = why_not()
    if missing:
        pytest.skip(f"no hosts: {missing}")
    with hosts(BROKER) as made, pytest.MonkeyPatch.context() as patch:
        # where the executors find the functions of the job
        patch.setenv("PYTHONPATH", str(ROOT))
        try:
            all_of_it = Field(made, tmp_path_factory.mktemp("logs"))
        except UnavailableError as error:
            pytest.skip(f"no Kafka: {error}")
        yield all_of_it
        all_of_it.close()


@pytest.mark.engine("resident")
@pytest.mark.parametrize("storage", STORAGES)
def test_an_executor_is_killed_and_the_broker_is_away(
    field: Field, engine: str, storage: str, tmp_path: Path
) -> None:
    there, kafka, log = field.hosts.there, field.kafka, tmp_path / "driver.log"
    try:
        directory = field.directory(storage)
    except UnavailableError as error:
        pytest.skip(f"no Hadoop: {error}")
    before = field.progress()
    numbers, sums = (there(DRIVER, lambda: kafka.topic(PARTITIONS)) for _ in range(2))
    for partition in range(PARTITIONS):
        values = map(str, range(partition, NUMBERS, PARTITIONS))
        kafka.produce(numbers, values, partition)
    for k in WORKERS:
        hold(field.hosts.temporary(k))
    driver = field.run(numbers, sums, directory, log)

    def until_done(more: int) -> None:
        """Wait until so many more records are processed, or all of them."""
        target = min(field.progress() + more, before + NUMBERS)
        deadline = time.monotonic() + PATIENCE
        while field.progress() < target:
            printed = log.read_text()
            assert driver.poll() is None, f"the job ended too soon: {printed}"
            assert time.monotonic() < deadline, f"the job does not go on: {printed}"
            time.sleep(0.02)

    until_done(100)
    field.hosts.kill(max(WORKERS, key=field.progress_of), EXECUTOR)
    until_done(100)
    field.hosts.plug(BROKER, False)
    time.sleep(AWAY)
    field.hosts.plug(BROKER, True)
    until_done(100)
    for k in WORKERS:
        let_go(field.hosts.temporary(k))
    code, printed = driver.wait(PATIENCE), log.read_text()
    assert code == 0, printed
    assert engine == "epochs" or "it restarts in" in printed  # Spark runs tasks again by itself
    there(DRIVER, lambda: verify(kafka, sums, NUMBERS))
