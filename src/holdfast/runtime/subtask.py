"""The operators and the state of one subtask of a level, as used by every engine.

The engines decide how records are exchanged and when state is written: per epoch
(`holdfast.runtime.epochs.task`), or continuously (`holdfast.runtime.resident.subtask`).
"""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast.common.constants import MIN_LONG_VALUE
from holdfast.datastream.columns.batch import count_rows
from holdfast.graph.operations import SourceOperation
from holdfast.plan.model import ROWS_LEVEL, Exchange, PlannedOperator
from holdfast.runtime.checkpointing import OPERATOR_STATE, takes_part
from holdfast.runtime.context import Clock
from holdfast.runtime.event_time import TIME, Watermark
from holdfast.runtime.level import LevelOperators
from holdfast.runtime.operators.sources.source_instance import (
    POSITION,
    SourceAccess,
    SourceInstance,
)
from holdfast.runtime.routing import Outbox
from holdfast.runtime.saved_blobs import SavedBlobs, WithoutPickles
from holdfast.runtime.wire.inbox import Producer
from holdfast.runtime.wire.protocol import Acknowledgement, EpochTask, Origin
from holdfast.runtime.work import Work
from holdfast.runtime.worker.job_code import JobCode
from holdfast.runtime.worker.memory import resident_bytes
from holdfast.state.backend import FileRef, StateStorage, make_backend
from holdfast.state.errors import StateStorageError, decoding
from holdfast.state.format.catalog import SavedState, merged
from holdfast.state.key_groups import KeyGroupShare, key_group_range
from holdfast.state.live.operator_state import UNION, Image, decode_image, saved_states
from holdfast.state.storage.directory import ReadableStorage

_PROGRESS = "progress"


class Times(NamedTuple):
    """The watermarks of a subtask.

    Attributes:
        watermarks: on its outgoing exchanges, by id; None where they are idle.
        operators: of each operator that has one, by uid.
        idle: the operators that are idle, by uid.
    """

    watermarks: Mapping[int, int | None] = MappingProxyType({})
    operators: Mapping[str, int] = MappingProxyType({})
    idle: tuple[str, ...] = ()


class LevelSubtask:
    """A subtask that a process keeps."""

    def __init__(
        self,
        job: JobCode,
        level: int,
        subtask: int,
        attempt: int,
        storage: StateStorage,
        clock: Clock,
        sources: SourceAccess,
    ) -> None:
        """Create the operators; the first run loads state and opens functions."""
        self._job = job
        self._plan = job.plan
        self._level = job.plan.levels[level]
        self._subtask = subtask
        self._storage = storage
        self._backend = make_backend(job.state, job.key, level, subtask)
        self._backend.use_clock(clock)
        for op in (self._plan.operators[number] for number in self._level.operators):
            self._backend.shares.assign(op.uid, _share(op, subtask))
        self._attempt = attempt
        self._clock = clock
        self._access = sources
        self._ended: set[Producer] = set()
        self._closed = False
        #: bytes of its state files that it did not have to read when it loaded its state
        self._at_hand = 0
        #: the stamp of the state that the function objects correspond to
        self._stands_at: str | None = None
        self._make_operators()

    def close(self, ended: bool = False) -> None:
        """Release the resources of the operators and the state, without calling users' code.

        ``ended``: the job has ended, and what it left on the host may be deleted.
        """
        self._release()
        self._backend.close(ended)

    def _release(self) -> None:
        for source in self._sources:
            source.close()
        self._operators.release()

    def _notify(self, task: EpochTask) -> None:
        """Notify functions and sources of checkpoints that ended."""
        self._operators.notify(task)
        for source in self._sources:
            source.notify(task)

    def _snapshot(self, checkpoint: int, task: EpochTask) -> str | None:
        """Take snapshots of functions and sources; return the first failure."""
        timestamp = task.checkpoint_timestamp
        failures = [self._operators.snapshot(checkpoint, timestamp, task.savepoint)]
        failures += [source.snapshot(checkpoint, timestamp) for source in self._sources]
        return next((failure for failure in failures if failure), None)

    def _upload(self, files: Iterable[FileRef]) -> str | None:
        """Upload state files to the checkpoint storage; return the failure, if any.

        A failure aborts the checkpoint, but not the epoch, whose state is safe where it was
        written.
        """
        try:
            self._storage.upload(file.name for file in files)
        except StateStorageError as error:
            return str(error)
        return None

    def _reach(self, step: int, task: EpochTask) -> None:
        """Inject a fault at the start of a numbered step, if one is planned."""
        barrier = task.checkpoint is not None
        self._job.faults.reach(step, task.epoch, barrier, self._level.index, self._subtask)

    def _close_functions(self, task: EpochTask, finished: bool) -> None:
        if (task.closing or (finished and task.closes_at_end)) and not self._closed:
            self._closed = True
            self._operators.close()

    def _make_operators(self) -> None:
        self._operators = LevelOperators(
            self._job, self._level, self._subtask, self._attempt, self._backend, self._clock
        )
        self._sources = [
            SourceInstance(
                instance.operator,
                self._job,
                self._subtask,
                self._backend,
                self._access,
                instance.context.get_metrics_group(),
            )
            for instance in self._operators.instances.values()
            if isinstance(instance.operator.node.operation, SourceOperation)
        ]
        self._opened = False

    def _load(self, task: EpochTask) -> None:
        head = task.heads[self._subtask]
        if self._stands_at is not None and self._stands_at not in head.lineage:
            # their work since then was not accepted, but may have changed any field or position
            self._release()
            self._make_operators()
        saved = None
        if task.origin is not None and not head.files:
            saved = self._take_over(task.origin)
        else:
            self._at_hand = head.size - self._backend.restore(self._storage, head)
        self._stands_at = head.stamp
        progress = self._backend.get_blob("", _PROGRESS)
        with decoding(f"the progress of subtask {self._subtask}"):
            ended, initialized, closed = pickle.loads(progress) if progress else ((), None, None)
            self._ended = set(ended)
        self._closed = closed == _attempt_of(task)
        begins = initialized != _attempt_of(task)
        if begins:
            self._begin(task, saved)
        if not self._opened:
            self._operators.open()
            self._opened = True
        self._operators.restore_time()
        if not begins:
            self._operators.restore_fields()
        for source in self._sources:
            source.restore()

    def _begin(self, task: EpochTask, saved: SavedBlobs | None) -> None:
        """Start an attempt: functions get their part of the saved operator state.

        ``saved``: the blobs that were read already, if any.
        """
        images: dict[str, Image] = {}
        if task.origin is not None:
            saved = saved or SavedBlobs(self._origin_storage(task.origin), task.origin)
            goes_on = bool(task.heads[self._subtask].files)
            for instance in self._operators.instances.values():
                if takes_part(instance.function) or instance.operator.node.is_source:
                    uid = instance.operator.uid
                    own = self._own_image(uid, task.origin) if goes_on else None
                    images[uid] = (
                        saved.image(instance.operator, self._subtask) if own is None else own
                    )
        self._operators.initialize(task.restored, images)
        for source in self._sources:
            source.begin(task, images.get(source.operator.uid))

    def _own_image(self, uid: str, origin: Origin) -> Image | None:
        """Return the operator state that the subtask itself had saved; None if it needs more.

        If the number of subtasks has not changed, each gets its own operator state, which is part
        of the state that it has restored. Only union state consists of the state of all subtasks.
        """
        data = self._backend.get_blob(uid, OPERATOR_STATE)
        image = {} if data is None else decode_image(data, uid)
        saved = origin.operators.get(uid)
        unites = saved is not None and saved.union
        return None if unites or any(part.mode == UNION for part in image.values()) else image

    def _take_over(self, origin: Origin) -> SavedBlobs:
        """Load this subtask's share of the states of other subtasks.

        Return the blobs that their operators saved.
        """
        storage = self._origin_storage(origin)
        uids = {instance.operator.uid for instance in self._operators.instances.values()}
        levels = {saved.level for uid, saved in origin.operators.items() if uid in uids}
        heads = [head for level in sorted(levels) for head in origin.levels[level]]
        blobs = SavedBlobs(storage, origin)
        read = self._backend.import_key_groups(storage, heads, uids)
        for head, found in zip(heads, read, strict=True):
            blobs.know(head, found)
        for instance in self._operators.instances.values():
            times = blobs.all(instance.operator.uid, TIME)
            same = len(times) == instance.operator.parallelism
            with decoding(f"the time of operator {instance.operator.uid!r}"):
                instance.time.take_over(times[self._subtask : self._subtask + 1] if same else times)
        self._operators.save_time()
        for source in self._sources:
            uid = source.operator.uid
            positions = blobs.all(uid, POSITION)
            if positions:
                source.take_over(positions, blobs.of(uid, OPERATOR_STATE, self._subtask))
        return blobs

    def _origin_storage(self, origin: Origin) -> ReadableStorage:
        if not origin.directory:
            return self._storage
        storage = self._storage.elsewhere(origin.directory)
        return storage if origin.trusted else WithoutPickles(storage, origin.directory)

    def _connect(self, outbox: Outbox) -> None:
        for router in self._operators.routers:
            router.open(outbox)
        self._operators.written()  # by a run that failed
        for result in self._operators.results:
            result.open(outbox, self._plan.driver_level)

    def _move_time(self, arrived_on: Callable[[Exchange], list[Watermark]]) -> Times:
        """Advance the watermarks according to the inputs, and fire timers that are due."""
        arrived: dict[int, list[Watermark]] = {}
        for exchange in self._plan.exchanges:
            if exchange.target_level == self._level.index:
                came = arrived.setdefault(exchange.target, [])
                came += arrived_on(exchange)
        arrived |= {source.operator.id: [source.watermark] for source in self._sources}
        times = self._operators.advance(arrived)
        self._operators.fire_processing_timers()
        operators = self._plan.operators
        return Times(
            {
                exchange.id: None if times[exchange.source].idle else times[exchange.source].time
                for exchange in self._plan.exchanges
                if exchange.source in times
            },
            {
                operators[number].uid: watermark.time
                for number, watermark in times.items()
                if watermark.time > MIN_LONG_VALUE
            },
            tuple(operators[number].uid for number, now in times.items() if now.idle),
        )

    def _as_taken(self, exchange: Exchange, records: list[Any]) -> list[Any]:
        """Return the records of an exchange in the form that the target operator takes."""
        target = self._plan.operators[exchange.target]
        self._backend.processed(target.uid, count_rows(records))
        if self._backend.reads_ahead:
            plain = [record for record, _ in records] if exchange.timestamped else records
            keys = self._operators.instances[exchange.target].keys_of(exchange.input, plain)
            self._backend.read_ahead(target.uid, keys)
        if exchange.input in target.timestamped_inputs and not exchange.timestamped:
            return [(record, None) for record in records]
        return records

    def _flush(self) -> None:
        for router in self._operators.routers:
            router.flush_all()
        for result in self._operators.results:
            result.finish()

    def _expected(self) -> list[Producer]:
        return [
            (level, subtask)
            for level in self._level.producers
            if level != ROWS_LEVEL
            for subtask in range(self._plan.levels[level].parallelism)
        ]

    def _save(self, task: EpochTask, carried: bool = True) -> None:
        """Save everything besides keyed state with the state.

        ``carried``: also save the fields of functions, because the next epoch may run in another
        process.
        """
        for source in self._sources:
            source.save()
        attempt = _attempt_of(task)
        progress = (sorted(self._ended), attempt, attempt if self._closed else None)
        self._backend.set_blob("", _PROGRESS, pickle.dumps(progress, 5))
        self._operators.save_time()
        self._operators.save_states()
        if carried:
            self._operators.save_fields()

    def _acknowledgement(
        self, task: EpochTask, work: Work, outbox: Outbox, times: Times, **rest: Any
    ) -> Acknowledgement:
        """Return the acknowledgement of an epoch; ``rest``: fields that the engine sets."""
        barrier = task.checkpoint is not None
        return Acknowledgement(
            level=self._level.index,
            subtask=self._subtask,
            stamp=outbox.stamp,
            records_in=work.records_in,
            records_out=outbox.records,
            records_read=work.records_read,
            seconds=work.steps.seconds,
            metrics=self._operators.metrics(),
            rss=resident_bytes(),
            process=os.getpid(),
            stateful=self._stateful() if barrier else (),
            watermarks=dict(times.operators),
            idle=times.idle,
            states=self._states() if barrier else {},
            began=work.began,
            acknowledged=self._clock(),
            taken=work.taken,
            sent=outbox.sent,
            read=work.read,
            written=self._operators.written(),
            **rest,
        )

    def _stateful(self) -> tuple[str, ...]:
        """Return the operators that have state that must not be lost."""
        sources = {source.operator.uid for source in self._sources}
        return tuple(sorted(self._backend.stateful(OPERATOR_STATE) | sources))

    def _states(self) -> dict[str, tuple[SavedState, ...]]:
        """Return the descriptions of the states of this subtask, for a checkpoint."""
        states = self._backend.states()
        for uid in (instance.operator.uid for instance in self._operators.instances.values()):
            image = self._backend.get_blob(uid, OPERATOR_STATE)
            if image is not None:
                states.setdefault(uid, []).extend(saved_states(decode_image(image, uid)))
        return {uid: merged(found) for uid, found in states.items()}


def _attempt_of(task: EpochTask) -> tuple[str, int]:
    """Return what identifies an attempt: each start of the program counts its attempts from 0."""
    return task.job, task.attempt


def make_stamp(epoch: int, level: int, subtask: int) -> str:
    """Return the unique id of one run."""
    return f"{epoch}-{level}-{subtask}-{uuid.uuid4().hex[:12]}"


def _share(operator: PlannedOperator, subtask: int) -> KeyGroupShare:
    if subtask >= operator.parallelism:
        return KeyGroupShare(range(0), operator.max_parallelism)
    groups = key_group_range(subtask, operator.parallelism, operator.max_parallelism)
    return KeyGroupShare(groups, operator.max_parallelism)
