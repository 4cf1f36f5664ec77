"""Faults injected at a numbered step of an epoch, to test recovery.

A plan of faults is a directory. It has a file with the faults, and a mark for each one that has
happened, so that each happens once, in the process that reaches it first. Faults may be added while
the job runs.
``holdfast.testing.FaultPlan`` makes one; the job finds it by the key ``holdfast.testing.faults``.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec

from holdfast.errors import HoldfastError

_PLAN = "faults.json"


class InjectedFault(HoldfastError):
    """A planned fault, raised at a step."""


class SimulatedKill(BaseException):
    """Simulates the death of a process if everything runs in one process."""


class Fault(msgspec.Struct, frozen=True):
    """One failure.

    Attributes:
        step: the number of the step; the fault happens at its beginning.
        epoch: the earliest epoch.
        kill: the process dies by SIGKILL, instead of an exception.
        with_checkpoint: only in an epoch that carries a checkpoint.
        level, subtask: only there; None: in the first subtask that reaches the step.
    """

    step: int
    epoch: int = 0
    kill: bool = False
    with_checkpoint: bool = False
    level: int | None = None
    subtask: int | None = None


class Faults:
    """The fault plan of a job, in one of its processes; without a plan nothing happens."""

    def __init__(self, directory: str = "", simulated: bool = False) -> None:
        """Read the plan; ``simulated``: a kill is an exception, for a run in one process."""
        self._directory = Path(directory)
        self._simulated = simulated
        self._planned = bool(directory)
        self._faults: list[Fault] = []
        #: identifies the version of the plan that was read
        self._version = (-1, -1)

    def reach(
        self,
        step: int,
        epoch: int,
        with_checkpoint: bool = False,
        level: int | None = None,
        subtask: int | None = None,
    ) -> None:
        """Inject the faults that are planned for a step of an epoch, at its beginning."""
        if not self._planned:
            return
        self._read_again()
        for number, fault in enumerate(self._faults):
            if (
                fault.step == step
                and epoch >= fault.epoch
                and (with_checkpoint or not fault.with_checkpoint)
                and fault.level in (None, level)
                and fault.subtask in (None, subtask)
                and self._is_first(number)
            ):
                self._happen(fault, epoch)

    def _read_again(self) -> None:
        """Read the plan, if it is another one than before."""
        found = (self._directory / _PLAN).stat()
        version = (found.st_mtime_ns, found.st_size)
        if version != self._version:
            self._faults = read_plan(self._directory)
            self._version = version

    def _is_first(self, number: int) -> bool:
        try:
            os.close(os.open(self._directory / f"happened-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _happen(self, fault: Fault, epoch: int) -> None:
        where = f"step {fault.step} of epoch {epoch}"
        if not fault.kill:
            raise InjectedFault(f"a fault was injected at {where}")
        if self._simulated:
            raise SimulatedKill(f"killed at {where}")
        os.kill(os.getpid(), signal.SIGKILL)


def write_plan(directory: Path, faults: list[Fault]) -> None:
    """Write the faults of a plan, in one step."""
    draft = directory / f".{_PLAN}"
    draft.write_bytes(msgspec.json.encode(faults))
    draft.replace(directory / _PLAN)


def read_plan(directory: Path) -> list[Fault]:
    """Return the faults of a plan."""
    return msgspec.json.decode((directory / _PLAN).read_bytes(), type=list[Fault])


def happened(directory: Path) -> int:
    """Return how many faults of a plan have happened."""
    return len(list(directory.glob("happened-*")))


def has_happened(directory: Path, number: int) -> bool:
    """Return whether the fault with this place in the plan, from 0, has happened."""
    return (directory / f"happened-{number}").exists()
