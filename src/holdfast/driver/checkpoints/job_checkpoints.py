"""The checkpoints of a job: carries out what the coordinator decides.

The coordinator is a state machine that knows neither files nor the contents of epochs. The store
knows only files. This class connects them with the epochs of the job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import TypeVar

from holdfast.checkpoint import events
from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.errors import CheckpointError, DirectoryInUseError
from holdfast.checkpoint.metadata import CheckpointMetadata
from holdfast.checkpoint.saved_image import SavedImage
from holdfast.checkpoint.store import CheckpointStore
from holdfast.common import Configuration
from holdfast.common.time import wall_clock
from holdfast.datastream.checkpoint_config import CheckpointConfig
from holdfast.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from holdfast.driver.checkpoints.coordination import Coordination, Report
from holdfast.driver.checkpoints.job_start import JobStart
from holdfast.driver.checkpoints.requests import CheckpointRequests
from holdfast.driver.checkpoints.storing import PendingCheckpoint, Storing
from holdfast.driver.checkpoints.superseded import STORAGE_ERRORS, Superseded
from holdfast.driver.checkpoints.writing import CheckpointWriter
from holdfast.driver.epoch_book import Barrier, EpochBook
from holdfast.driver.start import check_pickles
from holdfast.filesystem import FileSystem
from holdfast.filesystem.local import LOCAL
from holdfast.plan.model import Plan
from holdfast.runtime.context import Clock
from holdfast.runtime.stopwatch import Stopwatch
from holdfast.runtime.wire.protocol import Acknowledgement, StoredState
from holdfast.runtime.worker.injected_faults import Faults
from holdfast.state.storage.directory import StateStorage

_T = TypeVar("_T")


@dataclass(frozen=True)
class Completion:
    """The result of an accepted epoch.

    Attributes:
        complete: a checkpoint from which the job can be restored is complete.
        stops: the job ends with this checkpoint.
    """

    complete: bool = False
    stops: bool = False


class JobCheckpoints:
    """The checkpoints and savepoints of one job, over all its attempts and plans.

    Attributes:
        enabled: the job takes checkpoints.
        plan: the plan that runs, fitted to the checkpoint that the job started from.
        kept: the checkpoint directory outlives the job.
        store: the files of the checkpoints.
        requests: the requests of users for checkpoints and savepoints.
        storage: the state files of the job.
        savepoint_directory: the default directory of savepoints.
        stopped_with: the path of the savepoint with which the job ends; None until there is one.
    """

    def __init__(
        self,
        configuration: Configuration,
        plan: Plan,
        scratch: str | os.PathLike[str],
        clock: Clock = wall_clock,
        storage: StateStorage | None = None,
        files: FileSystem = LOCAL,
        report: Report = lambda told, retained: None,
        faults: Faults | None = None,
    ) -> None:
        """Read the settings. Without a checkpoint directory, checkpoints live as long as the job.

        ``scratch``: the address of the job's own directory. ``storage``: the state of a job that
        takes no checkpoints. ``files``: finds the file systems of addresses. ``report``: called for
        every checkpoint that begins or ends, with the ids of the retained ones. ``faults``: the
        faults to inject in a test.
        """
        config = CheckpointConfig(configuration)
        self.enabled = config.is_checkpointing_enabled()
        self.plan = plan
        self._clock = clock
        #: the checkpoint directory, if it outlives the job
        kept = config.get_checkpoint_directory() if self.enabled else None
        self.kept = kept is not None
        system, place = _place(kept, plan, scratch, files)
        self.store = CheckpointStore(place, system, scratch)
        elsewhere = None if self.enabled else storage
        self.storage = self.store.storage if elsewhere is None else elsewhere
        self.savepoint_directory = config.get_savepoint_directory()
        self.requests = CheckpointRequests(self.enabled, self.savepoint_directory)
        self._start = JobStart(configuration, self.store, files, self.savepoint_directory)
        self._writer = CheckpointWriter(self.store, self.storage, files, clock)
        self._coordination = Coordination(
            _coordinator_settings(config),
            self.store,
            self.requests,
            Superseded(self.store, files),
            report,
        )
        self._faults = faults or Faults()
        #: the states that are being stored while the stream continues
        self._storing = Storing()
        self.stopped_with: str | None = None
        #: why the id of the current checkpoint could not be recorded, if so
        self._unnoted: tuple[str, ...] = ()

    def open(self) -> None:
        """Lock the directory, find the checkpoint to start from, and fit the plan to it.

        Raises:
            CheckpointError: when another job uses the directory, or nothing in it can be read.
            JobDefinitionError: when the job does not fit the checkpoint that it starts from.
            StateError: when its states do not.
        """
        if self.storage is self.store.storage:
            self.store.acquire(self.plan.name)
        if self.enabled:
            self.store.clear_finished()
        self._start.find(restores=self.enabled)
        self._coordination.superseded.savepoint = self._start.claimed
        start = self._start.image
        first = self.store.next_id()
        if start is not None:
            check_pickles(start)
            self.plan = self._start.fitted(self.plan, start)
            first = max(first, start.metadata.id + 1)
        self._coordination.begin(first, self.store.completed())
        self._begin(start)

    @property
    def start_from(self) -> SavedImage | None:
        """Return what `open` found for the first attempt; None if there is nothing."""
        return self._start.image

    @property
    def _coordinator(self) -> Coordinator:
        return self._coordination.coordinator

    @property
    def last_completed(self) -> int | None:
        """Return the last completed checkpoint of this start of the job; None if there is none."""
        return self._coordinator.completed[-1] if self._coordinator.completed else None

    @property
    def next_origin(self) -> str:
        """Return, as text, where the job would start after a failure now."""
        return self._start.next_origin(self._coordinator.completed)

    def fitted(self, plan: Plan) -> Plan:
        """Return another plan, fitted to the last intact checkpoint.

        Raises:
            JobDefinitionError: when the plan does not fit it.
            StateError: when the states of the plan do not.
        """
        start = self._start.after_failure(self._coordinator.completed, suspects=False)
        return plan if start is None else self._start.fitted(plan, start)

    def restart(self, suspects: bool) -> SavedImage | None:
        """Begin the next attempt; return the checkpoint that it starts from.

        ``suspects``: a state file may be damaged, so all files of the checkpoint are read.
        Otherwise only their sizes are checked: subtasks may have the files on their own hosts, and
        verify what they read.
        """
        self.store.check_lock()
        start = self._start.after_failure(self._coordinator.completed, suspects)
        self._begin(start)
        return start

    def _begin(self, start: SavedImage | None) -> None:
        own = start.metadata.id if start is not None and start.own else None
        self._coordination.tell(events.AttemptStarting(self._clock(), own))
        self._drop_aborted()
        self._storing.begin_attempt()

    def due_in(self, forced: bool = False) -> int | None:
        """Return within how many milliseconds an epoch is needed; None: none is needed.

        ``forced``: the next epoch takes a checkpoint as soon as possible.
        """
        return 0 if self.requests.waiting else self._coordinator.due_in(self._clock(), forced)

    def epoch_starting(self, epoch: int, forced: bool = False, closing: bool = False) -> Barrier:
        """Return what the epoch carries: perhaps a checkpoint, and notifications (step 1)."""
        self.store.check_lock(ask=False)
        self._coordination.take_requests()
        self._unnoted = ()
        barrier = Barrier()
        event = events.EpochStarting(epoch, self._clock(), forced, closing)
        for order in self._coordination.tell(event):
            assert isinstance(order, events.InjectBarrier)
            barrier = self._barrier(order)
        told = self._coordinator.notifications()
        return barrier._replace(completed=told.completed, aborted=told.aborted)

    def _barrier(self, order: events.InjectBarrier) -> Barrier:
        if not self._note(order.checkpoint_id):
            return Barrier()
        requests = self._coordinator.requests_of(order.checkpoint_id)
        return Barrier(
            order.checkpoint_id,
            order.timestamp,
            savepoint=order.savepoint is not None,
            drains=any(request.drain for request in requests),
            halts=any(request.halts for request in requests),
            awaited=bool(requests),
        )

    def _note(self, checkpoint: int) -> bool:
        """Record a checkpoint id before it is used; return False if that is not possible.

        The checkpoint fails then, and its barrier is not sent. Otherwise another driver could use
        the same id again.
        """
        self._unnoted = ()
        if self.enabled:
            try:
                self.store.begin(checkpoint)
            except DirectoryInUseError:
                raise
            except CheckpointError as error:
                self._unnoted = (str(error),)
        return not self._unnoted

    def epoch_accepted(
        self,
        epoch: int,
        acks: Sequence[Acknowledgement],
        acknowledged: Iterable[events.SubtaskAcknowledged],
        book: EpochBook,
        log: Callable[[], Mapping[str, bytes]],
        steps: Stopwatch,
    ) -> Completion:
        """Complete the checkpoint that the epoch carried (steps 9 and 10).

        If its state is still being stored, `settle` completes it later. ``log``: what the engine
        needs to continue after the epoch.

        Raises:
            JobExecutionError: when too many checkpoints failed.
        """
        completion = Completion()
        failures = (ack.snapshot_failure for ack in acks if ack.snapshot_failure)
        checkpoint = self._coordinator.running
        # NB: acknowledgement times are needed only for an epoch that carries a checkpoint
        times = () if checkpoint is None else tuple(acknowledged)
        # NB: also if the checkpoint fails, because later states build on the one being stored
        missing = set() if checkpoint is None else self._storing.expect(checkpoint, epoch, acks)
        event = events.EpochAccepted(epoch, self._clock(), (*self._unnoted, *failures), times)
        for order in self._coordination.tell(event):
            assert isinstance(order, events.WriteMetadata)
            make = partial(self._writer.image, order, self.plan, book, log)
            image = self._attempted(order, steps, make)
            if image is not None:
                pending = PendingCheckpoint(order, image, times, missing)
                completion = self._write_if_stored(pending, book, steps)
        return completion

    def is_storing(self, checkpoint: int) -> bool:
        """Return whether a checkpoint waits for its state to be stored."""
        return checkpoint in self._storing

    def state_stored(self, state: StoredState, book: EpochBook) -> None:
        """Record a stored state; `settle` then completes checkpoints."""
        self.forget_files(book.take(state))
        self._storing.take(state)

    def settle(self, book: EpochBook, steps: Stopwatch) -> dict[int, Completion]:
        """Complete the checkpoints whose state is stored (steps 9 and 10), abort expired ones.

        Return the results of those whose state has arrived, by id.

        Raises:
            JobExecutionError: when too many checkpoints failed.
        """
        ended = {
            pending.order.checkpoint_id: self._write_if_stored(pending, book, steps)
            for pending in self._storing.settled()
        }
        now = self._clock()
        expired = self._coordinator.expired(now)
        if expired:
            late = filter(None, map(self._storing.get, expired))
            acks = {pending.order.checkpoint_id: pending.acknowledgements() for pending in late}
            self._coordination.tell(events.TimePassed(now, acks))
        self._drop_aborted()
        return ended

    def _drop_aborted(self) -> None:
        """Drop the checkpoints that were aborted while their state was being stored."""
        for checkpoint in self._storing.drop(self._coordinator.in_flight):
            self._fail(checkpoint, "it was aborted")

    def _fail(self, checkpoint: int, reason: str) -> None:
        """Fail a checkpoint whose metadata is not written."""
        self._coordination.tell(events.MetadataFailed(checkpoint, self._clock(), reason))

    def epoch_failed(self, epoch: int, reason: str) -> None:
        """Fail the checkpoint that the epoch carried."""
        self._coordination.tell(events.EpochFailed(epoch, self._clock(), reason))

    def end(self, outcome: events.Outcome) -> None:
        """Keep or delete the checkpoints, according to the settings; unlock the directory."""
        try:
            self._coordination.take_requests()
            self._coordination.tell(events.JobEnding(self._clock(), outcome))
            self._drop_aborted()
            self._coordination.superseded.discard()
            if self.enabled:
                self.store.collect(())  # the live heads end with the job
                if outcome is not events.Outcome.FAILED:
                    self.store.notes.forget_beginning()
        finally:
            self.store.release()

    def forget_files(self, unneeded: Iterable[str]) -> None:
        """Delete state files that neither the job nor a checkpoint needs any more."""
        if not self.enabled:
            for name in unneeded:
                self.storage.delete(name)

    def _write_if_stored(
        self, pending: PendingCheckpoint, book: EpochBook, steps: Stopwatch
    ) -> Completion:
        """Write a checkpoint, unless some of its state has failed or is still missing."""
        order, failure = pending.order, pending.failure
        if failure is not None:
            self._fail(order.checkpoint_id, failure)
            return Completion()
        if pending.missing:
            self._storing.add(pending)
            return Completion()
        self._faults.reach(9, order.epoch, True)
        completion = self._write(order, pending.metadata(), book, steps)
        self._faults.reach(10, order.epoch, True)
        return completion

    def _write(
        self,
        order: events.WriteMetadata,
        metadata: CheckpointMetadata,
        book: EpochBook,
        steps: Stopwatch,
    ) -> Completion:
        put = partial(self._writer.put_in_place, order, metadata)
        path = self._attempted(order, steps, put)
        if path is None:
            return Completion()
        with steps.timed("commit"):
            return self._completed(order, metadata, path, book)

    def _attempted(
        self, order: events.WriteMetadata, steps: Stopwatch, do: Callable[[], _T]
    ) -> _T | None:
        """Do one part of writing a checkpoint; on an error, fail the checkpoint and return None."""
        try:
            with steps.timed("complete"):
                return do()
        except DirectoryInUseError:
            raise
        except STORAGE_ERRORS as error:
            self._fail(order.checkpoint_id, str(error))
            return None

    def _completed(
        self, order: events.WriteMetadata, metadata: CheckpointMetadata, path: str, book: EpochBook
    ) -> Completion:
        """Notify the coordinator, and delete what the checkpoint supersedes (step 10)."""
        sizes = metadata.file_sizes()
        size, written = sum(sizes.values()), self._writer.count_new(sizes)
        event = events.MetadataWritten(order.checkpoint_id, self._clock(), size, path, written)
        stops = self._coordination.tell(event)
        for stop in stops:
            assert isinstance(stop, events.StopJob)
            self.stopped_with = stop.savepoint_path
        if order.in_store:
            heads = (head for level in book.heads for head in level)
            live = {ref.name for head in heads for ref in head.all_files}
            self._coordination.superseded.delete(live | self._storing.files, self._storing.since)
        return Completion(order.in_store, bool(stops))


def _place(
    kept: str | None, plan: Plan, scratch: str | os.PathLike[str], files: FileSystem
) -> tuple[FileSystem, PurePosixPath]:
    """Return the checkpoint directory of a job: in one that outlives it, or in its own."""
    if kept is None:
        system, path = files.locate(os.fspath(scratch))
        return system, PurePosixPath(path) / "checkpoints"
    system, path = files.locate(kept)
    return system, PurePosixPath(path) / _slug(plan.name)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") or "job"


def _coordinator_settings(config: CheckpointConfig) -> events.CheckpointSettings:
    """Return the settings of the coordinator."""
    retention = config.get_externalized_checkpoint_retention()
    return events.CheckpointSettings(
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
