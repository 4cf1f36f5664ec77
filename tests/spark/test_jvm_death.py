"""The JVM of a driver is killed at seeded moments; the job ends, and goes on when started again.

Here a few kills stand for a series of any length: ``HOLDFAST_KILLS=20`` makes it as long as one
likes, and ``HOLDFAST_SEED`` makes another one.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recovery.verifying import Settings, held, progress, verify

ROOT = Path(__file__).parents[2]
SEED = int(os.environ.get("HOLDFAST_SEED", "14"))
KINDS = ("record", "step", "begin", "delay", "strange")
#: one of each kind, where it may differ between the engines on both of them
FEW = {"resident": ("record", "begin"), "epochs": ("step", "begin", "delay", "strange")}
#: of a run, in seconds, on a machine that is slow and busy; a job that hangs takes longer
LONGEST = 800

#: of checkpoints; some lives of the job are over within a second
INTERVAL_MS = {"epochs": 500, "resident": 20}

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(0)]


def test_a_job_whose_jvm_is_killed_fails_and_goes_on_when_it_is_started_again(
    engine: str,
    tmp_path: Path,
) -> None:
    choose = random.Random(SEED)
    asked = int(os.environ.get("HOLDFAST_KILLS", "0"))
    kinds = [KINDS[number % len(KINDS)] for number in range(asked)] or FEW[engine]
    job = Settings(tmp_path, numbers=300 * len(kinds), interval_ms=INTERVAL_MS[engine])
    with held(tmp_path):
        for kind in kinds:
            moment = moment_of(kind, choose, tmp_path)
            check_failed(run(job, moment), moment)
    # on a slow machine all may have died before the first one was complete
    has_one = any((tmp_path / "checkpoints" / "verifying").glob("chk-*/_metadata"))
    last = run(job, "never")
    assert last.returncode == 0, last.stderr
    assert ("continues from checkpoint" in last.stderr) == has_one
    verify(job)
    # NB: not after each death: workers that outlive the JVM may write there for a moment
    assert list((tmp_path / "run").iterdir()) == []


def moment_of(kind: str, choose: random.Random, folder: Path) -> str:
    match kind:
        case "record" | "delay" | "strange":
            return f"{kind}:{progress(folder) + choose.randrange(10, 200)}"
        case "step":
            return f"step:{choose.choice((1, 8, 9, 10))}:{choose.randrange(1, 4)}"
        case _:
            return kind


def check_failed(start: subprocess.CompletedProcess[str], moment: str) -> None:
    """The program ended by itself, said why, and left nothing behind."""
    assert start.returncode == 1, (moment, start.stderr)
    how = "its connections are closed" if "strange" in moment else "killed by SIGKILL"
    message = f"the JVM of the Spark driver has died ({how}); "
    assert f"holdfast.errors.SparkLostError: {message}" in start.stderr, (moment, start.stderr)
    if moment == "begin":  # execute() itself has failed, and there is no client to ask
        return
    left = json.loads(start.stdout)
    failures = left.pop("attempts")
    assert failures[-1].startswith(message)
    assert len(failures) == 1
    assert left == {
        "status": "FAILED",
        "savepoint": "there is no savepoint: the job has ended",
        "cancelled": None,
        "threads": [],
    }, moment


def run(job: Settings, moment: str) -> subprocess.CompletedProcess[str]:
    """Run the job in a process of its own, to its end or the death of its JVM."""
    command = [sys.executable, "-m", "tests.spark.jvm_death", str(job.folder)]
    return subprocess.run(
        [*command, str(job.numbers), moment, str(job.interval_ms)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST,
    )
