"""Assigners against windows by brute force."""

from __future__ import annotations

import pickle
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common import Duration, Time
from holdfast.common.constants import MIN_LONG_VALUE
from holdfast.datastream.window import (
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    CountWindow,
    CountWindowSerializer,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    GlobalWindowSerializer,
    MergingWindowAssigner,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    TimeWindowSerializer,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from holdfast.state.backends.heap import HeapKeyedStateBackend
from holdfast.state.live.key_context import KeyContext

ENV: Any = None  # no built-in assigner looks at it


class Context(WindowAssigner.WindowAssignerContext):
    """A clock that stands still, and state that is real."""

    def __init__(self, now: int = 0) -> None:
        self.now = now
        self.key = KeyContext("key")
        self._backend = HeapKeyedStateBackend(range(128), 128)

    def get_current_processing_time(self) -> int:
        return self.now

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(
            get_state=lambda descriptor: self._backend.keyed_state("op", descriptor, self.key)
        )


def half_a_second(element: Any) -> int:
    return 500


class ByLength(SessionWindowTimeGapExtractor):
    def extract(self, element: str) -> int:
        return len(element)


times = st.integers(-5_000, 5_000)
sizes = st.integers(1, 300)
fractions = st.floats(-0.99, 0.99)

ALL: list[WindowAssigner[Any, Any]] = [
    TumblingEventTimeWindows.of("1 s", "200 ms"),
    TumblingProcessingTimeWindows.of("1 s"),
    SlidingEventTimeWindows.of("1 s", "100 ms"),
    SlidingProcessingTimeWindows.of("1 s", "100 ms", -50),
    EventTimeSessionWindows.with_gap("1 s"),
    ProcessingTimeSessionWindows.with_gap("1 s"),
    EventTimeSessionWindows.with_dynamic_gap(half_a_second),
    ProcessingTimeSessionWindows.with_dynamic_gap(half_a_second),
    GlobalWindows.create(),
    CountTumblingWindowAssigner.of(5),
    CountSlidingWindowAssigner.of(5, 2),
]
OF_TIME = ALL[:8]


def by_brute_force(time: int, size: int, slide: int, offset: int) -> list[TimeWindow]:
    """Of all windows anywhere near, those that have the point in them; the latest first."""
    far = (abs(time) + size) // slide + 2
    starts = (offset + n * slide for n in range(far, -far - 1, -1))
    return [TimeWindow(s, s + size) for s in starts if s <= time < s + size]


@given(times, sizes, fractions)
def test_tumbling_windows(time: int, size: int, fraction: float) -> None:
    offset = int(size * fraction)
    expected = by_brute_force(time, size, size, offset)
    assert len(expected) == 1
    by_event = TumblingEventTimeWindows.of(size, offset)
    by_clock = TumblingProcessingTimeWindows.of(size, offset)
    assert by_event.assign_windows("a", time, Context()) == expected
    assert by_clock.assign_windows("a", MIN_LONG_VALUE, Context(time)) == expected


@given(times, sizes, sizes, fractions)
def test_sliding_windows(time: int, size: int, slide: int, fraction: float) -> None:
    offset = int(slide * fraction)
    expected = by_brute_force(time, size, slide, offset)
    by_event = SlidingEventTimeWindows.of(size, slide, offset)
    by_clock = SlidingProcessingTimeWindows.of(size, slide, offset)
    assert by_event.assign_windows("a", time, Context()) == expected
    assert by_clock.assign_windows("a", MIN_LONG_VALUE, Context(time)) == expected


def test_records_between_sliding_windows_belong_to_none() -> None:
    assigner = SlidingEventTimeWindows.of(size=2, slide=10)
    assigned = [assigner.assign_windows("a", time, Context()) for time in range(-3, 4)]
    assert assigned == [[], [], [], [TimeWindow(0, 2)], [TimeWindow(0, 2)], [], []]


def test_days_of_another_time_zone() -> None:
    assigner = TumblingEventTimeWindows.of(Time.days(1), Time.hours(-8))
    midnight_in_shanghai = -8 * 3_600_000
    (window,) = assigner.assign_windows("a", 0, Context())
    assert window == TimeWindow(midnight_in_shanghai, midnight_in_shanghai + 86_400_000)


@given(times, sizes)
def test_a_session_begins_as_a_window_of_its_gap(time: int, gap: int) -> None:
    expected = [TimeWindow(time, time + gap)]
    by_event = EventTimeSessionWindows.with_gap(gap)
    by_clock = ProcessingTimeSessionWindows.with_gap(gap)
    assert by_event.assign_windows("a", time, Context()) == expected
    assert by_clock.assign_windows("a", MIN_LONG_VALUE, Context(time)) == expected


@pytest.mark.parametrize("extractor", [ByLength(), len, lambda word: timedelta(milliseconds=5)])
def test_the_gap_may_come_from_the_record(extractor: Any) -> None:
    by_event = EventTimeSessionWindows.with_dynamic_gap(extractor)
    by_clock = ProcessingTimeSessionWindows.with_dynamic_gap(extractor)
    assert isinstance(by_event, DynamicEventTimeSessionWindows)
    assert isinstance(by_clock, DynamicProcessingTimeSessionWindows)
    assert by_event.assign_windows("fives", -2, Context()) == [TimeWindow(-2, 3)]
    assert by_clock.assign_windows("fives", 9, Context(-2)) == [TimeWindow(-2, 3)]


def test_a_record_without_a_gap_is_named() -> None:
    assigner = EventTimeSessionWindows.with_dynamic_gap(ByLength())
    message = r"the gap must be longer than zero; the extractor .*ByLength.* returned 0 ms for ''"
    with pytest.raises(ValueError, match=message):
        assigner.assign_windows("", 0, Context())
    with pytest.raises(TypeError, match="expected a SessionWindowTimeGapExtractor or a function"):
        EventTimeSessionWindows.with_dynamic_gap(5)  # type: ignore[arg-type]


def test_sessions_merge() -> None:
    told: list[Any] = []
    callback = SimpleNamespace(merge=lambda group, result: told.append((list(group), result)))
    windows = [TimeWindow(0, 10), TimeWindow(20, 30), TimeWindow(9, 19)]
    for assigner in OF_TIME[4:]:
        told.clear()
        assert isinstance(assigner, MergingWindowAssigner)
        assigner.merge_windows(windows, callback)  # type: ignore[arg-type]
        assert told == [([windows[0], windows[2]], TimeWindow(0, 19))]


def test_all_records_are_in_the_global_window() -> None:
    assigned = GlobalWindows.create().assign_windows("a", MIN_LONG_VALUE, Context())
    assert assigned == [GlobalWindow.get()]


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 60))
def test_sliding_count_windows(size: int, slide: int, records: int) -> None:
    context, assigner = Context(), CountSlidingWindowAssigner.of(size, slide)
    for position in range(records):
        expected = {CountWindow(n) for n in range(61) if 0 <= position - n * slide < size}
        assigned = assigner.assign_windows("a", MIN_LONG_VALUE, context)
        assert set(assigned) == expected
        assert len(assigned) == len(expected)


@given(st.integers(1, 12), st.integers(0, 60))
def test_tumbling_count_windows(size: int, records: int) -> None:
    context, assigner = Context(), CountTumblingWindowAssigner.of(size)
    assigned = [assigner.assign_windows("a", MIN_LONG_VALUE, context) for _ in range(records)]
    assert assigned == [[CountWindow(position // size)] for position in range(records)]


def test_each_key_counts_its_own_records() -> None:
    context, assigner = Context(), CountTumblingWindowAssigner.of(2)
    assigned = []
    for key in "aabab":
        context.key.key = key
        assigned += [(key, *assigner.assign_windows(key, MIN_LONG_VALUE, context))]
    ids = [(key, window.id) for key, window in assigned]
    assert ids == [("a", 0), ("a", 0), ("b", 0), ("a", 1), ("b", 0)]


@pytest.mark.parametrize("assigner", ALL, ids=lambda it: type(it).__name__)
def test_assigners_are_values(assigner: Any) -> None:
    assert pickle.loads(pickle.dumps(assigner)) == assigner
    assert hash(assigner) == hash(pickle.loads(pickle.dumps(assigner)))


@pytest.mark.parametrize(
    "second",
    [Time.seconds(1), Duration.of_seconds(1), timedelta(seconds=1), 1_000, "1 s"],
    ids=lambda second: type(second).__name__,
)
def test_durations_of_any_kind(second: Any) -> None:
    assert TumblingEventTimeWindows.of(second) == TumblingEventTimeWindows(1_000, 0)
    assert TumblingProcessingTimeWindows.of("2 s", second).offset == 1_000
    sliding = SlidingProcessingTimeWindows.of("3 s", "2 s", second)
    assert sliding == SlidingProcessingTimeWindows(3_000, 2_000, 1_000)
    assert SlidingEventTimeWindows.of(second, second).slide == 1_000
    assert EventTimeSessionWindows.with_gap(second).session_gap == 1_000
    assert ProcessingTimeSessionWindows.with_gap(second).session_gap == 1_000


@pytest.mark.parametrize("assigner", OF_TIME, ids=lambda it: type(it).__name__)
def test_windows_of_event_time_need_a_timestamp(assigner: Any) -> None:
    if not assigner.is_event_time():
        assert assigner.assign_windows("a", MIN_LONG_VALUE, Context(7))
        return
    message = rf"{type(assigner).__name__} needs records with a timestamp.*assign_timestamps_and"
    with pytest.raises(ValueError, match=message):
        assigner.assign_windows("a", MIN_LONG_VALUE, Context())


def test_triggers_and_serializers_that_come_with_an_assigner() -> None:
    for assigner in OF_TIME:
        expected = EventTimeTrigger() if assigner.is_event_time() else ProcessingTimeTrigger()
        assert assigner.get_default_trigger(ENV) == expected
        assert assigner.get_window_serializer() == TimeWindowSerializer()
    assert [a.is_event_time() for a in ALL] == [True, False] * 4 + [False] * 3
    assert GlobalWindows.create().get_default_trigger(ENV) == NeverTrigger()
    assert GlobalWindows.create().get_window_serializer() == GlobalWindowSerializer()
    for counted in (CountTumblingWindowAssigner.of(5), CountSlidingWindowAssigner.of(5, 2)):
        assert counted.get_default_trigger(ENV) == PurgingTrigger.of(CountTrigger.of(5))
        assert counted.get_window_serializer() == CountWindowSerializer()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TumblingEventTimeWindows.of(10, 10),
            "TumblingEventTimeWindows: .*; got size 10 ms, offset 10 ms",
        ),
        (lambda: TumblingProcessingTimeWindows.of(0), "got size 0 ms, offset 0 ms"),
        (lambda: TumblingEventTimeWindows.of(-5), "longer than zero.*got size -5 ms"),
        (
            lambda: SlidingEventTimeWindows.of(10, 5, -5),
            "SlidingEventTimeWindows: .*; got size 10 ms, slide 5 ms, offset -5 ms",
        ),
        (lambda: SlidingProcessingTimeWindows.of(0, 5), "got size 0 ms, slide 5 ms"),
        (lambda: SlidingProcessingTimeWindows.of(5, 0), "got size 5 ms, slide 0 ms"),
        (lambda: EventTimeSessionWindows.with_gap(0), "EventTimeSessionWindows: .*; got 0 ms"),
        (lambda: ProcessingTimeSessionWindows.with_gap(-1), "longer than zero; got -1 ms"),
        (lambda: CountTumblingWindowAssigner.of(0), "window_size must be at least 1; got 0"),
        (lambda: CountSlidingWindowAssigner.of(0, 1), "window_size must be at least 1; got 0"),
        (lambda: CountSlidingWindowAssigner.of(1, 0), "window_slide must be at least 1; got 0"),
    ],
)
def test_sizes_are_checked(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
