"""The epochs of one plan: each from its trigger to its commit, whatever runs it.

An epoch is one of these, and a job goes through them from top to bottom:

    reading    sources are read, until all have ended or the job is told to end
    last       with checkpoints: nothing is left to read, and a checkpoint covers it all
    closing    listeners hear of the last checkpoint, transactions are committed, functions closed

A job that neither takes checkpoints nor has anyone to tell ends with its last record.

The state of a checkpoint may still be stored when its epoch is over. Such a checkpoint is completed
at the beginning of a later epoch; one that somebody waits for is completed before its epoch ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.datastream.functions import CheckpointListener
from holdfast.datastream.two_phase_commit import TwoPhaseCommitSinkFunction
from holdfast.driver.book import Barrier, EpochBook, EpochReport, Manner
from holdfast.driver.checkpoints import Completion, JobCheckpoints
from holdfast.driver.delivery import CollectedRecords, Delivery
from holdfast.driver.engine import Engine
from holdfast.driver.job_events import RunEpoch
from holdfast.driver.logs import hand_over
from holdfast.driver.outcome import EpochOutcome
from holdfast.driver.planning import Planners
from holdfast.driver.recording import Recorder
from holdfast.driver.start import Start
from holdfast.errors import DisagreementError
from holdfast.graph.nodes import SourceOperation
from holdfast.plan.model import Plan, PlannedOperator
from holdfast.runtime.blocks import Block
from holdfast.runtime.failures import to_exception
from holdfast.runtime.faults import Faults
from holdfast.runtime.protocol import EpochTask, Failure
from holdfast.runtime.stopwatch import Stopwatch

__all__ = ["Epochs", "has_listeners"]

#: between two looks at the clock and at requests, while states are stored, in milliseconds
_PATIENCE: Final = 100


@dataclass
class _Running:
    """The epoch that runs."""

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
class _Accepted:
    """What an epoch gave whose subtasks agree."""

    outcome: EpochOutcome
    report: EpochReport
    unneeded: list[str]


class Epochs:
    """Runs the epochs of a plan on an engine.

    Attributes:
        book: the heads of all states.
        report: what the last epoch did.
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
        """Nothing runs yet; ``name`` is that of the plan, for workers."""
        self.plan = plan
        adapts = not engine.abilities.keeps_state
        self.book = EpochBook(name, plan, largest_quota, adapts)
        self.report: EpochReport | None = None
        self._engine = engine
        self._checkpoints = checkpoints
        self._recorder = recorder
        self._faults = faults
        self._delivery = Delivery(plan, dict(collected))
        self._planners = Planners(plan, engine.abilities.keeps_state)
        self._closes_at_end = not (checkpoints.enabled or has_listeners(plan))
        #: the epoch that is neither accepted nor given up
        self._running: _Running | None = None

    def begin_attempt(self, number: int, start: Start | None) -> None:
        """Begin with a checkpoint; None: at the beginning."""
        self._planners.begin_attempt(None if start is None else start.origin)
        if start is None:
            self.book.begin_attempt(number, None)
        else:
            self.book.begin_attempt(number, start.origin, start.continues(self.plan))

    def close(self) -> None:
        """Let go of connections; no epoch follows."""
        self._planners.close()

    def trigger(self, order: RunEpoch, checkpoint: bool = False) -> None:
        """Begin an epoch (step 1); with ``checkpoint`` it takes one, whatever the time."""
        steps = Stopwatch()
        self._take_stored(steps)
        with steps.timed("trigger"):
            forced = checkpoint or order.last
            barrier = self._checkpoints.epoch_starting(order.epoch, forced, order.closing)
            self._running = running = _Running(order, barrier, steps)
            self._faults.reach(1, order.epoch, running.takes_checkpoint)
            plans = {} if order.closing else self._planners.plans()
            manner = self._manner(order.closing)
            running.tasks = self.book.tasks(order.epoch, barrier, manner, plans)

    def _manner(self, closing: bool) -> Manner:
        return Manner(
            closing=closing,
            closes_at_end=self._closes_at_end,
            takes_checkpoints=self._checkpoints.enabled,
        )

    def run(self, is_cancelled: Callable[[], bool] = lambda: False) -> Completion:
        """Run the epoch that was begun (steps 2 to 10); returns what its checkpoint brought about.

        If somebody waits for the checkpoint, so does this, unless the job is cancelled meanwhile.

        Raises:
            DisagreementError: when its subtasks have read different runs of a producer; nothing of
                it is kept, and it may be run again.
            HoldfastError: when it failed.
        """
        running = self._running
        assert running is not None
        accepted = self._agree(running)
        self._running, self.report = None, accepted.report
        try:
            with running.steps.timed("agree"):
                acks = accepted.outcome.acks
                self._recorder.epoch(accepted.report, acks, self.book, running.barrier)
            with running.steps.timed("deliver"):
                self.deliver(accepted.outcome.results)
            completion = self._complete(running, accepted.outcome, is_cancelled)
            with running.steps.timed("commit"):
                self._checkpoints.forget_files(accepted.unneeded)
        finally:
            steps = accepted.report.steps | running.steps.seconds
            self.report = replace(accepted.report, steps=steps)
            self._recorder.epoch_ended(self.report, running.barrier)
        return completion

    def deliver(self, results: list[Block]) -> None:
        """Hand out results: print them, give them to the program, or let the engine write them."""
        self._engine.write(self._delivery.deliver(results, self._engine.check))

    def give_up(self, reason: str) -> None:
        """Give up an epoch that was begun and not accepted, if there is one."""
        running, self._running = self._running, None
        if running is not None:
            self._checkpoints.epoch_failed(running.order.epoch, reason)

    def _agree(self, running: _Running) -> _Accepted:
        """Run the levels, and see whether their subtasks agree on what they read (step 8)."""
        epoch = running.order.epoch
        started = time.time()
        outcome = self._engine.execute(running.tasks)
        seconds = time.time() - started
        hand_over(outcome.log, self.book.attempt)
        running.steps.seconds["acknowledge"] = outcome.seconds
        _check_failures(outcome.failures)
        self._faults.reach(8, epoch, running.takes_checkpoint)
        with running.steps.timed("agree"):
            return _Accepted(outcome, *self.book.accept(epoch, outcome.acks, started, seconds))

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
            self._recorder.stored(state, self.book.chains[state.level][state.subtask])
            self._checkpoints.state_stored(state, self.book)
        return self._checkpoints.settle(self.book, steps)


def _check_failures(failures: Sequence[Failure]) -> None:
    """Raise the failure that the others follow from.

    A disagreement follows from one: of who read a run that failed, or parts of two runs. It counts
    only by itself: then others have read another run, and the failure did not get here.
    """
    errors = sorted(map(to_exception, failures), key=lambda e: isinstance(e, DisagreementError))
    if errors:
        raise errors[0]


def has_listeners(plan: Plan) -> bool:
    """Return whether an operator has something to do when the job has read its last record."""
    return any(map(_listens, plan.operators.values()))


def _listens(operator: PlannedOperator) -> bool:
    operation = operator.node.operation
    if isinstance(operation, SourceOperation) and operation.source.listens:
        return True
    function = getattr(operation, "function", None)
    return isinstance(function, CheckpointListener | TwoPhaseCommitSinkFunction)
