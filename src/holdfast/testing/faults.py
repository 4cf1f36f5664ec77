"""Plans of faults: a job fails where and as often as a test wants."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from holdfast.common import Configuration
from holdfast.common.options.engine import FAULTS
from holdfast.runtime.worker.injected_faults import Fault, write_plan
from holdfast.runtime.worker.injected_faults import happened as count_happened


class FaultPlan:
    """Faults at numbered steps of epochs; each happens once, in the first process to reach it.

    The steps: 1 trigger, 2 load, 3 notify, 4 process, 5 snapshot, 6 persist, 7 acknowledge,
    8 agree, 9 complete, 10 commit. Steps 2 to 7 are those of a subtask, in a worker; the others
    those of the driver. A fault that kills, kills the process by SIGKILL on Spark; in a
    ``LocalExecutor`` a worker is replaced, and ``SimulatedKill`` is raised for the driver.

    >>> plan = FaultPlan("/tmp/faults", [Fault(step=6, epoch=2), Fault(step=9, kill=True)])
    >>> plan.happened
    0
    """

    def __init__(self, directory: str | os.PathLike[str], faults: Iterable[Fault]) -> None:
        """Write the plan to a directory that all processes of the job can access."""
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.faults = list(faults)
        write_plan(self.directory, self.faults)

    def put_into(self, configuration: Configuration) -> None:
        """Inject these faults into a job."""
        FAULTS.put(configuration, str(self.directory))

    @property
    def happened(self) -> int:
        """Return how many have happened, in this plan's directory, in all starts of the job."""
        return count_happened(self.directory)
