"""One subtask of one level: loads its state, processes the blocks of an epoch, persists, answers.

A run is a function of the head that the driver names and of the blocks that come in. What a process
keeps from the epoch before (the state and the function objects) only saves the loading: if it
does not stand at the named head it is brought there, and after a failure it is thrown away.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from holdfast.datastream.connectors.base import SplitRecords
from holdfast.errors import DisagreementError, HoldfastError
from holdfast.plan.model import ROWS_LEVEL
from holdfast.runtime.blocks import Block, Kind, decode_records
from holdfast.runtime.event_time import StampingTime
from holdfast.runtime.failures import OperatorFailed, describe_engine_error
from holdfast.runtime.fusion import Run as FusedRun
from holdfast.runtime.inbox import Inbox
from holdfast.runtime.job import JobCode
from holdfast.runtime.logs import at_work, spill
from holdfast.runtime.memory import resident_bytes
from holdfast.runtime.protocol import Acknowledgement, Control, EpochTask, Flow, encode
from holdfast.runtime.routing import Outbox
from holdfast.runtime.sources import ReadRequest, SourceInstance
from holdfast.runtime.stopwatch import Stopwatch
from holdfast.runtime.subtask import LevelSubtask, Times, make_stamp

_SLICE = 1024


class Subtask(LevelSubtask):
    """A subtask as a process keeps it from epoch to epoch."""

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

    def _steps(self, task: EpochTask, run: _Run, blocks: Iterable[Block]) -> Iterator[Block]:
        self._reach(2, task)
        with run.steps.timed("load"):
            self._load(task)
            self._connect(run.outbox)
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
            run.times = self._move_time(run.inbox.watermarks)
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
        records = self._as_taken(exchange, records)
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
            watermarks=dict(run.times.operators),
            idle=run.times.idle,
            states=self._states() if task.checkpoint is not None else {},
            began=run.began,
            acknowledged=self._clock(),
            taken=run.taken,
            sent=run.outbox.sent,
            read=run.read,
        )


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
        self.times = Times()
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
            Control(
                ended=exchanges or (-1,) if ended else (), watermarks=dict(self.times.watermarks)
            )
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
