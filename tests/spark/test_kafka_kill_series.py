"""From Kafka to Kafka, exactly once, while driver, executors, workers and the broker are killed.

Each kill comes when a random number of records were processed since the last one; by then everybody
is anywhere in an epoch, or between two, or within a commit. The whole series takes minutes: here a
few kills of each kind stand for it. ``HOLDFAST_KILLS=20`` makes it as long as one likes.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.kafka import Kafka
from tests.killing import LONGEST, cluster, started
from tests.recovery.kafka_verifying import verify
from tests.recovery.verifying import held, progress

SEED = int(os.environ.get("HOLDFAST_SEED", "7"))
#: of ten kills
SHARES = ["worker"] * 4 + ["broker"] * 3 + ["executor"] * 2 + ["driver"]
FEW = ["worker", "broker", "executor"]

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(LONGEST + 60)]


def series(choose: random.Random) -> list[str]:
    """What is killed, in this order."""
    asked = int(os.environ.get("HOLDFAST_KILLS", "0"))
    kinds = [SHARES[n % len(SHARES)] for n in range(asked)] or list(FEW)
    choose.shuffle(kinds)
    return kinds


def test_every_result_is_there_once(kafka: Kafka, tmp_path: Path, engine: str) -> None:
    choose = random.Random(SEED)
    kinds = series(choose)
    size = 400 + 150 * len(kinds)
    numbers, sums = kafka.topic(partitions=4), kafka.topic(partitions=3)
    for partition in range(4):
        kafka.produce(numbers, map(str, range(partition, size, 4)), partition)
    command = [sys.executable, "-m", "tests.recovery.kafka_verifying", str(tmp_path)]
    command += [kafka.address, numbers, sums]
    for key, value in (*cluster().items(), ("holdfast.directory", str(tmp_path / "run"))):
        command += ["--spark", f"{key}={value}"]
    kills: Counter[str] = Counter()
    began = time.monotonic()
    with started(tmp_path, command) as run:
        with held(tmp_path):
            for kind in kinds:
                # on a slow machine all of them may have been processed before the last kill
                target = min(progress(tmp_path) + choose.randrange(10, 50), size)
                run.wait_until(lambda: progress(tmp_path) >= target, f"{target} records")  # noqa: B023
                if kind == "broker":
                    kafka.broker.kill()
                    kafka.broker.start()
                else:
                    run.kill(kind, choose)
                kills[kind] += 1
                now = time.monotonic() - began
                print(f"{now:6.1f} s, {progress(tmp_path):5} records: {kind} was killed")
        run.finish()
    assert kills == Counter(kinds)
    verify(kafka, sums, size)
