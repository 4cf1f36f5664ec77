"""Windows as values: equal, ordered, hashed, pickled, written; and how time windows merge."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.constants import MAX_LONG_VALUE
from holdfast.datastream.window import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    MergingWindowAssigner,
    TimeWindow,
    TimeWindowSerializer,
    Window,
)

times = st.integers(-60, 60)
time_windows = st.builds(lambda start, length: TimeWindow(start, start + length), times, times)
sessions = st.builds(
    lambda start, length: TimeWindow(start, start + length), times, st.integers(1, 15)
)


class Merges(MergingWindowAssigner.MergeCallback[TimeWindow]):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.merges: list[tuple[list[TimeWindow], TimeWindow]] = []

    def merge(self, to_be_merged: Iterable[TimeWindow], merge_result: TimeWindow) -> None:
        self.merges.append((list(to_be_merged), merge_result))


@pytest.mark.parametrize("window", [TimeWindow(-5, 10), CountWindow(3), GlobalWindow.get()])
def test_windows_are_values(window: Any) -> None:
    copy = pickle.loads(pickle.dumps(window))
    assert isinstance(window, Window)
    assert copy == window
    assert hash(copy) == hash(window)
    assert window != (window,)
    with pytest.raises(AttributeError):
        window.start = 1


def test_different_windows_differ() -> None:
    assert TimeWindow(0, 1) != TimeWindow(0, 2)
    assert TimeWindow(0, 1) != TimeWindow(-1, 1)
    assert CountWindow(0) != CountWindow(1)
    assert CountWindow(0) != GlobalWindow()
    assert len({TimeWindow(0, 1), TimeWindow(0, 1), CountWindow(0), GlobalWindow()}) == 3


def test_a_window_says_when_it_ends() -> None:
    assert TimeWindow(0, 10).max_timestamp() == 9
    assert CountWindow(4).max_timestamp() == GlobalWindow.get().max_timestamp() == MAX_LONG_VALUE


def test_a_window_class_without_an_end_is_named() -> None:
    class Season(Window):
        pass

    with pytest.raises(NotImplementedError, match=r"class Season has no max_timestamp\(\)"):
        Season().max_timestamp()


@given(time_windows, time_windows)
def test_time_windows_are_ordered_by_start_and_end(a: TimeWindow, b: TimeWindow) -> None:
    assert (a < b) == ((a.start, a.end) < (b.start, b.end))
    assert (a <= b) == ((a.start, a.end) <= (b.start, b.end))


@given(sessions, sessions)
def test_two_windows_intersect_if_they_share_a_point_or_a_border(
    a: TimeWindow, b: TimeWindow
) -> None:
    points = set(range(a.start, a.end + 1)) & set(range(b.start, b.end + 1))
    assert a.intersects(b) == b.intersects(a) == bool(points)
    cover = a.cover(b)
    assert (cover.start, cover.end) == (min(a.start, b.start), max(a.end, b.end))


@given(st.integers(-(10**15), 10**15), st.integers(1, 10**6), st.integers(-(10**6) + 1, 10**6 - 1))
def test_a_window_starts_at_a_multiple_moved_by_the_offset(
    timestamp: int, size: int, offset: int
) -> None:
    start = TimeWindow.get_window_start_with_offset(timestamp, offset, size)
    assert start <= timestamp < start + size
    assert (start - offset) % size == 0


@given(st.lists(sessions, max_size=20))
def test_merging_is_the_union_of_intervals(windows: list[TimeWindow]) -> None:
    callback = Merges()
    TimeWindow.merge_windows(windows, callback)
    merged = [window for group, _ in callback.merges for window in group]
    assert len(merged) == len(set(merged))
    assert all(len(group) > 1 for group, _ in callback.merges)
    results = {result for _, result in callback.merges} | (set(windows) - set(merged))
    assert {(window.start, window.end) for window in results} == union(windows)


@given(st.lists(sessions, max_size=12))
def test_merging_one_by_one_is_merging_at_once(windows: list[TimeWindow]) -> None:
    """As a window operator does it: a key has disjoint windows, and one is added."""
    live: set[TimeWindow] = set()
    for window in windows:
        callback = Merges()
        TimeWindow.merge_windows([*live, window], callback)
        live.add(window)
        for group, result in callback.merges:
            assert window in group or window == result
            live = (live - set(group)) | {result}
    assert {(window.start, window.end) for window in live} == union(windows)


def test_merges_come_in_order_of_time() -> None:
    callback = Merges()
    a, b, c, d, e = (TimeWindow(s, s + 10) for s in (0, 10, 40, 45, 100))
    TimeWindow.merge_windows([e, d, b, c, a], callback)
    assert callback.merges == [([a, b], TimeWindow(0, 20)), ([c, d], TimeWindow(40, 55))]


@pytest.mark.parametrize(
    ("serializer", "windows", "size"),
    [
        (TimeWindowSerializer(), [TimeWindow(-(2**63), 2**63 - 1), TimeWindow(0, 5)], 16),
        (CountWindowSerializer(), [CountWindow(0), CountWindow(2**40)], 8),
        (GlobalWindowSerializer(), [GlobalWindow(), GlobalWindow()], 0),
    ],
)
def test_serializers_read_what_they_wrote(serializer: Any, windows: list[Any], size: int) -> None:
    stream = BytesIO()
    for window in windows:
        serializer.serialize(window, stream)
    assert len(stream.getvalue()) == size * len(windows)
    stream.seek(0)
    assert [serializer.deserialize(stream) for _ in windows] == windows


def union(windows: Iterable[TimeWindow]) -> set[tuple[int, int]]:
    """The connected pieces of the line that the windows, borders included, cover."""
    steps = {step for window in windows for step in range(window.start, window.end)}
    starts = sorted(step for step in steps if step - 1 not in steps)
    ends = sorted(step + 1 for step in steps if step + 1 not in steps)
    return set(zip(starts, ends, strict=True))
