import pickle
from datetime import timedelta

import pytest

from holdfast.common import Duration, WatermarkStrategy
from holdfast.common.watermark_strategy import (
    BoundedOutOfOrderness,
    CustomGenerator,
    NoWatermarks,
    TimestampAssigner,
    WatermarkAlignment,
    WatermarkGenerator,
    WatermarkOutput,
)

second = timedelta(seconds=1)


class First(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[0]


class Punctuated(WatermarkGenerator):
    def on_event(self, event, event_timestamp, output):
        output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output):
        pass


def second_field(value, record_timestamp):
    return value[1]


def test_generators():
    assert WatermarkStrategy.no_watermarks().generator == NoWatermarks()
    assert WatermarkStrategy.for_monotonous_timestamps().generator == BoundedOutOfOrderness(
        timedelta()
    )
    assert WatermarkStrategy.for_generator(Punctuated).generator == CustomGenerator(Punctuated)


@pytest.mark.parametrize("bound", [Duration.of_seconds(1), second, 1000, "1 s"])
def test_bounds_are_any_duration(bound):
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(bound)
    assert strategy.generator == BoundedOutOfOrderness(second)


def test_each_step_keeps_the_others_and_the_original():
    plain = WatermarkStrategy.for_monotonous_timestamps()
    full = (
        plain.with_timestamp_assigner(First())
        .with_idleness(Duration.of_minutes(1))
        .with_watermark_alignment("group", Duration.of_seconds(20), Duration.of_seconds(1))
    )
    assert plain == WatermarkStrategy.for_monotonous_timestamps()
    assert full.generator == plain.generator
    assert isinstance(full.timestamp_assigner, First)
    assert full.idle_timeout == timedelta(minutes=1)
    assert full.alignment == WatermarkAlignment("group", 20 * second, second)


def test_alignment_is_updated_every_second_unless_told():
    strategy = WatermarkStrategy.no_watermarks().with_watermark_alignment("group", "20 s")
    assert strategy.alignment.update_interval == second


def test_timestamps_from_a_function():
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(second_field)
    assert strategy.timestamp_assigner.extract_timestamp((1, 2), 0) == 2


def test_timestamps_from_anything_with_the_method():
    class Duck:
        def extract_timestamp(self, value, record_timestamp):
            return 7

    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(Duck())
    assert strategy.timestamp_assigner.extract_timestamp(None, 0) == 7


def test_strategies_are_picklable():
    strategy = WatermarkStrategy.for_generator(Punctuated).with_timestamp_assigner(second_field)
    assert pickle.loads(pickle.dumps(strategy)) == strategy


def test_values_are_checked():
    strategy = WatermarkStrategy.no_watermarks()
    with pytest.raises(ValueError, match="max_out_of_orderness must not be negative; got -1 ms"):
        WatermarkStrategy.for_bounded_out_of_orderness(-1)
    with pytest.raises(ValueError, match="idle_timeout must be longer than zero; got 0 ms"):
        strategy.with_idleness(0)
    with pytest.raises(ValueError, match="update_interval must be longer than zero"):
        strategy.with_watermark_alignment("group", 1, 0)
    with pytest.raises(
        TypeError, match="a timestamp assigner is a TimestampAssigner or a function"
    ):
        strategy.with_timestamp_assigner(5)
    with pytest.raises(TypeError, match="for_generator takes a WatermarkGenerator class or"):
        WatermarkStrategy.for_generator(5)


@pytest.mark.parametrize("base", [TimestampAssigner, WatermarkGenerator, WatermarkOutput])
def test_bases_are_abstract(base):
    with pytest.raises(TypeError, match="abstract"):
        base()
