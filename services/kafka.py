"""A Kafka broker: Apache Kafka itself, broker and controller in one process, without ZooKeeper."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from services.artifacts import Artifact, UnavailableError, fetched, java, locked
from services.process import JavaProcess, free_port, listens

VERSION = "4.1.1"
ARTIFACTS = (
    Artifact("org.apache.kafka", "kafka_2.13", VERSION),
    # what Kafka logs through, so that an error can be seen
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
)
CLUSTER = "4L6g3nShT-eMCtK--X86sw"

#: for a broker that is alone, and small; topics are there only when somebody made them
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "1000",
    # records have the times of events, and those of examples are long ago
    "log.retention.ms": "-1",
    "controlled.shutdown.enable": "false",
    # how long a broker that was killed is waited for, by itself when it is started again; a busy
    # machine that lets no heartbeat through for so long takes the leaders from all partitions
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "300",
}


class KafkaBroker:
    """One broker with its files in a folder; keeps its address and its data when started again.

    Args:
        folder: for its files; the broker makes it.
        settings: on top of those of a small broker.
        host: its address, for clients.
        on: a command that runs another one on that host; none for this machine.
    """

    name = "kafka"

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str] | None = None,
        host: str = "127.0.0.1",
        on: Sequence[str] = (),
    ) -> None:
        """Find ports, write the settings, start nothing yet.

        Raises:
            UnavailableError: when Kafka's classes cannot be had.
        """
        classes = fetched(self.name, ARTIFACTS)
        class_path = os.pathsep.join(map(str, classes))
        self._folder, self._host = folder, host
        self._port, controller = free_port(), free_port()
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(_formatted(class_path, classes[0].parent), folder / "data")
        properties = folder / "server.properties"
        listeners = f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}"
        _write(
            properties,
            {
                **SETTINGS,
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                "listeners": listeners,
                "advertised.listeners": f"PLAINTEXT://{self.address}",
                "log.dirs": str(folder / "data"),
                **(settings or {}),
            },
        )
        arguments = ["-cp", class_path, "kafka.Kafka", str(properties)]
        self.process = JavaProcess(folder, arguments, lambda: listens(self._port, host), on=on)

    @property
    def address(self) -> str:
        """What clients call ``bootstrap.servers``."""
        return f"{self._host}:{self._port}"

    @property
    def processes(self) -> list[JavaProcess]:
        """The processes it consists of."""
        return [self.process]

    def start(self, *, outlives: bool = False) -> None:
        """Start, and wait until it answers."""
        self.process.start(outlives=outlives)

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        self.process.kill()

    def stop(self) -> None:
        """Shut it down in order."""
        self.process.stop()


def _formatted(class_path: str, home: Path) -> Path:
    """A data folder as a new broker finds it; made once, since that takes a Java process."""
    template = home / "formatted"
    with locked(home / "formatted.lock"):
        if not template.exists():
            draft = Path(tempfile.mkdtemp(dir=home))
            settings = {
                **SETTINGS,
                "controller.quorum.voters": "1@127.0.0.1:9093",
                "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
                "log.dirs": str(draft / "data"),
            }
            _write(draft / "server.properties", settings)
            tool = ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER]
            command = [java(), "-cp", class_path, *tool]
            command += ["--config", str(draft / "server.properties")]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode:
                raise UnavailableError(f"Kafka cannot make a data folder: {run.stderr[-500:]}")
            (draft / "data").rename(template)
            shutil.rmtree(draft)
    return template


def _write(path: Path, settings: dict[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
