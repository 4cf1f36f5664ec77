"""Source functions that are read as their records come, by subtasks that are never run again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from holdfast.datastream import RuntimeContext, SourceFunction, StreamExecutionEnvironment
from holdfast.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    SourceContext,
)
from holdfast.datastream.state import ListStateDescriptor
from holdfast.runtime.event_time import Watermark
from holdfast.runtime.failures import OperatorFailed
from holdfast.runtime.operators.sources.free_loop import thread_sources
from holdfast.runtime.operators.sources.queue_room import QueueRoom, estimated_size
from holdfast.runtime.operators.sources.source_instance import (
    LiveSource,
    LoopStart,
    ReadRequest,
    SnapshotRequest,
)
from holdfast.runtime.worker.job_code import make_job_code
from holdfast.testing import LocalExecutor
from tests.endless import Endless

#: in seconds, for a machine that is slow and busy
LONGEST = 240

#: what the loops of the tests are told to emit; they run in threads of this process
_orders: SimpleQueue[Any] = SimpleQueue()
_told: list[Any] = []


class Ordered(SourceFunction):
    """Emits what the test orders; None ends it, an exception is raised."""

    def run(self, ctx: SourceContext) -> None:
        while (order := _orders.get()) is not None:
            if isinstance(order, Exception):
                raise order
            ctx.collect(order)

    def cancel(self) -> None:
        _told.append("cancelled")
        _orders.put(None)

    def close(self) -> None:
        _told.append("closed")


class Counter(SourceFunction, CheckpointedFunction, CheckpointListener):
    """Counts without end, from where its state is."""

    def __init__(self) -> None:
        self.running = True
        self.next = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        _told.append(runtime_context.get_attempt_number())

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("next"))
        self.next = next(iter(self.state.get()), 0)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update([self.next])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        _told.append(("complete", checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        _told.append(("aborted", checkpoint_id))

    def run(self, ctx: SourceContext) -> None:
        while self.running:
            with ctx.get_checkpoint_lock():
                ctx.collect(self.next)
                self.next += 1

    def cancel(self) -> None:
        self.running = False


class Timed(SourceFunction):
    gives_timestamps = True

    def run(self, ctx: SourceContext) -> None:
        ctx.collect_with_timestamp("a", 5)
        ctx.emit_watermark(4)
        ctx.mark_as_temporarily_idle()


class Slot:
    """Starts loops as a slot does, and notes when it is woken up."""

    def __init__(self) -> None:
        self.woken = threading.Semaphore(0)
        self.wakes = 0
        self.sources = thread_sources(3, self._wake)

    def _wake(self) -> None:
        self.wakes += 1
        self.woken.release()

    def start(self, function: SourceFunction, beginning: LoopStart = LoopStart()) -> LiveSource:  # noqa: B008 - immutable
        environment = StreamExecutionEnvironment.get_execution_environment()
        environment.add_source(function).uid("source").print()
        with LocalExecutor(environment) as planned:
            plan = planned.plan
        job = make_job_code("job", plan, "")
        return self.sources.connect(job, job.plan.operators[0], 0, beginning)

    def wait(self) -> None:
        assert self.woken.acquire(timeout=LONGEST), "nobody woke up the subtask"


@pytest.fixture
def slot() -> Iterator[Slot]:
    _told.clear()
    while not _orders.empty():
        _orders.get()
    made = Slot()
    yield made
    made.sources.stop()


def read(source: LiveSource, **request: Any) -> list[Any]:
    wanted = ReadRequest(0, request.pop("limit", 1_000_000), **request)
    return [record for batch in source.read(wanted) for record in batch]


def read_until(source: LiveSource, enough: Callable[[list[Any]], bool]) -> list[Any]:
    got: list[Any] = []
    while not enough(got):
        got += read(source)
    return got


def test_the_subtask_is_woken_for_a_record_in_an_empty_queue_and_for_the_end(slot: Slot) -> None:
    source = slot.start(Ordered())
    assert read(source) == []
    _orders.put("a")
    slot.wait()
    assert read(source) == ["a"]
    _orders.put("b")
    slot.wait()
    for order in ("c", "d", None):
        _orders.put(order)
    slot.wait()
    assert slot.wakes == 3, "for a, for b and for the end: c and d came while b was in the queue"
    assert not source.finished
    assert read(source, limit=2) == ["b", "c"]
    assert read(source) == ["d"]
    assert source.finished


def test_an_exception_comes_after_the_records_before_it(slot: Slot) -> None:
    source = slot.start(Ordered())
    for order in ("a", ValueError("no more")):
        _orders.put(order)
    slot.wait()
    slot.wait()
    batches = source.read(ReadRequest(0, 10))
    assert next(batches) == ["a"]
    with pytest.raises(OperatorFailed, match="no more") as failed:
        next(batches)
    assert "in run()" in failed.value.failure.error
    assert not source.finished


def test_a_barrier_cuts_the_stream_where_the_state_is(slot: Slot) -> None:
    source = slot.start(Counter(), LoopStart(restored=False, checkpointing=True))
    got = read_until(source, lambda got: len(got) > 1000)
    for checkpoint in (1, 2, 3):
        got += read(source, barrier=True)
        assert read(source, barrier=True) == [], "it stands still"
        image = source.snapshot(SnapshotRequest(checkpoint, 0)).image
        got += read_until(source, lambda got: len(got) > 100)
    assert got == list(range(len(got)))
    slot.sources.stop()

    again = slot.start(Counter(), LoopStart(True, image, True))
    rest = read_until(again, lambda got: len(got) > 100)
    assert rest == list(range(rest[0], rest[0] + len(rest)))
    assert 0 < rest[0] < len(got), "from the state of the last checkpoint on"
    assert got[: rest[0]] + rest == list(range(rest[0] + len(rest)))


def test_a_source_that_halts_stands_still_until_a_read_without_it(slot: Slot) -> None:
    source = slot.start(Counter())
    got = read(source, barrier=True, halts=True)
    source.snapshot(SnapshotRequest(1, 0))
    assert read(source, halts=True) == read(source, halts=True) == []
    got += read_until(source, bool)
    assert got == list(range(len(got)))


def test_a_loop_hears_of_checkpoints_once(slot: Slot) -> None:
    source = slot.start(Counter())
    source.notify((1, 3), (2,))
    read(source)
    assert _told == [3, ("complete", 1), ("aborted", 2), ("complete", 3)]


def test_a_barrier_after_the_end(slot: Slot) -> None:
    source = slot.start(Ordered())
    for order in ("a", None):
        _orders.put(order)
    slot.wait()
    slot.wait()
    assert read(source, barrier=True) == ["a"]
    assert source.snapshot(SnapshotRequest(1, 0)).failure is None
    assert read(source, barrier=True) == []
    assert source.finished


def test_a_barrier_waits_for_no_reader_of_a_full_queue(slot: Slot) -> None:
    source = slot.start(Endless())
    slot.wait()
    # NB: nobody reads: the loop fills its queue, and waits with the lock held
    got = read(source, barrier=True)
    source.snapshot(SnapshotRequest(1, 0))
    got += read_until(source, lambda got: len(got) > 200_000)
    assert got == list(range(len(got)))


def test_time_by_the_function(slot: Slot) -> None:
    source = slot.start(Timed())
    got: list[Any] = []
    while not source.finished:
        got += read(source)
    assert got == [("a", 5)]
    assert source.watermark == Watermark(4, True)


def test_stop_cancels_and_closes(slot: Slot) -> None:
    slot.start(Ordered())
    assert slot.sources
    slot.sources.stop()
    assert _told == ["cancelled", "closed"]
    assert not slot.sources


def test_stop_while_the_loop_is_halted(slot: Slot) -> None:
    source = slot.start(Counter())
    read(source, barrier=True, halts=True)
    slot.sources.stop()
    assert "holdfast-source" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(
    ("record", "most"),
    [
        (1, 100_000),
        (b"x" * 1_000_000, 67),
        (("key", {"a": "x" * 1_000_000}), 67),
        ([b"x" * 100_000] * 10, 67),
        (b"x" * 1_000_000_000, 1),
    ],
)
def test_fewer_records_wait_if_they_are_large(record: Any, most: int) -> None:
    room = QueueRoom()
    for _ in range(1000):
        room.note(record)
    assert most * 0.9 <= room.records <= most


def test_records_that_become_larger_are_noticed() -> None:
    room = QueueRoom()
    for _ in range(100):
        room.note(1)
    assert room.records == 100_000
    for _ in range(1000):
        room.note(b"x" * 1_000_000)
    assert room.records < 100
    for _ in range(10_000):
        room.note(1)
    assert room.records == 100_000


def test_the_size_of_objects_with_fields() -> None:
    class Plain:
        def __init__(self) -> None:
            self.data = b"x" * 5000

    class Slots:
        __slots__ = ("data", "never_set")

        def __init__(self) -> None:
            self.data = b"x" * 5000

    assert 5000 < estimated_size(Plain()) < 6000
    assert 5000 < estimated_size(Slots()) < 6000
