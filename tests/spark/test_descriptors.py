"""A process that runs out of file descriptors: its job goes on, or says why it cannot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import JobExecutionError
from holdfast.spark import jvm
from tests.spark.descriptors import LONGEST

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(3 * LONGEST)


class Server:
    """As Py4J's: its thread ends at once, as without descriptors."""

    is_shutdown = False
    thread: Any = None
    started = 0

    def run(self) -> None:
        self.started += 1


def test_a_thread_that_accepts_nothing_is_started_again_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jvm, "_REVIVAL", 0)
    monkeypatch.setattr(jvm, "_PATIENCE", 0)
    server, calls = Server(), jvm._CallServer()
    calls.check(server)
    jvm._revive(server)
    server.thread.join()
    calls.check(server)
    server.thread.join()
    assert server.started == 2
    with pytest.raises(JobExecutionError, match=r"Spark cannot call this process.*'ulimit -n'"):
        calls.check(server)


@pytest.mark.spark
@pytest.mark.parametrize("manner", ["cancel", "start"])
def test_the_job_ends_and_says_why(engine: str, manner: str, tmp_path: Path) -> None:
    came = run(manner, tmp_path)
    assert came["status"] in ("CANCELED", "FAILED")
    assert "was cancelled" in came["error"] or "oo many open files" in came["error"]


@pytest.mark.spark
@pytest.mark.engine("epochs")
def test_spark_can_call_again_when_there_are_descriptors_again(tmp_path: Path) -> None:
    assert run("again", tmp_path) == {"status": "FINISHED", "error": None, "attempts": 2}


def run(manner: str, folder: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.descriptors", manner, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * LONGEST,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
