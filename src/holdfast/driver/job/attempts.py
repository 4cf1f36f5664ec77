"""The attempts of a job on its engine: their starts, epochs and ends, and the plan they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from holdfast.common import Configuration
from holdfast.common.options.engine import LARGEST_EPOCH
from holdfast.driver.checkpoints.job_checkpoints import JobCheckpoints
from holdfast.driver.engine import Engine, PlannedJob
from holdfast.driver.epochs.delivery import CollectedRecords
from holdfast.driver.epochs.running import EpochRunner
from holdfast.driver.job_events import AttemptStarted, AttemptStopped, EpochCommitted, RunEpoch
from holdfast.driver.recording import Recorder
from holdfast.errors import DisagreementError
from holdfast.plan.model import Plan
from holdfast.printable import get_logger
from holdfast.runtime.worker.injected_faults import Faults

_logger = get_logger(__name__)


class AttemptRunner:
    """Starts and stops the attempts of a job on its engine, and runs their epochs.

    Attributes:
        epochs: the epochs of the current plan.
    """

    def __init__(
        self,
        engine: Engine,
        checkpoints: JobCheckpoints,
        recorder: Recorder,
        faults: Faults,
        collected: Mapping[int, CollectedRecords],
        configuration: Configuration,
        job_id: str,
    ) -> None:
        """Find the checkpoint to start from, and prepare the engine for the plan that fits it.

        Raises:
            CheckpointError: when the checkpoint directory is in use, or cannot be read.
            JobDefinitionError: when the job does not fit the checkpoint.
        """
        self._engine = engine
        self._checkpoints = checkpoints
        self._recorder = recorder
        self._faults = faults
        self._collected = collected
        self._largest_quota = LARGEST_EPOCH.get(configuration)
        #: why the last epoch was discarded
        self._disagreement: DisagreementError | None = None
        try:
            checkpoints.open()
            self.epochs = self._prepared(checkpoints.plan, job_id)
        except BaseException:
            checkpoints.store.release()
            raise

    def _prepared(self, plan: Plan, name: str) -> EpochRunner:
        """Prepare the engine for a plan; if that fails, nothing changes."""
        store = self._checkpoints.store
        epochs = EpochRunner(
            plan,
            name,
            self._engine,
            self._checkpoints,
            self._recorder,
            self._faults,
            self._collected,
            self._largest_quota,
        )
        self._engine.prepare(
            PlannedJob(
                name,
                plan,
                self._checkpoints.storage,
                store.state.address,
                store.staging,
                self._faults,
                epochs.deliver,
                partial(store.check_lock, ask=False),
                self._recorder.logs,
                self._recorder.progress,
            )
        )
        self._checkpoints.plan = plan
        self._recorder.plan(plan)
        return epochs

    def change_plan(self, plan: Plan, name: str) -> None:
        """Prepare to continue with another plan; if it does not fit, nothing changes."""
        old = self.epochs
        self.epochs = self._prepared(self._checkpoints.fitted(plan), name)
        old.close()

    def start(self, number: int, suspects_state: bool) -> AttemptStarted:
        """Start an attempt: the first at the job's start, others from the last checkpoint."""
        checkpoints, starts = self._checkpoints, self._recorder.starts
        starts.starting(number)
        start = checkpoints.start_from if number == 0 else checkpoints.restart(suspects_state)
        self._recorder.attempt(number, start)
        self.epochs.begin_attempt(number, start)
        self._engine.start(number, start)
        starts.connected()
        return AttemptStarted(-1 if start is None else start.metadata.epoch)

    def run_epoch(
        self, order: RunEpoch, checkpoint: bool, is_cancelled: Callable[[], bool]
    ) -> EpochCommitted:
        """Run an epoch; ``checkpoint``: take one even if none is due."""
        if order.again:
            why = self._disagreement
            _logger.warning("epoch %d is discarded and run again: %s", order.epoch, why)
        else:
            self._disagreement = None
            self.epochs.trigger(order, checkpoint)
        try:
            completion = self.epochs.run(is_cancelled)
        except DisagreementError as error:
            self._disagreement = error
            raise
        self._engine.end_turn()
        finished = self.epochs.book.finished
        return EpochCommitted(order.epoch, finished, completion.complete, completion.stops)

    def stop(self, last: bool) -> AttemptStopped:
        """Stop an attempt; ``last``: the job ends with it."""
        self._recorder.starts.stopping()
        self.epochs.give_up(str(self._disagreement))
        if last:
            self._engine.expect_end()
        try:
            self._engine.stop()
        except Exception as error:
            name = self.epochs.plan.name
            _logger.warning("job '%s': an attempt did not stop cleanly: %s", name, error)
        self._recorder.starts.stopped()
        return AttemptStopped()
