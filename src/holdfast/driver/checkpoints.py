"""The checkpoints of a job: carries out what the coordinator decides.

The coordinator is a state machine that knows neither files nor epochs' contents; the store knows
only files. This class stands between them and the job's epochs.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from queue import Empty, SimpleQueue
from typing import TypeVar

from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.errors import CheckpointError, DirectoryInUseError
from holdfast.checkpoint.events import (
    AnswerSavepoint,
    AttemptStarting,
    CheckpointRecord,
    CheckpointSettings,
    CheckpointStatus,
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
    SavepointRequested,
    StopJob,
    SubtaskAcknowledged,
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
from holdfast.common.restart_options import restart_strategy
from holdfast.common.time import wall_clock
from holdfast.datastream.checkpoint_config import CheckpointConfig
from holdfast.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from holdfast.driver.book import Barrier, EpochBook
from holdfast.driver.restart import GiveUp, Restart, make_policy
from holdfast.driver.start import Start, check_pickles, fit, operator_images
from holdfast.errors import JobExecutionError, SparkLostError
from holdfast.filesystem import FileSystem, FileSystemError, check_scheme
from holdfast.filesystem.local import LOCAL
from holdfast.history.events import origin_of
from holdfast.plan.model import Plan
from holdfast.printable import get_logger
from holdfast.runtime.context import Clock
from holdfast.runtime.faults import Faults
from holdfast.runtime.stopwatch import Stopwatch
from holdfast.state.errors import PickledStateError, StateMigrationError, StateStorageError
from holdfast.state.storage import StateStorage

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
    """Checkpoints, savepoints and restarts of one job."""

    def __init__(
        self,
        configuration: Configuration,
        plan: Plan,
        scratch: Path,
        clock: Clock = wall_clock,
        storage: StateStorage | None = None,
        files: FileSystem = LOCAL,
    ) -> None:
        """Read the settings; without a directory in them, checkpoints live as long as the job.

        ``scratch``: the job's own directory, which the workers see. ``storage``: where the state
        of a job is that takes no checkpoints. ``files``: what finds the file systems of addresses.
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
        self._policy = make_policy(restart_strategy(configuration), self.enabled)
        self._coordinator = Coordinator(self._settings)
        self._requests: SimpleQueue[SavepointRequested] = SimpleQueue()
        self._answers: dict[str, CompletableFuture[str]] = {}
        #: checkpoints that somebody asked for and that have no id yet, and those that have
        self._asked: SimpleQueue[CompletableFuture[int]] = SimpleQueue()
        self._promised: dict[int, list[CompletableFuture[int]]] = {}
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

    def after_failure(self, failure: BaseException) -> Restart | GiveUp:
        """Whether the job is started again after a failure, and when."""
        if isinstance(failure, StateMigrationError | PickledStateError):
            return GiveUp("the state that the job begins with will not be readable the next time")
        if isinstance(failure, SparkLostError):
            return GiveUp("there is no Spark in this process to start the job again on")
        return self._policy.on_failure(self._clock())

    @property
    def next_origin(self) -> str:
        """Where the job would begin after a failure now, in words."""
        if self._coordinator.completed:
            return origin_of(self._coordinator.completed[-1], savepoint=False, again=True)
        metadata = None if self._start is None else self._start.metadata
        if metadata is None:
            return origin_of(None, savepoint=False, again=True)
        return origin_of(metadata.id, metadata.savepoint, again=True)

    def restart(self) -> Start | None:
        """Where the next attempt begins: the last whole checkpoint, or where this job began."""
        self.store.check_lock()
        latest = self.store.latest(deep=True, among=self._coordinator.completed)
        start = self._start if latest is None else Start(latest)
        self._begin(start)
        return start

    def _begin(self, start: Start | None) -> None:
        own = start.metadata.id if start is not None and start.directory is None else None
        self._do(AttemptStarting(self._clock(), own))

    def ask_savepoint(
        self, directory: str | None, stop: bool = False, drain: bool = False
    ) -> CompletableFuture[str]:
        """Ask for a savepoint with one of the next epochs; from any thread."""
        answer: CompletableFuture[str] = CompletableFuture()
        target = directory or self._savepoints
        if target is None:
            answer.set_exception(
                CheckpointError(
                    "a savepoint needs a directory: name one, or set "
                    "'execution.checkpointing.savepoint-dir'"
                )
            )
            return answer
        try:
            check_scheme(target)
        except ValueError as error:
            answer.set_exception(CheckpointError(f"there is no savepoint: {error}"))
            return answer
        request = SavepointRequested(target, stop, drain, str(id(answer)))
        self._answers[request.request] = answer
        self._requests.put(request)
        return answer

    def ask_checkpoint(self) -> CompletableFuture[int]:
        """Ask for a checkpoint with one of the next epochs, whatever the time; from any thread."""
        answer: CompletableFuture[int] = CompletableFuture()
        if self.enabled:
            self._asked.put(answer)
        else:
            answer.set_exception(
                CheckpointError(
                    "the job takes no checkpoints; set 'execution.checkpointing.interval', or "
                    "take a savepoint"
                )
            )
        return answer

    def refuse_savepoints(self) -> None:
        """Answer what is asked for after the job's end."""
        self._promised.setdefault(-1, []).extend(_drain(self._asked))
        self._settle()
        for request in list(self._answers):
            answer = self._answers.pop(request, None)
            if answer is not None:  # the thread of the job may have been faster
                answer.set_exception(CheckpointError("there is no savepoint: the job has ended"))

    def epoch_starting(self, epoch: int, forced: bool = False, closing: bool = False) -> Barrier:
        """What the epoch carries: a checkpoint perhaps, and what listeners are told (step 1)."""
        self.store.check_lock(ask=False)
        self._take_requests()
        self._unnoted = ()
        forced = forced or not self._asked.empty()
        event = EpochStarting(epoch, self._clock(), forced, closing)
        instructions = self._coordinator.handle(event)
        told = self._coordinator.notifications()
        for instruction in instructions:
            if isinstance(instruction, InjectBarrier) and instruction.savepoint is None:
                self._promised[instruction.checkpoint_id] = _drain(self._asked)
            if isinstance(instruction, InjectBarrier) and self._note(instruction.checkpoint_id):
                _logger.info(
                    "triggering checkpoint %d @ %d for job '%s'",
                    instruction.checkpoint_id,
                    instruction.timestamp,
                    self.plan.name,
                )
                drains = instruction.savepoint is not None and instruction.savepoint.drain
                return Barrier(
                    instruction.checkpoint_id,
                    instruction.timestamp,
                    told.completed,
                    told.aborted,
                    drains,
                )
        return Barrier(None, 0, told.completed, told.aborted)

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
        failures: Iterable[str],
        acknowledged: Iterable[SubtaskAcknowledged],
        book: EpochBook,
        log: Callable[[], Mapping[str, bytes]],
        faults: Faults,
        steps: Stopwatch,
    ) -> Completion:
        """Complete the checkpoint that the epoch carried (steps 9 and 10).

        ``log``: what the executor needs to go on after the epoch.

        Raises:
            JobExecutionError: when too many checkpoints failed.
        """
        completion = Completion()
        failed = (*self._unnoted, *failures)
        in_flight = self._coordinator.in_flight
        # NB: nobody asks who acknowledged an epoch that carries no checkpoint
        acks = tuple(acknowledged) if in_flight else ()
        event = EpochAccepted(epoch, self._clock(), failed, acks)
        instructions = self._coordinator.handle(event)
        self._warn_of_failures(in_flight)
        for instruction in instructions:
            if isinstance(instruction, WriteMetadata):
                faults.reach(9, epoch, True)
                completion = self._write(instruction, book, log, steps)
                faults.reach(10, epoch, True)
            else:
                self._carry_out(instruction)
        self._settle()
        return completion

    def epoch_failed(self, epoch: int, reason: str) -> None:
        """Give up the checkpoint that the epoch carried."""
        self._do(EpochFailed(epoch, self._clock(), reason))
        self._settle()

    def _settle(self) -> None:
        """Answer those who asked for a checkpoint that has ended."""
        records = {record.id: record for record in self._coordinator.history()}
        for checkpoint, answers in list(self._promised.items()):
            record = records.get(checkpoint)
            if record is not None and record.status is CheckpointStatus.IN_PROGRESS:
                continue
            del self._promised[checkpoint]
            for answer in answers:
                if record is not None and record.status is CheckpointStatus.COMPLETED:
                    answer.set_result(checkpoint)
                else:
                    why = "the job has ended" if record is None else record.failure
                    answer.set_exception(CheckpointError(f"there is no checkpoint: {why}"))

    def end(self, outcome: Outcome) -> None:
        """Keep or drop the checkpoints, as the settings say; unlock the directory."""
        try:
            self._take_requests()
            self._do(JobEnding(self._clock(), outcome))
            if self.enabled:
                self.store.collect(())  # the live chains end with the job
                if outcome is not Outcome.FAILED:
                    self.store.forget_beginning()
        finally:
            self.store.release()

    def history(self) -> tuple[CheckpointRecord, ...]:
        """The last checkpoints, oldest first."""
        return self._coordinator.history()

    @property
    def savepoint_directory(self) -> str | None:
        """Where savepoints go if nobody says where."""
        return self._savepoints

    def retained(self) -> tuple[int, ...]:
        """The ids of the checkpoints that are kept, oldest first."""
        return self._coordinator.completed

    def forget_files(self, unneeded: Iterable[str]) -> None:
        """Delete state files that neither the job nor a checkpoint needs any more."""
        if not self.enabled:
            for name in unneeded:
                self.storage.delete(name)

    def _write(
        self,
        order: WriteMetadata,
        book: EpochBook,
        log: Callable[[], Mapping[str, bytes]],
        steps: Stopwatch,
    ) -> Completion:
        try:
            with steps.timed("complete"):
                metadata = self._metadata(order, book, log())
                path = self._put_in_place(order, metadata)
        except DirectoryInUseError:
            raise
        except (CheckpointError, StateStorageError, FileSystemError) as error:
            failed = self._coordinator.handle(
                MetadataFailed(order.checkpoint_id, self._clock(), str(error))
            )
            self._warn_of_failures([order.checkpoint_id])
            for instruction in failed:
                self._carry_out(instruction)
            return Completion()
        with steps.timed("commit"):
            return self._completed(order, metadata, path, book)

    def _metadata(
        self, order: WriteMetadata, book: EpochBook, log: Mapping[str, bytes]
    ) -> CheckpointMetadata:
        return CheckpointMetadata(
            id=order.checkpoint_id,
            timestamp=self._clock(),
            epoch=order.epoch,
            job_name=self.plan.name,
            savepoint=False,
            levels=tuple(LevelImage(len(chains), tuple(chains)) for chains in book.chains),
            operators=operator_images(self.plan, book.stateful, book.states),
            spark=dict(log),
        )

    def _put_in_place(self, order: WriteMetadata, metadata: CheckpointMetadata) -> str:
        """Write a checkpoint to where it belongs (step 9); returns the path that people know."""
        path = self.store.address_of(order.checkpoint_id)
        if order.savepoint is not None:
            directory = order.savepoint.directory
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
        self._log_completed()
        if order.in_store:
            self._let_go(book)
        return Completion(order.in_store, stops)

    def _warn_of_failures(self, checkpoints: Collection[int]) -> None:
        for record in self._coordinator.history():
            if record.id in checkpoints and record.status is CheckpointStatus.FAILED:
                _logger.warning(
                    "checkpoint %d of job '%s' failed: %s",
                    record.id,
                    self.plan.name,
                    record.failure,
                )

    def _log_completed(self) -> None:
        record = self._coordinator.history()[-1]
        _logger.info(
            "completed checkpoint %d for job '%s' (%d bytes in %d ms)",
            record.id,
            self.plan.name,
            record.size,
            record.duration,
        )

    def _let_go(self, book: EpochBook) -> None:
        """Delete what the new checkpoint makes superfluous (step 10)."""
        chains = (chain for level in book.chains for chain in level)
        self.store.collect(ref.name for chain in chains for ref in chain.all_files)
        if self._claimed is not None:
            dispose_savepoint(self._claimed, self._files)
            self._claimed = None

    def _take_requests(self) -> None:
        for request in _drain(self._requests):
            self._do(request)

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
            case AnswerSavepoint(request, path, failure):
                self._answer(self._answers.pop(request.request), path, failure)
            case FailJob(reason):
                raise JobExecutionError(reason)
            case StopJob():
                return True
        return False

    def _answer(
        self, answer: CompletableFuture[str], path: str | None, failure: str | None
    ) -> None:
        if path is not None:
            answer.set_result(path)
        else:
            answer.set_exception(CheckpointError(f"there is no savepoint: {failure}"))


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


def _drain(queue: SimpleQueue[_T]) -> list[_T]:
    taken: list[_T] = []
    with contextlib.suppress(Empty):
        while True:
            taken.append(queue.get_nowait())
    return taken


def _is_same(address: str, other: str) -> bool:
    """Whether two addresses are those of one directory; local ones may differ by links."""
    return os.path.realpath(address) == os.path.realpath(other)


def _is_within(address: str, directory: str) -> bool:
    return PurePosixPath(os.path.realpath(address)).is_relative_to(os.path.realpath(directory))


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") or "job"
