"""What is on the disk after processes of all kinds were killed, and after the job's own end."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.killing import LONGEST, Run, cluster, started
from tests.recovery.verifying import Settings, held, progress, verify

pytestmark = [
    pytest.mark.engine("epochs"),
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(LONGEST + 60),
]

KILLS = ("source", "worker", "executor", "driver")


def command(job: Settings) -> list[str]:
    """Starts the job, or goes on with it; only the databases are in a directory that is named."""
    made = [sys.executable, "-m", "tests.recovery.verifying", str(job.folder), "--holdable"]
    for size in ("numbers", "ticks", "epoch", "interval_ms"):
        made += [f"--{size}", str(getattr(job, size))]
    for key, value in {**cluster(), "state.backend.type": "rocksdb"}.items():
        made += ["--spark", f"{key}={value}"]
    return made


def left(*places: Path) -> Counter[str]:
    """What is there, by kind."""
    found = (path.name.split("-") for place in places for path in place.iterdir())
    return Counter(name[1] for name in found)


def go_on(run: Run, job: Settings, records: int) -> None:
    # on a slow machine all of them may have been processed before the last kill
    target = min(progress(job.folder) + records, job.numbers + job.ticks)
    run.wait_until(lambda: progress(job.folder) >= target, f"{target} records")


def test_nothing_is_left_but_what_a_live_process_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, local = tmp_path / "user", tmp_path / "local"
    monkeypatch.setenv("HOLDFAST_RUNTIME_DIR", str(user))
    choose = random.Random(14)
    job = Settings(tmp_path, numbers=300, ticks=150, epoch=20, interval_ms=300)
    with started(tmp_path, command(job)) as run:
        with held(tmp_path, slow=False):
            for kind in KILLS:
                go_on(run, job, 40)
                run.kill(kind, choose)
            go_on(run, job, 60)
            # one of each: those of the driver before are gone
            run.wait_until(lambda: left(user) == Counter(["job", "server"]), "nothing is left")
        run.finish()
    verify(job)
    assert left(user, local) == Counter()
