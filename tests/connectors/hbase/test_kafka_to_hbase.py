"""From Kafka to HBase on Spark: the example, and a series of kills of everything that takes part.

``python -m tests.connectors.hbase.test_kafka_to_hbase`` is the long series; it prints each kill.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from examples import kafka_to_hbase as example
from tests import hbase as hbases
from tests import kafka as kafkas
from tests.killing import LONGEST, cluster, started
from tests.recovery.kafka_to_hbase import Settings, prepare, verify
from tests.recovery.verifying import held, progress

SEED = 7
SHORT = {
    "resident": {"driver": 1, "executor": 1, "worker": 3, "hbase": 1},
    "epochs": {"executor": 1, "worker": 2},
}
LONG = {"driver": 3, "executor": 5, "worker": 12, "hbase": 2, "thrift": 2, "broker": 2}

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(LONGEST + 60)]


def test_the_example_gives_the_right_table(
    kafka: kafkas.Kafka, hbase: hbases.Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--broker", kafka.address, "--hbase", hbase.server.address]
    example.main([*arguments, "--changes", "2000"])
    assert "the table has the right cells for " in capsys.readouterr().out


def test_whatever_is_killed_the_table_is_right(
    tmp_path: Path, kafka: kafkas.Kafka, hbase: hbases.Tables, engine: str
) -> None:
    kills = SHORT[engine]
    kill_series(tmp_path, kafka, hbase, kills, 100 * sum(kills.values()))


def kill_series(
    folder: Path, kafka: kafkas.Kafka, hbase: hbases.Tables, kills: dict[str, int], numbers: int
) -> None:
    """Run the job, kill what is told, and compare the table."""
    choose = random.Random(SEED)
    kinds = [kind for kind, times in kills.items() for _ in range(times)]
    choose.shuffle(kinds)
    job = prepare(folder, kafka, hbase, numbers)
    done: Counter[str] = Counter()
    began = time.monotonic()
    with started(folder, _command(job)) as run:
        with held(folder, slow=False):
            for kind in kinds:
                # on a slow machine all of them may have been processed before the last kill
                target = min(progress(folder) + choose.randrange(10, 60), numbers)
                run.wait_until(lambda: progress(folder) >= target, f"{target} records")  # noqa: B023
                _kill_and_start_again(kind, kafka, hbase) or run.kill(kind, choose)
                done[kind] += 1
                now = time.monotonic() - began
                print(f"{now:6.1f} s, {progress(folder):5} records: {kind} was killed", flush=True)
        run.finish()
    assert done == kills
    verify(job, hbase, numbers)
    print(f"{progress(folder)} records for {numbers} numbers; the table is right")


def _command(job: Settings) -> list[str]:
    """Starts the job, or goes on with it."""
    made = [sys.executable, "-m", "tests.recovery.kafka_to_hbase", str(job.folder)]
    for name in ("broker", "topic", "host", "port", "table"):
        made += [f"--{name}", str(getattr(job, name))]
    for key, value in (*cluster().items(), ("holdfast.directory", str(job.folder / "run"))):
        made += ["--spark", f"{key}={value}"]
    return made


def _kill_and_start_again(kind: str, kafka: kafkas.Kafka, hbase: hbases.Tables) -> bool:
    """Do it to a server; False if it is none."""
    if kind == "hbase":
        hbase.server.server.kill()
        hbase.server.start_server()
    elif kind == "thrift":
        hbase.server.thrift.kill()
        hbase.server.thrift.start()
    elif kind == "broker":
        kafka.broker.kill()
        kafka.broker.start()
    return kind in ("hbase", "thrift", "broker")


def main() -> None:
    """Run the long series."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "job").mkdir()
        with kafkas.running(home / "kafka") as kafka, hbases.running(home / "hbase") as hbase:
            kill_series(home / "job", kafka, hbase, LONG, 2_000)


if __name__ == "__main__":
    sys.exit(main())
