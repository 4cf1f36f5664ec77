"""What is under way to a subtask is what it handles in a second, and nobody waits for ever."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.resident.pace import SMALLEST_WINDOW, ChannelWindows, window_of
from holdfast.runtime.routing import Outbox, Router
from holdfast.testing import LocalExecutor
from tests.runtime.resident.test_channels import PRODUCERS

ONE = PRODUCERS[0]


class Channels:
    """The windows of a subtask, and what its producers may send."""

    def __init__(self, producers: int = len(PRODUCERS)) -> None:
        places = PRODUCERS[:producers]
        self.left = Counter(dict.fromkeys(places, SMALLEST_WINDOW))
        self.windows = ChannelWindows(
            places, lambda producer, size: self.left.update({producer: size})
        )

    def carry(self, producer: tuple[int, int], size: int, seconds: float) -> None:
        """Send a block and handle it."""
        self.left[producer] -= size
        self.windows.handled(producer, size, seconds)


def test_windows_are_bounded_for_all_producers_together() -> None:
    assert window_of(1) * 1 == window_of(2) * 2
    assert window_of(10_000) > 0


def test_a_fast_subtask_gets_the_largest_window_after_some_time() -> None:
    channels = Channels(producers=1)
    channels.carry(ONE, 1000, seconds=0.001)
    assert channels.left[ONE] <= 2000, "those after it may be slow"
    for _ in range(2000):
        channels.carry(ONE, 1000, seconds=0.0001)
    assert channels.left[ONE] > window_of(1) * 3 / 4


def test_a_slow_subtask_gets_what_it_handles_in_a_second() -> None:
    channels = Channels(producers=1)
    for _ in range(2000):
        channels.carry(ONE, 1000, seconds=0.0001)
    for _ in range(1000):
        channels.carry(ONE, 500, seconds=0.1)
    assert 2_500 < channels.left[ONE] <= 5_000


def test_a_subtask_that_becomes_fast_again_gets_more() -> None:
    channels = Channels(producers=1)
    channels.carry(ONE, 100_000, seconds=30.0)
    assert channels.left[ONE] < 4_000
    for _ in range(100_000):
        channels.carry(ONE, 1000, seconds=0.0001)
    assert channels.left[ONE] > window_of(1) * 3 / 4


sizes = st.integers(1, 1 << 20)
blocks = st.lists(st.tuples(st.sampled_from(PRODUCERS), sizes, st.floats(0.0, 20.0)))


@given(blocks)
def test_a_producer_with_nothing_under_way_may_always_send(
    blocks: list[tuple[tuple[int, int], int, float]],
) -> None:
    channels = Channels()
    for producer, size, seconds in blocks:
        channels.carry(producer, size, seconds)
        assert channels.left[producer] > 0
        assert channels.left[producer] <= max(window_of(len(PRODUCERS)), SMALLEST_WINDOW)


class HeldUp(Outbox):
    """Blocks of it wait for room as long as a slow subtask needs for their records."""

    seconds_per_record = 0.0

    def __init__(self) -> None:
        super().__init__(0, 0, "stamp")
        self.counts: list[int] = []

    def send(self, *args: object, **more: object) -> None:
        count = args[-1]
        assert isinstance(count, int)
        self.counts.append(count)
        self.held_up += count * self.seconds_per_record


def test_blocks_for_a_slow_subtask_become_small_and_grow_again(
    env: StreamExecutionEnvironment,
) -> None:
    env.from_collection([1]).map(str).print()
    with LocalExecutor(env) as run:
        exchange = run.plan.exchanges[0]
    router, outbox = Router(exchange, 0, FailureReporter("numbers", 0)), HeldUp()
    router.open(outbox)

    def largest_of_the_last_blocks() -> int:
        for number in range(100_000):
            router.emit(number, number)
        return max(outbox.counts[-5:])

    fast = largest_of_the_last_blocks()
    assert fast > 1000
    outbox.seconds_per_record = 0.001
    assert largest_of_the_last_blocks() <= 300
    outbox.seconds_per_record = 0.0
    assert largest_of_the_last_blocks() == fast
