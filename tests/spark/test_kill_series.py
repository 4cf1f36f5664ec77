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
from pathlib import Path

import pytest

from holdfast.checkpoint.directory import METADATA
from tests.killing import LONGEST, cluster, started
from tests.recovery.verifying import Settings, held, progress, verify

SEED = int(os.environ.get("HOLDFAST_SEED", "20"))
#: of ten kills
SHARES = ["worker"] * 6 + ["executor"] * 2 + ["source", "driver"]
FEW = ["worker"] * 3 + ["executor"] * 2 + ["source", "driver"]

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(LONGEST + 60)]


def command(job: Settings) -> list[str]:
    """Starts the job, or goes on with it."""
    made = [sys.executable, "-m", "tests.recovery.verifying", str(job.folder), "--holdable"]
    for size in ("numbers", "ticks", "parallelism", "epoch", "interval_ms"):
        made += [f"--{size}", str(getattr(job, size))]
    for key, value in (*cluster().items(), ("holdfast.directory", str(job.folder / "run"))):
        made += ["--spark", f"{key}={value}"]
    return made


def latest(folder: Path) -> int:
    """The last checkpoint that is complete."""
    found = (path.parent.name for path in folder.glob(f"checkpoints/verifying/chk-*/{METADATA}"))
    return max((int(name.removeprefix("chk-")) for name in found), default=0)


def test_every_record_counts_once(tmp_path: Path, engine: str) -> None:
    choose = random.Random(SEED)
    # the loop of a source has a process of its own on one engine only, which also is slower
    left_out = "source" if engine == "resident" else ""
    asked = int(os.environ.get("HOLDFAST_KILLS", "0"))
    series = [SHARES[n % len(SHARES)] for n in range(asked)] or FEW
    kinds = [kind for kind in series if kind != left_out]
    choose.shuffle(kinds)
    each, epoch = (60, 20) if engine == "epochs" else (100, 2)
    numbers = each * len(kinds)
    job = Settings(tmp_path, numbers=numbers, ticks=numbers // 2, epoch=epoch, interval_ms=300)
    kills: Counter[str] = Counter()
    began = time.monotonic()
    with started(tmp_path, command(job)) as run:
        with held(tmp_path, slow=engine == "resident"):
            for kind in kinds:
                # on a slow machine all of them may have been processed before the last kill
                target = min(progress(tmp_path) + choose.randrange(10, 60), numbers + job.ticks)
                run.wait_until(lambda: progress(tmp_path) >= target, f"{target} records")  # noqa: B023
                # or most kills would come before the first checkpoint
                if engine == "resident" or kind == "driver":
                    known = latest(tmp_path)
                    run.wait_until(lambda: latest(tmp_path) > known, "a checkpoint")  # noqa: B023
                victim = run.kill(kind, choose)
                kills[kind] += 1
                now = time.monotonic() - began
                print(f"{now:6.1f} s, {progress(tmp_path):5} records: {kind} {victim} was killed")
        run.finish()
        assert run.said("continues from checkpoint")
    assert kills == Counter(kinds)
    verify(job)
