import pickle

import pytest

from holdfast.common import Configuration
from holdfast.datastream import FileSystemCheckpointStorage, JobManagerCheckpointStorage
from holdfast.datastream.checkpoint_storage import storage_of


def test_defaults_of_a_file_system_storage():
    storage = FileSystemCheckpointStorage("hdfs://host/checkpoints")
    assert storage.get_checkpoint_path() == "hdfs://host/checkpoints"
    assert storage.get_savepoint_path() is None
    assert storage.get_min_file_size_threshold() == 20480
    assert storage.get_write_buffer_size() == 4096
    assert FileSystemCheckpointStorage.MAX_FILE_STATE_THRESHOLD == 1024 * 1024


def test_settings_of_a_file_system_storage():
    storage = FileSystemCheckpointStorage("/c", 100, 8192, savepoint_path="/s")
    assert storage.get_min_file_size_threshold() == 100
    assert storage.get_write_buffer_size() == 8192
    assert storage.get_savepoint_path() == "/s"
    assert pickle.loads(pickle.dumps(storage)) == storage


def test_defaults_of_a_job_manager_storage():
    storage = JobManagerCheckpointStorage()
    assert storage.get_checkpoint_path() is None
    assert storage.get_savepoint_path() is None
    assert storage.get_max_state_size() == storage.DEFAULT_MAX_STATE_SIZE == 5 * 1024 * 1024


def test_settings_of_a_job_manager_storage():
    storage = JobManagerCheckpointStorage("/c", 100)
    assert (storage.get_checkpoint_path(), storage.get_max_state_size()) == ("/c", 100)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FileSystemCheckpointStorage(None), "must be a path or a URI; got None"),
        (lambda: FileSystemCheckpointStorage(""), "must be a path or a URI; got ''"),
        (lambda: FileSystemCheckpointStorage("/c", savepoint_path=5), "path or a URI; got 5"),
        (lambda: FileSystemCheckpointStorage("/c", 2**20 + 1), r"be in \[0, 1048576\].*1048577"),
        (lambda: FileSystemCheckpointStorage("/c", -2), "file_state_size_threshold .* got -2"),
        (lambda: FileSystemCheckpointStorage("/c", 0, -2), "write_buffer_size .* got -2"),
        (lambda: JobManagerCheckpointStorage(b"/c"), "must be a path or a URI; got b'/c'"),
        (lambda: JobManagerCheckpointStorage("/c", 0), "max_state_size must be at least 1; got 0"),
    ],
)
def test_a_storage_is_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_directory_alone_is_enough():
    configuration = Configuration(
        {
            "state.checkpoints.dir": "/c",
            "state.storage.fs.memory-threshold": "1 kb",
            "execution.checkpointing.write-buffer-size": "8192",
        }
    )
    assert storage_of(configuration) == FileSystemCheckpointStorage("/c", 1024, 8192)


def test_the_older_key_of_the_storage():
    configuration = Configuration({"state.checkpoint-storage": "JobManager"})
    assert storage_of(configuration) == JobManagerCheckpointStorage()


def test_a_storage_on_a_file_system_needs_a_directory():
    configuration = Configuration({"execution.checkpointing.storage": "filesystem"})
    with pytest.raises(ValueError, match=r"needs a directory; set execution.checkpointing.dir"):
        storage_of(configuration)


def test_an_unknown_storage():
    configuration = Configuration({"execution.checkpointing.storage": "tape"})
    with pytest.raises(ValueError, match="no checkpoint storage 'tape'; use filesystem or jobman"):
        storage_of(configuration)
