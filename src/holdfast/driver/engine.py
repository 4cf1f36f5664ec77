"""What runs a job's epochs: Spark, this process, or a simulation.

`docs/internals/engines.md` says what an engine promises and what it is told.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.driver.job_events import Abilities
from holdfast.driver.outcome import EpochOutcome
from holdfast.driver.start import Start
from holdfast.errors import HoldfastError, JobExecutionError
from holdfast.plan.model import Plan
from holdfast.runtime.blocks import Block
from holdfast.runtime.faults import Faults
from holdfast.runtime.protocol import EpochTask, StoredState
from holdfast.state.storage import StateStorage

__all__ = ["Engine", "EngineChoice", "PlannedJob"]


@dataclass(frozen=True)
class EngineChoice:
    """Which engine runs a job, for people.

    Attributes:
        reason: why that one.
        surprising: somebody may have expected another one.
    """

    name: str
    reason: str
    surprising: bool = False


@dataclass(frozen=True)
class PlannedJob:
    """What an engine has to know of a job before it can run it.

    Attributes:
        name: another one for each plan; workers keep what they know of a plan under it.
        storage: the state files; ``state_directory`` and ``staging_directory`` are where workers
            find them.
        faults: what is to go wrong on purpose.
        deliver: hands out results that come between epochs; in the thread that calls the engine.
    """

    name: str
    plan: Plan
    storage: StateStorage
    state_directory: str
    staging_directory: str
    faults: Faults
    deliver: Callable[[list[Block]], None]


class Engine(ABC):
    """Starts attempts and runs their epochs.

    One thread calls everything but `wake`, `check` and `query`. The order is: `prepare`; then for
    each attempt `start`, turns, `stop`; `prepare` again between two attempts if the plan changes;
    at last `close`. A turn is `await_turn`, then `execute` once or more, perhaps `write` and `log`,
    and `end_turn`. `stored` may be called in a turn and between turns.
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
            SlotsMissingError: when there are too few task slots.
            AbandonedError: when it was given up.
            HoldfastError: when it does not start.
        """

    def available_slots(self) -> int | None:
        """Return how many task slots the job could have now, with those that it has.

        Called between turns. None: the engine does not count them.
        """
        return None

    @abstractmethod
    def await_turn(self, due_ms: int | None = None) -> None:
        """Wait until an epoch can run.

        ``due_ms``: one is wanted in so many milliseconds at the latest, for a checkpoint, for
        listeners or for a request; None: nobody waits for one. An engine whose subtasks keep their
        state also returns when one of them has stored it, and after `wake`.

        Raises:
            HoldfastError: when none will, in this attempt.
        """

    def wake(self) -> None:
        """Let `await_turn` return now; if nobody waits, the next call of it. From any thread."""

    def abandon(self) -> None:
        """Let `start` and `execute` give up if they take long: the job is cancelled.

        From any thread.

        An engine that cannot leave functions alone which do not come back waits for them.
        """

    @abstractmethod
    def execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        """Run the levels of an epoch, one after another, and return what they sent to the driver.

        Raises:
            AbandonedError: when it was given up.
            HoldfastError: when there is nothing to return.
        """

    def stored(self, patience_ms: int = 0) -> list[StoredState]:
        """Return the states of checkpoints that were stored since the last call.

        They are of this attempt; those of a subtask come in the order of their checkpoints.
        ``patience_ms``: wait so long for the first one, if there is none.

        Raises:
            HoldfastError: when the attempt has failed meanwhile.
        """
        return []

    def write(self, blocks: list[Block]) -> None:
        """Write results for which the engine has writers of its own."""
        if blocks:
            raise JobExecutionError("this engine has no writers for these results")

    def log(self) -> Mapping[str, bytes]:
        """Return what the engine needs in a checkpoint in order to go on after this turn."""
        return {}

    def query(
        self, level: int, subtask: int, operator: str, state: str, key: Any, window: Any = None
    ) -> Any:
        """Return what a key has in a state now, as a plain value; None if it has nothing.

        For engines whose subtasks keep their state. ``operator`` is a uid; ``key`` is as it is
        kept. From any thread.

        Raises:
            StateLookupError: when the operator has no such state.
            StateStorageError: when the subtask cannot be asked.
        """
        raise NotImplementedError("this engine does not keep state")

    def end_turn(self) -> None:
        """The epoch is over, committed or not."""

    def expect_end(self) -> None:
        """The job ends with this attempt, so `stop` may delete what the next one would use."""

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
