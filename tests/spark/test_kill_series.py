"""One run of the verifying job, in which processes of all kinds are killed one after the other.

Each kill comes when a random number of records were processed since the last one; by then the
processes are anywhere in an epoch, or between two. Here a few kills of each kind stand for a series
of any length: ``HOLDFAST_KILLS=21`` makes it as long as one likes.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.checkpoint.store import METADATA
from tests.killing import LONGEST, cluster, started
from tests.recovery.verifying import Settings, held, progress, verify

SEED = int(os.environ.get("HOLDFAST_SEED", "20"))
#: of ten kills
SHARES = ["worker"] * 6 + ["executor"] * 2 + ["source", "driver"]

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(LONGEST + 60)]


def command(job: Settings) -> list[str]:
    """Starts the job, or goes on with it."""
    made = [sys.executable, "-m", "tests.recovery.verifying", str(job.folder)]
    for size in ("numbers", "ticks", "parallelism", "epoch", "interval_ms"):
        made += [f"--{size}", str(getattr(job, size))]
    for key, value in (*cluster().items(), ("holdfast.directory", str(job.folder / "run"))):
        made += ["--spark", f"{key}={value}"]
    return made


def latest(folder: Path) -> int:
    """The last checkpoint that is complete."""
    found = (path.parent.name for path in folder.rglob(f"chk-*/{METADATA}"))
    return max((int(name.removeprefix("chk-")) for name in found), default=0)


def test_every_record_counts_once(tmp_path: Path, engine: str) -> None:
    choose = random.Random(SEED)
    # the loop of a source has a process of its own on one engine only, which also is slower
    shares = [kind for kind in SHARES if engine == "epochs" or kind != "source"]
    asked = int(os.environ.get("HOLDFAST_KILLS", len(shares)))
    kinds = [shares[n % len(shares)] for n in range(asked)]
    choose.shuffle(kinds)
    numbers, epoch = (60 * asked, 20) if engine == "epochs" else (240 * asked, 2)
    job = Settings(tmp_path, numbers=numbers, ticks=numbers // 2, epoch=epoch, interval_ms=300)
    kills: Counter[str] = Counter()
    began = time.monotonic()
    with started(tmp_path, command(job)) as run, ExitStack() as pace:
        if engine == "resident":
            pace.enter_context(held(tmp_path))
        for kind in kinds:
            target = progress(tmp_path) + choose.randrange(10, 60)
            run.wait_until(lambda: progress(tmp_path) >= target, f"{target} records")  # noqa: B023
            if engine == "resident":  # or most kills would come before the first checkpoint
                known = latest(tmp_path)
                run.wait_until(lambda: latest(tmp_path) > known, "a checkpoint")  # noqa: B023
            victim = run.kill(kind, choose)
            kills[kind] += 1
            now = time.monotonic() - began
            print(f"{now:6.1f} s, {progress(tmp_path):5} records: {kind} {victim} was killed")
        pace.close()
        run.finish()
        assert run.log.count("continues from checkpoint") >= 1
    assert kills == Counter(kinds)
    verify(job)
