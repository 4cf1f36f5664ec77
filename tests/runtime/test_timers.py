"""The queue of timers, against a sorted list; and that it holds no more than there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.datastream.time_domain import TimeDomain
from holdfast.runtime.timers import Timer, TimerQueue
from holdfast.state.backend import Chain, HeapKeyedStateBackend, KeyContext
from holdfast.testing import MemoryStateStorage

KEYS = st.sampled_from("abc")
TIMES = st.integers(0, 20)
#: of no window, of a count window, of a time window, of a session
NAMESPACES = st.sampled_from([None, 3, (0, 10), (0, 10, True)])


class Queues(RuleBasedStateMachine):
    """Timers are set, deleted, taken, saved and loaded; the model is a set of them."""

    @initialize()
    def begin(self) -> None:
        self.storage = MemoryStateStorage()
        self.chain = Chain()
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
        self.chain = self.backend.persist(self.storage, f"s{self.epoch}", self.epoch)
        self.saved = set(self.expected)

    @rule()
    def go_back(self) -> None:
        self.backend.restore(self.storage, self.chain)
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
