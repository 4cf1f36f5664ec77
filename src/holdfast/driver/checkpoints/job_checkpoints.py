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
from holdfast.checkpoint.metadata import CheckpointMetadata, LevelImage
from holdfast.checkpoint.savepoints import copy_savepoint
from holdfast.checkpoint.store import CheckpointStore, SavedImage
from holdfast.common import Configuration
from holdfast.common.options.recovery import NON_RESTORED_STATE
from holdfast.common.time import wall_clock
from holdfast.datastream.checkpoint_config import CheckpointConfig
from holdfast.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from holdfast.driver.checkpoints.job_start import JobStart
from holdfast.driver.checkpoints.requests import CheckpointRequests
from holdfast.driver.checkpoints.storing import PendingCheckpoint, Storing
from holdfast.driver.checkpoints.superseded import STORAGE_ERRORS, Superseded
from holdfast.driver.epoch_book import Barrier, EpochBook
from holdfast.driver.start import check_pickles, fit, operator_images
from holdfast.errors import JobExecutionError
from holdfast.filesystem import FileSystem
from holdfast.filesystem.local import LOCAL
from holdfast.history.events import origin_of
from holdfast.plan.model import Plan
from holdfast.printable import get_logger
from holdfast.runtime.context import Clock
from holdfast.runtime.stopwatch import Stopwatch
from holdfast.runtime.wire.protocol import Acknowledgement, StoredState
from holdfast.runtime.worker.injected_faults import Faults
from holdfast.state.storage.directory import StateStorage

Report = Callable[[events.ReportCheckpoint, tuple[int, ...]], None]
_T = TypeVar("_T")

_logger = get_logger(__name__)


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
        store: the files of the checkpoints.
        requests: the requests of users for checkpoints and savepoints.
        start_from: the checkpoint that `open` found for the first attempt; None if there is none.
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
        directory = config.get_checkpoint_directory()
        self.enabled = config.is_checkpointing_enabled()
        self.plan = plan
        self._configuration = configuration
        self._clock = clock
        system, path = files.locate(os.fspath(scratch))
        place = PurePosixPath(path) / "checkpoints"
        #: whether the directory of the checkpoints outlives the job
        self.kept = self.enabled and directory is not None
        if self.enabled and directory is not None:
            system, path = files.locate(directory)
            place = PurePosixPath(path) / _slug(plan.name)
        self._files = files
        self.store = CheckpointStore(place, system, scratch)
        self._elsewhere = None if self.enabled else storage
        self._savepoints = config.get_savepoint_directory()
        self._settings = _coordinator_settings(config)
        self._coordinator = Coordinator(self._settings)
        self._report = report
        self._faults = faults or Faults()
        #: the states that are being stored while the stream continues
        self._storing = Storing()
        self.requests = CheckpointRequests(self.enabled, self._savepoints)
        self.start_from: SavedImage | None = None
        self.stopped_with: str | None = None
        #: why the id of the current checkpoint could not be recorded, if so
        self._unnoted: tuple[str, ...] = ()
        #: the state files of the previous checkpoint
        self._known_files: dict[str, int] = {}
        self._superseded = Superseded(self.store, files)

    def open(self) -> None:
        """Lock the directory, find the checkpoint to start from, and fit the plan to it.

        Raises:
            CheckpointError: when another job uses the directory, or nothing in it can be read.
            JobDefinitionError: when the job does not fit the checkpoint that it starts from.
            StateError: when its states do not.
        """
        if self._elsewhere is None:
            self.store.acquire(self.plan.name)
        if self.enabled:
            self.store.clear_finished()
        self.start_from = start = self._find_start()
        first = self.store.next_id()
        if start is not None:
            check_pickles(start)
            allowed = NON_RESTORED_STATE.get(self._configuration)
            self.plan = fit(self.plan, start.metadata, allowed)
            first = max(first, start.metadata.id + 1)
        self._coordinator = Coordinator(self._settings, first, self.store.completed())
        self._begin(start)

    def _find_start(self) -> SavedImage | None:
        found = JobStart(self._configuration, self.store, self._files, self._savepoints)
        image = found.find(restores=self.enabled)
        self._superseded.savepoint = found.claimed
        return image

    @property
    def storage(self) -> StateStorage:
        """Return the storage of the job's state files."""
        return self.store.storage if self._elsewhere is None else self._elsewhere

    @property
    def last_completed(self) -> int | None:
        """Return the last completed checkpoint of this start of the job; None if there is none."""
        return self._coordinator.completed[-1] if self._coordinator.completed else None

    @property
    def next_origin(self) -> str:
        """Return, as text, where the job would start after a failure now."""
        if self._coordinator.completed:
            return origin_of(self._coordinator.completed[-1], savepoint=False, again=True)
        metadata = None if self.start_from is None else self.start_from.metadata
        if metadata is None:
            return origin_of(None, savepoint=False, again=True)
        return origin_of(metadata.id, metadata.savepoint, again=True)

    def fitted(self, plan: Plan) -> Plan:
        """Return another plan, fitted to the last intact checkpoint.

        Raises:
            JobDefinitionError: when the plan does not fit it.
            StateError: when the states of the plan do not.
        """
        start = self._next_start(suspects=False)
        allowed = NON_RESTORED_STATE.get(self._configuration)
        return plan if start is None else fit(plan, start.metadata, allowed)

    def restart(self, suspects: bool) -> SavedImage | None:
        """Begin the next attempt; return the checkpoint that it starts from.

        ``suspects``: a state file may be damaged, so all files of the checkpoint are read.
        Otherwise only their sizes are checked: subtasks may have the files on their own hosts, and
        verify what they read.
        """
        self.store.check_lock()
        start = self._next_start(suspects)
        self._begin(start)
        return start

    def _next_start(self, suspects: bool) -> SavedImage | None:
        """Return the last intact checkpoint, or the one that this job started from."""
        latest = self.store.latest(deep=suspects, among=self._coordinator.completed)
        return self.start_from if latest is None else self.store.image(latest)

    def _begin(self, start: SavedImage | None) -> None:
        own = start.metadata.id if start is not None and start.own else None
        self._do(events.AttemptStarting(self._clock(), own))
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
        self._take_requests()
        self._unnoted = ()
        barrier = Barrier()
        for instruction in self._coordinator.handle(
            events.EpochStarting(epoch, self._clock(), forced, closing)
        ):
            if isinstance(instruction, events.InjectBarrier):
                barrier = self._barrier(instruction)
            else:
                self._carry_out(instruction)
        told = self._coordinator.notifications()
        return barrier._replace(completed=told.completed, aborted=told.aborted)

    def _barrier(self, order: events.InjectBarrier) -> Barrier:
        if not self._note(order.checkpoint_id):
            return Barrier()
        requests = self._coordinator.requests_of(order.checkpoint_id)
        return Barrier(
            order.checkpoint_id,
            order.timestamp,
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
        for instruction in self._coordinator.handle(event):
            if isinstance(instruction, events.WriteMetadata):
                make = partial(self._image, instruction, book, log)
                image = self._attempted(instruction, steps, make)
                if image is not None:
                    pending = PendingCheckpoint(instruction, image, times, missing)
                    completion = self._write_if_stored(pending, book, steps)
            else:
                self._carry_out(instruction)
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
            self._do(events.TimePassed(now, acks))
        self._drop_aborted()
        return ended

    def _drop_aborted(self) -> None:
        """Drop the checkpoints that were aborted while their state was being stored."""
        for checkpoint in self._storing.drop(self._coordinator.in_flight):
            self._do(events.MetadataFailed(checkpoint, self._clock(), "it was aborted"))

    def epoch_failed(self, epoch: int, reason: str) -> None:
        """Fail the checkpoint that the epoch carried."""
        self._do(events.EpochFailed(epoch, self._clock(), reason))

    def end(self, outcome: events.Outcome) -> None:
        """Keep or delete the checkpoints, according to the settings; unlock the directory."""
        try:
            self._take_requests()
            self._do(events.JobEnding(self._clock(), outcome))
            self._drop_aborted()
            self._superseded.discard()
            if self.enabled:
                self.store.collect(())  # the live heads end with the job
                if outcome is not events.Outcome.FAILED:
                    self.store.forget_beginning()
        finally:
            self.store.release()

    @property
    def savepoint_directory(self) -> str | None:
        """Return the default directory of savepoints."""
        return self._savepoints

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
            self._do(events.MetadataFailed(order.checkpoint_id, self._clock(), failure))
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
        put = partial(self._put_in_place, order, metadata)
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
            self._do(events.MetadataFailed(order.checkpoint_id, self._clock(), str(error)))
            return None

    def _image(
        self, order: events.WriteMetadata, book: EpochBook, log: Callable[[], Mapping[str, bytes]]
    ) -> CheckpointMetadata:
        """Return what is known about a checkpoint when its epoch is accepted."""
        return CheckpointMetadata(
            id=order.checkpoint_id,
            timestamp=self._clock(),
            epoch=order.epoch,
            job_name=self.plan.name,
            savepoint=False,
            levels=tuple(LevelImage(len(heads), tuple(heads)) for heads in book.heads),
            operators=operator_images(self.plan, book.stateful, book.states),
            spark=dict(log()),
        )

    def _put_in_place(self, order: events.WriteMetadata, metadata: CheckpointMetadata) -> str:
        """Write a checkpoint to its directories (step 9); return the path to report."""
        path = self.store.address_of(order.checkpoint_id)
        directory = None if order.savepoint is None else order.savepoint.directory
        if directory is not None:
            path = copy_savepoint(metadata, self.storage, directory, self._files)
        if order.in_store:
            self.store.write(metadata)
        return path

    def _completed(
        self, order: events.WriteMetadata, metadata: CheckpointMetadata, path: str, book: EpochBook
    ) -> Completion:
        """Notify the coordinator, and delete what the checkpoint supersedes (step 10)."""
        sizes = metadata.file_sizes()
        written = sum(size for name, size in sizes.items() if name not in self._known_files)
        self._known_files = sizes
        stops = self._do(
            events.MetadataWritten(
                order.checkpoint_id, self._clock(), sum(sizes.values()), path, written
            )
        )
        if order.in_store:
            heads = (head for level in book.heads for head in level)
            live = {ref.name for head in heads for ref in head.all_files}
            self._superseded.delete(live | self._storing.files, self._storing.since)
        return Completion(order.in_store, stops)

    def _take_requests(self) -> None:
        for request in self.requests.take():
            self._do(request)

    def _do(self, event: events.Event) -> bool:
        """Pass an event to the coordinator, carry out its instructions; return whether to stop."""
        stops = False
        for instruction in self._coordinator.handle(event):
            stops = self._carry_out(instruction) or stops
        return stops

    def _carry_out(self, instruction: object) -> bool:
        match instruction:
            case events.DiscardCheckpoint(checkpoint_id):
                self._superseded.checkpoints.append(checkpoint_id)
            case events.MarkFinished():
                self.store.mark_finished()
            case events.ReportCheckpoint():
                self._report(instruction, self._coordinator.completed)
            case events.AnswerRequest():
                self.requests.answer(instruction)
            case events.FailJob(reason):
                raise JobExecutionError(reason)
            case events.StopJob(path):
                self.stopped_with = path
                return True
        return False


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
