"""Carries out the faults of a plan on a running program."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from holdfast.rest.client import Client, JobHandle, RestError, jobs_of
from holdfast.rest.registry import registered
from holdfast.runtime.worker.injected_faults import Fault, has_happened, write_plan
from holdfast.torture.faults import STEPS, PlannedFault
from holdfast.torture.order import read_notes
from holdfast.torture.processes import (
    executors_of,
    family_of,
    jvms_of,
    loops_of,
    processes,
    workers_of,
)
from holdfast.torture.program import ProgramRun, ProgramStuckError

__all__ = ["NotPossibleError", "Striker"]

#: what the checkpoint storage is, and what it is while it fails
_STORE: Final = "store"
_NO_STORE: Final = "no-store"
#: how long to wait for the job to run, or for a step to be reached, in seconds
_PATIENCE: Final = 20.0
#: the same for a process of a job that has just taken a checkpoint
_SHORT_PATIENCE: Final = 5.0
#: from this step on, an epoch without a checkpoint has nothing to lose
_WITH_CHECKPOINT: Final = 5


class NotPossibleError(Exception):
    """A fault that cannot be carried out on this job, or not now; it does not count."""


class Striker:
    """Carries out faults on one run of a program."""

    def __init__(self, run: ProgramRun) -> None:
        """Begin a plan of faults at steps, which is empty."""
        self._run = run
        self._directory = run.order.path / "faults"
        self._steps: list[Fault] = []
        self._parallelism = 0

    @staticmethod
    def prepare(run: os.PathLike[str]) -> None:
        """Make what faults need, before the program starts."""
        directory = Path(run) / "faults"
        directory.mkdir(parents=True, exist_ok=True)
        write_plan(directory, [])
        # NB: the checkpoint storage is a link, because it can be replaced in one step
        (Path(run) / _STORE).mkdir()
        (Path(run) / _NO_STORE).touch()
        _link(Path(run), _STORE)

    def strike(self, fault: PlannedFault) -> str:
        """Carry out a fault, and undo it if it is one that passes; returns what was done.

        Raises:
            NotPossibleError: when there is nothing that it could strike.
            ProgramEndedError: when the program ends, and not because of a fault that does that.
        """
        strike: Callable[[PlannedFault], str] = _STRIKES[fault.kind].__get__(self)
        try:
            return strike(fault)
        except ProcessLookupError as error:
            raise NotPossibleError("the process ended by itself just before") from error

    # Processes

    def _kill_worker(self, fault: PlannedFault) -> str:
        if fault.step is not None:
            self._at_step(fault, kill=True)
            return f"killed the worker that reached step {fault.step} ({STEPS[fault.step]})"
        pid = self._victim(fault, self._workers, "a worker")
        os.kill(pid, signal.SIGKILL)
        return f"killed worker {pid}"

    def _kill_executor(self, fault: PlannedFault) -> str:
        pid = self._executor(fault)
        os.kill(pid, signal.SIGKILL)
        return f"killed executor {pid}"

    def _kill_source(self, fault: PlannedFault) -> str:
        pid = self._source(fault)
        os.kill(pid, signal.SIGKILL)
        return f"killed the process of a source, {pid}"

    def _kill_driver(self, fault: PlannedFault) -> str:
        if fault.step is not None:
            self._at_step(fault, kill=True, driver=True)
            done = f"killed the program at step {fault.step} ({STEPS[fault.step]})"
        else:
            done = f"killed the program, process {self._run.kill()}"
        self._run.restart()
        return f"{done}, and started it again"

    def _stop_worker(self, fault: PlannedFault) -> str:
        pid = self._victim(fault, self._workers, "a worker")
        return self._stop(fault, f"worker {pid}", [pid])

    def _stop_executor(self, fault: PlannedFault) -> str:
        pid = self._executor(fault)
        return self._stop(fault, f"executor {pid} with its workers", family_of(pid, processes()))

    def _stop_source(self, fault: PlannedFault) -> str:
        pid = self._source(fault)
        return self._stop(fault, f"source process {pid}", [pid])

    def _stop_driver(self, fault: PlannedFault) -> str:
        pid = self._run.process.pid
        jvms = jvms_of(pid, processes()) if fault.choice < 0.5 else []
        also = " with the JVM of its Spark" if jvms else ""
        return self._stop(fault, f"program {pid}{also}", [pid, *jvms])

    def _stop(self, fault: PlannedFault, what: str, pids: Sequence[int]) -> str:
        """Stop processes, the first of which must be there, and wake them after a while."""
        try:
            os.kill(pids[0], signal.SIGSTOP)
            for pid in pids[1:]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            self._pass_time(fault.lasts)
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        return f"stopped {what}, and woke it after {fault.lasts:.1f} s"

    def _workers(self) -> list[int]:
        return workers_of(self._run.process.pid, processes())

    def _executor(self, fault: PlannedFault) -> int:
        find = partial(executors_of, self._run.process.pid)
        if not find(processes()):
            raise NotPossibleError("there is no executor on this machine besides the driver")
        return self._victim(fault, lambda: find(processes()), "an executor")

    def _source(self, fault: PlannedFault) -> int:
        loops = loops_of(self._run.order.directory, processes())
        if not loops:
            raise NotPossibleError("no source function has a process of its own")
        return _chosen(loops, fault.choice)

    def _victim(self, fault: PlannedFault, find: Callable[[], Sequence[int]], what: str) -> int:
        found: list[int] = []

        def look() -> bool:
            found[:] = find()
            return bool(found)

        self._wait(look, f"there is {what}", _SHORT_PATIENCE)
        return _chosen(found, fault.choice)

    # Faults within a process

    def _fail_task(self, fault: PlannedFault) -> str:
        assert fault.step is not None
        self._at_step(fault)
        return f"an exception in the subtask that reached step {fault.step} ({STEPS[fault.step]})"

    def _at_step(self, fault: PlannedFault, kill: bool = False, driver: bool = False) -> None:
        """Plan a fault at a step, and wait until it has happened."""
        assert fault.step is not None
        carries = fault.step >= _WITH_CHECKPOINT
        number = len(self._steps)
        self._steps.append(Fault(fault.step, kill=kill, with_checkpoint=carries))
        write_plan(self._directory, self._steps)
        if driver:
            self._await_death(fault.step)
            return
        try:
            self._wait(
                lambda: has_happened(self._directory, number), f"an epoch is at step {fault.step}"
            )
        except NotPossibleError:
            # NB: or it would happen later, unnoticed
            (self._directory / f"happened-{number}").touch()
            raise

    def _await_death(self, step: int) -> None:
        deadline = time.monotonic() + _PATIENCE
        while self._run.process.poll() is None:
            if time.monotonic() > deadline:
                (self._directory / f"happened-{len(self._steps) - 1}").touch()
                if self._run.process.poll() is None:
                    raise NotPossibleError(f"the driver did not come to step {step}")
            time.sleep(0.01)

    def _cut(self, fault: PlannedFault) -> str:
        pid = self._victim(fault, self._agents, "a worker that can cut a connection")
        order = self._run.order.path / "agents" / f"{pid}.cut"
        draft = order.with_suffix(".draft")
        draft.write_text(str(int(fault.choice * 1_000_003)))
        draft.rename(order)
        try:
            self._wait(
                lambda: not order.exists() or not _is_alive(pid),
                "a connection is cut",
                _SHORT_PATIENCE,
            )
        finally:
            order.unlink(missing_ok=True)
        return f"cut a connection of worker {pid}"

    def _agents(self) -> list[int]:
        known = {path.name for path in (self._run.order.path / "agents").iterdir()}
        return [pid for pid in self._workers() if str(pid) in known]

    # Storage

    def _fail_store(self, fault: PlannedFault) -> str:
        run = self._run.order.path
        # NB: a file, because a missing directory would be created again
        _link(run, _NO_STORE)
        try:
            self._pass_time(fault.lasts)
        finally:
            _link(run, _STORE)
        return f"the checkpoint storage was away for {fault.lasts:.1f} s"

    # Requests

    def _rescale(self, fault: PlannedFault) -> str:
        widest = max(note.parallelism for note in read_notes(self._run.order.path))
        now = self._parallelism or widest
        targets = [number for number in range(1, max(2, widest) + 1) if number != now]
        wanted = _chosen(targets, fault.choice)
        self._request(f"/rescaling?parallelism={wanted}", "/rescaling", "PATCH")
        self._parallelism = wanted
        return f"changed the parallelism from {now} to {wanted}"

    def _savepoint(self, fault: PlannedFault) -> str:
        answer = self._request("/stop", "/savepoints", "POST", {"drain": False})
        taken = str(answer["location"])
        (self._run.order.path / "savepoint").write_text(taken)
        try:
            self._run.finish(self._run.patience)
        except ProgramStuckError:
            self._run.kill()
        self._run.restart()
        self._parallelism = 0
        return (
            f"stopped the job with savepoint {taken.rpartition('/')[2]}, and started it from there"
        )

    def _request(
        self, path: str, status: str, method: str, body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        try:
            job = self._job()
            trigger = job.ask(path, method, body)["request-id"]
            deadline = time.monotonic() + self._run.patience
            while time.monotonic() < deadline:
                answer = job.ask(f"{status}/{trigger}")
                if answer["status"]["id"] == "COMPLETED":
                    operation: Mapping[str, Any] = answer["operation"]
                    cause = operation.get("failure-cause")
                    if cause:
                        raise NotPossibleError(str(cause["stack-trace"]))
                    return operation
                time.sleep(0.05)
        except RestError as error:
            raise NotPossibleError(str(error)) from error
        message = f"a request to the job was not answered within {self._run.patience:.0f} s: {path}"
        raise ProgramStuckError(message)

    def _job(self) -> JobHandle:
        """Return the job that runs now."""
        found: list[JobHandle] = []

        def look() -> bool:
            entries = [e for e in registered() if e.process == self._run.process.pid]
            jobs = jobs_of([Client(entry.url, entry.token) for entry in entries])
            found[:] = [job for job in jobs if job.summary["state"] == "RUNNING"]
            return bool(found)

        self._wait(look, "the job runs")
        return found[-1]

    # Waiting

    def _pass_time(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self._run.wait_until(lambda: time.monotonic() >= end, "the fault has passed", seconds + 60)

    def _wait(self, reached: Callable[[], bool], what: str, patience: float = _PATIENCE) -> None:
        try:
            self._run.wait_until(reached, what, patience)
        except ProgramStuckError as error:
            raise NotPossibleError(str(error)) from error


def _link(run: Path, store: str) -> None:
    """Let the checkpoint storage of a run be this."""
    draft = run / ".link"
    draft.symlink_to(run / store)
    draft.replace(run / "checkpoints")


def _chosen(found: Sequence[int], choice: float) -> int:
    return found[int(choice * len(found))]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


_STRIKES: Final[Mapping[str, Callable[[Striker, PlannedFault], str]]] = {
    "kill-worker": Striker._kill_worker,
    "stop-worker": Striker._stop_worker,
    "kill-executor": Striker._kill_executor,
    "stop-executor": Striker._stop_executor,
    "kill-source": Striker._kill_source,
    "stop-source": Striker._stop_source,
    "kill-driver": Striker._kill_driver,
    "stop-driver": Striker._stop_driver,
    "cut": Striker._cut,
    "fail-task": Striker._fail_task,
    "fail-store": Striker._fail_store,
    "rescale": Striker._rescale,
    "savepoint": Striker._savepoint,
}
