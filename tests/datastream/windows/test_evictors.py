"""Evictors against models; PyFlink has none, so they are held to Flink's Java ones."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common import Duration, Time
from holdfast.datastream.window import (
    CountEvictor,
    DeltaEvictor,
    DeltaFunction,
    Evictor,
    GlobalWindow,
    TimeEvictor,
    TimestampedValue,
)

CTX: Any = None  # no built-in evictor looks at it
windows = st.lists(
    st.builds(TimestampedValue, st.integers(-20, 20), st.integers(-50, 50)), max_size=12
)


class Distance(DeltaFunction[int]):
    def get_delta(self, old_data_point: int, new_data_point: int) -> float:
        return abs(new_data_point - old_data_point)


def kept(evictor: Evictor[Any, Any], elements: list[Any], after: bool = False) -> list[Any]:
    """What is left; the other side must leave everything."""
    untouched, left = list(elements), list(elements)
    act, rest = evictor.evict_before, evictor.evict_after
    if after:
        act, rest = rest, act
    rest(untouched, len(untouched), GlobalWindow.get(), CTX)
    assert untouched == elements
    act(left, len(left), GlobalWindow.get(), CTX)
    return left


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@given(elements=windows, count=st.integers(0, 15))
def test_count_keeps_the_last(after: bool, elements: list[Any], count: int) -> None:
    expected = [e for n, e in enumerate(elements) if len(elements) - n <= count]
    assert kept(CountEvictor.of(count, after), elements, after) == expected


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@given(elements=windows, size=st.integers(0, 120))
def test_time_keeps_what_is_close_to_the_latest(
    after: bool, elements: list[Any], size: int
) -> None:
    latest = max((e.timestamp for e in elements), default=0)
    expected = [e for e in elements if latest - e.timestamp < size]
    assert kept(TimeEvictor.of(size, after), elements, after) == expected


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@given(elements=windows, threshold=st.integers(-1, 45))
def test_delta_keeps_what_is_close_to_the_last(
    after: bool, elements: list[Any], threshold: int
) -> None:
    expected = [e for e in elements if abs(e.value - elements[-1].value) < threshold]
    assert kept(DeltaEvictor.of(threshold, Distance(), after), elements, after) == expected
    by_function = DeltaEvictor.of(threshold, lambda a, b: abs(a - b), after)
    assert kept(by_function, elements, after) == expected


def test_the_delta_function_is_given_the_old_record_first() -> None:
    elements = [TimestampedValue(value) for value in (1, 9, 5)]
    evictor = DeltaEvictor.of(1, lambda old, new: old - new)
    assert kept(evictor, elements) == [TimestampedValue(1), TimestampedValue(5)]


def test_records_without_a_timestamp_are_kept() -> None:
    untimed = [TimestampedValue("a"), TimestampedValue("b")]
    assert kept(TimeEvictor.of(0), untimed) == untimed
    mixed = [TimestampedValue("a"), TimestampedValue("b", 3), TimestampedValue("c", 9)]
    assert kept(TimeEvictor.of(5), mixed) == [mixed[0], mixed[2]]


def test_a_record_and_its_timestamp() -> None:
    timed, untimed = TimestampedValue("a", 5), TimestampedValue("a")
    assert (timed.get_value(), timed.get_timestamp(), timed.has_timestamp()) == ("a", 5, True)
    assert (untimed.get_timestamp(), untimed.has_timestamp()) == (None, False)


@pytest.mark.parametrize(
    "second", [Time.seconds(1), Duration.of_seconds(1), timedelta(seconds=1), 1_000, "1 s"]
)
def test_durations_of_any_kind(second: Any) -> None:
    assert TimeEvictor.of(second) == TimeEvictor(1_000, do_evict_after=False)


@pytest.mark.parametrize(
    "evictor", [CountEvictor.of(3), TimeEvictor.of(5, True), DeltaEvictor.of(1.5, max)], ids=repr
)
def test_evictors_are_values(evictor: Any) -> None:
    assert pickle.loads(pickle.dumps(evictor)) == evictor


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="CountEvictor: max_count must not be negative; got -1"):
        CountEvictor.of(-1)
    message = "DeltaEvictor: expected a DeltaFunction or a function of two records; got str: 'x'"
    with pytest.raises(TypeError, match=message):
        DeltaEvictor.of(1.0, "x")  # type: ignore[arg-type]
