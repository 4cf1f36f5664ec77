"""The checkpoints of a job: carries out what the coordinator decides.

The coordinator is a state machine that knows neither files nor epochs' contents; the store knows
only files. This class stands between them and the job's epochs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from queue import SimpleQueue
from typing import Any, TypeVar

from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.errors import CheckpointError, DirectoryInUseError
from holdfast.checkpoint.events import (
    AnswerRequest,
    AttemptStarting,
    CheckpointRequested,
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
    ReportCheckpoint,
    StopJob,
    SubtaskAcknowledged,
    TimePassed,
    WriteMetadata,
)
from holdfast.checkpoint.metadata import CheckpointMetadata, LevelImage
from holdfast.checkpoint.savepoints import copy_savepoint, dispose_savepoint, read_savepoint
from holdfast.checkpoint.store import CheckpointStore
from holdfast.common import CompletableFuture, Configuration
from holdfast.common.recovery_options import (
    ClaimMode,
    allows_non_restored_state,
    allows_pickled_state,
    claim_mode,
    restore_path,
    starts_afresh,
)
from holdfast.common.time import wall_clock
from holdfast.datastream.checkpoint_config import CheckpointConfig
from holdfast.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from holdfast.driver.book import Barrier, EpochBook
from holdfast.driver.start import Start, check_pickles, fit, operator_images
from holdfast.driver.storing import PendingCheckpoint, Storing
from holdfast.errors import JobExecutionError
from holdfast.filesystem import FileSystem, FileSystemError, check_scheme
from holdfast.filesystem.local import LOCAL
from holdfast.history.events import origin_of
from holdfast.plan.model import Plan
from holdfast.printable import get_logger
from holdfast.runtime.context import Clock
from holdfast.runtime.faults import Faults
from holdfast.runtime.protocol import Acknowledgement, StoredState
from holdfast.runtime.stopwatch import Stopwatch
from holdfast.state.errors import StateStorageError
from holdfast.state.storage import StateStorage

Report = Callable[[ReportCheckpoint, tuple[int, ...]], None]
_T = TypeVar("_T")
#: what a job was told that begins at the beginning; no address
_AFRESH = ""

_logger = get_logger(__name__)


@dataclass(frozen=True)
class Completion:
    """What an accepted epoch brought about.

    Attributes:
        complete: a checkpoint that the job can go back to is complete.
        stops: the job ends with it.
    """

    complete: bool = False
    stops: bool = False


class JobCheckpoints:
    """The checkpoints and savepoints of one job, over all its attempts and plans."""

    def __init__(
        self,
        configuration: Configuration,
        plan: Plan,
        scratch: Path,
        clock: Clock = wall_clock,
        storage: StateStorage | None = None,
        files: FileSystem = LOCAL,
        report: Report = lambda told, retained: None,
        faults: Faults | None = None,
    ) -> None:
        """Read the settings; without a directory in them, checkpoints live as long as the job.

        ``scratch``: the job's own directory, which the workers see. ``storage``: where the state
        of a job is that takes no checkpoints. ``files``: what finds the file systems of addresses.
        ``report``: is told of every checkpoint that begins or ends, with the ids of those kept.
        ``faults``: what is to go wrong on purpose.
        """
        config = CheckpointConfig(configuration)
        directory = config.get_checkpoint_directory()
        self.enabled = config.is_checkpointing_enabled()
        self.plan = plan
        self._configuration = configuration
        self._clock = clock
        place, system = PurePosixPath(scratch / "checkpoints"), files
        #: whether the directory of the checkpoints outlives the job
        self.kept = self.enabled and directory is not None
        if self.enabled and directory is not None:
            system, path = files.locate(directory)
            place = PurePosixPath(path) / _slug(plan.name)
        self._files = files
        self.store = CheckpointStore(place, system, scratch)
        self._elsewhere = None if self.enabled else storage
        self._savepoints = config.get_savepoint_directory()
        self._settings = _settings(config)
        self._coordinator = Coordinator(self._settings)
        self._report = report
        self._faults = faults or Faults()
        #: the states that are being stored while the stream goes on
        self._storing = Storing()
        self._requests: SimpleQueue[CheckpointRequested] = SimpleQueue()
        #: who asked for what, by request: they get the id of a checkpoint, the path of a savepoint
        self._answers: dict[str, CompletableFuture[Any]] = {}
        self._start: Start | None = None
        #: why the running checkpoint cannot be written, if that is known
        self._unnoted: tuple[str, ...] = ()
        #: the state files of the checkpoint before
        self._known_files: dict[str, int] = {}
        #: a savepoint that goes once there is a checkpoint
        self._claimed: str | None = None

    def open(self) -> Start | None:
        """Lock the directory, find where to begin (None: the beginning), and fit the plan to it.

        Raises:
            CheckpointError: when another job runs here, or nothing there can be read.
            JobDefinitionError: when the job does not fit what it is to begin with.
            StateError: when its states do not.
        """
        if self._elsewhere is None:
            self.store.acquire(self.plan.name)
        if self.enabled:
            self.store.clear_finished()
        self._start = start = self._find_start()
        first = self.store.next_id()
        if start is not None:
            check_pickles(start)
            allowed = allows_non_restored_state(self._configuration)
            self.plan = fit(self.plan, start.metadata, allowed)
            first = max(first, start.metadata.id + 1)
            _logger.warning(
                "job '%s' goes on from %s %d in %s",
                self.plan.name,
                "savepoint" if start.metadata.savepoint else "checkpoint",
                start.metadata.id,
                start.directory.rpartition("/")[0] if start.directory else self.store.address,
            )
        self._coordinator = Coordinator(self._settings, first, self.store.completed())
        self._begin(start)
        return start

    def _find_start(self) -> Start | None:
        path = restore_path(self._configuration)
        told = _AFRESH if path is None and starts_afresh(self._configuration) else path
        since = self.store.told_to_begin(told) if self.enabled else []
        if since or (self.enabled and told is None):
            latest = self.store.latest(deep=True, among=since or None)
            return None if latest is None else Start(latest)
        return None if path is None else self._start_from(path)

    def _start_from(self, address: str) -> Start:
        image = read_savepoint(address, self._files)
        if _is_same(image.storage.address, self.store.state.address):
            return Start(image.metadata)
        if claim_mode(self._configuration) is ClaimMode.CLAIM and image.metadata.savepoint:
            self._claimed = image.address
        return Start(image.metadata, image.storage.address, self._trusts(image.address))

    def _trusts(self, address: str) -> bool:
        """Whether a checkpoint may be unpickled: if it is the job's own, or that was asked for."""
        if allows_pickled_state(self._configuration):
            return True
        own = [self.store.address]
        if self._savepoints is not None:
            system, path = self._files.locate(self._savepoints)
            own.append(system.uri(path))
        return any(_is_within(address, place) for place in own)

    @property
    def storage(self) -> StateStorage:
        """The state files of the job."""
        return self.store.storage if self._elsewhere is None else self._elsewhere

    @property
    def next_origin(self) -> str:
        """Where the job would begin after a failure now, in words."""
        if self._coordinator.completed:
            return origin_of(self._coordinator.completed[-1], savepoint=False, again=True)
        metadata = None if self._start is None else self._start.metadata
        if metadata is None:
            return origin_of(None, savepoint=False, again=True)
        return origin_of(metadata.id, metadata.savepoint, again=True)

    def fitted(self, plan: Plan) -> Plan:
        """Return another plan as it can go on from the last whole checkpoint.

        Raises:
            JobDefinitionError: when it cannot.
            StateError: when its states cannot.
        """
        start = self._next_start(suspects=False)
        allowed = allows_non_restored_state(self._configuration)
        return plan if start is None else fit(plan, start.metadata, allowed)

    def restart(self, suspects: bool) -> Start | None:
        """Begin the next attempt; returns where it does.

        ``suspects``: a state file may be damaged, so all of the checkpoint are read. Otherwise
        only their sizes are looked at: subtasks may have what they need on their own hosts, and
        check what they read.
        """
        self.store.check_lock()
        start = self._next_start(suspects)
        self._begin(start)
        return start

    def _next_start(self, suspects: bool) -> Start | None:
        """Return the last whole checkpoint, or where this job began."""
        latest = self.store.latest(deep=suspects, among=self._coordinator.completed)
        return self._start if latest is None else Start(latest)

    def _begin(self, start: Start | None) -> None:
        own = start.metadata.id if start is not None and start.directory is None else None
        self._do(AttemptStarting(self._clock(), own))
        self._drop_aborted()
        self._storing.begin_attempt()

    def ask_savepoint(
        self, directory: str | None, stop: bool = False, drain: bool = False
    ) -> CompletableFuture[str]:
        """Ask for a savepoint with one of the next epochs; from any thread."""
        target = directory or self._savepoints
        if target is None:
            message = (
                "a savepoint needs a directory: name one, or set "
                "'execution.checkpointing.savepoint-dir'"
            )
            return CompletableFuture.failed(CheckpointError(message))
        try:
            check_scheme(target)
        except ValueError as error:
            problem = CheckpointError(f"there is no savepoint: {error}")
            return CompletableFuture.failed(problem)
        return self._ask(target, stop, drain)

    def ask_checkpoint(self, halts: bool = False) -> CompletableFuture[int]:
        """Ask for a checkpoint with one of the next epochs, whatever the time; from any thread.

        ``halts``: nothing is to be read after it, for the job leaves with it.
        """
        if not self.enabled:
            message = (
                "the job takes no checkpoints; set 'execution.checkpointing.interval', or "
                "take a savepoint"
            )
            return CompletableFuture.failed(CheckpointError(message))
        return self._ask(None, leaves=halts)

    def _ask(
        self, directory: str | None, stop: bool = False, drain: bool = False, leaves: bool = False
    ) -> CompletableFuture[Any]:
        answer: CompletableFuture[Any] = CompletableFuture()
        request = CheckpointRequested(directory, stop, drain, str(id(answer)), leaves)
        self._answers[request.request] = answer
        self._requests.put(request)
        return answer

    def refuse(self) -> None:
        """Answer what the end of the job has left unanswered."""
        while self._answers:
            self._answers.popitem()[1].set_exception(
                CheckpointError("there is no checkpoint: the job has ended")
            )

    def due_in(self, forced: bool = False) -> int | None:
        """Return in how many milliseconds an epoch is wanted at the latest; None: by nobody.

        ``forced``: the next epoch takes a checkpoint as soon as that is possible.
        """
        return 0 if not self._requests.empty() else self._coordinator.due_in(self._clock(), forced)

    def epoch_starting(self, epoch: int, forced: bool = False, closing: bool = False) -> Barrier:
        """What the epoch carries: a checkpoint perhaps, and what listeners are told (step 1)."""
        self.store.check_lock(ask=False)
        self._take_requests()
        self._unnoted = ()
        barrier = Barrier()
        for instruction in self._coordinator.handle(
            EpochStarting(epoch, self._clock(), forced, closing)
        ):
            if isinstance(instruction, InjectBarrier):
                barrier = self._barrier(instruction)
            else:
                self._carry_out(instruction)
        told = self._coordinator.notifications()
        return barrier._replace(completed=told.completed, aborted=told.aborted)

    def _barrier(self, order: InjectBarrier) -> Barrier:
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
        """Take note of an id before it is given away; if that is not possible, nobody hears of it.

        The checkpoint fails then. Otherwise another driver could give the same id once more.
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
        acknowledged: Iterable[SubtaskAcknowledged],
        book: EpochBook,
        log: Callable[[], Mapping[str, bytes]],
        steps: Stopwatch,
    ) -> Completion:
        """Complete the checkpoint that the epoch carried (steps 9 and 10).

        If its state is still being stored, `settle` does that later. ``log``: what the executor
        needs to go on after the epoch.

        Raises:
            JobExecutionError: when too many checkpoints failed.
        """
        completion = Completion()
        failures = (ack.snapshot_failure for ack in acks if ack.snapshot_failure)
        checkpoint = self._coordinator.running
        # NB: nobody asks who acknowledged an epoch that carries no checkpoint
        times = () if checkpoint is None else tuple(acknowledged)
        # NB: also if the checkpoint fails; what is stored is the head of what comes after it
        missing = set() if checkpoint is None else self._storing.expect(checkpoint, epoch, acks)
        event = EpochAccepted(epoch, self._clock(), (*self._unnoted, *failures), times)
        for instruction in self._coordinator.handle(event):
            if isinstance(instruction, WriteMetadata):
                make = partial(self._image, instruction, book, log)
                image = self._attempted(instruction, steps, make)
                if image is not None:
                    pending = PendingCheckpoint(instruction, image, times, missing)
                    completion = self._write_if_stored(pending, book, steps)
            else:
                self._carry_out(instruction)
        return completion

    def is_storing(self, checkpoint: int) -> bool:
        """Return whether a checkpoint waits for its state."""
        return checkpoint in self._storing

    def state_stored(self, state: StoredState, book: EpochBook) -> None:
        """Take note of a state; `settle` draws the conclusions."""
        self.forget_files(book.take(state))
        self._storing.take(state)

    def settle(self, book: EpochBook, steps: Stopwatch) -> dict[int, Completion]:
        """Complete the checkpoints whose state is stored (steps 9 and 10), abort expired ones.

        Returns what came of those whose states have come, by id.

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
            self._do(TimePassed(now, acks))
        self._drop_aborted()
        return ended

    def _drop_aborted(self) -> None:
        """Forget the checkpoints that were aborted while their state was stored."""
        for checkpoint in self._storing.drop(self._coordinator.in_flight):
            self._do(MetadataFailed(checkpoint, self._clock(), "it was aborted"))

    def epoch_failed(self, epoch: int, reason: str) -> None:
        """Give up the checkpoint that the epoch carried."""
        self._do(EpochFailed(epoch, self._clock(), reason))

    def end(self, outcome: Outcome) -> None:
        """Keep or drop the checkpoints, as the settings say; unlock the directory."""
        try:
            self._take_requests()
            self._do(JobEnding(self._clock(), outcome))
            self._drop_aborted()
            if self.enabled:
                self.store.collect(())  # the live chains end with the job
                if outcome is not Outcome.FAILED:
                    self.store.forget_beginning()
        finally:
            self.store.release()

    @property
    def savepoint_directory(self) -> str | None:
        """Where savepoints go if nobody says where."""
        return self._savepoints

    def forget_files(self, unneeded: Iterable[str]) -> None:
        """Delete state files that neither the job nor a checkpoint needs any more."""
        if not self.enabled:
            for name in unneeded:
                self.storage.delete(name)

    def _write_if_stored(
        self, pending: PendingCheckpoint, book: EpochBook, steps: Stopwatch
    ) -> Completion:
        """Write a checkpoint, unless some of its state has failed, or is still to come."""
        order, failure = pending.order, pending.failure
        if failure is not None:
            self._do(MetadataFailed(order.checkpoint_id, self._clock(), failure))
            return Completion()
        if pending.missing:
            self._storing.add(pending)
            return Completion()
        self._faults.reach(9, order.epoch, True)
        completion = self._write(order, pending.metadata(), book, steps)
        self._faults.reach(10, order.epoch, True)
        return completion

    def _write(
        self, order: WriteMetadata, metadata: CheckpointMetadata, book: EpochBook, steps: Stopwatch
    ) -> Completion:
        put = partial(self._put_in_place, order, metadata)
        path = self._attempted(order, steps, put)
        if path is None:
            return Completion()
        with steps.timed("commit"):
            return self._completed(order, metadata, path, book)

    def _attempted(self, order: WriteMetadata, steps: Stopwatch, do: Callable[[], _T]) -> _T | None:
        """Do a part of writing a checkpoint; None if that failed, and the checkpoint with it."""
        try:
            with steps.timed("complete"):
                return do()
        except DirectoryInUseError:
            raise
        except (CheckpointError, StateStorageError, FileSystemError) as error:
            self._do(MetadataFailed(order.checkpoint_id, self._clock(), str(error)))
            return None

    def _image(
        self, order: WriteMetadata, book: EpochBook, log: Callable[[], Mapping[str, bytes]]
    ) -> CheckpointMetadata:
        """Return what is known of a checkpoint when its epoch is accepted."""
        return CheckpointMetadata(
            id=order.checkpoint_id,
            timestamp=self._clock(),
            epoch=order.epoch,
            job_name=self.plan.name,
            savepoint=False,
            levels=tuple(LevelImage(len(chains), tuple(chains)) for chains in book.chains),
            operators=operator_images(self.plan, book.stateful, book.states),
            spark=dict(log()),
        )

    def _put_in_place(self, order: WriteMetadata, metadata: CheckpointMetadata) -> str:
        """Write a checkpoint to where it belongs (step 9); returns the path that people know."""
        path = self.store.address_of(order.checkpoint_id)
        directory = None if order.savepoint is None else order.savepoint.directory
        if directory is not None:
            path = copy_savepoint(metadata, self.storage, directory, self._files)
        if order.in_store:
            self.store.write(metadata)
        return path

    def _completed(
        self, order: WriteMetadata, metadata: CheckpointMetadata, path: str, book: EpochBook
    ) -> Completion:
        """Tell the coordinator, and let go of what is superfluous now (step 10)."""
        sizes = metadata.file_sizes()
        written = sum(size for name, size in sizes.items() if name not in self._known_files)
        self._known_files = sizes
        stops = self._do(
            MetadataWritten(order.checkpoint_id, self._clock(), sum(sizes.values()), path, written)
        )
        if order.in_store:
            self._let_go(book)
        return Completion(order.in_store, stops)

    def _let_go(self, book: EpochBook) -> None:
        """Delete what the new checkpoint makes superfluous (step 10)."""
        chains = (chain for level in book.chains for chain in level)
        live = {ref.name for chain in chains for ref in chain.all_files}
        self.store.collect(live | self._storing.files, since=self._storing.since)
        if self._claimed is not None:
            dispose_savepoint(self._claimed, self._files)
            self._claimed = None

    def _take_requests(self) -> None:
        while not self._requests.empty():  # nobody else takes any
            self._do(self._requests.get_nowait())

    def _do(self, event: Event) -> bool:
        """Tell the coordinator and do what it says; returns whether the job is to stop."""
        stops = False
        for instruction in self._coordinator.handle(event):
            stops = self._carry_out(instruction) or stops
        return stops

    def _carry_out(self, instruction: object) -> bool:
        match instruction:
            case DiscardCheckpoint(checkpoint_id):
                self.store.discard(checkpoint_id)
            case MarkFinished():
                self.store.mark_finished()
            case ReportCheckpoint():
                self._report(instruction, self._coordinator.completed)
            case AnswerRequest():
                self._answer(instruction)
            case FailJob(reason):
                raise JobExecutionError(reason)
            case StopJob():
                return True
        return False

    def _answer(self, answer: AnswerRequest) -> None:
        asked, savepoint = self._answers.pop(answer.request.request), answer.request.directory
        if answer.failure is not None:
            what = "checkpoint" if savepoint is None else "savepoint"
            asked.set_exception(CheckpointError(f"there is no {what}: {answer.failure}"))
        else:
            asked.set_result(answer.checkpoint_id if savepoint is None else answer.path)


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


def _is_same(address: str, other: str) -> bool:
    """Whether two addresses are those of one directory; local ones may differ by links."""
    return os.path.realpath(address) == os.path.realpath(other)


def _is_within(address: str, directory: str) -> bool:
    return PurePosixPath(os.path.realpath(address)).is_relative_to(os.path.realpath(directory))


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") or "job"
