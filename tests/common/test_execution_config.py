from datetime import timedelta

import pytest

from holdfast.common import Configuration, Duration, ExecutionConfig


def test_defaults():
    config = ExecutionConfig()
    assert config.get_parallelism() == ExecutionConfig.PARALLELISM_DEFAULT == -1
    assert ExecutionConfig.PARALLELISM_UNKNOWN == -2
    assert config.get_max_parallelism() == -1
    assert config.get_auto_watermark_interval() == 200
    assert config.get_latency_tracking_interval() == 0
    assert config.get_task_cancellation_interval() == 30_000
    assert config.get_task_cancellation_timeout() == 180_000
    assert config.has_auto_generated_uids_enabled()
    assert not config.is_object_reuse_enabled()
    assert not config.is_use_snapshot_compression()
    assert config.get_global_job_parameters() == {}


@pytest.mark.parametrize(
    "name",
    [
        "auto_watermark_interval",
        "latency_tracking_interval",
        "task_cancellation_interval",
        "task_cancellation_timeout",
    ],
)
@pytest.mark.parametrize("value", [5000, timedelta(seconds=5), Duration.of_seconds(5), "5 s"])
def test_intervals_take_any_duration(name, value):
    config = ExecutionConfig()
    assert getattr(config, f"set_{name}")(value) is config
    assert getattr(config, f"get_{name}")() == 5000


def test_an_interval_must_not_be_negative():
    with pytest.raises(ValueError, match=r"pipeline.auto-watermark-interval must not be negative"):
        ExecutionConfig().set_auto_watermark_interval(-1)


def test_parallelism():
    config = ExecutionConfig().set_parallelism(4).set_max_parallelism(256)
    assert (config.get_parallelism(), config.get_max_parallelism()) == (4, 256)
    assert config.set_parallelism(ExecutionConfig.PARALLELISM_DEFAULT).get_parallelism() == -1


@pytest.mark.parametrize("value", [0, -2])
def test_parallelism_is_checked(value):
    with pytest.raises(ValueError, match=f"parallelism must be at least 1; got {value}"):
        ExecutionConfig().set_parallelism(value)


@pytest.mark.parametrize("value", [0, 2**15 + 1])
def test_max_parallelism_is_checked(value):
    with pytest.raises(ValueError, match=rf"must be in \[1, 32768\]; got {value}"):
        ExecutionConfig().set_max_parallelism(value)


def test_switches():
    config = ExecutionConfig().disable_auto_generated_uids().enable_object_reuse()
    config.set_use_snapshot_compression(True)
    assert not config.has_auto_generated_uids_enabled()
    assert config.is_object_reuse_enabled()
    assert config.is_use_snapshot_compression()
    assert not config.disable_object_reuse().is_object_reuse_enabled()
    assert config.enable_auto_generated_uids().has_auto_generated_uids_enabled()


def test_global_job_parameters_are_text():
    config = ExecutionConfig().set_global_job_parameters({"a": 1, "b": True})
    assert config.get_global_job_parameters() == {"a": "1", "b": "true"}
    config.get_global_job_parameters()["a"] = "changed"
    assert config.get_global_job_parameters()["a"] == "1"


def test_reads_and_writes_the_configuration_underneath():
    underneath = Configuration({"parallelism.default": "3"})
    config = ExecutionConfig(underneath)
    assert config.get_parallelism() == 3
    config.enable_object_reuse()
    assert underneath.get_boolean("pipeline.object-reuse", False)
    assert config.get_configuration() is underneath


def test_equality():
    assert ExecutionConfig().set_parallelism(2) == ExecutionConfig().set_parallelism(2)
    assert ExecutionConfig().set_parallelism(2) != ExecutionConfig()
    assert hash(ExecutionConfig()) == hash(ExecutionConfig())
