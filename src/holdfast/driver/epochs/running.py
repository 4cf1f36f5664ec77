"""The epochs of one plan, each from its trigger to its commit, on any engine.

There are three kinds of epochs, and a job goes through them in this order:

    reading    sources are read, until all have ended or the job is told to end
    last       with checkpoints: nothing is left to read, and a checkpoint covers everything
    closing    listeners are notified of the last checkpoint, transactions committed, functions
               closed

A job that neither takes checkpoints nor has listeners ends with its last record.

The state of a checkpoint may still be stored when its epoch is over. Such a checkpoint is completed
at the beginning of a later epoch. If a caller waits for it, it is completed before its epoch ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from holdfast.checkpoint.saved_image import SavedImage
from holdfast.datastream.functions import CheckpointListener
from holdfast.driver.checkpoints.job_checkpoints import Completion, JobCheckpoints
from holdfast.driver.engine import Engine
from holdfast.driver.epoch_book import Barrier, EpochBook
from holdfast.driver.epochs.delivery import CollectedRecords, Delivery
from holdfast.driver.epochs.logs import hand_over
from holdfast.driver.epochs.planning import Planners
from holdfast.driver.job_events import RunEpoch
from holdfast.driver.outcome import EpochOutcome
from holdfast.driver.recording import Recorder
from holdfast.driver.start import continues, saved_origin
from holdfast.errors import DisagreementError
from holdfast.graph.operations import SourceOperation
from holdfast.history.events import EpochEnded
from holdfast.plan.model import Plan, PlannedOperator
from holdfast.runtime.failures import to_exception
from holdfast.runtime.stopwatch import Stopwatch
from holdfast.runtime.wire.blocks import Block
from holdfast.runtime.wire.protocol import EpochTask, Failure
from holdfast.runtime.worker.injected_faults import Faults

#: interval of the checks of the clock and of requests while states are stored, in milliseconds
_PATIENCE: Final = 100


@dataclass
class _Running:
    """The epoch that is running."""

    order: RunEpoch
    barrier: Barrier
    steps: Stopwatch
    tasks: list[EpochTask] = field(default_factory=list)

    @property
    def takes_checkpoint(self) -> bool:
        return self.barrier.checkpoint is not None

    @property
    def is_awaited(self) -> bool:
        return self.barrier.awaited or self.order.last


@dataclass(frozen=True)
class _AcceptedEpoch:
    """The result of an epoch whose subtasks agree."""

    outcome: EpochOutcome
    started: float
    ended: EpochEnded
    unneeded: list[str]


class EpochRunner:
    """Runs the epochs of a plan on an engine.

    Attributes:
        book: the heads of all states.
        ended: what the last epoch did.
    """

    def __init__(
        self,
        plan: Plan,
        name: str,
        engine: Engine,
        checkpoints: JobCheckpoints,
        recorder: Recorder,
        faults: Faults,
        collected: Mapping[int, CollectedRecords],
        largest_quota: int,
    ) -> None:
        """Prepare the epochs of a plan; nothing runs yet. Workers know the plan by ``name``."""
        self.plan = plan
        adapts = None if engine.abilities.keeps_state else engine.quota
        closes = not (checkpoints.enabled or has_listeners(plan))
        self.book = EpochBook(name, plan, largest_quota, adapts, closes, checkpoints.enabled)
        self.ended: EpochEnded | None = None
        self._engine = engine
        self._checkpoints = checkpoints
        self._recorder = recorder
        self._faults = faults
        self._delivery = Delivery(plan, dict(collected))
        self._planners = Planners(plan, engine.abilities.keeps_state)
        #: the epoch that is neither accepted nor abandoned
        self._running: _Running | None = None

    def begin_attempt(self, number: int, start: SavedImage | None) -> None:
        """Start from a checkpoint; None: from the beginning."""
        origin = None if start is None else saved_origin(start)
        self._planners.begin_attempt(origin)
        goes_on = start is not None and continues(start, self.plan)
        self.book.begin_attempt(number, origin, goes_on)

    def close(self) -> None:
        """Close connections; no epoch follows."""
        self._planners.close()

    def trigger(self, order: RunEpoch, checkpoint: bool = False) -> None:
        """Begin an epoch (step 1); ``checkpoint``: take one even if none is due."""
        steps = Stopwatch()
        self._take_stored(steps)
        with steps.timed("trigger"):
            forced = checkpoint or order.last
            barrier = self._checkpoints.epoch_starting(order.epoch, forced, order.closing)
            self._running = running = _Running(order, barrier, steps)
            self._faults.reach(1, order.epoch, running.takes_checkpoint)
            plans = {} if order.closing else self._planners.plans()
            running.tasks = self.book.tasks(order.epoch, barrier, plans, order.closing)

    def run(self, is_cancelled: Callable[[], bool] = lambda: False) -> Completion:
        """Run the epoch that was triggered (steps 2 to 10); return the result of its checkpoint.

        If a caller waits for the checkpoint, return only when it has ended or the job is cancelled.

        Raises:
            DisagreementError: when its subtasks have read different runs of a producer. The epoch
                is discarded, and may be run again.
            HoldfastError: when the epoch failed.
        """
        running = self._running
        assert running is not None
        accepted = self._agree(running)
        self._running, self.ended = None, accepted.ended
        try:
            with running.steps.timed("agree"):
                epoch = accepted.started, accepted.ended, accepted.outcome.acks
                self._recorder.epoch(*epoch, self.book, running.barrier)
            with running.steps.timed("deliver"):
                self.deliver(accepted.outcome.results)
            completion = self._complete(running, accepted.outcome, is_cancelled)
            with running.steps.timed("commit"):
                self._checkpoints.forget_files(accepted.unneeded)
        finally:
            steps = accepted.ended.steps | running.steps.seconds
            checkpoint = running.barrier.checkpoint
            self.ended = replace(accepted.ended, steps=steps, checkpoint=checkpoint)
            self._recorder.epoch_ended(self.ended)
        return completion

    def deliver(self, results: list[Block]) -> None:
        """Deliver results: print them, pass them to the program, or let the engine write them."""
        self._engine.write(self._delivery.deliver(results, self._engine.check))

    def give_up(self, reason: str) -> None:
        """Abandon an epoch that was triggered and not accepted, if there is one."""
        running, self._running = self._running, None
        if running is not None:
            self._checkpoints.epoch_failed(running.order.epoch, reason)

    def _agree(self, running: _Running) -> _AcceptedEpoch:
        """Run the levels, and check whether their subtasks agree on what they read (step 8)."""
        epoch = running.order.epoch
        started = time.time()
        outcome = self._engine.execute(running.tasks)
        seconds = time.time() - started
        hand_over(outcome.log, self.book.attempt, self._recorder.logs)
        running.steps.seconds["acknowledge"] = outcome.seconds
        _check_failures(outcome.failures)
        self._faults.reach(8, epoch, running.takes_checkpoint)
        with running.steps.timed("agree"):
            accepted = self.book.accept(epoch, outcome.acks, started, seconds)
            return _AcceptedEpoch(outcome, started, *accepted)

    def _complete(
        self, running: _Running, outcome: EpochOutcome, is_cancelled: Callable[[], bool]
    ) -> Completion:
        """Complete the checkpoint of an accepted epoch, if it carried one (steps 9 and 10)."""
        completion = self._checkpoints.epoch_accepted(
            running.order.epoch,
            outcome.acks,
            self._recorder.acknowledgements(outcome.acks),
            self.book,
            self._engine.log,
            running.steps,
        )
        checkpoint = running.barrier.checkpoint
        if checkpoint is None or not running.is_awaited:
            return completion
        while self._checkpoints.is_storing(checkpoint) and not is_cancelled():
            ended = self._take_stored(running.steps, _PATIENCE)
            completion = ended.get(checkpoint, completion)
        return completion

    def _take_stored(self, steps: Stopwatch, patience_ms: int = 0) -> dict[int, Completion]:
        """Take the states that were stored, and complete checkpoints with them."""
        for state in self._engine.stored(patience_ms):
            self._recorder.stored(state, self.book.heads[state.level][state.subtask])
            self._checkpoints.state_stored(state, self.book)
        return self._checkpoints.settle(self.book, steps)


def _check_failures(failures: Sequence[Failure]) -> None:
    """Raise the failure that caused the others.

    A subtask that read a failed run, or parts of two runs, reports a disagreement, so other
    failures go first. A disagreement without another failure means that a run was repeated, and
    the failure of the first run did not reach the driver.
    """
    errors = sorted(map(to_exception, failures), key=lambda e: isinstance(e, DisagreementError))
    if errors:
        raise errors[0]


def has_listeners(plan: Plan) -> bool:
    """Return whether an operator has work to do after the job has read its last record."""
    return any(map(_listens, plan.operators.values()))


def _listens(operator: PlannedOperator) -> bool:
    operation = operator.node.operation
    if isinstance(operation, SourceOperation) and operation.source.listens:
        return True
    return isinstance(getattr(operation, "function", None), CheckpointListener)
