"""The verifying job crashes at every step of an epoch on Spark: real processes, really killed.

On the engine of epochs Spark runs a killed task again; on the resident one the attempt has failed,
and the next one goes on from the last checkpoint.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime.worker.injected_faults import has_happened
from holdfast.testing import Fault, FaultPlan
from tests.recovery.verifying import Settings, make_job, verify

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("engine")]

ROOT = Path(__file__).parents[2]
#: When the driver dies: at each of its steps, on one engine; recovery/test_crash_at_every_step.py
#: has all of them. The second death is late: the next driver has a checkpoint to go on from.
DRIVER = {"epochs": ((1, 1), (9, 8)), "resident": ((8, 2), (10, 8))}
WORKER = range(2, 8)
#: about half of the epochs carry a checkpoint
INTERVAL_MS = {"epochs": 700, "resident": 20}


def test_workers_are_killed_and_every_step_raises(spark: Any, engine: str, tmp_path: Path) -> None:
    killed = [Fault(step, step, kill=True) for step in WORKER]
    # of the subtasks behind the shuffle, in an epoch with a checkpoint
    killed += [Fault(step, 8, kill=True, with_checkpoint=True, level=1) for step in (5, 6, 7)]
    failed = [Fault(step, 9 + step) for step in range(1, 11)]
    plan = FaultPlan(tmp_path / "faults", killed + failed)
    job = Settings(tmp_path, numbers=1_600, epoch=40, interval_ms=INTERVAL_MS[engine])
    make_job(replace(job, faults=str(plan.directory))).execute("verifying")
    assert plan.happened == len(plan.faults)
    verify(job)


def test_the_driver_is_killed_and_workers_too_on_rocksdb(engine: str, tmp_path: Path) -> None:
    deaths = [Fault(step, epoch, kill=True) for step, epoch in DRIVER[engine]]
    workers = [Fault(step, step, kill=True, level=1) for step in (4, 6, 7)]
    plan = FaultPlan(tmp_path / "faults", deaths + workers)
    backend = ("state.backend.type", "rocksdb")
    interval = INTERVAL_MS[engine]
    job = Settings(tmp_path, numbers=800, epoch=40, interval_ms=interval, spark=(backend,))
    for death in range(len(deaths)):
        start = run(job, plan)
        assert start.returncode == -signal.SIGKILL, start.stderr
        assert has_happened(plan.directory, death)
    if engine == "epochs":  # slots see that the driver has gone, and remove what is theirs
        assert list((tmp_path / "local").glob("*/1-0/*/CURRENT"))
    last = run(job, plan)
    assert last.returncode == 0, last.stderr
    assert "continues from checkpoint" in last.stderr
    assert plan.happened == len(plan.faults)
    verify(job)


def run(job: Settings, plan: FaultPlan) -> subprocess.CompletedProcess[str]:
    """Run the job in a process of its own, to its end or its death."""
    command = [
        *(sys.executable, "-m", "tests.recovery.verifying", str(job.folder)),
        *("--numbers", str(job.numbers), "--epoch", str(job.epoch)),
        *("--interval_ms", str(job.interval_ms), "--faults", str(plan.directory)),
        *("--spark", "spark.master=local[2,4]"),
    ]
    for key, value in job.spark:
        command += ["--spark", f"{key}={value}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
