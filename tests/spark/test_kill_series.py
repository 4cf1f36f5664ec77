"""One run of the verifying job, in which processes of all kinds are killed one after the other."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.recovery.verifying import Settings, progress, verify
from tests.spark.killing import LONGEST, started

SEED = 20
KILLS = {"driver": 2, "executor": 4, "worker": 13, "source": 2}
SIZES = ("numbers", "ticks", "parallelism", "epoch", "interval_ms")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(LONGEST + 60)]


def test_twenty_kills_and_more(tmp_path: Path) -> None:
    choose = random.Random(SEED)
    kinds = [kind for kind, times in KILLS.items() for _ in range(times)]
    choose.shuffle(kinds)
    assert len(kinds) >= 20
    job = Settings(tmp_path, numbers=1_200, ticks=600, epoch=20, interval_ms=300)
    kills: Counter[str] = Counter()
    began = time.monotonic()
    options = {size: getattr(job, size) for size in SIZES}
    with started(tmp_path, "tests.recovery.verifying", options) as run:
        for kind in kinds:
            run.wait_for_records(choose.randrange(10, 60))
            victim = run.kill(kind, choose)
            kills[kind] += 1
            now = time.monotonic() - began
            print(f"{now:6.1f} s, {progress(tmp_path):5} records: {kind} {victim} was killed")
        run.finish()
        assert run.log.count("goes on from checkpoint") >= 1
    assert kills == KILLS
    verify(job)
