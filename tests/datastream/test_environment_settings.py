"""What the environment is set to for checkpoints, state and recovery; nothing is run."""

import logging
from datetime import timedelta

import pytest

from holdfast.common import Configuration, RestartStrategies
from holdfast.datastream import (
    CheckpointingMode,
    EmbeddedRocksDBStateBackend,
    FsStateBackend,
    HashMapStateBackend,
    StreamExecutionEnvironment,
)


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def settings_of(env):
    return env.get_config().get_configuration().to_dict()


def test_no_checkpoints_unless_enabled(env):
    assert env.get_checkpoint_interval() == -1
    assert env.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
    assert settings_of(env) == {}


@pytest.mark.parametrize("interval", [5000, timedelta(seconds=5), "5 s"])
def test_enable_checkpointing_fills_the_configuration(env, interval):
    assert env.enable_checkpointing(interval) is env
    assert env.get_checkpoint_interval() == 5000
    assert env.get_checkpoint_config().is_checkpointing_enabled()
    assert settings_of(env) == {"execution.checkpointing.interval": "5 s"}


def test_enable_checkpointing_with_a_mode(env):
    env.enable_checkpointing(5000, CheckpointingMode.AT_LEAST_ONCE)
    assert env.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert env.get_checkpointing_consistency_mode() is CheckpointingMode.AT_LEAST_ONCE


def test_checkpoints_must_not_be_too_close(env):
    with pytest.raises(
        ValueError, match="interval of checkpoints must be at least 10 ms; got 1 ms"
    ):
        env.enable_checkpointing(1)


def test_the_checkpoint_config_writes_through(env):
    env.get_checkpoint_config().set_max_concurrent_checkpoints(2)
    assert env.get_checkpoint_config() is env.get_checkpoint_config()
    assert settings_of(env) == {"execution.checkpointing.max-concurrent-checkpoints": "2"}


def test_configure_reaches_the_checkpoint_config(env):
    env.configure(Configuration({"execution.checkpointing.interval": "3 s"}))
    assert env.get_checkpoint_config().get_checkpoint_interval() == 3000


def test_unaligned_checkpoints(env):
    assert not env.is_unaligned_checkpoints_enabled()
    assert not env.is_force_unaligned_checkpoints()
    env.get_checkpoint_config().enable_unaligned_checkpoints().set_force_unaligned_checkpoints()
    assert env.is_unaligned_checkpoints_enabled()
    assert env.is_force_unaligned_checkpoints()


def test_the_savepoint_directory(env, tmp_path):
    assert env.get_default_savepoint_directory() is None
    assert env.set_default_savepoint_directory("hdfs://host/savepoints") is env
    assert env.get_default_savepoint_directory() == "hdfs://host/savepoints"
    assert settings_of(env) == {"execution.checkpointing.savepoint-dir": "hdfs://host/savepoints"}
    env.set_default_savepoint_directory(tmp_path)
    assert env.get_default_savepoint_directory() == str(tmp_path)


def test_the_savepoint_directory_is_checked(env):
    with pytest.raises(ValueError, match="a directory must be a path or a URI; got None"):
        env.set_default_savepoint_directory(None)


def test_the_changelog_is_noted(env):
    assert env.is_changelog_state_backend_enabled() is None
    assert env.enable_changelog_state_backend(True) is env
    assert env.is_changelog_state_backend_enabled() is True
    assert settings_of(env) == {"state.changelog.enabled": "true"}
    env.enable_changelog_state_backend(False)
    assert env.is_changelog_state_backend_enabled() is False


def test_the_state_backend(env):
    assert env.get_state_backend() is None
    assert env.set_state_backend(HashMapStateBackend()) is env
    assert isinstance(env.get_state_backend(), HashMapStateBackend)
    env.set_state_backend(EmbeddedRocksDBStateBackend())
    assert isinstance(env.get_state_backend(), EmbeddedRocksDBStateBackend)


@pytest.mark.filterwarnings("ignore:FsStateBackend:DeprecationWarning")
def test_an_older_state_backend_sets_the_directory(env):
    env.set_state_backend(FsStateBackend("file:///tmp"))
    assert env.get_checkpoint_config().get_checkpoint_directory() == "file:///tmp"


def test_the_restart_strategy(env):
    assert env.get_restart_strategy() == RestartStrategies.fall_back_restart()
    strategy = RestartStrategies.fixed_delay_restart(3, 10_000)
    assert env.set_restart_strategy(strategy) is env
    assert env.get_restart_strategy() == strategy
    assert settings_of(env) == {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "10 s",
    }


@pytest.mark.parametrize("run", ["execute", "execute_async", "collect"])
def test_wrong_settings_and_unknown_keys_are_named_before_anything_runs(env, caplog, run):
    env.configure(Configuration({"execution.checkpointing.intervall": "1 s"}))
    env.configure(Configuration({"state.backend.rocksdb.memory.fixed-per-slot": "1 mb"}))
    env.set_state_backend(EmbeddedRocksDBStateBackend())
    stream = env.from_collection([1])
    start = stream.execute_and_collect if run == "collect" else getattr(env, run)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(ValueError, match=r"fixed-per-slot must be at least 16777216; got 1048576"),
    ):
        start()
    assert "did you mean 'execution.checkpointing.interval'?" in caplog.text
