from __future__ import annotations

from datetime import timedelta
from typing import Any

import cloudpickle
import pytest

from holdfast.common.time import Duration, Time
from holdfast.common.typeinfo import MapTypeInfo, Types
from holdfast.datastream.state import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)


class Average:
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


class Half:
    create_accumulator = Average.create_accumulator
    add = Average.add


class Sum:
    def reduce(self, a: int, b: int) -> int:
        return a + b


ALL: list[StateDescriptor] = [
    ValueStateDescriptor("v", Types.LONG(), 7),
    ListStateDescriptor("l", str),
    MapStateDescriptor("m", str, Types.LONG()),
    ReducingStateDescriptor("r", lambda a, b: a + b, int),
    ReducingStateDescriptor("r2", Sum()),
    AggregatingStateDescriptor("a", Average(), tuple[int, int]),
]


@pytest.mark.parametrize("descriptor", ALL, ids=lambda d: d.name)
def test_descriptors_survive_cloudpickle(descriptor: StateDescriptor) -> None:
    copy = cloudpickle.loads(cloudpickle.dumps(descriptor))
    assert copy == descriptor
    assert hash(copy) == hash(descriptor)
    assert copy.get_name() == descriptor.name


def test_descriptors_are_equal_by_kind_name_and_types() -> None:
    assert ValueStateDescriptor("s", int) == ValueStateDescriptor("s", Types.LONG(), 1)
    assert ValueStateDescriptor("s", int) != ValueStateDescriptor("s", str)
    assert ValueStateDescriptor("s", int) != ValueStateDescriptor("t", int)
    assert ValueStateDescriptor("s", int) != ListStateDescriptor("s", int)
    assert MapStateDescriptor("s", str) != MapStateDescriptor("s", str, int)


def test_repr() -> None:
    assert repr(ALL[0]) == "ValueStateDescriptor('v', Long)"
    assert repr(MapStateDescriptor("m")) == "MapStateDescriptor('m')"


def test_types_may_be_python_types() -> None:
    assert ValueStateDescriptor("v", int).type_info == Types.LONG()
    assert isinstance(ALL[2].type_info, MapTypeInfo)
    assert MapStateDescriptor("m", str).type_info is None


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_state_needs_a_name(name: Any) -> None:
    with pytest.raises(ValueError, match="the name of a state must be"):
        ValueStateDescriptor(name)


def test_functions_are_checked() -> None:
    with pytest.raises(TypeError, match=r"ReducingStateDescriptor 'r' must have a method reduce"):
        ReducingStateDescriptor("r", 3)
    with pytest.raises(TypeError, match=r"'a' needs the methods .* has no get_result"):
        AggregatingStateDescriptor(
            "a", type("F", (), {"create_accumulator": print, "add": print})()
        )


def test_folding_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="use AggregatingStateDescriptor"):
        descriptor = FoldingStateDescriptor("f", "", lambda a, b: a + str(b))
    assert descriptor.fold("x", 1) == "x1"
    assert callable(descriptor.get_fold_function())


def test_functions_come_back_as_they_were_given() -> None:
    function = Sum()
    descriptor = ReducingStateDescriptor("r", function)
    assert descriptor.get_reduce_function() is function
    assert descriptor.reduce(1, 2) == 3
    average = Average()
    assert AggregatingStateDescriptor("a", average).get_agg_function() is average


def test_ttl_defaults() -> None:
    config = StateTtlConfig.new_builder(Time.seconds(1)).build()
    assert config.is_enabled()
    assert config.get_ttl() == Time.seconds(1)
    assert config.get_update_type() is StateTtlConfig.UpdateType.OnCreateAndWrite
    assert config.get_state_visibility() is StateTtlConfig.StateVisibility.NEVER_RETURN_EXPIRED
    clock = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
    assert config.get_ttl_time_characteristic() is clock
    strategies = config.get_cleanup_strategies()
    assert strategies.is_cleanup_in_background()
    assert not strategies.in_full_snapshot()
    incremental = strategies.get_incremental_cleanup_strategy()
    assert incremental is not None
    assert incremental.get_cleanup_size() == 5
    assert not incremental.run_cleanup_for_every_record()
    compaction = strategies.get_rocksdb_compact_filter_cleanup_strategy()
    assert compaction is not None
    assert compaction.get_query_time_after_num_entries() == 1000
    assert compaction.get_periodic_compaction_time() == Duration.of_days(30)


def test_ttl_settings() -> None:
    config = (
        StateTtlConfig.new_builder("1 min")
        .set_ttl(timedelta(seconds=5))
        .update_ttl_on_read_and_write()
        .return_expired_if_not_cleaned_up()
        .use_processing_time()
        .cleanup_full_snapshot()
        .cleanup_incrementally(10, True)
        .cleanup_in_rocksdb_compact_filter(50, timedelta(hours=1))
        .disable_cleanup_in_background()
        .build()
    )
    assert config.get_ttl() == Time.seconds(5)
    assert config.get_update_type() is StateTtlConfig.UpdateType.ON_READ_AND_WRITE
    visibility = StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
    assert config.get_state_visibility() is visibility
    strategies = config.get_cleanup_strategies()
    assert strategies.in_full_snapshot()
    incremental = strategies.get_incremental_cleanup_strategy()
    assert incremental == StateTtlConfig.CleanupStrategies.IncrementalCleanupStrategy(10, True)
    compaction = strategies.get_rocksdb_compact_filter_cleanup_strategy()
    assert compaction is not None
    assert compaction.get_periodic_compaction_time() == Duration.of_hours(1)
    assert cloudpickle.loads(cloudpickle.dumps(config)) == config
    assert "ttl=5000 ms, update_type=OnReadAndWrite" in repr(config)


def test_no_background_clean_up_means_none() -> None:
    config = StateTtlConfig.new_builder(1000).disable_cleanup_in_background().build()
    assert config.get_cleanup_strategies().get_incremental_cleanup_strategy() is None
    assert config.get_cleanup_strategies().get_rocksdb_compact_filter_cleanup_strategy() is None


def test_a_ttl_must_be_positive() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        StateTtlConfig.new_builder(Time.seconds(0))


def test_a_disabled_ttl_is_none() -> None:
    descriptor = ValueStateDescriptor("v")
    assert descriptor.ttl_config is None
    config = StateTtlConfig.new_builder(1).build()
    descriptor.enable_time_to_live(config)
    assert descriptor.ttl_config == config
    off = StateTtlConfig.UpdateType.Disabled
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(1).set_update_type(off).build())
    assert descriptor.ttl_config is None
