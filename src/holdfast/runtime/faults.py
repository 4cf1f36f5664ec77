"""Failures on order, at a numbered step of an epoch: how recovery is tested.

A plan of faults is a directory: the faults in a file, and a mark for each that has happened, so
that each happens once in whatever process meets it first. ``holdfast.testing.FaultPlan`` makes
one; the job finds it by the key ``holdfast.testing.faults``.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec

from holdfast.errors import HoldfastError

#: the configuration key with the directory of a plan
FAULTS_KEY = "holdfast.testing.faults"

_PLAN = "faults.json"


class InjectedFault(HoldfastError):
    """A fault of a plan, thrown at a step."""


class SimulatedKill(BaseException):
    """Stands for the death of a process where everything runs in one."""


class Fault(msgspec.Struct, frozen=True):
    """One failure.

    Attributes:
        step: the number of the step that it happens at the beginning of.
        epoch: not before this epoch.
        kill: the process dies by SIGKILL, instead of an exception.
        with_checkpoint: only in an epoch that carries a checkpoint.
        level, subtask: only there; None: in whatever subtask is the first.
    """

    step: int
    epoch: int = 0
    kill: bool = False
    with_checkpoint: bool = False
    level: int | None = None
    subtask: int | None = None


class Faults:
    """The plan of a job, as a process of it sees it; without one, nothing ever happens."""

    def __init__(self, directory: str = "", simulated: bool = False) -> None:
        """``simulated``: a killed process is an exception, for a run in one process."""
        self._directory = Path(directory)
        self._simulated = simulated
        self._faults = read_plan(self._directory) if directory else []

    def reach(
        self,
        step: int,
        epoch: int,
        with_checkpoint: bool = False,
        level: int | None = None,
        subtask: int | None = None,
    ) -> None:
        """A step of an epoch begins."""
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

    def _is_first(self, number: int) -> bool:
        try:
            os.close(os.open(self._directory / f"happened-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _happen(self, fault: Fault, epoch: int) -> None:
        where = f"step {fault.step} of epoch {epoch}"
        if not fault.kill:
            raise InjectedFault(f"a fault was ordered at {where}")
        if self._simulated:
            raise SimulatedKill(f"killed at {where}")
        os.kill(os.getpid(), signal.SIGKILL)


def write_plan(directory: Path, faults: list[Fault]) -> None:
    """Write the faults of a plan."""
    (directory / _PLAN).write_bytes(msgspec.json.encode(faults))


def read_plan(directory: Path) -> list[Fault]:
    """The faults of a plan."""
    return msgspec.json.decode((directory / _PLAN).read_bytes(), type=list[Fault])


def happened(directory: Path) -> int:
    """How many faults of a plan have happened."""
    return len(list(directory.glob("happened-*")))
