from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.common import Configuration, Duration
from holdfast.datastream import (
    CheckpointConfig,
    CheckpointingMode,
    ExternalizedCheckpointCleanup,
    ExternalizedCheckpointRetention,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)

RETAIN = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
DELETE = ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
NONE = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
AT_LEAST_ONCE = CheckpointingMode.AT_LEAST_ONCE

#: the key of a setting, the name of its methods, a value, and the value's text
SETTINGS = [
    ("interval", "checkpoint_interval", 5000, "5 s"),
    ("timeout", "checkpoint_timeout", 60_000, "1 min"),
    ("min-pause", "min_pause_between_checkpoints", 500, "500 ms"),
    ("max-concurrent-checkpoints", "max_concurrent_checkpoints", 3, "3"),
    ("tolerable-failed-checkpoints", "tolerable_checkpoint_failure_number", 2, "2"),
    ("num-retained", "max_retained_checkpoints", 4, "4"),
    ("mode", "checkpointing_mode", AT_LEAST_ONCE, "AT_LEAST_ONCE"),
    ("mode", "checkpointing_consistency_mode", AT_LEAST_ONCE, "AT_LEAST_ONCE"),
    (
        "externalized-checkpoint-retention",
        "externalized_checkpoint_retention",
        RETAIN,
        "RETAIN_ON_CANCELLATION",
    ),
    (
        "externalized-checkpoint-retention",
        "externalized_checkpoint_cleanup",
        DELETE,
        "DELETE_ON_CANCELLATION",
    ),
    (
        "aligned-checkpoint-timeout",
        "aligned_checkpoint_timeout",
        Duration.of_seconds(30),
        "30 s",
    ),
    ("aligned-checkpoint-timeout", "alignment_timeout", Duration.of_seconds(30), "30 s"),
]
IDS = [methods for _, methods, _, _ in SETTINGS]


def test_defaults_are_those_of_pyflink():
    config = CheckpointConfig()
    assert not config.is_checkpointing_enabled()
    assert config.get_checkpoint_interval() == -1
    assert config.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
    assert config.get_checkpoint_timeout() == 600_000
    assert config.get_min_pause_between_checkpoints() == 0
    assert config.get_max_concurrent_checkpoints() == 1
    assert config.get_tolerable_checkpoint_failure_number() == 0
    assert config.is_fail_on_checkpointing_errors()
    assert config.get_externalized_checkpoint_retention() is NONE
    assert not config.is_externalized_checkpoints_enabled()
    assert not config.is_unaligned_checkpoints_enabled()
    assert not config.is_force_unaligned_checkpoints()
    assert config.get_aligned_checkpoint_timeout() == Duration.of_millis(0)
    assert config.get_checkpoint_storage() is None
    assert config.get_checkpoint_directory() is None
    assert config.get_savepoint_directory() is None
    assert config.get_max_retained_checkpoints() == 1


@pytest.mark.parametrize(("key", "methods", "value", "text"), SETTINGS, ids=IDS)
def test_a_setter_writes_flinks_key(key, methods, value, text):
    configuration = Configuration()
    config = CheckpointConfig(configuration)
    assert getattr(config, f"set_{methods}")(value) is config
    assert getattr(config, f"get_{methods}")() == value
    assert configuration.to_dict() == {f"execution.checkpointing.{key}": text}


@pytest.mark.parametrize(("key", "methods", "value", "text"), SETTINGS, ids=IDS)
def test_a_getter_reads_flinks_key(key, methods, value, text):
    configuration = Configuration()
    config = CheckpointConfig(configuration)
    configuration.set_string(f"execution.checkpointing.{key}", text)
    assert getattr(config, f"get_{methods}")() == value


@pytest.mark.parametrize(
    ("old", "method", "text", "value"),
    [
        ("state.checkpoints.dir", "get_checkpoint_directory", "s3a://b/c", "s3a://b/c"),
        ("state.backend.fs.checkpointdir", "get_checkpoint_directory", "/c", "/c"),
        ("state.savepoints.dir", "get_savepoint_directory", "/s", "/s"),
        ("savepoints.state.backend.fs.dir", "get_savepoint_directory", "/s", "/s"),
        ("state.checkpoints.num-retained", "get_max_retained_checkpoints", "7", 7),
        ("execution.checkpointing.unaligned", "is_unaligned_checkpoints_enabled", "true", True),
        (
            "execution.checkpointing.alignment-timeout",
            "get_alignment_timeout",
            "1 s",
            Duration.of_seconds(1),
        ),
    ],
)
def test_older_keys_are_read(old, method, text, value):
    assert getattr(CheckpointConfig(Configuration({old: text})), method)() == value


def test_the_key_of_today_wins_over_an_older_one():
    configuration = Configuration(
        {"state.checkpoints.num-retained": 7, "execution.checkpointing.num-retained": 2}
    )
    assert CheckpointConfig(configuration).get_max_retained_checkpoints() == 2


@pytest.mark.parametrize(
    "methods", ["checkpoint_interval", "checkpoint_timeout", "min_pause_between_checkpoints"]
)
@pytest.mark.parametrize("value", [5000, timedelta(seconds=5), Duration.of_seconds(5), "5 s"])
def test_lengths_of_time_are_any_duration(methods, value):
    config = CheckpointConfig()
    getattr(config, f"set_{methods}")(value)
    assert getattr(config, f"get_{methods}")() == 5000


@pytest.mark.parametrize("value", [timedelta(seconds=5), Duration.of_seconds(5), 5000, "5 s"])
def test_the_alignment_timeout_is_any_duration(value):
    config = CheckpointConfig().set_aligned_checkpoint_timeout(value)
    assert config.get_aligned_checkpoint_timeout() == Duration.of_seconds(5)


@pytest.mark.parametrize("value", ["0", "0 s", -1, 0])
def test_an_interval_of_nothing_is_no_checkpoints(value):
    config = CheckpointConfig(Configuration({"execution.checkpointing.interval": value}))
    assert not config.is_checkpointing_enabled()
    assert config.get_checkpoint_interval() == -1


def test_an_interval_is_checkpoints():
    assert CheckpointConfig().set_checkpoint_interval(10).is_checkpointing_enabled()


@pytest.mark.parametrize(
    ("method", "value", "message"),
    [
        ("set_checkpoint_interval", 9, "interval of checkpoints must be at least 10 ms; got 9 ms"),
        ("set_checkpoint_interval", -5, "must be at least 10 ms; got -5 ms"),
        ("set_checkpoint_timeout", 9, r"checkpointing\.timeout must be at least 10 ms; got 9 ms"),
        ("set_min_pause_between_checkpoints", -1, r"min-pause must be at least 0 ms; got -1 ms"),
        ("set_max_concurrent_checkpoints", 0, "max-concurrent-checkpoints must be at least 1; got"),
        ("set_max_retained_checkpoints", 0, "num-retained must be at least 1; got 0"),
        (
            "set_tolerable_checkpoint_failure_number",
            -1,
            "tolerable-failed-checkpoints must be at least 0; got -1",
        ),
        ("set_aligned_checkpoint_timeout", -1, "aligned-checkpoint-timeout must be at least 0 ms"),
        (
            "set_checkpoint_timeout",
            "soon",
            "checkpointing.timeout': cannot read 'soon' as duration",
        ),
        ("set_max_concurrent_checkpoints", 1.5, "cannot read 1.5 as int: expected an integer"),
        (
            "set_checkpointing_mode",
            "TWICE",
            "cannot read 'TWICE' as CheckpointingMode: expected one of EXACTLY_ONCE, AT_LEAST_ONCE",
        ),
        ("set_checkpointing_mode", 1, "cannot read 1 as CheckpointingMode"),
        (
            "set_externalized_checkpoint_retention",
            "ALWAYS",
            "as ExternalizedCheckpointRetention: expected one of DELETE_ON_CANCELLATION",
        ),
        ("enable_unaligned_checkpoints", "maybe", "cannot read 'maybe' as boolean"),
        ("set_checkpoint_storage_dir", "  ", "a directory must be a path or a URI; got '  '"),
    ],
)
def test_values_are_checked_when_they_are_set(method, value, message):
    config = CheckpointConfig()
    with pytest.raises(ValueError, match=message):
        getattr(config, method)(value)
    assert repr(config) == "CheckpointConfig(Configuration({}))"


def test_values_are_checked_when_they_are_read():
    key = "execution.checkpointing.max-concurrent-checkpoints"
    with pytest.raises(ValueError, match=f"{key} must be at least 1; got 0"):
        CheckpointConfig(Configuration({key: "0"})).get_max_concurrent_checkpoints()


def test_a_failure_names_the_older_key_that_was_read():
    configuration = Configuration({"state.checkpoints.num-retained": "0"})
    with pytest.raises(ValueError, match=r"^state.checkpoints.num-retained must be at least 1"):
        CheckpointConfig(configuration).get_max_retained_checkpoints()


@pytest.mark.parametrize("text", ["at_least_once", "AT-LEAST-ONCE", " At_Least_Once "])
def test_a_mode_is_read_in_any_spelling(text):
    configuration = Configuration({"execution.checkpointing.mode": text})
    assert CheckpointConfig(configuration).get_checkpointing_mode() is AT_LEAST_ONCE


def test_fail_on_checkpointing_errors_is_a_number_of_failures():
    config = CheckpointConfig()
    assert config.set_fail_on_checkpointing_errors(False) is config
    assert config.get_tolerable_checkpoint_failure_number() == 2147483647
    assert not config.is_fail_on_checkpointing_errors()
    config.set_fail_on_checkpointing_errors(True)
    assert config.get_tolerable_checkpoint_failure_number() == 0
    assert config.is_fail_on_checkpointing_errors()


def test_the_older_names_of_retention():
    assert ExternalizedCheckpointCleanup is ExternalizedCheckpointRetention
    assert CheckpointConfig.ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION is RETAIN
    config = CheckpointConfig()
    assert config.enable_externalized_checkpoints(RETAIN) is config
    assert config.is_externalized_checkpoints_enabled()
    assert config.get_externalized_checkpoint_retention() is RETAIN
    config.enable_externalized_checkpoints(NONE)
    assert not config.is_externalized_checkpoints_enabled()


def test_alignment_is_noted():
    config = CheckpointConfig()
    assert config.enable_unaligned_checkpoints().is_unaligned_checkpoints_enabled()
    assert not config.disable_unaligned_checkpoints().is_unaligned_checkpoints_enabled()
    assert config.set_force_unaligned_checkpoints().is_force_unaligned_checkpoints()
    assert not config.set_force_unaligned_checkpoints(False).is_force_unaligned_checkpoints()


@pytest.mark.parametrize("directory", ["hdfs://host:9000/checkpoints", Path("/checkpoints")])
def test_a_directory_is_a_storage_on_a_file_system(directory):
    config = CheckpointConfig()
    assert config.set_checkpoint_storage_dir(directory) is config
    assert config.get_checkpoint_storage() == FileSystemCheckpointStorage(directory)
    assert config.get_checkpoint_directory() == str(directory)


@pytest.mark.parametrize(
    "storage",
    [
        FileSystemCheckpointStorage("/checkpoints"),
        FileSystemCheckpointStorage("/checkpoints", 100, 8192, savepoint_path="/savepoints"),
        JobManagerCheckpointStorage(),
        JobManagerCheckpointStorage("/checkpoints", savepoint_path="/savepoints"),
    ],
)
def test_a_storage_comes_back(storage):
    config = CheckpointConfig()
    assert config.set_checkpoint_storage(storage) is config
    assert config.get_checkpoint_storage() == storage
    assert config.get_checkpoint_directory() == storage.get_checkpoint_path()
    assert config.get_savepoint_directory() == storage.get_savepoint_path()


def test_a_storage_must_be_one():
    with pytest.raises(TypeError, match=r"a checkpoint storage must be a .*; got int"):
        CheckpointConfig().set_checkpoint_storage(5)
