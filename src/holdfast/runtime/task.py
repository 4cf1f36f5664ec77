"""One subtask of one level: loads its state, processes the blocks of an epoch, persists, answers.

A run is a function of the head that the driver names and of the blocks that come in. What a process
keeps from the epoch before (the state and the function objects) only saves the loading: if it
does not stand at the named head it is brought there, and after a failure it is thrown away.
"""

from __future__ import annotations

import os
import pickle
import time
import uuid
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from holdfast.common.constants import MIN_LONG_VALUE
from holdfast.datastream.connectors.base import SplitRecords
from holdfast.errors import DisagreementError, HoldfastError
from holdfast.graph.nodes import SourceOperation
from holdfast.plan.model import ROWS_LEVEL, PlannedOperator
from holdfast.runtime.blocks import Block, Kind, decode_records
from holdfast.runtime.chain import Chain
from holdfast.runtime.checkpointing import OPERATOR_STATE, takes_part
from holdfast.runtime.context import Clock
from holdfast.runtime.event_time import TIME, StampingTime, Watermark
from holdfast.runtime.failures import OperatorFailed, describe_engine_error
from holdfast.runtime.fusion import Run as FusedRun
from holdfast.runtime.inbox import Inbox, Producer
from holdfast.runtime.job import JobCode
from holdfast.runtime.logs import at_work, spill
from holdfast.runtime.memory import resident_bytes
from holdfast.runtime.protocol import Acknowledgement, Control, EpochTask, Flow, Origin, encode
from holdfast.runtime.restoring import SavedBlobs, WithoutPickles
from holdfast.runtime.routing import Outbox
from holdfast.runtime.sources import POSITION, ReadRequest, SourceAccess, SourceInstance
from holdfast.runtime.stopwatch import Stopwatch
from holdfast.state.backend import FileRef, StateStorage, make_backend
from holdfast.state.catalog import SavedState, merged
from holdfast.state.errors import StateStorageError, decoding
from holdfast.state.key_groups import KeyGroupShare, key_group_range
from holdfast.state.operator_state import Image, decode_image, saved_states

_PROGRESS = "progress"
_SLICE = 1024


class Subtask:
    """A subtask as a process keeps it from epoch to epoch."""

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
        #: the stamp of the state that the function objects stand for
        self._head: str | None = None
        self._make_operators()

    def run(self, task: EpochTask, blocks: Iterable[Block]) -> Generator[Block]:
        """Take the blocks of an epoch and give the blocks that go on, as they become ready.

        An exception of a user's function, or one of ours, becomes a failure block.
        """
        run = _Run(self._job, task, self._subtask)
        try:
            yield from self._steps(task, run, blocks)
        except OperatorFailed as failed:
            self._chain.abandon()
            yield from run.fail(encode(failed.failure))
            raise FailedRun from failed
        except HoldfastError as error:
            self._chain.abandon()
            yield from run.fail(encode(describe_engine_error(error)))
            raise FailedRun from error
        except BaseException:
            self._chain.abandon()
            spill()  # no block follows that could carry it
            raise

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

    def _steps(self, task: EpochTask, run: _Run, blocks: Iterable[Block]) -> Iterator[Block]:
        self._reach(2, task)
        with run.steps.timed("load"):
            self._load(task)
            self._connect(run)
        self._reach(3, task)
        with run.steps.timed("notify"):
            self._notify(task)
        self._reach(4, task)
        with run.steps.timed("time"):
            self._chain.fire_processing_timers()
        with run.steps.timed("process"):
            yield from self._process(task, run, blocks)
        run.note_wait()
        if run.failed_upstream:
            # NB: the driver need not see that failure: others may have read another run
            raise DisagreementError(
                f"subtask {self._subtask} of level {self._level.index} read runs that failed: "
                + ", ".join(run.failed_upstream)
            )
        finished = self._end_of_input(run)
        with run.steps.timed("time"):
            self._advance_time(run)
        yield from run.outbox.take()
        with run.steps.timed("flush"):
            if finished and not task.closing:
                self._chain.finish()
            self._chain.end_epoch()
        self._reach(5, task)
        if task.checkpoint is not None:
            with run.steps.timed("snapshot"):
                run.snapshot_failure = self._snapshot(task.checkpoint, task.checkpoint_timestamp)
        with run.steps.timed("flush"):
            self._close_functions(task, finished)
            self._flush()
        yield from run.outbox.take()
        self._reach(6, task)
        with run.steps.timed("persist"):
            self._save(task)
            durable = task.checkpoint is not None
            chain = self._backend.persist(self._storage, run.stamp, task.epoch, durable)
            if durable and run.snapshot_failure is None:
                run.snapshot_failure = self._upload(chain.all_files)
            self._head = chain.stamp
        self._reach(7, task)
        acknowledgement = self._acknowledgement(task, run, chain, finished)
        yield from run.finish(acknowledgement, finished)

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

    def _advance_time(self, run: _Run) -> None:
        """Move the watermarks, and fire what is due."""
        arrived: dict[int, list[Watermark]] = {}
        for exchange in self._plan.exchanges:
            if exchange.target_level == self._level.index:
                came = arrived.setdefault(exchange.target, [])
                came += run.inbox.watermarks(exchange)
        arrived |= {source.operator.id: [source.watermark] for source in self._sources}
        times = self._chain.advance(arrived)
        self._chain.fire_processing_timers()
        run.watermarks = {
            exchange.id: None if times[exchange.source].idle else times[exchange.source].time
            for exchange in self._plan.exchanges
            if exchange.source in times
        }
        run.times = {
            self._plan.operators[number].uid: watermark.time
            for number, watermark in times.items()
            if watermark.time > MIN_LONG_VALUE
        }
        run.idle = tuple(
            self._plan.operators[number].uid for number, now in times.items() if now.idle
        )

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
            self._backend.restore(self._storage, head)
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
            for instance in self._chain.instances.values():
                if takes_part(instance.function) or instance.operator.node.is_source:
                    images[instance.operator.uid] = saved.image(instance.operator, self._subtask)
        self._chain.initialize(task.restored, images)
        for source in self._sources:
            source.begin(task, images.get(source.operator.uid))

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

    def _connect(self, run: _Run) -> None:
        for router in self._chain.routers:
            router.open(run.outbox)
        for result in self._chain.results:
            result.open(run.outbox, len(self._plan.levels))

    def _process(self, task: EpochTask, run: _Run, blocks: Iterable[Block]) -> Iterator[Block]:
        for block in run.inbox.in_order(blocks):
            if block.header.level != self._level.index:
                yield block
                continue
            if block.header.kind == Kind.RECORDS:
                yield from self._take_records(run, block)
        run.failed_upstream = run.inbox.failed()
        if not run.failed_upstream:  # what a run that failed was to hand through may be missing
            run.inbox.check_complete(self._expected())
        for source in self._sources:
            if task.draining:
                source.end()
            elif not run.failed_upstream:
                yield from self._read(source, task, run)

    def _take_records(self, run: _Run, block: Block) -> Iterator[Block]:
        exchange = self._plan.exchanges[block.header.exchange]
        flow = run.taken[exchange.id]
        started = time.perf_counter()
        records = decode_records(block.data)
        flow.seconds += time.perf_counter() - started
        flow.records += len(records)
        flow.bytes += len(block.data)
        run.records_in += len(records)
        target = self._plan.operators[exchange.target]
        self._backend.processed(target.uid, len(records))
        stamped = exchange.input in target.timestamped_inputs
        if stamped and not exchange.timestamped:
            records = [(record, None) for record in records]
        take = self._chain.inputs[exchange.target, exchange.input]
        yield from _feed(records, take, run.outbox, flow)

    def _read(self, source: SourceInstance, task: EpochTask, run: _Run) -> Iterator[Block]:
        limit = 0 if task.closing else task.quota
        barrier = task.checkpoint is not None
        uid = source.operator.uid
        plan, ceiling = task.plans.get(uid), task.ceilings.get(uid)
        request = ReadRequest(task.epoch, limit, barrier, task.completed, task.aborted, plan)
        if ceiling is None:
            yield from self._read_part(source, request, run)
        else:
            yield from self._read_aligned(source, request, ceiling, run)
        read = run.read[source.operator.id].records
        run.records_read += read
        run.saturated = run.saturated or read >= limit > 0

    def _read_aligned(
        self, source: SourceInstance, request: ReadRequest, ceiling: int, run: _Run
    ) -> Iterator[Block]:
        """Read a few records at a time, until the watermark is past the ceiling."""
        stamping = self._chain.instances[source.operator.id].time
        assert isinstance(stamping, StampingTime)
        flow = run.read[source.operator.id]
        limit = request.limit
        while True:
            ahead, splits = stamping.hold(ceiling)
            source.pause(splits)
            few = 0 if ahead else min(_SLICE, limit - flow.records)
            before = flow.records
            yield from self._read_part(source, replace(request, limit=few), run)
            if flow.records - before < max(few, 1):
                return  # nothing is allowed, or there is no more
            with at_work(self._chain.instances[source.operator.id].report):
                stamping.generate()
            request = replace(request, plan=None)

    def _read_part(
        self, source: SourceInstance, request: ReadRequest, run: _Run
    ) -> Iterator[Block]:
        take = self._chain.inputs[source.operator.id, 0]
        flow = run.read[source.operator.id]
        started = time.perf_counter()
        for records in source.read(request):
            flow.seconds += time.perf_counter() - started
            flow.records += len(records)
            if isinstance(records, SplitRecords):
                flow.records += len(records.aside)
                self._chain.turn_to(source.operator.id, records)
            yield from _feed(records, take, run.outbox, flow)
            started = time.perf_counter()
        if source.splits is not None:
            self._chain.keep_splits(source.operator.id, source.splits)

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

    def _end_of_input(self, run: _Run) -> bool:
        """Whether this subtask will never get another record."""
        for producer, control in run.inbox.controls.items():
            if control.ended:
                self._ended.add(producer)
        sources_done = all(source.finished for source in self._sources)
        endless_rows = ROWS_LEVEL in self._level.producers and not self._rows_ended(run)
        return sources_done and not endless_rows and self._ended.issuperset(self._expected())

    def _rows_ended(self, run: _Run) -> bool:
        rows = [c for (level, _), c in run.inbox.controls.items() if level == ROWS_LEVEL]
        return bool(rows) and all(control.ended for control in rows)

    def _save(self, task: EpochTask) -> None:
        for source in self._sources:
            source.save()
        attempt = _attempt_of(task)
        progress = (sorted(self._ended), attempt, attempt if self._closed else None)
        self._backend.set_blob("", _PROGRESS, pickle.dumps(progress, 5))
        self._chain.save_time()
        self._chain.save_fields()

    def _acknowledgement(
        self, task: EpochTask, run: _Run, chain: Any, finished: bool
    ) -> Acknowledgement:
        return Acknowledgement(
            level=self._level.index,
            subtask=self._subtask,
            stamp=run.stamp,
            consumed={f"{p[0]}/{p[1]}": stamp for p, stamp in run.inbox.stamps.items()},
            chain=chain,
            finished=finished,
            saturated=run.saturated,
            records_in=run.records_in,
            records_out=run.outbox.records,
            records_read=run.records_read,
            seconds=run.steps.seconds,
            metrics=self._chain.metrics(),
            rss=resident_bytes(),
            process=os.getpid(),
            snapshot_failure=run.snapshot_failure,
            stateful=self._stateful() if task.checkpoint is not None else (),
            watermarks=run.times,
            idle=run.idle,
            states=self._states() if task.checkpoint is not None else {},
            began=run.began,
            acknowledged=self._clock(),
            taken=run.taken,
            sent=run.outbox.sent,
            read=run.read,
        )

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


class FailedRun(Exception):
    """The run failed and has said so in its blocks; the subtask must be thrown away."""


class _Run:
    """What belongs to one run of a subtask: stamp, inbox, outbox, counts and times."""

    def __init__(self, job: JobCode, task: EpochTask, subtask: int) -> None:
        self.stamp = make_stamp(task.epoch, task.level, subtask)
        self.inbox = Inbox(task.level, subtask)
        self.outbox = Outbox(task.level, subtask, self.stamp)
        self.records_in = 0
        self.records_read = 0
        self.saturated = False
        #: the stamps of the runs that it read and that failed
        self.failed_upstream: list[str] = []
        self.snapshot_failure: str | None = None
        self.watermarks: dict[int, int | None] = {}
        #: how far time is in each operator that has any, by uid
        self.times: dict[str, int] = {}
        self.idle: tuple[str, ...] = ()
        self.steps = Stopwatch()
        self.began = time.time()
        self.taken: defaultdict[int, Flow] = defaultdict(Flow)
        self.read: defaultdict[int, Flow] = defaultdict(Flow)
        self._plan = job.plan
        self._level = task.level
        self._subtask = subtask

    def note_wait(self) -> None:
        """Of the time of processing, what no record has taken went by in waiting for input."""
        worked = sum(flow.seconds for flow in (*self.taken.values(), *self.read.values()))
        self.steps.seconds["wait"] = max(0.0, self.steps.seconds["process"] - worked)

    def finish(self, acknowledgement: Acknowledgement, ended: bool) -> Iterator[Block]:
        exchanges = tuple(ex.id for ex in self._plan.exchanges if ex.source_level == self._level)
        self._say_last_word(
            Control(ended=exchanges or (-1,) if ended else (), watermarks=self.watermarks)
        )
        self._send_to_driver(Kind.ACKNOWLEDGEMENT, encode(acknowledgement))
        yield from self.outbox.take()

    def fail(self, failure: bytes) -> Iterator[Block]:
        self._say_last_word(Control(failed=True))
        self._send_to_driver(Kind.FAILURE, failure)
        yield from self.outbox.take()

    def _say_last_word(self, control: Control) -> None:
        data = encode(control)
        for level in self._plan.targets(self._level):
            for target in range(self._plan.levels[level].parallelism):
                self.outbox.send(Kind.CONTROL, level, target, data)

    def _send_to_driver(self, kind: Kind, data: bytes) -> None:
        self.outbox.send_log(len(self._plan.levels), self._subtask)
        self.outbox.send(kind, len(self._plan.levels), self._subtask, data)


def _feed(records: Any, run: FusedRun, outbox: Outbox, flow: Flow) -> Iterator[Block]:
    """Hand records on, and let blocks leave in between so that they do not pile up."""
    for first in range(0, len(records), _SLICE):
        started = time.perf_counter()
        run(records[first : first + _SLICE])
        flow.seconds += time.perf_counter() - started
        if outbox.ready:
            yield from outbox.take()
