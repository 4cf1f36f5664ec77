"""Triggers against models, in a context that keeps timers in a set and state in a real backend."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common import Types
from holdfast.common.constants import MIN_LONG_VALUE
from holdfast.datastream.state import StateDescriptor
from holdfast.datastream.time_domain import TimeDomain
from holdfast.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    CountWindow,
    DeltaFunction,
    DeltaTrigger,
    EventTimeTrigger,
    GlobalWindow,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TimeWindow,
    Trigger,
    TriggerResult,
    Window,
)
from holdfast.metrics import MetricGroup
from holdfast.state.backends.heap import HeapKeyedStateBackend
from holdfast.state.live.key_context import KeyContext

CONTINUE, FIRE = TriggerResult.CONTINUE, TriggerResult.FIRE
PURGE, FIRE_AND_PURGE = TriggerResult.PURGE, TriggerResult.FIRE_AND_PURGE
EVENT, PROCESSING = TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME


class Panes(Trigger.OnMergeContext):
    """One key's windows and their trigger, run by hand: records in, results out."""

    def __init__(self, trigger: Trigger[Any, Any], now: int = 0) -> None:
        self.trigger = trigger
        self.now = now
        self.watermark = MIN_LONG_VALUE
        self.timers: set[tuple[TimeDomain, int, Any]] = set()
        self.gone: set[Any] = set()
        self._merged: list[Any] = []
        self._key = KeyContext("key")
        self._backend = HeapKeyedStateBackend(range(128), 128)

    def element(self, window: Window, element: Any, timestamp: int) -> TriggerResult:
        self._key.namespace = window
        return self.trigger.on_element(element, timestamp, window, self)

    def advance_watermark(self, watermark: int) -> list[tuple[int, TriggerResult]]:
        self.watermark = watermark
        return self._run(EVENT, watermark, self.trigger.on_event_time)

    def advance_clock(self, now: int) -> list[tuple[int, TriggerResult]]:
        self.now = now
        return self._run(PROCESSING, now, self.trigger.on_processing_time)

    def merge(self, windows: list[Any], result: Window) -> None:
        self._merged, self._key.namespace = windows, result
        self.trigger.on_merge(result, self)
        for window in windows:
            self.clear(window)
        self.gone.update(windows)

    def clear(self, window: Window) -> None:
        self._key.namespace = window
        self.trigger.clear(window, self)

    def is_clean(self) -> bool:
        timers = [timer for timer in self.timers if timer[2] not in self.gone]
        return not timers and not self._backend.states()

    def times(self, domain: TimeDomain) -> list[int]:
        return sorted(time for kind, time, _ in self.timers if kind is domain)

    def _run(self, domain: TimeDomain, until: int, call: Any) -> list[tuple[int, TriggerResult]]:
        results = []
        while due := [t for t in self.timers if t[0] is domain and t[1] <= until]:
            assert len(results) < 1_000, "timers set each other without end"
            _, time, window = timer = min(due, key=lambda t: t[1:])
            self.timers.remove(timer)
            self._key.namespace = window
            if window not in self.gone:
                results.append((time, call(time, window, self)))
        return results

    def get_current_processing_time(self) -> int:
        return self.now

    def get_metric_group(self) -> MetricGroup:
        return MetricGroup()

    def get_current_watermark(self) -> int:
        return self.watermark

    def register_processing_time_timer(self, time: int) -> None:
        self.timers.add((PROCESSING, time, self._key.namespace))

    def register_event_time_timer(self, time: int) -> None:
        self.timers.add((EVENT, time, self._key.namespace))

    def delete_processing_time_timer(self, time: int) -> None:
        self.timers.discard((PROCESSING, time, self._key.namespace))

    def delete_event_time_timer(self, time: int) -> None:
        self.timers.discard((EVENT, time, self._key.namespace))

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        return self._backend.keyed_state("windows", state_descriptor, self._key, namespaced=True)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        state = self.get_partitioned_state(state_descriptor)
        state.merge_namespaces(self._key.key, self._key.namespace, self._merged)


class Distance(DeltaFunction[float]):
    def get_delta(self, old_data_point: float, new_data_point: float) -> float:
        return abs(new_data_point - old_data_point)


def distance(a: float, b: float) -> float:
    return abs(a - b)


ALL: list[Trigger[Any, Any]] = [
    EventTimeTrigger.create(),
    ProcessingTimeTrigger.create(),
    ContinuousEventTimeTrigger.of("7 ms"),
    ContinuousProcessingTimeTrigger.of("7 ms"),
    CountTrigger.of(3),
    DeltaTrigger.of(2.5, distance, Types.DOUBLE()),
    PurgingTrigger.of(CountTrigger.of(3)),
    NeverTrigger(),
]
WINDOW = TimeWindow(-20, 30)
moves = st.lists(st.integers(0, 40), max_size=10)


def fired(results: list[tuple[int, TriggerResult]]) -> list[int]:
    assert {result for _, result in results} <= {FIRE, CONTINUE}
    return [time for time, result in results if result is FIRE]


def test_results_say_what_they_do() -> None:
    said = {result: (result.is_fire(), result.is_purge()) for result in TriggerResult}
    assert said == {
        CONTINUE: (False, False),
        FIRE: (True, False),
        PURGE: (False, True),
        FIRE_AND_PURGE: (True, True),
    }
    assert TriggerResult((True, False)) is FIRE


@given(st.integers(-20, 29), moves)
def test_event_time_fires_once_at_the_end_and_for_each_late_record(
    first: int, steps: list[int]
) -> None:
    panes, watermark, was_over = Panes(EventTimeTrigger.create()), -30, False
    assert panes.element(WINDOW, "a", first) is CONTINUE
    for step in steps:
        watermark += step
        is_over = watermark >= 29
        assert fired(panes.advance_watermark(watermark)) == [29] * (is_over and not was_over)
        assert panes.element(WINDOW, "b", first) is (FIRE if is_over else CONTINUE)
        was_over = is_over


def test_event_time_after_a_merge_waits_for_the_new_end() -> None:
    panes = Panes(EventTimeTrigger.create())
    a, b = TimeWindow(0, 10), TimeWindow(5, 15)
    for window in (a, b):
        panes.element(window, "a", window.start)
    panes.merge([a, b], a.cover(b))
    assert panes.times(EVENT) == [14]
    assert fired(panes.advance_watermark(20)) == [14]


def test_event_time_after_a_merge_of_what_is_over_waits_for_nothing() -> None:
    panes = Panes(EventTimeTrigger.create())
    panes.advance_watermark(50)
    panes.merge([TimeWindow(0, 10), TimeWindow(5, 15)], TimeWindow(0, 15))
    assert panes.times(EVENT) == []


@given(moves)
def test_processing_time_fires_once_at_the_end(steps: list[int]) -> None:
    panes, was_over = Panes(ProcessingTimeTrigger.create(), now=-20), False
    assert panes.element(WINDOW, "a", MIN_LONG_VALUE) is CONTINUE
    for step in steps:
        is_over = panes.now + step >= 29
        results = panes.advance_clock(panes.now + step)
        assert fired(results) == [29] * (is_over and not was_over)
        was_over = is_over


def test_processing_time_after_a_merge_waits_for_the_new_end() -> None:
    panes = Panes(ProcessingTimeTrigger.create())
    a, b = TimeWindow(0, 10), TimeWindow(5, 15)
    for window in (a, b):
        panes.element(window, "a", MIN_LONG_VALUE)
    panes.merge([a, b], a.cover(b))
    assert panes.times(PROCESSING) == [14]
    panes.advance_clock(50)
    panes.merge([a, b], a.cover(b))
    assert panes.times(PROCESSING) == []


def multiples(first: int, interval: int, window: TimeWindow) -> list[int]:
    """The multiples of the interval after a time that are in the window, and the window's end."""
    end = window.max_timestamp()
    return [time for time in range(first + 1, end) if time % interval == 0] + [end]


@given(st.integers(-20, 29), st.integers(1, 25), moves)
def test_continuous_event_time_fires_at_the_multiples_and_at_the_end(
    first: int, interval: int, steps: list[int]
) -> None:
    panes, watermark = Panes(ContinuousEventTimeTrigger.of(interval)), -30
    assert panes.element(WINDOW, "a", first) is CONTINUE
    expected = multiples(first, interval, WINDOW)
    for step in steps:
        watermark += step
        due = [time for time in expected if time <= watermark]
        assert fired(panes.advance_watermark(watermark)) == due
        expected = expected[len(due) :]
        assert panes.element(WINDOW, "b", first) is (CONTINUE if expected else FIRE)


@given(st.integers(-20, 29), st.integers(1, 25), moves)
def test_continuous_processing_time_fires_at_the_multiples_and_at_the_end(
    first: int, interval: int, steps: list[int]
) -> None:
    panes = Panes(ContinuousProcessingTimeTrigger.of(interval), now=first)
    assert panes.element(WINDOW, "a", MIN_LONG_VALUE) is CONTINUE
    expected = multiples(first, interval, WINDOW)
    for step in steps:
        due = [time for time in expected if time <= panes.now + step]
        if len(due) == len(expected):  # the window is over, and its operator would clear it
            return
        assert fired(panes.advance_clock(panes.now + step)) == due
        assert panes.element(WINDOW, "b", MIN_LONG_VALUE) is CONTINUE
        expected = expected[len(due) :]


def test_continuous_processing_time_goes_on_after_the_end_of_a_window_of_event_time() -> None:
    """The clock may be past the end of a window long before the watermark is."""
    panes = Panes(ContinuousProcessingTimeTrigger.of(10), now=3)
    window = TimeWindow(0, 15)
    panes.element(window, "a", 1)
    assert fired(panes.advance_clock(40)) == [10, 14, 24, 34]
    assert panes.times(PROCESSING) == [44]
    late = Panes(ContinuousProcessingTimeTrigger.of(10), now=1_003)
    late.element(window, "a", 1)
    assert fired(late.advance_clock(1_030)) == [1_010, 1_020, 1_030]


@pytest.mark.parametrize(
    ("trigger", "domain"),
    [
        (ContinuousEventTimeTrigger.of(10), EVENT),
        (ContinuousProcessingTimeTrigger.of(10), PROCESSING),
    ],
    ids=lambda it: type(it).__name__,
)
def test_continuous_triggers_after_a_merge_fire_when_the_first_would_have(
    trigger: Trigger[Any, Any], domain: TimeDomain
) -> None:
    panes = Panes(trigger)
    a, b = TimeWindow(0, 35), TimeWindow(22, 57)
    panes.element(a, "a", 0)
    panes.now = 22
    panes.element(b, "b", 22)
    panes.merge([a, b], a.cover(b))
    panes.element(a.cover(b), "b", 22)
    advance = panes.advance_watermark if domain is EVENT else panes.advance_clock
    assert fired(advance(56)) == [10, 20, 30, 40, 50, 56]


@given(st.integers(1, 6), st.lists(st.booleans(), max_size=30))
def test_count_fires_with_every_nth_record(size: int, records: list[bool]) -> None:
    """Of two windows, each counts its own."""
    panes, counts = Panes(CountTrigger.of(size)), {CountWindow(0): 0, CountWindow(1): 0}
    for record in records:
        window = CountWindow(int(record))
        counts[window] += 1
        expected = FIRE if counts[window] % size == 0 else CONTINUE
        assert panes.element(window, "a", MIN_LONG_VALUE) is expected


@given(st.integers(2, 9), st.lists(st.integers(0, 8), min_size=2, max_size=4))
def test_counts_of_merged_windows_add_up(size: int, counts: list[int]) -> None:
    panes = Panes(CountTrigger.of(size))
    windows = [TimeWindow(n, n + 2) for n in range(len(counts))]
    for window, count in zip(windows, counts, strict=True):
        for _ in range(count):
            panes.element(window, "a", window.start)
    merged = TimeWindow(0, len(counts) + 1)
    panes.merge(windows, merged)
    left = sum(count % size for count in counts)
    for record in range(1, size + 1):
        fires = left + record >= size
        assert panes.element(merged, "a", 0) is (FIRE if fires else CONTINUE)
        if fires:
            return


@pytest.mark.parametrize("function", [Distance(), distance], ids=["object", "callable"])
@given(values=st.lists(st.integers(-9, 9).map(float), max_size=20))
def test_delta_compares_with_the_record_that_fired_last(function: Any, values: list[float]) -> None:
    panes = Panes(DeltaTrigger.of(2.0, function, Types.DOUBLE()))
    last = values[0] if values else None
    for value in values:
        assert last is not None
        expected = FIRE if abs(value - last) > 2.0 else CONTINUE
        assert panes.element(GlobalWindow.get(), value, MIN_LONG_VALUE) is expected
        last = value if expected is FIRE else last


class Says(NeverTrigger[Any, Any]):
    """Says the same to everything."""

    def __init__(self, result: TriggerResult, merges: bool = False) -> None:
        object.__setattr__(self, "_result", result)
        object.__setattr__(self, "_merges", merges)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        return self._result  # type: ignore[attr-defined,no-any-return]

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return self._result  # type: ignore[attr-defined,no-any-return]

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return self._result  # type: ignore[attr-defined,no-any-return]

    def can_merge(self) -> bool:
        return self._merges  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(
    ("said", "becomes"),
    [
        (CONTINUE, CONTINUE),
        (PURGE, PURGE),
        (FIRE, FIRE_AND_PURGE),
        (FIRE_AND_PURGE, FIRE_AND_PURGE),
    ],
)
def test_purging_makes_every_fire_a_purge(said: TriggerResult, becomes: TriggerResult) -> None:
    panes = Panes(PurgingTrigger.of(Says(said)))
    assert panes.element(WINDOW, "a", 0) is becomes
    panes.register_event_time_timer(0)
    panes.register_processing_time_timer(0)
    assert panes.advance_watermark(0) == [(0, becomes)]
    assert panes.advance_clock(0) == [(0, becomes)]


def test_purging_merges_if_what_it_wraps_does() -> None:
    assert not PurgingTrigger.of(Says(FIRE, merges=False)).can_merge()
    assert PurgingTrigger.of(Says(FIRE, merges=True)).can_merge()
    panes = Panes(PurgingTrigger.of(CountTrigger.of(2)))
    a, b = TimeWindow(0, 2), TimeWindow(1, 3)
    panes.element(a, "a", 0)
    panes.merge([a], a.cover(b))
    assert panes.element(a.cover(b), "b", 1) is FIRE_AND_PURGE


def test_never_is_never() -> None:
    panes = Panes(NeverTrigger())
    assert panes.element(GlobalWindow.get(), "a", 0) is CONTINUE
    panes.register_event_time_timer(1)
    panes.register_processing_time_timer(1)
    assert panes.advance_watermark(5) == panes.advance_clock(5) == [(1, CONTINUE)]


def test_who_can_merge() -> None:
    unable = [type(trigger) for trigger in ALL if not trigger.can_merge()]
    assert unable == [DeltaTrigger, NeverTrigger]


@pytest.mark.parametrize("trigger", ALL, ids=lambda it: type(it).__name__)
@given(data=st.data())
def test_nothing_is_left_of_a_window_that_is_cleared(
    trigger: Trigger[Any, Any], data: st.DataObject
) -> None:
    """Whatever happened to windows that grow into one: no timer, no state."""
    panes, window = Panes(trigger, now=-20), TimeWindow(-20, 0)
    for value in data.draw(st.lists(st.floats(-9, 9), max_size=8)):
        panes.element(window, value, data.draw(st.integers(window.start, window.end - 1)))
        panes.advance_watermark(max(panes.watermark, data.draw(st.integers(-40, 60))))
        panes.advance_clock(max(panes.now, data.draw(st.integers(-20, 60))))
        if trigger.can_merge() and data.draw(st.booleans()):
            other = TimeWindow(window.start, window.end + 5)
            panes.element(other, value, window.end)
            panes.merge([window, other], other.cover(TimeWindow(other.end, other.end + 5)))
            window = TimeWindow(window.start, other.end + 5)
    panes.clear(window)
    assert panes.is_clean()


@pytest.mark.parametrize("trigger", ALL, ids=lambda it: type(it).__name__)
def test_triggers_are_values(trigger: Trigger[Any, Any]) -> None:
    copy = pickle.loads(pickle.dumps(trigger))
    assert copy == trigger
    assert hash(copy) == hash(trigger)
    assert Panes(copy).element(WINDOW, 1.0, 0) is CONTINUE


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CountTrigger.of(0), "CountTrigger: window_size must be at least 1; got 0"),
        (
            lambda: ContinuousEventTimeTrigger.of(0),
            "ContinuousEventTimeTrigger: interval must be at least 1 ms; got 0 ms",
        ),
        (
            lambda: ContinuousProcessingTimeTrigger.of(-1),
            "ContinuousProcessingTimeTrigger: interval must be at least 1 ms; got -1 ms",
        ),
    ],
)
def test_numbers_are_checked(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_delta_function_is_checked() -> None:
    message = "DeltaTrigger: expected a DeltaFunction or a function of two records; got int: 3"
    with pytest.raises(TypeError, match=message):
        DeltaTrigger.of(1.0, 3)  # type: ignore[arg-type]
