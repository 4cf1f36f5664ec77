"""One run of the verifying job, in which processes of all kinds are killed one after the other.

Each kill comes when a random number of records were processed since the last one; by then the
processes are anywhere in an epoch, or between two.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.killing import LONGEST, SPARK, started
from tests.recovery.verifying import Settings, progress, verify

SEED = 20
KILLS = {"driver": 2, "executor": 4, "worker": 13, "source": 2}

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(LONGEST + 60)]


def command(job: Settings) -> list[str]:
    """Starts the job, or goes on with it."""
    made = [sys.executable, "-m", "tests.recovery.verifying", str(job.folder)]
    for size in ("numbers", "ticks", "parallelism", "epoch", "interval_ms"):
        made += [f"--{size}", str(getattr(job, size))]
    for key, value in (*SPARK.items(), ("holdfast.directory", str(job.folder / "run"))):
        made += ["--spark", f"{key}={value}"]
    return made


def test_twenty_kills_and_more(tmp_path: Path) -> None:
    choose = random.Random(SEED)
    kinds = [kind for kind, times in KILLS.items() for _ in range(times)]
    choose.shuffle(kinds)
    assert len(kinds) >= 20
    job = Settings(tmp_path, numbers=1_200, ticks=600, epoch=20, interval_ms=300)
    kills: Counter[str] = Counter()
    began = time.monotonic()
    with started(tmp_path, command(job)) as run:
        for kind in kinds:
            target = progress(tmp_path) + choose.randrange(10, 60)
            run.wait_until(lambda: progress(tmp_path) >= target, f"{target} records")  # noqa: B023
            victim = run.kill(kind, choose)
            kills[kind] += 1
            now = time.monotonic() - began
            print(f"{now:6.1f} s, {progress(tmp_path):5} records: {kind} {victim} was killed")
        run.finish()
        assert run.log.count("goes on from checkpoint") >= 1
    assert kills == KILLS
    verify(job)
