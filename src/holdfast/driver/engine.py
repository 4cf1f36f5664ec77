"""The interface of engines, which run the epochs of a job: on Spark, in this process, simulated.

`docs/internals/engines.md` describes what an engine guarantees and how the driver calls it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoint.saved_image import SavedImage
from holdfast.driver.job_events import Abilities
from holdfast.driver.outcome import EpochOutcome
from holdfast.driver.quota import Quota
from holdfast.errors import HoldfastError, JobExecutionError
from holdfast.history.logs import LogBook
from holdfast.plan.model import Plan
from holdfast.runtime.wire.blocks import Block
from holdfast.runtime.wire.protocol import EpochTask, Progress, StoredState
from holdfast.runtime.worker.injected_faults import Faults
from holdfast.state.storage.directory import StateStorage


@dataclass(frozen=True)
class EngineChoice:
    """The engine that runs a job and why it was chosen, for users.

    Attributes:
        reason: why this engine was chosen.
        surprising: true if users may have expected another engine.
        settings: the engine's own configuration, such as that of the Spark session.
        page: the address of the engine's own web UI, if it has one.
    """

    name: str
    reason: str
    surprising: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    page: str | None = None


@dataclass(frozen=True)
class PlannedJob:
    """What an engine needs to know about a job before it can run it.

    Attributes:
        name: identifies the plan. Each plan of the job has its own name, and workers cache what
            they know about a plan under it.
        storage: the state files. Workers find them in ``state_directory`` and
            ``staging_directory``.
        faults: the faults to inject in a test.
        deliver: delivers results that arrive between epochs. It is called in the thread that calls
            the engine.
        check: raises an error if the job must not continue because another job has taken over its
            checkpoint directory. It is cheap, and meant for engines that wait long in an epoch.
        logs: keeps what functions log between epochs.
        note_progress: records what subtasks have done so far, if an epoch takes long. It is called
            in the thread that calls the engine.
    """

    name: str
    plan: Plan
    storage: StateStorage
    state_directory: str
    staging_directory: str
    faults: Faults
    deliver: Callable[[list[Block]], None]
    check: Callable[[], None]
    logs: LogBook
    note_progress: Callable[[Sequence[Progress]], None]


class Engine(ABC):
    """Starts attempts and runs their epochs.

    One thread calls all methods except `wake`, `abandon`, `check` and `query`. The order is:
    `prepare`; then for each attempt `start`, turns, `stop`; `prepare` again between two attempts if
    the plan changes; finally `close`. A turn is `await_turn`, then `execute` one or more times,
    optionally `write` and `log`, and `end_turn`. `stored` may be called during and between turns.
    """

    abilities: Abilities
    #: how many records are read in an epoch, if the engine does not keep state
    quota: Quota = Quota()

    @abstractmethod
    def prepare(self, job: PlannedJob) -> None:
        """Prepare to run a plan. Nothing runs yet.

        Raises:
            HoldfastError: when the plan cannot run. The plan that was prepared before is kept.
        """

    @abstractmethod
    def start(self, attempt: int, start: SavedImage | None) -> None:
        """Start an attempt; ``start`` is the checkpoint that it starts from.

        Raises:
            SlotsMissingError: when there are too few task slots.
            AbandonedError: when the start was abandoned.
            HoldfastError: when the attempt cannot be started.
        """

    def available_slots(self) -> int | None:
        """Return how many task slots the job could use now, including those it already has.

        Called between turns. Returns None if the engine does not count slots.
        """
        return None

    @abstractmethod
    def await_turn(self, due_ms: int | None = None) -> None:
        """Wait until an epoch can run.

        ``due_ms``: the next epoch is needed within this many milliseconds, for a checkpoint, for
        listeners or for a request; None if none is needed. An engine whose subtasks keep their
        state also returns when one of them has stored its state, and after `wake`.

        Raises:
            HoldfastError: when no further epoch can run in this attempt.
        """

    def wake(self) -> None:
        """Make `await_turn` return now, or its next call if none is waiting. From any thread."""

    def abandon(self) -> None:
        """Make `start` and `execute` give up if they take long, because the job is cancelled.

        From any thread.

        An engine that cannot abandon functions that do not return waits for them.
        """

    @abstractmethod
    def execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        """Run the levels of an epoch in order, and return what the subtasks sent to the driver.

        Raises:
            AbandonedError: when the epoch was abandoned.
            HoldfastError: when the epoch has no outcome.
        """

    def stored(self, patience_ms: int = 0) -> list[StoredState]:
        """Return the states of checkpoints that were stored since the last call.

        All of them belong to this attempt. Those of one subtask are in the order of their
        checkpoints. ``patience_ms``: how long to wait for the first one if there is none.

        Raises:
            HoldfastError: when the attempt has failed in the meantime.
        """
        return []

    def write(self, blocks: list[Block]) -> None:
        """Write the results for which the engine has its own writers."""
        if blocks:
            raise JobExecutionError("this engine has no writers for these results")

    def log(self) -> Mapping[str, bytes]:
        """Return what the engine needs in a checkpoint in order to continue after this turn."""
        return {}

    def query(
        self, level: int, subtask: int, operator: str, state: str, key: Any, window: Any = None
    ) -> Any:
        """Return the value of a key in a state now, as a plain value; None if it has none.

        For engines whose subtasks keep their state. ``operator`` is a uid; ``key`` has the form in
        which keys are stored. From any thread.

        Raises:
            StateLookupError: when the operator has no such state.
            StateStorageError: when the subtask cannot be reached.
        """
        raise NotImplementedError("this engine does not keep state")

    def end_turn(self) -> None:
        """End the turn: the epoch is over, committed or not."""

    def expect_end(self) -> None:
        """Announce that the job ends with this attempt: `stop` may delete what a next one needs."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the attempt, if there is one. Nothing of it runs when this method returns."""

    def check(self) -> None:
        """Raise an error if no attempt can run any more. From any thread; it is called often."""

    def explain(self, error: BaseException, what: str = "an epoch could not run") -> BaseException:
        """Return the error to report for an exception; ``what`` says which action failed."""
        if isinstance(error, HoldfastError):
            return error
        explained = JobExecutionError(f"{what}: {str(error) or type(error).__name__}")
        explained.__cause__ = error
        return explained

    @abstractmethod
    def close(self) -> None:
        """Release all resources, because the job has ended."""
