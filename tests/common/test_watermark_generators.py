"""Watermark generators against a model: epochs of timestamps, and a clock moved by hand."""

import pickle
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common import WatermarkStrategy
from holdfast.common.constants import MIN_LONG_VALUE
from holdfast.common.watermark_generators import (
    BoundedOutOfOrdernessWatermarks,
    CurrentWatermark,
    WatermarkGenerator,
)

epochs = st.lists(st.lists(st.integers(-1_000, 1_000), max_size=4), max_size=12)


class Clock:
    now = 0

    def __call__(self):
        return self.now


class Punctuated(WatermarkGenerator):
    """A record that is a str says how far we are; idle and active come by word as well."""

    def on_event(self, event, event_timestamp, output):
        if event == "idle":
            output.mark_idle()
        elif isinstance(event, str):
            output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output):
        pass


class EveryOther(WatermarkGenerator):
    """Emits at the end of every other epoch."""

    def __init__(self):
        self.epochs = 0
        self.last = MIN_LONG_VALUE

    def on_event(self, event, event_timestamp, output):
        self.last = event_timestamp

    def on_periodic_emit(self, output):
        self.epochs += 1
        if self.epochs % 2 == 0:
            output.emit_watermark(self.last)


def run_epoch(generator, output, timestamps):
    for timestamp in timestamps:
        generator.on_event(timestamp, timestamp, output)
    generator.on_periodic_emit(output)
    return output.watermark


@given(st.integers(0, 500), epochs)
def test_watermarks_follow_the_largest_timestamp(delay, epochs):
    generator = WatermarkStrategy.for_bounded_out_of_orderness(delay).create_generator(Clock())
    output, seen = CurrentWatermark(), []
    for timestamps in epochs:
        seen += timestamps
        expected = max(seen) - delay - 1 if seen else MIN_LONG_VALUE
        assert run_epoch(generator, output, timestamps) == expected
        assert not output.is_idle


@given(epochs)
def test_monotonous_timestamps_are_those_without_delay(epochs):
    generator = WatermarkStrategy.for_monotonous_timestamps().create_generator(Clock())
    output, seen = CurrentWatermark(), []
    for timestamps in epochs:
        seen += timestamps
        expected = max(seen) - 1 if seen else MIN_LONG_VALUE
        assert run_epoch(generator, output, timestamps) == expected


@given(epochs)
def test_the_largest_timestamp_of_an_epoch_is_enough(epochs):
    whole, brief = BoundedOutOfOrdernessWatermarks(5), BoundedOutOfOrdernessWatermarks(5)
    a, b = CurrentWatermark(), CurrentWatermark()
    for timestamps in epochs:
        latest = [max(timestamps)] if timestamps else []
        assert run_epoch(whole, a, timestamps) == run_epoch(brief, b, latest)


def test_no_watermarks():
    generator, output = WatermarkStrategy.no_watermarks().create_generator(Clock()), None
    generator.on_event("a", 1, output)
    generator.on_periodic_emit(output)


@given(st.lists(st.integers()))
def test_a_watermark_never_goes_back(watermarks):
    output, highest = CurrentWatermark(), MIN_LONG_VALUE
    for watermark in watermarks:
        output.emit_watermark(watermark)
        highest = max(highest, watermark)
        assert output.watermark == highest


def test_a_subtask_goes_on_where_it_stood():
    output = CurrentWatermark(100, is_idle=True)
    run_epoch(BoundedOutOfOrdernessWatermarks(0), output, [50])
    assert output.watermark == 100
    assert not output.is_idle


def test_a_watermark_by_record():
    generator = WatermarkStrategy.for_generator(Punctuated).create_generator(Clock())
    output = CurrentWatermark()
    generator.on_event(1, 1, output)
    assert output.watermark == MIN_LONG_VALUE
    generator.on_event("all before 7", 7, output)
    assert output.watermark == 7
    generator.on_event("idle", 8, output)
    assert output.is_idle
    generator.on_event("all before 6", 6, output)
    assert (output.watermark, output.is_idle) == (7, False)
    generator.on_event("idle", 8, output)
    output.mark_active()
    assert not output.is_idle


def test_a_watermark_by_epoch():
    generator = WatermarkStrategy.for_generator(EveryOther).create_generator(Clock())
    output = CurrentWatermark()
    assert [run_epoch(generator, output, [n]) for n in (1, 2, 3, 4)] == [
        MIN_LONG_VALUE,
        2,
        2,
        4,
    ]


def test_each_subtask_has_a_generator_of_its_own():
    strategy = WatermarkStrategy.for_generator(EveryOther)
    assert strategy.create_generator(Clock()) is not strategy.create_generator(Clock())


def test_what_a_supplier_returns_is_checked():
    strategy = WatermarkStrategy.for_generator(dict)
    with pytest.raises(TypeError, match=r"must return a WatermarkGenerator.* returned dict: \{\}"):
        strategy.create_generator(Clock())


def test_a_supplier_may_return_anything_with_the_methods():
    class Duck:
        def on_event(self, event, event_timestamp, output): ...

        def on_periodic_emit(self, output): ...

    made = WatermarkStrategy.for_generator(Duck).create_generator(Clock())
    assert isinstance(made, Duck)


@given(
    st.integers(1, 60),
    st.lists(st.tuples(st.integers(0, 40), st.lists(st.integers(-90, 90), max_size=2))),
)
def test_an_input_is_idle_after_so_long_without_a_record(timeout, epochs):
    """Measured from the end of the last epoch with a record, or of the first one."""
    clock = Clock()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(5).with_idleness(timeout)
    generator, output = strategy.create_generator(clock), CurrentWatermark()
    quiet_since, seen = None, []
    for pause, timestamps in epochs:
        clock.now += pause
        if timestamps or quiet_since is None:
            quiet_since = clock.now
        seen += timestamps
        run_epoch(generator, output, timestamps)
        is_quiet = clock.now > quiet_since and clock.now - quiet_since >= timeout
        assert output.is_idle == is_quiet
        assert output.watermark == (max(seen) - 6 if seen else MIN_LONG_VALUE)


def test_an_idle_input_is_active_with_its_next_record():
    """Before the end of the epoch, so that nobody runs ahead of that record."""
    clock, output = Clock(), CurrentWatermark()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness("1 s")
    generator = strategy.create_generator(clock)
    run_epoch(generator, output, [5])
    clock.now = 1_000
    run_epoch(generator, output, [])
    assert output.is_idle
    generator.on_event("a", 1, output)
    assert (output.watermark, output.is_idle) == (4, False)


def test_a_timeout_below_a_millisecond_needs_an_epoch_without_records():
    strategy = WatermarkStrategy.no_watermarks().with_idleness(timedelta(microseconds=1))
    generator, output = strategy.create_generator(Clock()), CurrentWatermark()
    run_epoch(generator, output, [1])
    assert not output.is_idle
    run_epoch(generator, output, [])
    assert output.is_idle


def test_a_generator_is_carried_without_its_clock():
    clock, output = Clock(), CurrentWatermark()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(10)
    generator = strategy.create_generator(clock)
    run_epoch(generator, output, [5])
    moved = pickle.loads(pickle.dumps(generator))
    assert not hasattr(moved, "clock")
    moved.clock = clock
    clock.now = 10
    assert run_epoch(moved, output, []) == 4
    assert output.is_idle
