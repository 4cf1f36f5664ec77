"""What the resident engine does on Spark when its slots are killed, stopped, slow or too few."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.options.engine import HEARTBEAT
from holdfast.datastream.functions import CheckpointListener
from holdfast.torture.processes import processes
from tests.recovery import verifying
from tests.recovery.verifying import Settings, make_job, verify
from tests.spark.witness import until

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.engine("resident")]

#: much longer than anything here takes, in seconds
WAIT = 600.0
#: for each record until the deed is done, in seconds
_HELD_BACK = 0.1


class DeedOnce(verifying.Progress, CheckpointListener):
    """Does something to its own process at the first record after a complete checkpoint, once."""

    def __init__(self, path: Path, deed: Callable[[], None]) -> None:
        super().__init__(path)
        self._deed = deed
        self._marker = path.with_name("done")
        self._completed = False

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._completed = True

    def map(self, value: int) -> int:
        if not self._marker.exists():
            if self._completed and self._is_first():
                self._deed()
            # NB: the job must not end before it has heard of a checkpoint
            time.sleep(_HELD_BACK)
        return super().map(value)

    def _is_first(self) -> bool:
        """Claim the deed: both subtasks hear of the checkpoint at the same time."""
        try:
            with self._marker.open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return False
        return True


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def freeze() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def fail() -> None:
    msg = "a failure on order"
    raise RuntimeError(msg)


def is_alive(pid: int) -> bool:
    return pid in processes()


def run_with(deed: Callable[[], None], job: Settings, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the verifying job to its end; something happens to it on the way."""
    monkeypatch.setattr(verifying, "Progress", partial(DeedOnce, deed=deed))
    client = make_job(job).execute_async("verifying")
    client.get_job_execution_result().result(WAIT)
    assert (job.folder / "done").exists(), "it really happened"
    verify(job)
    return client


@pytest.fixture
def job(spark: Any, tmp_path: Path) -> Settings:
    return Settings(tmp_path, numbers=800, ticks=100, interval_ms=20)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_killed_slot_costs_an_attempt_and_no_record(
    job: Settings, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = run_with(kill, replace(job, backend=backend), monkeypatch)
    first, second = client.get_attempts()
    pid = (job.folder / "done").read_text()
    assert re.search(rf"slot [01] \(process {pid} on host '.*'\) has ended", first.failure)
    assert second.checkpoint is not None


def test_a_slot_that_stands_still_is_noticed_and_replaced(
    job: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = run_with(freeze, replace(job, spark=((str(HEARTBEAT), "4 s"),)), monkeypatch)
    # NB: on a busy machine a slot may be silent for seconds without standing still
    pid = (job.folder / "done").read_text()
    attempts = client.get_attempts()
    (replaced,) = [
        number
        for number, attempt in enumerate(attempts)
        if f"(process {pid} on host" in (attempt.failure or "")
    ]
    silent = f"sent nothing for more than 4 s ('{HEARTBEAT}')"
    assert attempts[replaced].failure.endswith(silent)
    assert attempts[replaced + 1].checkpoint is not None
    until(lambda: not is_alive(int(pid)))


def test_a_function_that_raises_costs_an_attempt_and_no_record(
    job: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = run_with(fail, job, monkeypatch)
    first, second = client.get_attempts()
    assert "a failure on order" in first.failure
    assert second.checkpoint is not None
