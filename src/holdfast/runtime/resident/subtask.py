"""A subtask that stays where it is, and works for as long as there is something to do.

It does one piece of work at a time (`step`) and is driven by a thread of its slot, or by a test.
Nothing in it waits, except for room on a channel.

The numbered steps of a round are those of an epoch (`docs/internals/epoch.md`), at other times: 2
(load) once per attempt, 3 (notify) as soon as the driver says so, 4 (process) all the time, 5 to 7
(snapshot, capture, acknowledge) when the mark of the round has come on all channels.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from holdfast.datastream.connectors.base import SplitRecords
from holdfast.runtime.blocks import Block, Kind, decode_records
from holdfast.runtime.context import Clock
from holdfast.runtime.event_time import StampingTime
from holdfast.runtime.fusion import Run as FusedRun
from holdfast.runtime.job import JobCode
from holdfast.runtime.logs import at_work
from holdfast.runtime.loop_source import ThreadSources
from holdfast.runtime.memory import resident_bytes
from holdfast.runtime.protocol import (
    Acknowledgement,
    EpochTask,
    Failure,
    Flow,
    Loaded,
    encode,
)
from holdfast.runtime.resident.channels import TIME_MOVED, Bell, Inputs, Reached
from holdfast.runtime.resident.messages import TIME_ONLY, Mark
from holdfast.runtime.resident.outbox import ChannelOutbox, Post
from holdfast.runtime.resident.queries import look_up
from holdfast.runtime.resident.states import StateWriter
from holdfast.runtime.sources import ReadRequest, SourceInstance
from holdfast.runtime.stopwatch import Stopwatch
from holdfast.runtime.subtask import LevelSubtask, Times, make_stamp
from holdfast.state.backend import StateStorage
from holdfast.state.local_copies import Copies, HostStorage

__all__ = ["ResidentSubtask"]

#: records that are handed to the functions at once: at most, and for how long, in seconds
_SLICE: Final = 1024
_SLICE_SECONDS: Final = 0.002
#: records that a source is asked for at once: at most, and at first
_READ: Final = 4096
_READ_FIRST: Final = 256
#: in between it is what leaves in so many seconds, as measured over the last second: a subtask that
#: is held up is to hear of checkpoints soon
_READ_SECONDS: Final = 0.1
_LAST: Final = 1.0
#: records wait at most so long to leave a subtask that is busy, in seconds
_LONGEST_WAIT: Final = 0.02
#: between two looks at a source that had nothing, in seconds: at first, and after some time
_LOOK: Final = 0.001
_LOOK_LATER: Final = 0.01
#: looks without success after which there is more time between two of them
_MANY_LOOKS: Final = 500
#: how often watermarks are made if nobody says how often, in milliseconds
_TIME: Final = 200
#: for how long calls that are under way are waited for before the next look at inputs, in seconds
_CALLS: Final = 0.002


class ResidentSubtask(LevelSubtask):
    """A subtask, from the first round of an attempt to its end.

    Attributes:
        inputs: what came for it.
        bell: wakes the thread that drives it.
    """

    def __init__(
        self,
        job: JobCode,
        level: int,
        subtask: int,
        attempt: int,
        storage: StateStorage,
        clock: Clock,
        post: Post,
        writer: type[StateWriter] = StateWriter,
        copies: Copies | None = None,
    ) -> None:
        """Make the operators; the first task of the driver loads their state.

        ``writer``: writes the states of checkpoints. ``copies``: those that the host keeps of the
        subtask's state files.
        """
        self.bell = Bell()
        self._loops = ThreadSources(attempt, self.bell.ring)
        self._files = HostStorage(storage, copies)
        super().__init__(job, level, subtask, attempt, self._files, clock, self._loops)
        self.inputs = Inputs(
            self._expected(), lambda producer, size: post.put_back(producer, (level, subtask), size)
        )
        stamp = make_stamp(0, level, subtask)
        self._outbox = ChannelOutbox(level, subtask, stamp, post)
        self._writer = writer(self._files, post, clock, (level, subtask), self._keep_files)
        self._mail: deque[Callable[[], None]] = deque()
        #: what the driver said of epochs whose mark has not come
        self._tasks: dict[int, EpochTask] = {}
        #: epochs that end as soon as the driver's word is there, in their order
        self._ending: deque[int] = deque()
        self._begun = False
        #: all subtasks have loaded their state: no user function is called before that, because a
        #: state that does not fit must be what a start fails with
        self._all_loaded = False
        #: no source is read
        self._still = False
        #: how many records each source may still give before the next epoch
        self._quotas: dict[int, int] = {}
        self._at_once = _READ_FIRST
        #: records that the functions are given at once
        self._slice = 1
        #: records that sources gave lately, and how long these took to leave
        self._lately = self._lately_seconds = 0.0
        self._input_ended = False
        self._times = Times()
        self._said: tuple[dict[int, int | None], bool] = ({}, False)
        #: a source has given all that it had, or time moves: nothing is to wait
        self._pauses = False
        #: something was emitted, perhaps, since the routers were last flushed
        self._unsent = False
        self._flush_by = 0.0
        self._time_by = 0.0
        self._looks = 0
        self._ceilings: dict[str, int] = {}
        self._plans: dict[str, bytes] = {}
        self._round = _Round()

    # What others say to it, from any thread

    def hear(self, task: EpochTask) -> None:
        """Take note of what the driver says."""
        self.call(lambda: self._hear(task))

    def call(self, do: Callable[[], None]) -> None:
        """Let the thread of the subtask call something between two pieces of work."""
        self._mail.append(do)
        self.bell.ring()

    def put(self, block: Block) -> None:
        """Take what came on a channel."""
        self.inputs.put(block)
        self.bell.ring()

    # Its work

    def step(self) -> bool:
        """Do a piece of work; returns whether there was any."""
        if self._mail:
            self._mail.popleft()()
            return True
        if self._ending and self._ending[0] in self._tasks:
            self._end_epoch(self._tasks.pop(self._ending.popleft()))
            return True
        if not self._begun or self._ending:
            return False
        worked = self._read_all() if self._sources else self._take()
        if self._chain.calls_under_way:
            worked = self._poll_calls(0.0) or worked
        now = time.perf_counter()
        if not worked or self._pauses or now >= self._flush_by:
            pauses, self._pauses = self._pauses, False
            self._tidy(now, pauses and self._makes_time)
        # NB: loops ring when there is more, so there is no need to look again
        return worked and not (self._sources and all(each.awaits for each in self._sources))

    def wait(self) -> None:
        """Wait until there may be something to do."""
        began = time.perf_counter()
        if self._chain.calls_under_way:
            self._poll_calls(_CALLS)
        else:
            self.bell.wait(self._patience(began))
        self._round.idle += time.perf_counter() - began

    def _poll_calls(self, seconds: float) -> bool:
        """Let asynchronous calls go on; returns whether one of them has given something."""
        if not self._chain.poll_calls(seconds):
            return False
        self._begin_sending()
        return True

    def _patience(self, now: float) -> float | None:
        """Return how long there is nothing to do if nothing comes; None: for ever."""
        if not self._all_loaded:
            return None
        times = []
        if self._reads and self._polls:
            self._looks += 1
            times.append(_LOOK if self._looks < _MANY_LOOKS else _LOOK_LATER)
        if self._makes_time:
            times.append(self._time_by - now)
        due = self._chain.next_processing_timer()
        if due is not None:
            times.append((due - self._clock()) / 1000)
        return max(0.0, min(times)) if times else None

    # Rounds

    def _hear(self, task: EpochTask) -> None:
        self._round.steps.seconds.setdefault("load", 0.0)
        self._all_loaded = self._begun  # the driver begins a second round when the first has ended
        if not self._begun:
            self._begin_attempt(task)
        self._still = task.closing or not self._all_loaded
        self._ceilings = task.ceilings
        self._quotas = {source.operator.id: task.quota for source in self._sources}
        self._reach(3, task)
        with self._round.steps.timed("notify"):
            self._notify(task)
            self._writer.note_completed(task.completed)
            self._follow(task)
        self._tasks[task.epoch] = task
        if not self._level.producers:
            self._ending.append(task.epoch)

    def _begin_attempt(self, task: EpochTask) -> None:
        self._reach(2, task)
        with self._round.steps.timed("load"):
            self._writer.begin(task.chains[self._subtask])
            self._load(task)
            self._connect(self._outbox)
        reads = self._files.reads
        self._round.loaded = Loaded(reads.stored, reads.local + self._at_hand, reads.damaged)
        for source in self._sources:
            source.run_free()
        self._makes_time = any(
            isinstance(instance.time, StampingTime) for instance in self._chain.instances.values()
        ) or any(source.gives_time for source in self._sources)
        #: whether a source cannot tell by itself that there is more to read
        self._polls = any(not source.is_loop for source in self._sources)
        self._begun = True

    def _keep_files(self, names: set[str]) -> None:
        """Let go of what the host has of other state files than these."""
        self._files.keep(names)
        with suppress(OSError):  # what is left is tried again after the next checkpoint
            self._backend.keep_files(names)

    def _follow(self, task: EpochTask) -> None:
        """Tell the sources what their planners say, if it is new."""
        for source in self._sources:
            uid = source.operator.uid
            plan = task.plans.get(uid)
            if plan is not None and plan != self._plans.get(uid):
                self._plans[uid] = plan
                source.follow(plan)

    def _end_epoch(self, task: EpochTask) -> None:
        """The mark of an epoch has come on all channels (steps 5 to 7)."""
        self._reach(4, task)
        current, barrier = self._round, task.checkpoint is not None
        if task.draining:
            for source in self._sources:
                source.end()
        elif barrier:
            self._halt_loops(task)
        self._tidy(time.perf_counter(), moves_time=barrier or task.draining or task.closing)
        with current.steps.timed("flush"):
            self._chain.end_epoch(barrier or task.closing or not task.takes_checkpoints)
        self._reach(5, task)
        failure = None
        if task.checkpoint is not None:
            with current.steps.timed("snapshot"):
                failure = self._snapshot(task.checkpoint, task.checkpoint_timestamp)
        with current.steps.timed("flush"):
            self._close_functions(task, self._input_ended)
            self._flush()
        aligned = barrier and self._job.aligns
        self._say(Mark(task.epoch, aligned, self._input_ended, dict(self._times.watermarks)))
        self._reach(6, task)
        with current.steps.timed("persist"):
            self._backend.end_epoch()
            storing = barrier and failure is None
            if storing:
                self._store(task)
        self._reach(7, task)
        self._acknowledge(task, failure, storing)
        self._still = self._still or task.halts

    def _halt_loops(self, task: EpochTask) -> None:
        """Let the loops of source functions stand still until their snapshot."""
        for source in self._sources:
            if source.is_loop:
                self._read(source, _READ, barrier=True, halts=task.halts)

    def _store(self, task: EpochTask) -> None:
        assert task.checkpoint is not None
        self._save(task, carried=False)
        stamp = make_stamp(task.epoch, self._level.index, self._subtask)
        capture = self._backend.capture(stamp, task.epoch, durable=True)
        self._writer.write(task.checkpoint, capture)

    def _acknowledge(self, task: EpochTask, failure: str | None, storing: bool) -> None:
        current, self._round = self._round, _Round()
        sent, self._outbox.sent = self._outbox.sent, defaultdict(Flow)
        held_up, self._outbox.held_up = self._outbox.held_up, 0.0
        records, self._outbox.records = self._outbox.records, 0
        elapsed = time.perf_counter() - current.began_at
        barrier = task.checkpoint is not None
        acknowledgement = Acknowledgement(
            level=self._level.index,
            subtask=self._subtask,
            stamp=self._outbox.stamp,
            consumed={},
            chain=self._writer.chain,
            finished=self._input_ended,
            saturated=False,
            records_in=current.records_in,
            records_out=records,
            records_read=current.records_read,
            seconds=current.steps.seconds,
            metrics=self._chain.metrics(),
            rss=resident_bytes(),
            process=os.getpid(),
            snapshot_failure=failure,
            stateful=self._stateful() if barrier else (),
            watermarks=dict(self._times.operators),
            idle=self._times.idle,
            states=self._states() if barrier else {},
            began=current.began,
            acknowledged=self._clock(),
            taken=current.taken,
            sent=sent,
            read=current.read,
            storing=storing,
            busy_seconds=max(0.0, elapsed - current.idle - held_up),
            idle_seconds=current.idle,
            backpressured_seconds=held_up,
            loaded=current.loaded,
        )
        self._tell_driver(Kind.ACKNOWLEDGEMENT, encode(acknowledgement))

    def report(self, failure: Failure) -> None:
        """Tell the driver why the subtask cannot go on."""
        self._tell_driver(Kind.FAILURE, encode(failure))

    def _tell_driver(self, kind: Kind, data: bytes) -> None:
        driver = len(self._plan.levels)
        self._outbox.send_log(driver, self._subtask)
        self._outbox.send(kind, driver, self._subtask, data)

    def look_up(self, operator: str, state: str, key: Any, window: Any) -> Any:
        """Return what a key has in a state now, as a plain value; in the subtask's thread."""
        return look_up(self._backend, operator, state, key, window)

    # Records

    def _take(self) -> bool:
        """Take the next thing from the inputs."""
        item = self.inputs.take()
        if item is None:
            return False
        if item is TIME_MOVED:
            # NB: before the records behind it, for these may be late then
            self._pauses = True
        elif isinstance(item, Reached):
            self._ending.append(item.epoch)
        else:
            self._take_records(item)
            self.inputs.done(item)
        return True

    def _take_records(self, block: Block) -> None:
        exchange = self._plan.exchanges[block.header.exchange]
        flow = self._round.taken[exchange.id]
        started = time.perf_counter()
        records = decode_records(block.data)
        flow.bytes += len(block.data)
        flow.records += len(records)
        self._round.records_in += len(records)
        records = self._as_taken(exchange, records)
        self._feed(records, self._chain.inputs[exchange.target, exchange.input])
        flow.seconds += time.perf_counter() - started

    def _feed(self, records: Any, run: FusedRun) -> None:
        """Hand records to the functions, in slices, between which what these emit can leave."""
        first, began = 0, time.perf_counter()
        while first < len(records):
            self._begin_sending()
            run(records[first : first + self._slice])
            first += self._slice
            ended = time.perf_counter()
            fast = ended - began < _SLICE_SECONDS
            self._slice = min(_SLICE, 2 * self._slice) if fast else max(1, self._slice // 2)
            began = ended
            if ended >= self._flush_by and first < len(records):
                self._send_waiting()

    def _begin_sending(self) -> None:
        if not self._unsent:
            self._unsent = True
            self._flush_by = time.perf_counter() + _LONGEST_WAIT

    # Sources

    @property
    def _reads(self) -> bool:
        """Whether a source may have more to read."""
        return not (self._still or self._input_ended) and any(self._quotas.values())

    def _read_all(self) -> bool:
        """Read some records of each source; returns whether there were any."""
        if not self._reads:
            return False
        # NB: all of them, not the first that has some
        found = [
            self._read(source, min(self._at_once, self._quotas[source.operator.id]))
            for source in self._sources
        ]
        if any(found):
            self._looks = 0
        return any(found)

    def _read(
        self, source: SourceInstance, limit: int, barrier: bool = False, halts: bool = False
    ) -> bool:
        number = source.operator.id
        ceiling = self._ceilings.get(source.operator.uid)
        if ceiling is not None:
            limit = self._aligned_limit(source, ceiling, limit)
        request = ReadRequest(-1, limit, barrier, halts=halts)
        flow = self._round.read[number]
        before = flow.records
        started = time.perf_counter()
        for records in source.read(request):
            flow.records += len(records)
            if isinstance(records, SplitRecords):
                flow.records += len(records.aside)
                self._begin_sending()
                self._chain.turn_to(number, records)
            self._feed(records, self._chain.inputs[number, 0])
        if source.splits is not None:
            self._chain.keep_splits(number, source.splits)
        read = flow.records - before
        if read:
            self._pauses = self._pauses or read < limit
            seconds = time.perf_counter() - started
            self._adapt(read, seconds)
            flow.seconds += seconds
            self._round.records_read += read
            self._quotas[number] = max(0, self._quotas[number] - read)
        return read > 0

    def _adapt(self, read: int, seconds: float) -> None:
        """Ask for fewer records at once if the last ones took long to leave, or for more."""
        self._lately += read
        self._lately_seconds += seconds
        if self._lately_seconds > _LAST:
            self._lately /= 2
            self._lately_seconds /= 2
        wanted = int(self._lately * _READ_SECONDS / max(self._lately_seconds, 1e-6))
        self._at_once = max(1, min(_READ, 2 * self._at_once, wanted))

    def _aligned_limit(self, source: SourceInstance, ceiling: int, limit: int) -> int:
        """Hold the splits whose watermark is past the ceiling of their group."""
        instance = self._chain.instances[source.operator.id]
        stamping = instance.time
        assert isinstance(stamping, StampingTime)
        with at_work(instance.report):
            stamping.generate()
        ahead, splits = stamping.hold(ceiling)
        source.pause(splits)
        return 0 if ahead else min(limit, _SLICE)

    # Time, and what is sent on

    def _tidy(self, now: float, moves_time: bool = False) -> None:
        """Move time if there is reason to, and let nothing wait that could leave."""
        if self._makes_time and now >= self._time_by:
            self._time_by = now + (self._job.watermark_interval_ms or _TIME) / 1000
            moves_time = True
        ends = self._ends_now()
        if self.inputs.take_moved() or moves_time or ends:
            with self._round.steps.timed("time"):
                self._begin_sending()
                self._times = self._move_time(self.inputs.watermarks)
        elif self._has_due_timers():
            self._begin_sending()
            self._chain.fire_processing_timers()
        if ends:
            with self._round.steps.timed("flush"):
                self._chain.finish()
            self._input_ended = True
            # the driver need not wait for the next round to be due
            self._outbox.send(Kind.ENDED, len(self._plan.levels), self._subtask, b"")
        if self._unsent:
            self._send_waiting()
        if (self._times.watermarks, self._input_ended) != self._said:
            self._say(Mark(TIME_ONLY, False, self._input_ended, dict(self._times.watermarks)))

    def _send_waiting(self) -> None:
        """Send what waits for more records to leave with."""
        self._unsent = False
        self._outbox.send_log(len(self._plan.levels), self._subtask)
        for router in self._chain.routers:
            router.flush_all()
        for result in self._chain.results:
            result.flush()

    def _has_due_timers(self) -> bool:
        if not self._all_loaded:
            return False
        due = self._chain.next_processing_timer()
        return due is not None and due <= self._clock()

    def _ends_now(self) -> bool:
        """Whether the input has just ended."""
        if self._input_ended:
            return False
        return self.inputs.ended and all(source.finished for source in self._sources)

    def _say(self, mark: Mark) -> None:
        """Send a mark to all subtasks that this one sends to."""
        self._said = mark.watermarks, mark.ended
        data = encode(mark)
        for level in self._plan.targets(self._level.index):
            for target in range(self._plan.levels[level].parallelism):
                self._outbox.send(Kind.CONTROL, level, target, data)

    # Its end

    def leave(self) -> None:
        """Let go of everything; transactions that are open are aborted."""
        self._loops.stop()
        self._chain.abandon()
        self._writer.close()
        self.close()
        self._files.close()

    def forget(self) -> None:
        """Delete what the host keeps of a subtask that has left: the job has ended."""
        self._backend.close(ended=True)
        self._files.close(ended=True)


class _Round:
    """What a subtask did since its last acknowledgement."""

    def __init__(self) -> None:
        self.records_in = 0
        self.records_read = 0
        self.taken: defaultdict[int, Flow] = defaultdict(Flow)
        self.read: defaultdict[int, Flow] = defaultdict(Flow)
        self.steps = Stopwatch()
        self.loaded: Loaded | None = None
        self.idle = 0.0
        self.began = time.time()
        self.began_at = time.perf_counter()
