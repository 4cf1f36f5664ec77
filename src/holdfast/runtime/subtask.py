"""The operators and the state of one subtask of a level, and what every engine does with them.

How records come and go, and when state is written, is the business of the engines: an epoch at a
time (`holdfast.runtime.task`), or all the time (`holdfast.runtime.resident.subtask`).
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast.common.constants import MIN_LONG_VALUE
from holdfast.graph.nodes import SourceOperation
from holdfast.plan.model import ROWS_LEVEL, Exchange, PlannedOperator
from holdfast.runtime.chain import Chain
from holdfast.runtime.checkpointing import OPERATOR_STATE, takes_part
from holdfast.runtime.context import Clock
from holdfast.runtime.event_time import TIME, Watermark
from holdfast.runtime.inbox import Producer
from holdfast.runtime.job import JobCode
from holdfast.runtime.protocol import EpochTask, Origin
from holdfast.runtime.restoring import SavedBlobs, WithoutPickles
from holdfast.runtime.routing import Outbox
from holdfast.runtime.sources import POSITION, SourceAccess, SourceInstance
from holdfast.state.backend import FileRef, StateStorage, make_backend
from holdfast.state.catalog import SavedState, merged
from holdfast.state.errors import StateStorageError, decoding
from holdfast.state.key_groups import KeyGroupShare, key_group_range
from holdfast.state.operator_state import UNION, Image, decode_image, saved_states

__all__ = ["LevelSubtask", "Times", "make_stamp"]

_PROGRESS = "progress"


class Times(NamedTuple):
    """How far time is in a subtask.

    Attributes:
        watermarks: on the exchanges that leave it, by id; None where they are idle.
        operators: in each operator that has any, by uid.
        idle: the operators that hold nobody up, by uid.
    """

    watermarks: Mapping[int, int | None] = MappingProxyType({})
    operators: Mapping[str, int] = MappingProxyType({})
    idle: tuple[str, ...] = ()


class LevelSubtask:
    """A subtask as a process keeps it."""

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
        """Make the operators; state is loaded and functions are opened by the first run."""
        self._job = job
        self._plan = job.plan
        self._level = job.plan.levels[level]
        self._subtask = subtask
        self._storage = storage
        self._backend = make_backend(job.state, job.key, level, subtask)
        self._backend.use_clock(clock)
        for op in (self._plan.operators[number] for number in self._level.operators):
            self._backend.assign(op.uid, _share(op, subtask))
        self._attempt = attempt
        self._clock = clock
        self._access = sources
        self._ended: set[Producer] = set()
        self._closed = False
        #: bytes of its state files that it did not have to read when it loaded its state
        self._at_hand = 0
        #: the stamp of the state that the function objects stand for
        self._head: str | None = None
        self._make_operators()

    def close(self, ended: bool = False) -> None:
        """Let go of what the operators and the state hold, without calling users' code.

        ``ended``: the job has come to its end, and what it left on the host may go.
        """
        self._release()
        self._backend.close(ended)

    def _release(self) -> None:
        for source in self._sources:
            source.close()
        self._chain.release()

    def _notify(self, task: EpochTask) -> None:
        """Tell functions and sources of checkpoints that ended."""
        self._chain.notify(task)
        for source in self._sources:
            source.notify(task)

    def _snapshot(self, checkpoint: int, timestamp: int) -> str | None:
        """Let functions and sources snapshot what they have; returns what failed."""
        failures = [self._chain.snapshot(checkpoint, timestamp)]
        failures += [source.snapshot(checkpoint, timestamp) for source in self._sources]
        return next((failure for failure in failures if failure), None)

    def _upload(self, files: Iterable[FileRef]) -> str | None:
        """Bring state files to where checkpoints are; returns what failed.

        That aborts the checkpoint, not the epoch, whose state is safe where it was written.
        """
        try:
            self._storage.upload(file.name for file in files)
        except StateStorageError as error:
            return str(error)
        return None

    def _reach(self, step: int, task: EpochTask) -> None:
        """A numbered step begins."""
        barrier = task.checkpoint is not None
        self._job.faults.reach(step, task.epoch, barrier, self._level.index, self._subtask)

    def _close_functions(self, task: EpochTask, finished: bool) -> None:
        if (task.closing or (finished and task.closes_at_end)) and not self._closed:
            self._closed = True
            self._chain.close()

    def _make_operators(self) -> None:
        self._chain = Chain(
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
            for instance in self._chain.instances.values()
            if isinstance(instance.operator.node.operation, SourceOperation)
        ]
        self._opened = False

    def _load(self, task: EpochTask) -> None:
        head = task.chains[self._subtask]
        if self._head is not None and self._head not in head.lineage:
            # what they did since was not accepted, and may be in any field or position of theirs
            self._release()
            self._make_operators()
        if task.origin is not None and not head.files:
            self._take_over(task.origin)
        else:
            restored = self._backend.restore(self._storage, head)
            self._at_hand = head.size - restored.bytes_read
        self._head = head.stamp
        progress = self._backend.get_blob("", _PROGRESS)
        with decoding(f"the progress of subtask {self._subtask}"):
            ended, initialized, closed = pickle.loads(progress) if progress else ((), None, None)
            self._ended = set(ended)
        self._closed = closed == _attempt_of(task)
        begins = initialized != _attempt_of(task)
        if begins:
            self._begin(task)
        if not self._opened:
            self._chain.open()
            self._opened = True
        self._chain.restore_time()
        if not begins:
            self._chain.restore_fields()
        for source in self._sources:
            source.restore()

    def _begin(self, task: EpochTask) -> None:
        """Begin an attempt: functions get their part of the operator state that was saved."""
        images: dict[str, Image] = {}
        if task.origin is not None:
            saved = SavedBlobs(self._origin_storage(task.origin), task.origin)
            goes_on = bool(task.chains[self._subtask].files)
            for instance in self._chain.instances.values():
                if takes_part(instance.function) or instance.operator.node.is_source:
                    uid = instance.operator.uid
                    own = self._own_image(uid, task.origin) if goes_on else None
                    images[uid] = (
                        saved.image(instance.operator, self._subtask) if own is None else own
                    )
        self._chain.initialize(task.restored, images)
        for source in self._sources:
            source.begin(task, images.get(source.operator.uid))

    def _own_image(self, uid: str, origin: Origin) -> Image | None:
        """Return the operator state that the subtask itself had saved; None if it needs more.

        With as many subtasks as before each gets its own again, which is part of the state that it
        has restored. Only union state is all that all subtasks had saved.
        """
        data = self._backend.get_blob(uid, OPERATOR_STATE)
        image = {} if data is None else decode_image(data, uid)
        saved = origin.operators.get(uid)
        unites = saved is not None and saved.union
        return None if unites or any(part.mode == UNION for part in image.values()) else image

    def _take_over(self, origin: Origin) -> None:
        """Take what is this subtask's out of the states of other subtasks."""
        storage = self._origin_storage(origin)
        uids = {instance.operator.uid for instance in self._chain.instances.values()}
        levels = {saved.level for uid, saved in origin.operators.items() if uid in uids}
        chains = [chain for level in sorted(levels) for chain in origin.levels[level]]
        self._backend.import_key_groups(storage, chains, uids)
        blobs = SavedBlobs(storage, origin)
        for instance in self._chain.instances.values():
            times = blobs.all(instance.operator.uid, TIME)
            same = len(times) == instance.operator.parallelism
            with decoding(f"the time of operator {instance.operator.uid!r}"):
                instance.time.take_over(times[self._subtask : self._subtask + 1] if same else times)
        self._chain.save_time()
        for source in self._sources:
            uid = source.operator.uid
            positions = blobs.all(uid, POSITION)
            if positions:
                source.take_over(positions, blobs.of(uid, OPERATOR_STATE, self._subtask))

    def _origin_storage(self, origin: Origin) -> StateStorage:
        if not origin.directory:
            return self._storage
        storage = self._storage.elsewhere(origin.directory)
        return storage if origin.trusted else WithoutPickles(storage, origin.directory)

    def _connect(self, outbox: Outbox) -> None:
        for router in self._chain.routers:
            router.open(outbox)
        for result in self._chain.results:
            result.open(outbox, len(self._plan.levels))

    def _move_time(self, arrived_on: Callable[[Exchange], list[Watermark]]) -> Times:
        """Move the watermarks to where the inputs are, and fire what is due."""
        arrived: dict[int, list[Watermark]] = {}
        for exchange in self._plan.exchanges:
            if exchange.target_level == self._level.index:
                came = arrived.setdefault(exchange.target, [])
                came += arrived_on(exchange)
        arrived |= {source.operator.id: [source.watermark] for source in self._sources}
        times = self._chain.advance(arrived)
        self._chain.fire_processing_timers()
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
        """Return records of an exchange as the operator behind it takes them."""
        target = self._plan.operators[exchange.target]
        self._backend.processed(target.uid, len(records))
        if exchange.input in target.timestamped_inputs and not exchange.timestamped:
            return [(record, None) for record in records]
        return records

    def _flush(self) -> None:
        for router in self._chain.routers:
            router.flush_all()
        for result in self._chain.results:
            result.finish()

    def _expected(self) -> list[Producer]:
        return [
            (level, subtask)
            for level in self._level.producers
            if level != ROWS_LEVEL
            for subtask in range(self._plan.levels[level].parallelism)
        ]

    def _save(self, task: EpochTask, carried: bool = True) -> None:
        """Put what is not keyed state where it is saved with it.

        ``carried``: the fields of functions too, for the next epoch may run in another process.
        """
        for source in self._sources:
            source.save()
        attempt = _attempt_of(task)
        progress = (sorted(self._ended), attempt, attempt if self._closed else None)
        self._backend.set_blob("", _PROGRESS, pickle.dumps(progress, 5))
        self._chain.save_time()
        self._chain.save_states()
        if carried:
            self._chain.save_fields()

    def _stateful(self) -> tuple[str, ...]:
        """The operators whose state would be missed."""
        sources = {source.operator.uid for source in self._sources}
        return tuple(sorted(self._backend.stateful(OPERATOR_STATE) | sources))

    def _states(self) -> dict[str, tuple[SavedState, ...]]:
        """What a checkpoint says of the states that are here."""
        states = self._backend.states()
        for uid in (instance.operator.uid for instance in self._chain.instances.values()):
            image = self._backend.get_blob(uid, OPERATOR_STATE)
            if image is not None:
                states.setdefault(uid, []).extend(saved_states(decode_image(image, uid)))
        return {uid: merged(found) for uid, found in states.items()}


def _attempt_of(task: EpochTask) -> tuple[str, int]:
    """The attempt among all starts of the program: each start counts its attempts from 0."""
    return task.job, task.attempt


def make_stamp(epoch: int, level: int, subtask: int) -> str:
    """The unique id of one run."""
    return f"{epoch}-{level}-{subtask}-{uuid.uuid4().hex[:12]}"


def _share(operator: PlannedOperator, subtask: int) -> KeyGroupShare:
    if subtask >= operator.parallelism:
        return KeyGroupShare(range(0), operator.max_parallelism)
    groups = key_group_range(subtask, operator.parallelism, operator.max_parallelism)
    return KeyGroupShare(groups, operator.max_parallelism)
