"""The queue of timers, against a sorted list; and that it holds no more than there is."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.common import WatermarkStrategy
from holdfast.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from holdfast.datastream.time_domain import TimeDomain
from holdfast.runtime.timer_queue import TIMER_STATES, Timer, TimerQueue
from holdfast.state.backend import Head, HeapKeyedStateBackend, KeyContext
from holdfast.state.errors import StateCorruptionError
from holdfast.testing import EndOfEpoch, LocalExecutor, MemoryStateStorage, ScriptedSource

KEYS = st.sampled_from("abc")
TIMES = st.integers(0, 20)
#: of no window, of a count window, of a time window, of a session
NAMESPACES = st.sampled_from([None, 3, (0, 10), (0, 10, True)])


class Queues(RuleBasedStateMachine):
    """Timers are set, deleted, taken, saved and loaded; the model is a set of them."""

    @initialize()
    def begin(self) -> None:
        self.storage = MemoryStateStorage()
        self.head = Head()
        self.epoch = 0
        self.expected: set[Timer] = set()
        self.saved: set[Timer] = set()
        self._make()

    def _make(self) -> None:
        self.backend = HeapKeyedStateBackend(range(128), 128)
        self.context = KeyContext()
        self.queue = TimerQueue(TimeDomain.EVENT_TIME, "op", self.backend, self.context)

    @rule(key=KEYS, time=TIMES, namespace=NAMESPACES)
    def register(self, key: str, time: int, namespace: Any) -> None:
        self.context.key = key
        self.queue.register(time, namespace)
        self.expected.add(Timer(time, key, namespace))

    @rule(key=KEYS, time=TIMES, namespace=NAMESPACES)
    def delete(self, key: str, time: int, namespace: Any) -> None:
        self.context.key = key
        self.queue.delete(time, namespace)
        self.expected.discard(Timer(time, key, namespace))

    @rule(until=TIMES)
    def take(self, until: int) -> None:
        taken = list(self._due(until))
        assert [t.timestamp for t in taken] == sorted(t.timestamp for t in taken)
        assert sorted(taken, key=repr) == sorted(
            (t for t in self.expected if t.timestamp <= until), key=repr
        )
        self.expected.difference_update(taken)

    @rule()
    def save(self) -> None:
        self.epoch += 1
        self.head = self.backend.persist(self.storage, f"s{self.epoch}", self.epoch)
        self.saved = set(self.expected)

    @rule()
    def go_back(self) -> None:
        self.backend.restore(self.storage, self.head)
        self.expected = set(self.saved)

    @rule()
    def move(self) -> None:
        self._make()
        self.go_back()

    @invariant()
    def all_of_them_are_there(self) -> None:
        assert len(self.queue) >= len(self.expected)

    def _due(self, until: int) -> Iterator[Timer]:
        for timer in self.queue.due(until):
            assert self.context.key == timer.key
            yield timer


TestQueues = Queues.TestCase
TestQueues.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def queue_of_one_key() -> TimerQueue:
    context = KeyContext("a")
    backend = HeapKeyedStateBackend(range(128), 128)
    return TimerQueue(TimeDomain.EVENT_TIME, "op", backend, context)


def test_a_timer_that_is_moved_all_the_time_takes_the_place_of_few() -> None:
    queue = queue_of_one_key()
    queue.register(10**9)
    for time in range(10_000):
        queue.register(time, (0, 5))
        queue.delete(time, (0, 5))
    assert len(queue) < 3_000
    assert list(queue.due(10**9)) == [Timer(10**9, "a", None)]


def test_timers_that_are_set_and_deleted_meanwhile() -> None:
    queue = queue_of_one_key()
    for time in (1, 2, 3):
        queue.register(time)
    taken = []
    for timer in queue.due(5):
        taken.append(timer.timestamp)
        if timer.timestamp == 1:
            queue.delete(2)
            queue.register(4)
            queue.register(9)
    assert taken == [1, 3, 4]
    assert [timer.timestamp for timer in queue.due(9)] == [9]


# What they cost


def lines_run(call: Callable[[], object]) -> int:
    """How many lines of Python a call runs through."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def queue_of(timers: int) -> tuple[TimerQueue, KeyContext]:
    context = KeyContext()
    backend = HeapKeyedStateBackend(range(128), 128)
    queue = TimerQueue(TimeDomain.EVENT_TIME, "operator", backend, context)
    gc.disable()  # as good as: workers have a high threshold
    try:
        for number in range(timers):
            context.key = number % 1000
            queue.register(1_000_000 + number)
    finally:
        gc.enable()
    return queue, context


def test_a_watermark_that_fires_nothing_costs_the_same_for_a_million_timers() -> None:
    few, _ = queue_of(10)
    many, _ = queue_of(1_000_000)
    assert len(many) == 1_000_000
    assert lines_run(lambda: list(many.due(999_999))) == lines_run(lambda: list(few.due(999_999)))


def test_a_watermark_costs_in_proportion_to_what_it_fires() -> None:
    queue, _ = queue_of(100_000)
    one = lines_run(lambda: list(queue.due(1_000_000)))
    ten = lines_run(lambda: list(queue.due(1_000_010)))
    assert ten <= 10 * one


def size_of(timers: int) -> int:
    """The bytes that so many timers take, those of their state among them."""
    tracemalloc.start()
    try:
        queue, _ = queue_of(timers)
        assert len(queue) == timers
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_memory_is_in_proportion_to_what_waits() -> None:
    few, many = size_of(10_000), size_of(100_000)
    assert many < 15 * few
    assert many < 100_000 * 1000, "some hundred bytes each"


def test_of_timers_that_were_deleted_nothing_is_left() -> None:
    """Whether others are set meanwhile, or not."""
    queue, context = queue_of(100_000)
    for number in range(100_000):
        context.key = number % 1000
        queue.delete(1_000_000 + number)
    assert len(queue) < 3_000
    assert context.key == 999, "a sweep leaves the current key as it was"
    assert list(queue.due(9_000_000)) == []


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 5000), st.integers(1, 7))
def test_a_sweep_loses_no_timer(timers: int, kept: int) -> None:
    queue, context = queue_of(timers)
    for number in range(timers):
        if number % kept:
            context.key = number % 1000
            queue.delete(1_000_000 + number)
    for number in range(2000):
        context.key = "new"
        queue.register(number)
    wanted = [*range(2000), *(1_000_000 + n for n in range(timers) if n % kept == 0)]
    assert [timer.timestamp for timer in queue.due(9_000_000)] == wanted


@pytest.mark.parametrize("place", [(None, None), ("soon", None), ()])
def test_a_time_that_is_none_is_refused_when_it_is_loaded(place: tuple[Any, ...]) -> None:
    storage, forged = MemoryStateStorage(), HeapKeyedStateBackend(range(128), 128)
    name = TIMER_STATES[TimeDomain.EVENT_TIME]
    forged.marks("op", name, lambda marks: None).add(("key", place))
    head = forged.persist(storage, "stamp", 1)
    backend = HeapKeyedStateBackend(range(128), 128)
    TimerQueue(TimeDomain.EVENT_TIME, "op", backend, KeyContext())
    with pytest.raises(StateCorruptionError, match="the timers of operator 'op' cannot be used"):
        backend.restore(storage, head)


class Waits(KeyedProcessFunction):
    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(10_000_000 + value)


def epoch_cost(timers: int) -> int:
    """The lines that an epoch runs through which moves the watermark and fires nothing."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    script = [*range(timers), EndOfEpoch(), timers + 10, EndOfEpoch(), timers + 20, timers + 21]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda number, _: number
    )
    stream = env.from_source(ScriptedSource(script)).assign_timestamps_and_watermarks(strategy)
    waiting = stream.key_by(lambda number: number % 50).process(Waits())
    with LocalExecutor(waiting, quota=timers) as run:
        run.epoch()
        run.epoch()  # the first with a changed watermark and one timer
        return lines_run(run.epoch)


def test_an_epoch_that_fires_nothing_costs_the_same_with_many_timers() -> None:
    few, many = epoch_cost(500), epoch_cost(20_000)
    assert many < 1.2 * few
