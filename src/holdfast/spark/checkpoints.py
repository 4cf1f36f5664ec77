"""The checkpoints of a job on Spark: carries out what the coordinator decides.

The coordinator is a state machine that knows neither files nor Spark; the store knows only files.
This class stands between them and the job's epochs.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable
from pathlib import Path

from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.events import (
    AttemptStarting,
    CheckpointRecord,
    CheckpointSettings,
    DiscardCheckpoint,
    EpochAccepted,
    EpochFailed,
    EpochStarting,
    Event,
    FailJob,
    InjectBarrier,
    JobEnding,
    MarkFinished,
    MetadataFailed,
    MetadataWritten,
    Outcome,
    WriteMetadata,
)
from holdfast.checkpoint.metadata import CheckpointMetadata, LevelImage, OperatorImage
from holdfast.checkpoint.restart import GiveUp, Restart, make_policy
from holdfast.checkpoint.store import CheckpointStore
from holdfast.common import Configuration
from holdfast.common.restart_options import restart_strategy
from holdfast.datastream.checkpoint_config import CheckpointConfig
from holdfast.datastream.connectors.file_system import local_path
from holdfast.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from holdfast.errors import JobExecutionError
from holdfast.plan.model import Plan
from holdfast.runtime.epochs import Barrier, EpochBook
from holdfast.spark.offsets import OffsetLog
from holdfast.state.errors import StateStorageError

_logger = logging.getLogger(__name__)


class JobCheckpoints:
    """Checkpoints and restarts of one job."""

    def __init__(self, configuration: Configuration, plan: Plan, scratch: Path) -> None:
        """Read the settings; without a directory in them, checkpoints live as long as the job."""
        config = CheckpointConfig(configuration)
        enabled = config.is_checkpointing_enabled()
        directory = config.get_checkpoint_directory()
        self._plan = plan
        place = scratch / "checkpoints"
        if enabled and directory is not None:
            place = Path(local_path(directory)) / _slug(plan.name)
        self.store = CheckpointStore(place)
        self.enabled = enabled
        self._settings = _settings(config)
        self._policy = make_policy(restart_strategy(configuration), enabled)
        self._coordinator = Coordinator(self._settings)

    def open(self) -> CheckpointMetadata | None:
        """Lock the directory and find the checkpoint to begin from; None: the beginning.

        Raises:
            CheckpointError: when another job runs here, or nothing there can be read.
        """
        self.store.acquire(self._plan.name)
        if not self.enabled:
            return None
        self.store.clear_finished()
        latest = self.store.latest(deep=True)
        self._coordinator = Coordinator(
            self._settings, self.store.next_id(), self.store.completed()
        )
        self._do(AttemptStarting(_now(), latest.id if latest else None))
        if latest is not None:
            _check_same_shape(self._plan, latest)
            _logger.warning(
                "job '%s' goes on from checkpoint %d in %s",
                self._plan.name,
                latest.id,
                self.store.directory,
            )
        return latest

    def after_failure(self) -> Restart | GiveUp:
        """Whether the job is started again after a failure, and when."""
        return self._policy.on_failure(_now())

    def restart(self) -> CheckpointMetadata | None:
        """Where the next attempt begins: the last completed checkpoint that is whole, or None."""
        latest = self.store.latest(deep=True, among=self._coordinator.completed)
        self._do(AttemptStarting(_now(), latest.id if latest else None))
        return latest

    def epoch_starting(self, epoch: int, final: bool = False) -> Barrier:
        """What the epoch carries: a checkpoint perhaps, and what listeners are told."""
        instructions = self._coordinator.handle(EpochStarting(epoch, _now(), final))
        told = self._coordinator.notifications()
        for instruction in instructions:
            if isinstance(instruction, InjectBarrier):
                self.store.begin(instruction.checkpoint_id)
                return Barrier(
                    instruction.checkpoint_id, instruction.timestamp, told.completed, told.aborted
                )
        return Barrier(None, 0, told.completed, told.aborted)

    def epoch_accepted(
        self, epoch: int, barrier: Barrier, failures: Iterable[str], book: EpochBook, log: OffsetLog
    ) -> None:
        """Complete the checkpoint that the epoch carried (steps 9 and 10).

        Raises:
            JobExecutionError: when too many checkpoints failed.
        """
        event = EpochAccepted(epoch, _now(), tuple(failures))
        for instruction in self._coordinator.handle(event):
            if isinstance(instruction, WriteMetadata):
                self._write(instruction, barrier, book, log)
            elif isinstance(instruction, FailJob):
                raise JobExecutionError(instruction.reason)

    def epoch_failed(self, epoch: int, reason: str, again: bool) -> None:
        """Give up the checkpoint that the epoch carried."""
        self._do(EpochFailed(epoch, _now(), reason, again))

    def end(self, outcome: Outcome) -> None:
        """Keep or drop the checkpoints, as the settings say; unlock the directory."""
        try:
            if self.enabled:
                self._do(JobEnding(_now(), outcome))
                self.store.collect(())  # the live chains end with the job
        finally:
            self.store.release()

    def history(self) -> tuple[CheckpointRecord, ...]:
        """The last checkpoints, oldest first."""
        return self._coordinator.history()

    def forget_files(self, unneeded: Iterable[str]) -> None:
        """Delete state files that neither the job nor a checkpoint needs any more."""
        if not self.enabled:
            for name in unneeded:
                self.store.storage.delete(name)

    def _write(
        self, order: WriteMetadata, barrier: Barrier, book: EpochBook, log: OffsetLog
    ) -> None:
        metadata = CheckpointMetadata(
            id=order.checkpoint_id,
            timestamp=barrier.timestamp,
            epoch=order.epoch,
            job_name=self._plan.name,
            savepoint=False,
            levels=tuple(LevelImage(len(chains), tuple(chains)) for chains in book.chains),
            operators=_operators(self._plan),
            spark=log.entries(),
        )
        try:
            self.store.write(metadata)
        except (CheckpointError, StateStorageError) as error:
            self._do(MetadataFailed(order.checkpoint_id, _now(), str(error)))
            return
        self._do(MetadataWritten(order.checkpoint_id, _now(), metadata.state_size))
        self.store.collect(ref.name for chains in book.chains for c in chains for ref in c.files)

    def _do(self, event: Event) -> None:
        for instruction in self._coordinator.handle(event):
            if isinstance(instruction, DiscardCheckpoint):
                self.store.discard(instruction.checkpoint_id)
            elif isinstance(instruction, MarkFinished):
                self.store.mark_finished()
            elif isinstance(instruction, FailJob):
                raise JobExecutionError(instruction.reason)


def _settings(config: CheckpointConfig) -> CheckpointSettings:
    retention = config.get_externalized_checkpoint_retention()
    return CheckpointSettings(
        interval_ms=config.get_checkpoint_interval() if config.is_checkpointing_enabled() else None,
        timeout_ms=config.get_checkpoint_timeout(),
        min_pause_ms=config.get_min_pause_between_checkpoints(),
        max_concurrent=config.get_max_concurrent_checkpoints(),
        tolerable_failures=config.get_tolerable_checkpoint_failure_number(),
        retained=config.get_max_retained_checkpoints(),
        retain_on_cancellation=(
            retention is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
        ),
    )


def _operators(plan: Plan) -> dict[str, OperatorImage]:
    return {
        op.uid: OperatorImage(op.name, op.node.kind, op.parallelism, op.max_parallelism, op.level)
        for op in plan.operators.values()
    }


def _check_same_shape(plan: Plan, metadata: CheckpointMetadata) -> None:
    """This version goes on only with the same operators and parallelism.

    Raises:
        JobExecutionError: when the job has changed since the checkpoint.
    """
    ours, theirs = _operators(plan), metadata.operators
    if set(ours) != set(theirs):
        changed = ", ".join(sorted(set(ours) ^ set(theirs)))
        raise JobExecutionError(
            f"checkpoint {metadata.id} of job '{metadata.job_name}' has other operators than this "
            f"program (by uid: {changed}); this version can go on only with the same ones: change "
            "the job's name or its checkpoint directory to start afresh"
        )
    for uid, image in ours.items():
        before = theirs[uid]
        if (image.parallelism, image.max_parallelism, image.level) != (
            before.parallelism,
            before.max_parallelism,
            before.level,
        ):
            raise JobExecutionError(
                f"operator '{image.name}' has parallelism {image.parallelism} (max "
                f"{image.max_parallelism}); checkpoint {metadata.id} was taken with "
                f"{before.parallelism} (max {before.max_parallelism}); this version cannot change "
                "it: set the old parallelism, or start afresh under another name"
            )


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") or "job"


def _now() -> int:
    return time.time_ns() // 1_000_000
