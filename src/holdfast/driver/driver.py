"""The driver of a job: what happens around each epoch, whatever runs the epoch itself.

An epoch is one of these, and a job goes through them from top to bottom:

    reading    sources are read, until all have ended or the job is told to end
    last       with checkpoints: nothing is left to read, and a checkpoint covers it all
    closing    listeners hear of the last checkpoint, transactions are committed, functions closed

A job that neither takes checkpoints nor has anyone to tell ends with its last record.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.common import Configuration
from holdfast.common.time import wall_clock
from holdfast.datastream.functions import CheckpointListener
from holdfast.datastream.two_phase_commit import TwoPhaseCommitSinkFunction
from holdfast.driver.book import Barrier, EpochBook, EpochReport, Manner
from holdfast.driver.checkpoints import Completion, JobCheckpoints
from holdfast.driver.delivery import CollectedRecords, Delivery
from holdfast.driver.logs import hand_over
from holdfast.driver.outcome import EpochOutcome
from holdfast.driver.planning import Planners
from holdfast.driver.recording import Recorder
from holdfast.driver.start import Start
from holdfast.errors import DisagreementError
from holdfast.filesystem import FileSystem
from holdfast.filesystem.local import LOCAL
from holdfast.graph.nodes import SourceOperation
from holdfast.plan.model import Plan, PlannedOperator
from holdfast.printable import get_logger
from holdfast.runtime.blocks import Block
from holdfast.runtime.context import Clock
from holdfast.runtime.failures import to_exception
from holdfast.runtime.faults import FAULTS_KEY, Faults
from holdfast.runtime.protocol import Acknowledgement, EpochTask, Failure
from holdfast.runtime.stopwatch import Stopwatch
from holdfast.state.storage import StateStorage

_logger = get_logger(__name__)
_LARGEST_EPOCH = "holdfast.epoch.max-records"
_DEFAULT_LARGEST_EPOCH = 4_000_000
_TRIES = 4

#: runs the levels of an epoch one after another
Execute = Callable[[Sequence[EpochTask]], EpochOutcome]


class JobDriver:
    """The part of a job that outlives its epochs and its attempts.

    Attributes:
        plan: the job's plan, fitted to the checkpoint that it goes on from.
        start: that checkpoint; None for the beginning.
        book: the heads of all states.
        over: whether the last epoch was run.
        stopped: whether it ended with a savepoint.
        leaving: set when a checkpoint is complete with which the job goes on in another driver.
        cancel_asked: set when the job should end now; from any thread.
        recorder: keeps the job's history.
    """

    def __init__(
        self,
        plan: Plan,
        job_id: str,
        configuration: Configuration,
        scratch: Path,
        *,
        collected: Mapping[int, CollectedRecords] | None = None,
        clock: Clock = wall_clock,
        storage: StateStorage | None = None,
        files: FileSystem = LOCAL,
        simulated: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        """Lock the checkpoint directory and find where to begin; nothing runs yet.

        ``storage`` has the state of a job without checkpoints; ``files`` finds the file systems of
        addresses. ``simulated``: all processes of the job are this one. ``recorder``: goes on with
        the history of the job.

        Raises:
            CheckpointError: when the checkpoint directory is in use, or cannot be read.
            JobDefinitionError: when the job does not fit the checkpoint that it goes on from.
        """
        self.checkpoints = JobCheckpoints(configuration, plan, scratch, clock, storage, files)
        try:
            self.start: Start | None = self.checkpoints.open()
        except BaseException:
            self.checkpoints.store.release()
            raise
        self.plan = self.checkpoints.plan
        largest = configuration.get_integer(_LARGEST_EPOCH, _DEFAULT_LARGEST_EPOCH)
        self.book = EpochBook(job_id, self.plan, largest)
        self.faults = Faults(configuration.to_dict().get(FAULTS_KEY, ""), simulated)
        self.over = self.stopped = self.leaving = False
        self.cancel_asked = threading.Event()
        self.recorder = recorder or Recorder()
        self.recorder.plan(self.plan)
        self._delivery = Delivery(self.plan, dict(collected or {}))
        self._closing = False
        self._planners = Planners(self.plan)
        self._has_listeners = any(map(_listens, self.plan.operators.values()))

    def begin_attempt(self, number: int) -> Start | None:
        """Begin at the job's start, or after a failure at the last completed checkpoint."""
        start = self.start if number == 0 else self.checkpoints.restart()
        self.recorder.attempt(number, start)
        self._closing = self.over = self.stopped = self.leaving = False
        self._planners.begin_attempt(None if start is None else start.origin)
        if start is None:
            self.book.begin_attempt(number, None)
        else:
            self.book.begin_attempt(number, start.origin, start.continues(self.plan))
        return start

    def abandon(self, failure: BaseException) -> None:
        """Let go of an epoch that cannot be completed; from any thread.

        It may wait for a program that reads its results. The epoch fails then, and the program
        gets this failure.
        """
        self._delivery.end(failure)

    def close(self) -> None:
        """Let go of connections; no epoch follows."""
        self._planners.close()

    def epoch(
        self,
        epoch: int,
        execute: Execute,
        write: Callable[[list[Block]], None],
        log: Callable[[], Mapping[str, bytes]] = dict,
        checkpoint: bool = False,
    ) -> EpochReport:
        """Run an epoch from its trigger to its commit.

        Args:
            epoch: its number, above those of all accepted ones.
            execute: runs its levels.
            write: takes the results that are for writers of the executor's.
            log: what the executor needs to go on after this epoch.
            checkpoint: take one, whatever the time.

        Raises:
            HoldfastError: when the epoch failed; nothing of it is kept.
        """
        steps = Stopwatch()
        closing = self._closing or self.cancel_asked.is_set()
        last = self.book.finished and not closing
        with steps.timed("trigger"):
            barrier = self.checkpoints.epoch_starting(epoch, checkpoint or last, closing)
            self._record_checkpoints()
        try:
            self.faults.reach(1, epoch, barrier.checkpoint is not None)
            manner = self._manner(closing)
            outcome, report, unneeded = self._agree(epoch, execute, barrier, manner, steps)
        except BaseException as error:
            self.checkpoints.epoch_failed(epoch, str(error))
            self._record_checkpoints()
            raise
        try:
            with steps.timed("agree"):
                self.recorder.epoch(report, outcome.acks, self.book, barrier)
            with steps.timed("deliver"):
                write(self._delivery.deliver(outcome.results))
            completion = self._complete(epoch, outcome.acks, log, steps)
            with steps.timed("commit"):
                self.checkpoints.forget_files(unneeded)
        finally:
            report = replace(report, steps=report.steps | steps.seconds)
            self.recorder.epoch_ended(report, barrier)
        self._go_on(closing, completion)
        return report

    def _complete(
        self,
        epoch: int,
        acks: Sequence[Acknowledgement],
        log: Callable[[], Mapping[str, bytes]],
        steps: Stopwatch,
    ) -> Completion:
        """Complete the checkpoint of an accepted epoch, if it carried one (steps 9 and 10)."""
        failures = [ack.snapshot_failure for ack in acks if ack.snapshot_failure]
        acknowledged = self.recorder.acknowledgements(acks)
        try:
            return self.checkpoints.epoch_accepted(
                epoch, failures, acknowledged, self.book, log, self.faults, steps
            )
        finally:
            self._record_checkpoints()

    def _record_checkpoints(self) -> None:
        self.recorder.checkpoints(self.checkpoints.history(), self.checkpoints.retained())

    def _manner(self, closing: bool) -> Manner:
        enabled = self.checkpoints.enabled
        return Manner(
            closing=closing,
            closes_at_end=not (enabled or self._has_listeners),
            takes_checkpoints=enabled,
        )

    def _agree(
        self, epoch: int, execute: Execute, barrier: Barrier, manner: Manner, steps: Stopwatch
    ) -> tuple[EpochOutcome, EpochReport, list[str]]:
        """Run an epoch until its subtasks agree on what they read (step 8)."""
        with steps.timed("trigger"):
            plans = {} if manner.closing else self._planners.plans()
            tasks = self.book.tasks(epoch, barrier, manner, plans)
        for attempt in range(1, _TRIES + 1):
            started = time.time()
            outcome = execute(tasks)
            seconds = time.time() - started
            hand_over(outcome.log, self.book.attempt)
            steps.seconds["acknowledge"] = outcome.seconds
            try:
                _check_failures(outcome.failures)
                self.faults.reach(8, epoch, barrier.checkpoint is not None)
                with steps.timed("agree"):
                    return outcome, *self.book.accept(epoch, outcome.acks, started, seconds)
            except DisagreementError as error:
                if attempt == _TRIES:
                    raise
                _logger.warning("epoch %d is discarded and run again: %s", epoch, error)
        raise AssertionError

    def _go_on(self, closed: bool, completion: Completion) -> None:
        """Decide what comes after an accepted epoch."""
        if closed:
            self.over = True
        elif completion.stops:
            self.stopped = self._closing = True
        elif self.leaving:
            self._closing = True
        elif self.book.finished:
            if self.checkpoints.enabled:
                self._closing = completion.complete
            else:
                self._closing = self._has_listeners
                self.over = not self._closing


def _check_failures(failures: Sequence[Failure]) -> None:
    """Raise the failure that the others follow from.

    A disagreement follows from one: of who read a run that failed, or parts of two runs. It counts
    only by itself: then others have read another run, and the failure did not get here.
    """
    errors = sorted(map(to_exception, failures), key=lambda e: isinstance(e, DisagreementError))
    if errors:
        raise errors[0]


def _listens(operator: PlannedOperator) -> bool:
    """Whether an operator has something to do when the job has read its last record."""
    operation = operator.node.operation
    if isinstance(operation, SourceOperation) and operation.source.listens:
        return True
    function = getattr(operation, "function", None)
    return isinstance(function, CheckpointListener | TwoPhaseCommitSinkFunction)
