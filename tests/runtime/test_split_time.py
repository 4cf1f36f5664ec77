"""Watermarks of a source whose records come in splits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.common import Duration, WatermarkStrategy
from holdfast.common.constants import MIN_LONG_VALUE
from holdfast.runtime.event_time import StampingTime, Watermark

A, B, C = ("topic", 0), ("topic", 1), ("topic", 2)


class _Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


def made(
    strategy: WatermarkStrategy | None = None, clock: Callable[[], int] = lambda: 0
) -> StampingTime:
    return StampingTime(clock, strategy or WatermarkStrategy.for_monotonous_timestamps())


def see(time: StampingTime, split: tuple[str, int], *stamps: int) -> None:
    time.turn_to(split)
    for stamp in stamps:
        if stamp > time.largest:
            time.saw("record", stamp)


def test_time_is_where_the_slowest_split_is() -> None:
    time = made()
    see(time, A, 100, 50)
    see(time, B, 30)
    see(time, A, 120)
    time.keep_splits([A, B])
    assert time.generate() == Watermark(29)


def test_a_split_without_records_is_waited_for_and_one_that_is_gone_is_not() -> None:
    time = made()
    see(time, A, 100)
    see(time, B, 30)
    time.keep_splits([A, B, C])
    assert time.generate().time == MIN_LONG_VALUE
    time.keep_splits([A])
    assert time.generate() == Watermark(99)


def test_without_splits_there_is_nothing_to_wait_for() -> None:
    time = made()
    time.keep_splits([])
    assert time.generate() == Watermark(MIN_LONG_VALUE, idle=True)


def test_each_split_is_idle_by_itself() -> None:
    clock = _Clock()
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    time = made(strategy.with_idleness(Duration.of_millis(10)), clock)
    for now in (0, 6, 12):
        clock.now = now
        see(time, A, 100 + now)
        time.keep_splits([A, B])
        time.watermark = time.generate()
    assert time.watermark == Watermark(111)
    clock.now = 30
    assert time.generate() == Watermark(111, idle=True)


def test_what_is_saved_goes_on_in_another_process() -> None:
    time = made()
    see(time, A, 100)
    see(time, B, 30)
    time.keep_splits([A, B])
    time.watermark = time.generate()
    again = made()
    again.load(time.dump())
    see(again, B, 20, 90)
    assert again.generate() == Watermark(89)


@pytest.mark.parametrize(("mine", "expected"), [([A], 99), ([B], 29), ([A, B], 29), ([C], 29)])
def test_other_subtasks_go_on_with_the_splits_that_they_get(
    mine: list[tuple[str, int]], expected: int
) -> None:
    first, second = made(), made()
    see(first, A, 100)
    first.keep_splits([A])
    see(second, B, 30)
    second.keep_splits([B])
    for time in (first, second):
        time.watermark = time.generate()
    again = made()
    again.take_over([first.dump(), second.dump()])
    assert again.watermark == Watermark(29)
    again.keep_splits(mine)
    assert again.generate() == Watermark(expected)
