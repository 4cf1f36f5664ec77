"""A subtask that runs permanently, and works as long as there is something to do.

It does one piece of work at a time (`step`), and is driven by a thread of its slot, or by a test.
It never blocks, except for credit on a channel.

The numbered steps of a round are those of an epoch (`docs/internals/epoch.md`), at other times: 2
(load) once per attempt, 3 (notify) as soon as the driver says so, 4 (process) all the time, 5 to 7
(snapshot, capture, acknowledge) when the mark of the round has arrived on all channels.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from holdfast.datastream.columns.batch import count_rows
from holdfast.runtime.context import Clock
from holdfast.runtime.event_time import StampingTime
from holdfast.runtime.fusion import Run as FusedRun
from holdfast.runtime.operators.sources.free_loop import thread_sources
from holdfast.runtime.resident.channels import TIME_MOVED, Bell, Inputs, Reached
from holdfast.runtime.resident.intake import SLICE, Intake
from holdfast.runtime.resident.messages import TIME_ONLY, Mark
from holdfast.runtime.resident.outbox import ChannelOutbox, Post
from holdfast.runtime.resident.queries import look_up
from holdfast.runtime.resident.states import StateWriter
from holdfast.runtime.subtask import LevelSubtask, Times, make_stamp
from holdfast.runtime.wire.blocks import Block, Kind, decode_records
from holdfast.runtime.wire.protocol import (
    EpochTask,
    Failure,
    Loaded,
    Progress,
    encode,
)
from holdfast.runtime.work import Work
from holdfast.runtime.worker.job_code import JobCode
from holdfast.state.backend import StateStorage
from holdfast.state.local_copies import Copies, HostStorage

#: target time for the records that are passed to the functions at once, in seconds
_SLICE_SECONDS: Final = 0.002
#: maximum time that records wait in a busy subtask before they are sent, in seconds
_LONGEST_WAIT: Final = 0.02
#: default interval of generating watermarks, in milliseconds
_TIME: Final = 200
#: a subtask whose last acknowledgement is this many seconds ago reports its progress
LONG_ROUND: Final = 2.0
#: how long to wait for asynchronous calls before looking at inputs again, in seconds
_CALLS: Final = 0.002


class ResidentSubtask(LevelSubtask):
    """A subtask, from the first round of an attempt to its end.

    Attributes:
        inputs: what has arrived for it.
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
        """Create the operators; the first task of the driver loads their state.

        ``writer``: writes the states of checkpoints. ``copies``: the host's copies of the subtask's
        state files.
        """
        self.bell = Bell()
        self._loops = thread_sources(attempt, self.bell.ring)
        self._files = HostStorage(storage, copies)
        super().__init__(job, level, subtask, attempt, self._files, clock, self._loops)
        self.inputs = Inputs(
            self._expected(), lambda producer, size: post.put_back(producer, (level, subtask), size)
        )
        stamp = make_stamp(0, level, subtask)
        self._outbox = ChannelOutbox(level, subtask, stamp, post)
        self._writer = writer(self._files, post, clock, (level, subtask), self._keep_files)
        self._mail: deque[Callable[[], None]] = deque()
        #: the driver's tasks for epochs whose mark has not arrived
        self._tasks: dict[int, EpochTask] = {}
        #: epochs that end as soon as the driver's task has arrived, in order
        self._ending: deque[int] = deque()
        self._begun = False
        #: all subtasks have loaded their state. No user function is called before that, so that a
        #: start with a state that does not fit fails with that error
        self._all_loaded = False
        #: no source is read
        self._still = False
        #: number of records that are passed to the functions at once
        self._slice = 1
        self._input_ended = False
        self._times = Times()
        self._said: tuple[dict[int, int | None], bool] = ({}, False)
        #: the watermark may advance: nothing should wait
        self._pauses = False
        #: whether records may have been emitted since the routers were last flushed
        self._unsent = False
        self._flush_by = 0.0
        self._time_by = 0.0
        self._round = _Round()

    # Called from any thread

    def hear(self, task: EpochTask) -> None:
        """Handle a task of the driver."""
        self.call(lambda: self._hear(task))

    def call(self, do: Callable[[], None]) -> None:
        """Call a function in the thread of the subtask, between two pieces of work."""
        self._mail.append(do)
        self.bell.ring()

    def put(self, block: Block) -> None:
        """Add a block that arrived on a channel."""
        self.inputs.put(block)
        self.bell.ring()

    def progress(self) -> Progress | None:
        """Return what it did since its last acknowledgement; None if that is not long ago.

        Its thread works, waits, or is in a function meanwhile, so the figures are approximate.
        """
        current, now = self._round, time.perf_counter()
        elapsed = now - current.began_at
        if not self._begun or elapsed < LONG_ROUND:
            return None
        idle = min(elapsed, current.idle_until(now))
        held_up = min(elapsed - idle, self._outbox.held_up_until(now))
        return Progress(
            self._level.index,
            self._subtask,
            dict(current.taken),
            dict(self._outbox.sent),
            dict(current.read),
            elapsed - idle - held_up,
            idle,
            held_up,
        )

    # Its work

    def step(self) -> bool:
        """Do a piece of work; return whether there was any."""
        if self._mail:
            self._mail.popleft()()
            return True
        if self._ending and self._ending[0] in self._tasks:
            self._end_epoch(self._tasks.pop(self._ending.popleft()))
            return True
        if not self._begun or self._ending:
            return False
        worked = self._read() if self._sources else self._take()
        if self._operators.calls_under_way:
            worked = self._poll_calls(0.0) or worked
        now = time.perf_counter()
        pauses = self._pauses or self._intake.ran_dry
        if not worked or pauses or now >= self._flush_by:
            self._pauses = self._intake.ran_dry = False
            self._tidy(now, pauses and self._makes_time)
        # NB: loops ring the bell when there is more, so polling is not needed
        return worked and not self._intake.awaits

    def wait(self) -> None:
        """Wait until there may be something to do."""
        self._round.idle_since = began = time.perf_counter()
        if self._operators.calls_under_way:
            self._poll_calls(_CALLS)
        else:
            self.bell.wait(self._patience(began))
        self._round.idle_since = None
        self._round.idle += time.perf_counter() - began

    def _poll_calls(self, seconds: float) -> bool:
        """Run asynchronous calls; return whether one of them has produced a result."""
        if not self._operators.poll_calls(seconds):
            return False
        self._begin_sending()
        return True

    def _patience(self, now: float) -> float | None:
        """Return how long to wait if nothing arrives; None: without limit."""
        if not self._all_loaded:
            return None
        times = []
        if self._reads and (look := self._intake.next_look()) is not None:
            times.append(look)
        if self._makes_time:
            times.append(self._time_by - now)
        due = self._operators.next_processing_timer()
        if due is not None:
            times.append((due - self._clock()) / 1000)
        return max(0.0, min(times)) if times else None

    # Rounds

    def _hear(self, task: EpochTask) -> None:
        self._round.steps.seconds.setdefault("load", 0.0)
        self._all_loaded = self._begun  # the second round begins when the first one has ended
        if not self._begun:
            self._begin_attempt(task)
        self._still = task.closing or not self._all_loaded
        self._intake.begin_epoch(task)
        self._reach(3, task)
        with self._round.steps.timed("notify"):
            self._notify(task)
            self._writer.note_completed(task.completed)
            self._intake.follow(task.plans)
        self._tasks[task.epoch] = task
        if not self._level.producers:
            self._ending.append(task.epoch)

    def _begin_attempt(self, task: EpochTask) -> None:
        self._reach(2, task)
        with self._round.steps.timed("load"):
            self._writer.begin(task.heads[self._subtask])
            self._load(task)
            self._connect(self._outbox)
        reads = self._files.reads
        self._round.loaded = Loaded(reads.stored, reads.local + self._at_hand, reads.damaged)
        self._intake = Intake(self._sources, self._operators, self._feed, self._begin_sending)
        self._makes_time = any(
            isinstance(instance.time, StampingTime)
            for instance in self._operators.instances.values()
        ) or any(source.gives_time for source in self._sources)
        self._begun = True

    def _keep_files(self, names: set[str]) -> None:
        """Delete the host's copies of all state files but these."""
        self._files.keep(names)
        with suppress(OSError):  # it is tried again after the next checkpoint
            self._backend.keep_files(names)

    def _end_epoch(self, task: EpochTask) -> None:
        """End an epoch whose mark has arrived on all channels (steps 5 to 7)."""
        self._reach(4, task)
        current, barrier = self._round, task.checkpoint is not None
        if task.draining:
            self._intake.end()
        elif barrier:
            self._intake.halt_loops(task.halts, current)
        self._tidy(time.perf_counter(), moves_time=barrier or task.draining or task.closing)
        with current.steps.timed("flush"):
            self._operators.end_epoch(barrier or task.closing or not task.takes_checkpoints)
        self._reach(5, task)
        failure = None
        if task.checkpoint is not None:
            with current.steps.timed("snapshot"):
                failure = self._snapshot(task.checkpoint, task)
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

    def _store(self, task: EpochTask) -> None:
        assert task.checkpoint is not None
        self._save(task, carried=False)
        stamp = make_stamp(task.epoch, self._level.index, self._subtask)
        capture = self._backend.capture(stamp, task.epoch, durable=True)
        self._writer.write(task.checkpoint, capture)

    def _acknowledge(self, task: EpochTask, failure: str | None, storing: bool) -> None:
        current, self._round = self._round, _Round()
        held_up = self._outbox.held_up
        elapsed = time.perf_counter() - current.began_at
        acknowledgement = self._acknowledgement(
            task,
            current,
            self._outbox,
            self._times,
            head=self._writer.head,
            finished=self._input_ended,
            snapshot_failure=failure,
            storing=storing,
            busy_seconds=max(0.0, elapsed - current.idle - held_up),
            idle_seconds=current.idle,
            backpressured_seconds=held_up,
            loaded=current.loaded,
        )
        self._outbox.count_anew()
        self._outbox.tell_driver(self._plan, Kind.ACKNOWLEDGEMENT, encode(acknowledgement))

    def report(self, failure: Failure) -> None:
        """Report to the driver why the subtask cannot continue."""
        self._outbox.tell_driver(self._plan, Kind.FAILURE, encode(failure))

    def look_up(self, operator: str, state: str, key: Any, window: Any) -> Any:
        """Return the value of a key in a state now, as a plain value; in the subtask's thread."""
        return look_up(self._backend, operator, state, key, window)

    # Records

    @property
    def _reads(self) -> bool:
        """Return whether a source may have more to read."""
        return self._intake.may_read and not (self._still or self._input_ended)

    def _read(self) -> bool:
        """Read some records from the sources."""
        return self._reads and self._intake.read(self._round)

    def _take(self) -> bool:
        """Take the next item from the inputs."""
        item = self.inputs.take()
        if item is None:
            return False
        if item is TIME_MOVED:
            # NB: before the records behind it, because these may then be late
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
        flow.records += count_rows(records)
        self._round.records_in += count_rows(records)
        records = self._as_taken(exchange, records)
        self._feed(records, self._operators.inputs[exchange.target, exchange.input])
        flow.seconds += time.perf_counter() - started

    def _feed(self, records: Any, run: FusedRun) -> None:
        """Pass records to the functions in slices, and send their output in between."""
        first, began = 0, time.perf_counter()
        while first < len(records):
            self._begin_sending()
            run(records[first : first + self._slice])
            first += self._slice
            ended = time.perf_counter()
            fast = ended - began < _SLICE_SECONDS
            self._slice = min(SLICE, 2 * self._slice) if fast else max(1, self._slice // 2)
            began = ended
            if ended >= self._flush_by and first < len(records):
                self._send_waiting()

    def _begin_sending(self) -> None:
        if not self._unsent:
            self._unsent = True
            self._flush_by = time.perf_counter() + _LONGEST_WAIT

    # Time, and what is sent on

    def _tidy(self, now: float, moves_time: bool = False) -> None:
        """Advance the watermark if needed, and send everything that waits."""
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
            self._operators.fire_processing_timers()
        if ends:
            with self._round.steps.timed("flush"):
                self._operators.finish()
            self._input_ended = True
            # so that the driver does not wait until the next round is due
            self._outbox.send(Kind.ENDED, self._plan.driver_level, self._subtask, b"")
        if self._unsent:
            self._send_waiting()
        if (self._times.watermarks, self._input_ended) != self._said:
            self._say(Mark(TIME_ONLY, False, self._input_ended, dict(self._times.watermarks)))

    def _send_waiting(self) -> None:
        """Send buffered records and results, without waiting for more."""
        self._operators.flush()
        self._unsent = False
        self._outbox.send_log(self._plan.driver_level, self._subtask)
        for router in self._operators.routers:
            router.flush_all()
        for result in self._operators.results:
            result.flush()

    def _has_due_timers(self) -> bool:
        if not self._all_loaded:
            return False
        due = self._operators.next_processing_timer()
        return due is not None and due <= self._clock()

    def _ends_now(self) -> bool:
        """Return whether the input has just ended."""
        if self._input_ended:
            return False
        return self.inputs.ended and self._intake.finished

    def _say(self, mark: Mark) -> None:
        """Send a mark to all downstream subtasks."""
        self._said = mark.watermarks, mark.ended
        self._outbox.announce(self._plan, encode(mark))

    # Its end

    def leave(self) -> None:
        """Release all resources; open transactions are aborted."""
        self._loops.stop()
        self._operators.abandon()
        self._writer.close()
        self.close()
        self._files.close()

    def forget(self) -> None:
        """Delete the host's copies for a subtask that has left, because the job has ended."""
        self._backend.close(ended=True)
        self._files.close(ended=True)


class _Round(Work):
    """What a subtask did since its last acknowledgement, and how it spent its time."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: Loaded | None = None
        self.idle = 0.0
        #: since when the subtask has been idle; None: it works
        self.idle_since: float | None = None
        self.began_at = time.perf_counter()

    def idle_until(self, now: float) -> float:
        """Return how long the subtask was idle, with the time that it waits now; any thread."""
        since = self.idle_since
        return self.idle + (0.0 if since is None else max(0.0, now - since))
