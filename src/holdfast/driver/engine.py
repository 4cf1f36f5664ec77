"""What runs a job's epochs: Spark, this process, or a simulation.

`docs/internals/engines.md` says what an engine promises and what it is told.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.driver.job_events import Abilities
from holdfast.driver.outcome import EpochOutcome
from holdfast.driver.start import Start
from holdfast.errors import HoldfastError, JobExecutionError
from holdfast.plan.model import Plan
from holdfast.runtime.blocks import Block
from holdfast.runtime.faults import Faults
from holdfast.runtime.protocol import EpochTask
from holdfast.state.storage import StateStorage

__all__ = ["Engine", "PlannedJob"]


@dataclass(frozen=True)
class PlannedJob:
    """What an engine has to know of a job before it can run it.

    Attributes:
        name: another one for each plan; workers keep what they know of a plan under it.
        storage: the state files; ``state_directory`` and ``staging_directory`` are where workers
            find them.
        faults: what is to go wrong on purpose.
    """

    name: str
    plan: Plan
    storage: StateStorage
    state_directory: str
    staging_directory: str
    faults: Faults


class Engine(ABC):
    """Starts attempts and runs their epochs.

    One thread calls everything but `check`. The order is: `prepare`; then for each attempt `start`,
    turns, `stop`; `prepare` again between two attempts if the plan changes; at last `close`. A turn
    is `await_turn`, then `execute` once or more, perhaps `write` and `log`, and `end_turn`.
    """

    abilities: Abilities

    @abstractmethod
    def prepare(self, job: PlannedJob) -> None:
        """Make ready to run a plan; nothing runs.

        Raises:
            HoldfastError: when it cannot run; what was prepared before stays.
        """

    @abstractmethod
    def start(self, attempt: int, start: Start | None) -> None:
        """Start an attempt; ``start`` is the checkpoint that it begins with.

        Raises:
            HoldfastError: when it does not start.
        """

    @abstractmethod
    def await_turn(self) -> None:
        """Wait until an epoch can run.

        Raises:
            HoldfastError: when none will, in this attempt.
        """

    @abstractmethod
    def execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        """Run the levels of an epoch, one after another, and return what they sent to the driver.

        Raises:
            HoldfastError: when there is nothing to return.
        """

    def write(self, blocks: list[Block]) -> None:
        """Write results for which the engine has writers of its own."""
        if blocks:
            raise JobExecutionError("this engine has no writers for these results")

    def log(self) -> Mapping[str, bytes]:
        """Return what the engine needs in a checkpoint in order to go on after this turn."""
        return {}

    def end_turn(self) -> None:
        """The epoch is over, committed or not."""

    @abstractmethod
    def stop(self) -> None:
        """End the attempt, if there is one; nothing of it runs when this returns."""

    def check(self) -> None:
        """Raise an error if no attempt can run any more; any thread may call it, and often."""

    def explain(self, error: BaseException, what: str = "an epoch could not run") -> BaseException:
        """Return the error to report for one that came up; ``what`` says what cannot be done."""
        if isinstance(error, HoldfastError):
            return error
        explained = JobExecutionError(f"{what}: {str(error) or type(error).__name__}")
        explained.__cause__ = error
        return explained

    @abstractmethod
    def close(self) -> None:
        """Leave nothing behind; the job has ended."""
