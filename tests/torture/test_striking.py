"""How faults strike that need no job."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.torture.faults import PlannedFault
from holdfast.torture.order import Order
from holdfast.torture.processes import executors_of, family_of, jvms_of, loops_of, processes
from holdfast.torture.program import ProgramRun, child_command, latest_checkpoint
from holdfast.torture.striking import _NO_STORE, _STORE, NotPossibleError, Striker, _link
from tests.spark.witness import until

#: a program, its JVM, two executors with a worker each, and a source
FAMILY = 7


def test_the_checkpoint_storage_fails_and_is_back_as_it_was(tmp_path: Path) -> None:
    Striker.prepare(tmp_path)
    checkpoints = tmp_path / "checkpoints"
    taken = checkpoints / "job" / "chk-3" / "_metadata"
    taken.parent.mkdir(parents=True)
    taken.touch()
    assert latest_checkpoint(checkpoints) == 3
    _link(tmp_path, _NO_STORE)
    with pytest.raises(NotADirectoryError):
        (checkpoints / "job" / "chk-4").mkdir(parents=True)
    assert latest_checkpoint(checkpoints) == 0
    _link(tmp_path, _STORE)
    assert latest_checkpoint(checkpoints) == 3


class Watched(ProgramRun):
    """A program, of whose processes is noted which are stopped while a fault lasts."""

    stopped: frozenset[int] = frozenset()

    def wait_until(
        self, reached: Callable[[], bool], what: str, patience: float | None = None
    ) -> None:
        """Look at the processes, and wait."""
        self.stopped = self.stopped_now()
        super().wait_until(reached, what, patience)

    def stopped_now(self) -> frozenset[int]:
        """Return which processes of the program are stopped."""
        family = map(str, family_of(self.process.pid, processes()))
        command = ["ps", "-o", "pid=,stat=", "-p", ",".join(family)]
        rows = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        states = dict(line.split() for line in rows.splitlines())
        return frozenset(int(pid) for pid, state in states.items() if "T" in state)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Watched]]:
    """Start a program whose processes do nothing."""
    runs: list[Watched] = []

    def started(argument: str) -> Watched:
        order = Order(str(tmp_path / "run"), str(tmp_path), "t", "family", (argument,))
        Striker.prepare(order.path)
        runs.append(Watched(order, child_command("tests.torture.family"), 60.0))
        return runs[0]

    yield started
    runs[0].close()


def struck(run: Watched, kind: str, choice: float) -> str:
    """Strike a program with a fault that passes; everything must be as before afterwards."""
    what = Striker(run).strike(PlannedFault(1, kind, 1, 0.0, None, lasts=0.01, choice=choice))
    until(lambda: not run.stopped_now())
    assert run.process.poll() is None
    return what


def test_processes_of_a_job_are_stopped_and_woken(start: Callable[[str], Watched]) -> None:
    run = start("job")
    driver = run.process.pid
    until(lambda: len(family_of(driver, processes())) == FAMILY)
    alive = processes()
    (jvm,) = jvms_of(driver, alive)
    _, second = executors_of(driver, alive)
    (source,) = loops_of(run.order.directory, alive)

    told = struck(run, "stop-executor", 0.9)
    assert told == f"stopped executor {second} with its workers, and woke it after 0.0 s"
    assert run.stopped == set(family_of(second, alive))
    assert len(run.stopped) == 2

    assert struck(run, "stop-source", 0.1).startswith(f"stopped source process {source}, and woke")
    assert run.stopped == {source}

    assert struck(run, "stop-driver", 0.9).startswith(f"stopped program {driver}, and woke")
    assert run.stopped == {driver}
    told = struck(run, "stop-driver", 0.1)
    assert told.startswith(f"stopped program {driver} with the JVM of its Spark, and woke")
    assert run.stopped == {driver, jvm}


def test_what_a_job_does_not_have_cannot_be_stopped(start: Callable[[str], Watched]) -> None:
    run = start("alone")
    with pytest.raises(NotPossibleError, match="there is no executor on this machine besides"):
        struck(run, "stop-executor", 0.5)
    with pytest.raises(NotPossibleError, match="no source function has a process of its own"):
        struck(run, "stop-source", 0.5)
    assert struck(run, "stop-driver", 0.1).startswith(f"stopped program {run.process.pid}, and")
