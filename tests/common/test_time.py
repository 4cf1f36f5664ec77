import pickle
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.time import (
    Duration,
    Instant,
    Time,
    format_duration,
    parse_duration,
    to_millis,
    to_timedelta,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 s", timedelta(seconds=10)),
        ("500ms", timedelta(milliseconds=500)),
        ("1 min", timedelta(minutes=1)),
        ("2 hours", timedelta(hours=2)),
        ("1 d", timedelta(days=1)),
        ("1.5 h", timedelta(minutes=90)),
        ("7 µs", timedelta(microseconds=7)),
        ("2500 nanos", timedelta(microseconds=2)),
        ("250", timedelta(milliseconds=250)),
        ("  3 SEC ", timedelta(seconds=3)),
        ("PT10S", timedelta(seconds=10)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        (1500, timedelta(milliseconds=1500)),
        (timedelta(days=3), timedelta(days=3)),
    ],
)
def test_parse_duration(text, expected):
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "fast", "-1 s", "s", "1 s 2 ms", "P", "PT", "1,5 s"])
def test_parse_duration_refuses(text):
    with pytest.raises(ValueError, match=f"not a duration: '{text}'"):
        parse_duration(text)


def test_parse_duration_names_the_unknown_unit():
    with pytest.raises(ValueError, match="'3 weeks' has the unknown unit 'weeks'; use d, h, min"):
        parse_duration("3 weeks")


@pytest.mark.parametrize("value", [None, 1.5, True, b"1 s"])
def test_to_timedelta_refuses_other_types(value):
    with pytest.raises(TypeError, match=f"got {type(value).__name__}"):
        to_timedelta(value)


@given(st.timedeltas(min_value=timedelta()))
def test_format_duration_reads_back(value):
    assert parse_duration(format_duration(value)) == value


@given(st.integers(-(10**15), 10**15))
def test_millis_go_through_every_kind_of_duration(millis):
    for value in (millis, timedelta(milliseconds=millis), Duration.of_millis(millis), Time(millis)):
        assert to_millis(value) == millis
        assert to_timedelta(value) == timedelta(milliseconds=millis)


def test_to_millis_rounds_a_timedelta_as_pyflink_does():
    assert to_millis(timedelta(microseconds=1600)) == 2
    assert to_millis(timedelta(microseconds=1400)) == 1
    assert to_millis("10 s") == 10_000


def test_duration_units():
    assert Duration.of_days(1) == Duration.of_hours(24) == Duration.of_minutes(1440)
    assert Duration.of_seconds(2) == Duration.of_millis(2000) == Duration.of_nanos(2 * 10**9)
    assert Duration.of_nanos(1_999_999).to_millis() == 1
    assert Duration.of_nanos(1_999_999).to_timedelta() == timedelta(microseconds=1999)


def test_duration_is_a_value():
    assert len({Duration.of_seconds(60), Duration.of_minutes(1)}) == 1
    assert Duration.of_seconds(1) < Duration.of_seconds(2) <= Duration.of_seconds(2)
    assert pickle.loads(pickle.dumps(Duration.of_seconds(5))) == Duration.of_seconds(5)
    assert repr(Duration.of_seconds(20)) == "Duration(20 s)"
    assert Duration.of_seconds(1) != Time.seconds(1)


def test_duration_asks_for_whole_numbers():
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        Duration.of_seconds(1.5)


def test_time_units():
    assert Time.days(1).to_milliseconds() == 86_400_000
    assert Time.hours(1) == Time.minutes(60) == Time.seconds(3600) == Time.milliseconds(3_600_000)
    assert str(Time.seconds(5)) == "5000 ms"
    assert len({Time.seconds(1), Time.milliseconds(1000)}) == 1
    assert pickle.loads(pickle.dumps(Time.seconds(1))) == Time.seconds(1)


@given(st.integers(-(10**15), 10**15))
def test_instant_keeps_milliseconds(millis):
    instant = Instant.of_epoch_milli(millis)
    assert instant.to_epoch_milli() == millis
    assert 0 <= instant.nanos < 10**9


def test_instant_is_a_value():
    assert repr(Instant(1, 2)) == "Instant<1, 2>"
    assert Instant(1, 2) == Instant(1, 2)
    assert Instant(1, 2) < Instant(1, 3)
    assert pickle.loads(pickle.dumps(Instant(1, 2))) == Instant(1, 2)
    assert len({Instant(1, 2), Instant(1, 2)}) == 1
