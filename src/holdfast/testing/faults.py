"""Plans of faults: a job fails where and as often as a test says."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from holdfast.common import Configuration
from holdfast.runtime.faults import FAULTS_KEY, Fault, InjectedFault, SimulatedKill, write_plan
from holdfast.runtime.faults import happened as count_happened

__all__ = ["Fault", "FaultPlan", "InjectedFault", "SimulatedKill"]


class FaultPlan:
    """Faults at numbered steps of epochs; each happens once, in whatever process meets it first.

    The steps: 1 trigger, 2 load, 3 notify, 4 process, 5 snapshot, 6 persist, 7 acknowledge,
    8 agree, 9 complete, 10 commit. Steps 2 to 7 are those of a subtask, in a worker; the others
    those of the driver. A fault that kills, kills the process by SIGKILL on Spark; in a
    ``LocalExecutor`` a worker is replaced, and ``SimulatedKill`` is raised for the driver.

    >>> plan = FaultPlan("/tmp/faults", [Fault(step=6, epoch=2), Fault(step=9, kill=True)])
    >>> plan.happened
    0
    """

    def __init__(self, directory: str | os.PathLike[str], faults: Iterable[Fault]) -> None:
        """Write the plan into a directory that all processes of the job can see."""
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.faults = list(faults)
        write_plan(self.directory, self.faults)

    def put_into(self, configuration: Configuration) -> None:
        """Let a job meet these faults."""
        configuration.set_string(FAULTS_KEY, str(self.directory))

    @property
    def happened(self) -> int:
        """How many have happened, in this plan's directory, in all starts of the job."""
        return count_happened(self.directory)
