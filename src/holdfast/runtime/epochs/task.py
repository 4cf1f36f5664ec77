"""One subtask in one epoch: loads its state, processes blocks, persists state, acknowledges.

A run is a function of the head that the driver names and of the blocks that arrive. What a process
keeps from the previous epoch (the state and the function objects) only saves loading. If it is not
at the named head, the state of that head is loaded. After a failure it is discarded.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from holdfast.datastream.columns.batch import count_rows
from holdfast.datastream.connectors.base import SplitRecords
from holdfast.errors import DisagreementError, HoldfastError
from holdfast.plan.model import ROWS_LEVEL
from holdfast.runtime.event_time import StampingTime
from holdfast.runtime.failures import OperatorFailed, describe_engine_error
from holdfast.runtime.fusion import Run as FusedRun
from holdfast.runtime.network.addresses import Location
from holdfast.runtime.operators.sources.source_instance import ReadRequest, SourceInstance
from holdfast.runtime.routing import Outbox
from holdfast.runtime.subtask import LevelSubtask, Times, make_stamp
from holdfast.runtime.wire.blocks import Block, Kind, decode_records
from holdfast.runtime.wire.inbox import Inbox
from holdfast.runtime.wire.protocol import Acknowledgement, Control, EpochTask, Flow, encode
from holdfast.runtime.work import Work
from holdfast.runtime.worker.job_code import JobCode
from holdfast.runtime.worker.logs import at_work, spill
from holdfast.state.format.head import Head

_SLICE = 1024


class Subtask(LevelSubtask):
    """A subtask that a process keeps from epoch to epoch.

    Attributes:
        home: the location of the process that keeps it, for the driver.
        longest_read: how long its sources are read in an epoch, with all that follows in this
            level, in seconds; None if only the quota limits that.
    """

    home: Location | None = None
    longest_read: float | None = None

    def run(self, task: EpochTask, blocks: Iterable[Block]) -> Generator[Block]:
        """Process the blocks of an epoch, and yield output blocks as they become ready.

        An exception of a user's function, or of Holdfast, becomes a failure block.
        """
        run = _Run(self._job, task, self._subtask)
        try:
            yield from self._steps(task, run, blocks)
        except OperatorFailed as failed:
            self._operators.abandon()
            yield from run.fail(encode(failed.failure))
            raise FailedRun from failed
        except HoldfastError as error:
            self._operators.abandon()
            yield from run.fail(encode(describe_engine_error(error)))
            raise FailedRun from error
        except BaseException:
            self._operators.abandon()
            spill()  # no later block can carry the log lines
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
            self._operators.fire_processing_timers()
        with run.steps.timed("process"):
            yield from self._process(task, run, blocks)
        run.note_wait()
        self._refuse_failed(run)
        finished = self._end_of_input(run)
        with run.steps.timed("time"):
            run.times = self._move_time(run.inbox.watermarks)
        yield from run.outbox.take()
        with run.steps.timed("flush"):
            if finished and not task.closing:
                self._operators.finish()
            self._operators.end_epoch()
        self._reach(5, task)
        if task.checkpoint is not None:
            with run.steps.timed("snapshot"):
                run.snapshot_failure = self._snapshot(task.checkpoint, task)
        with run.steps.timed("flush"):
            self._close_functions(task, finished)
            self._flush()
        yield from run.outbox.take()
        self._reach(6, task)
        with run.steps.timed("persist"):
            head = self._persist(task, run)
        self._reach(7, task)
        yield from run.finish(self._epoch_acknowledgement(task, run, head, finished), finished)

    def _refuse_failed(self, run: _Run) -> None:
        """Raise an error if a run that this one has read from failed."""
        if run.failed_upstream:
            # NB: the driver might not see that failure, since others may have read another run
            raise DisagreementError(
                f"subtask {self._subtask} of level {self._level.index} read runs that failed: "
                + ", ".join(run.failed_upstream)
            )

    def _persist(self, task: EpochTask, run: _Run) -> Head:
        """Write the state of the epoch, and upload it if a checkpoint ends here."""
        self._save(task)
        durable = task.checkpoint is not None
        head = self._backend.persist(self._storage, run.stamp, task.epoch, durable)
        if durable and run.snapshot_failure is None:
            run.snapshot_failure = self._upload(head.all_files)
        self._stands_at = head.stamp
        return head

    def _epoch_acknowledgement(
        self, task: EpochTask, run: _Run, head: Head, finished: bool
    ) -> Acknowledgement:
        return self._acknowledgement(
            task,
            run,
            run.outbox,
            run.times,
            head=head,
            finished=finished,
            consumed={f"{p[0]}/{p[1]}": stamp for p, stamp in run.inbox.stamps.items()},
            saturated=run.saturated,
            snapshot_failure=run.snapshot_failure,
            home=self.home,
        )

    def _process(self, task: EpochTask, run: _Run, blocks: Iterable[Block]) -> Iterator[Block]:
        for block in run.inbox.in_order(blocks):
            if block.header.level != self._level.index:
                yield block
                continue
            if block.header.kind == Kind.RECORDS:
                yield from self._take_records(run, block)
        run.failed_upstream = run.inbox.failed()
        if not run.failed_upstream:  # the output of a failed run may be incomplete
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
        flow.records += count_rows(records)
        flow.bytes += len(block.data)
        run.records_in += count_rows(records)
        records = self._as_taken(exchange, records)
        take = self._operators.inputs[exchange.target, exchange.input]
        yield from _feed(records, take, run.outbox, flow)

    def _read(self, source: SourceInstance, task: EpochTask, run: _Run) -> Iterator[Block]:
        limit = 0 if task.closing else task.quota
        barrier = task.checkpoint is not None
        uid = source.operator.uid
        plan, ceiling = task.plans.get(uid), task.ceilings.get(uid)
        request = ReadRequest(task.epoch, limit, barrier, task.completed, task.aborted, plan)
        if ceiling is not None:
            yield from self._read_aligned(source, request, ceiling, run)
        elif self.longest_read is not None and not (barrier and source.is_loop):
            yield from self._read_for(self.longest_read, source, request, run)
        else:
            yield from self._read_part(source, request, run)
        read = run.read[source.operator.id].records
        run.records_read += read
        run.saturated = run.saturated or read >= limit > 0

    def _read_aligned(
        self, source: SourceInstance, request: ReadRequest, ceiling: int, run: _Run
    ) -> Iterator[Block]:
        """Read a few records at a time, until the watermark exceeds the ceiling."""
        stamping = self._operators.instances[source.operator.id].time
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
                return  # the source is held back, or has no more records
            with at_work(self._operators.instances[source.operator.id].report):
                stamping.generate()
            request = replace(request, plan=None)

    def _read_for(
        self, seconds: float, source: SourceInstance, request: ReadRequest, run: _Run
    ) -> Iterator[Block]:
        """Read more and more records at a time, until the time is over."""
        deadline = time.monotonic() + seconds
        flow = run.read[source.operator.id]
        limit, few = request.limit, 1
        while True:
            few = min(few, limit - flow.records)
            before = flow.records
            yield from self._read_part(source, replace(request, limit=few), run)
            if flow.records - before < max(few, 1) or time.monotonic() > deadline:
                return
            few = min(2 * few, _SLICE)
            request = replace(request, plan=None)

    def _read_part(
        self, source: SourceInstance, request: ReadRequest, run: _Run
    ) -> Iterator[Block]:
        take = self._operators.inputs[source.operator.id, 0]
        flow = run.read[source.operator.id]
        started = time.perf_counter()
        for records in source.read(request):
            flow.seconds += time.perf_counter() - started
            flow.records += count_rows(records)
            if isinstance(records, SplitRecords):
                flow.records += len(records.aside)
                self._operators.turn_to(source.operator.id, records)
            yield from _feed(records, take, run.outbox, flow)
            started = time.perf_counter()
        if source.splits is not None:
            self._operators.keep_splits(source.operator.id, source.splits)

    def _end_of_input(self, run: _Run) -> bool:
        """Return whether this subtask will not get any more records."""
        for producer, control in run.inbox.controls.items():
            if control.ended:
                self._ended.add(producer)
        sources_done = all(source.finished for source in self._sources)
        endless_rows = ROWS_LEVEL in self._level.producers and not self._rows_ended(run)
        return sources_done and not endless_rows and self._ended.issuperset(self._expected())

    def _rows_ended(self, run: _Run) -> bool:
        rows = [c for (level, _), c in run.inbox.controls.items() if level == ROWS_LEVEL]
        return bool(rows) and all(control.ended for control in rows)


def refuse(job: JobCode, task: EpochTask, subtask: int, error: HoldfastError) -> Iterator[Block]:
    """Return the failure of a subtask that cannot run on this host."""
    return _Run(job, task, subtask).fail(encode(describe_engine_error(error)))


class FailedRun(Exception):
    """The run has failed and sent a failure block; the subtask must be discarded."""


class _Run(Work):
    """The data of one run of a subtask: stamp, inbox, outbox, counts and times."""

    def __init__(self, job: JobCode, task: EpochTask, subtask: int) -> None:
        super().__init__()
        self.stamp = make_stamp(task.epoch, task.level, subtask)
        self.inbox = Inbox(task.level, subtask)
        self.outbox = Outbox(task.level, subtask, self.stamp)
        self.saturated = False
        #: the stamps of the failed runs that it read
        self.failed_upstream: list[str] = []
        self.snapshot_failure: str | None = None
        self.times = Times()
        self._plan = job.plan

    def note_wait(self) -> None:
        """Record the waiting time: the part of processing that was not spent on records."""
        worked = sum(flow.seconds for flow in (*self.taken.values(), *self.read.values()))
        self.steps.seconds["wait"] = max(0.0, self.steps.seconds["process"] - worked)

    def finish(self, acknowledgement: Acknowledgement, ended: bool) -> Iterator[Block]:
        control = Control(ended, watermarks=dict(self.times.watermarks))
        return self._end(control, Kind.ACKNOWLEDGEMENT, encode(acknowledgement))

    def fail(self, failure: bytes) -> Iterator[Block]:
        return self._end(Control(failed=True), Kind.FAILURE, failure)

    def _end(self, control: Control, kind: Kind, data: bytes) -> Iterator[Block]:
        self.outbox.announce(self._plan, encode(control))
        self.outbox.tell_driver(self._plan, kind, data)
        return self.outbox.take()


def _feed(records: Any, run: FusedRun, outbox: Outbox, flow: Flow) -> Iterator[Block]:
    """Process records in slices, and yield blocks in between so that they do not accumulate."""
    for first in range(0, len(records), _SLICE):
        started = time.perf_counter()
        run(records[first : first + _SLICE])
        flow.seconds += time.perf_counter() - started
        if outbox.ready:
            yield from outbox.take()
