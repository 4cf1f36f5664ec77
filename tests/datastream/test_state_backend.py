import pytest

from holdfast.common import Configuration
from holdfast.datastream import (
    CheckpointConfig,
    EmbeddedRocksDBStateBackend,
    FileSystemCheckpointStorage,
    FsStateBackend,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    MemoryStateBackend,
    RocksDBStateBackend,
    StateBackend,
)
from holdfast.datastream.state_backend import backend_kind, backend_of, put_backend


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        ({}, "hashmap"),
        ({"state.backend.type": "hashmap"}, "hashmap"),
        ({"state.backend.type": " RocksDB "}, "rocksdb"),
        ({"state.backend": "rocksdb"}, "rocksdb"),
        ({"state.backend": "filesystem"}, "hashmap"),
        ({"state.backend": "jobmanager"}, "hashmap"),
        ({"state.backend": "rocksdb", "state.backend.type": "hashmap"}, "hashmap"),
    ],
)
def test_the_kind_of_a_backend(entries, kind):
    assert backend_kind(Configuration(entries)) == kind


def test_an_unknown_kind():
    configuration = Configuration({"state.backend.type": "forst"})
    with pytest.raises(ValueError, match="no state backend 'forst'; use hashmap or rocksdb"):
        backend_kind(configuration)


def test_no_backend_unless_set():
    assert backend_of(Configuration()) is None


def test_a_hash_map_comes_back():
    configuration = Configuration()
    put_backend(configuration, HashMapStateBackend())
    assert configuration.to_dict() == {"state.backend.type": "hashmap"}
    assert isinstance(backend_of(configuration), HashMapStateBackend)
    assert repr(HashMapStateBackend()) == "HashMapStateBackend()"


def test_rocksdb_has_the_defaults_of_pyflink():
    backend = EmbeddedRocksDBStateBackend()
    assert not backend.is_incremental_checkpoints_enabled()
    assert backend.get_db_storage_paths() == []
    assert backend.get_number_of_transfer_threads() == 4


def test_rocksdb_comes_back_with_its_settings():
    backend = EmbeddedRocksDBStateBackend(True)
    backend.set_db_storage_paths("/one", "/two")
    backend.set_number_of_transfer_threads(8)
    configuration = Configuration()
    put_backend(configuration, backend)
    assert configuration.to_dict() == {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
        "state.backend.rocksdb.localdir": "/one,/two",
        "state.backend.rocksdb.checkpoint.transfer.thread.num": "8",
    }
    found = backend_of(configuration)
    assert isinstance(found, EmbeddedRocksDBStateBackend)
    assert found.is_incremental_checkpoints_enabled()
    assert found.get_db_storage_paths() == ["/one", "/two"]
    assert found.get_number_of_transfer_threads() == 8
    backend.set_db_storage_paths()
    assert backend.get_db_storage_paths() == []


def test_what_rocksdb_does_not_set_is_as_configured():
    configuration = Configuration({"state.backend.incremental": "true"})
    put_backend(configuration, EmbeddedRocksDBStateBackend())
    found = backend_of(configuration)
    assert isinstance(found, EmbeddedRocksDBStateBackend)
    assert found.is_incremental_checkpoints_enabled()


def test_the_settings_of_rocksdb_are_checked():
    with pytest.raises(TypeError, match="must be True, False or None; got 'yes'"):
        EmbeddedRocksDBStateBackend("yes")
    backend = EmbeddedRocksDBStateBackend()
    with pytest.raises(ValueError, match="transfer threads must be at least 1; got 0"):
        backend.set_number_of_transfer_threads(0)
    with pytest.raises(ValueError, match="must be a path or a URI; got ''"):
        backend.set_db_storage_paths("/one", "")


@pytest.mark.parametrize("backend", [StateBackend(), "hashmap", None])
def test_a_backend_must_be_one(backend):
    with pytest.raises(TypeError, match="a state backend must be a HashMapStateBackend or"):
        put_backend(Configuration(), backend)


def older(make):
    with pytest.warns(DeprecationWarning, match=r"is an older name; use \w+\(\) and env.*") as seen:
        backend = make()
    assert seen[0].filename == __file__
    return backend


@pytest.mark.parametrize(
    ("make", "kind", "storage"),
    [
        (MemoryStateBackend, "hashmap", JobManagerCheckpointStorage()),
        (
            lambda: MemoryStateBackend("/c", "/s", 100, True),
            "hashmap",
            JobManagerCheckpointStorage("/c", savepoint_path="/s"),
        ),
        (
            lambda: FsStateBackend("file:///tmp"),
            "hashmap",
            FileSystemCheckpointStorage("file:///tmp"),
        ),
        (
            lambda: FsStateBackend("/c", "/s", 100, 8192, True),
            "hashmap",
            FileSystemCheckpointStorage("/c", 100, 8192, savepoint_path="/s"),
        ),
        (
            lambda: RocksDBStateBackend("hdfs://host/c", True),
            "rocksdb",
            FileSystemCheckpointStorage("hdfs://host/c"),
        ),
        (
            lambda: RocksDBStateBackend(checkpoint_stream_backend=FsStateBackend("/c")),
            "rocksdb",
            FileSystemCheckpointStorage("/c"),
        ),
    ],
)
def test_an_older_backend_is_a_backend_and_a_storage(make, kind, storage):
    configuration = Configuration()
    put_backend(configuration, older(make))
    assert backend_kind(configuration) == kind
    assert CheckpointConfig(configuration).get_checkpoint_storage() == storage


@pytest.mark.parametrize("make", [RocksDBStateBackend, FsStateBackend])
def test_the_older_backends_that_need_a_directory(make):
    with pytest.raises((TypeError, ValueError), match="checkpoint_d"):
        make()
