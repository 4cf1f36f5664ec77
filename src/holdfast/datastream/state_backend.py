"""The state backends of a job: settings only, stored in a configuration.

`HashMapStateBackend`, `EmbeddedRocksDBStateBackend`, and Flink's three older classes, each of which
is one of the two with a checkpoint storage.
"""

from __future__ import annotations

import warnings
from typing import Final

from holdfast.common import Configuration
from holdfast.common.options.recovery import FROM_LOCAL
from holdfast.common.options.setting import count, flag, memory, text
from holdfast.datastream.checkpoint_storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
    path_of,
    put_storage,
)
from holdfast.errors import ConfigurationError
from holdfast.state.settings import DEFAULT_MEMORY, StateSettings

__all__ = [
    "EmbeddedRocksDBStateBackend",
    "FsStateBackend",
    "HashMapStateBackend",
    "MemoryStateBackend",
    "RocksDBStateBackend",
    "StateBackend",
    "backend_kind",
    "state_settings",
]

_HASH_MAP: Final = "hashmap"
_ROCKS_DB: Final = "rocksdb"
#: names of `state.backend` from before the storage had a setting of its own
_OLDER_KINDS: Final = {"jobmanager": _HASH_MAP, "filesystem": _HASH_MAP}
_DEFAULT_THREADS: Final = 4
#: with less memory RocksDB would write a table every few thousand rows
_LEAST_MEMORY: Final = 16 << 20

_TYPE: Final = text("state.backend.type", _HASH_MAP, older=("state.backend",))
_INCREMENTAL: Final = flag(
    "execution.checkpointing.incremental", older=("state.backend.incremental",)
)
_DB_PATHS: Final = text("state.backend.rocksdb.localdir")
_THREADS: Final = count(
    "state.backend.rocksdb.checkpoint.transfer.thread.num", _DEFAULT_THREADS, least=1
)
_MEMORY: Final = memory(
    "state.backend.rocksdb.memory.fixed-per-slot", DEFAULT_MEMORY, least=_LEAST_MEMORY
)
_CHECK_MUTATIONS: Final = flag("holdfast.state.check-mutations")
CHANGELOG: Final = flag("state.changelog.enabled", None, older=("state.backend.changelog.enabled",))


class StateBackend:
    """Base of the state backends."""

    #: the checkpoint storage that an older backend also sets
    checkpoint_storage: CheckpointStorage | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class HashMapStateBackend(StateBackend):
    """State as Python objects in the memory of the workers."""


class EmbeddedRocksDBStateBackend(StateBackend):
    """State in RocksDB on the disks of the workers, for state that does not fit in memory.

    ``set_state_backend`` copies its settings; later changes have no effect. Settings that are not
    set keep their configured values. Its checkpoints are always incremental.
    """

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        """Set whether a checkpoint copies only new table files; None keeps the configured value."""
        if enable_incremental_checkpointing not in (None, True, False):
            message = (
                "enable_incremental_checkpointing must be True, False or None; "
                f"got {enable_incremental_checkpointing!r}"
            )
            raise TypeError(message)
        self._incremental = enable_incremental_checkpointing
        self._paths: tuple[str, ...] = ()
        self._threads: int | None = None

    def set_db_storage_paths(self, *paths: str) -> None:
        """Set the local directories of the database; without any, the user's own directory."""
        self._paths = tuple(path_of(path) for path in paths)

    def get_db_storage_paths(self) -> list[str]:
        """Return the local directories of the database; empty if none was set."""
        return list(self._paths)

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Return whether a checkpoint copies only new files."""
        return bool(self._incremental)

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Set how many threads copy files at checkpoints and recoveries."""
        if number_of_transfering_threads < 1:
            message = (
                "the number of transfer threads must be at least 1; "
                f"got {number_of_transfering_threads}"
            )
            raise ValueError(message)
        self._threads = number_of_transfering_threads

    def get_number_of_transfer_threads(self) -> int:
        """Return how many threads copy files at checkpoints and recoveries."""
        return _DEFAULT_THREADS if self._threads is None else self._threads

    def _put(self, configuration: Configuration) -> None:
        if self._incremental is not None:
            _INCREMENTAL.put(configuration, self._incremental)
        if self._paths:
            _DB_PATHS.put(configuration, ",".join(self._paths))
        if self._threads is not None:
            _THREADS.put(configuration, self._threads)


class MemoryStateBackend(HashMapStateBackend):
    """Older: `HashMapStateBackend` with `JobManagerCheckpointStorage`."""

    def __init__(
        self,
        checkpoint_path: str | None = None,
        savepoint_path: str | None = None,
        max_state_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        """Accept the arguments of Flink's class; the last two have no effect."""
        _warn_older("MemoryStateBackend", "HashMapStateBackend", "JobManagerCheckpointStorage")
        self.checkpoint_storage = JobManagerCheckpointStorage(
            checkpoint_path, max_state_size, savepoint_path=savepoint_path
        )


class FsStateBackend(HashMapStateBackend):
    """Older: `HashMapStateBackend` with `FileSystemCheckpointStorage`."""

    def __init__(
        self,
        checkpoint_directory_uri: str,
        default_savepoint_directory_uri: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        """Accept the arguments of Flink's class; the last three have no effect."""
        _warn_older("FsStateBackend", "HashMapStateBackend", "FileSystemCheckpointStorage")
        self.checkpoint_storage = FileSystemCheckpointStorage(
            checkpoint_directory_uri,
            file_state_size_threshold,
            -1 if write_buffer_size is None else write_buffer_size,
            savepoint_path=default_savepoint_directory_uri,
        )


class RocksDBStateBackend(EmbeddedRocksDBStateBackend):
    """Older: `EmbeddedRocksDBStateBackend` with a checkpoint storage."""

    def __init__(
        self,
        checkpoint_data_uri: str | None = None,
        enable_incremental_checkpointing: bool | None = None,
        checkpoint_stream_backend: StateBackend | None = None,
    ) -> None:
        """Set the directory of checkpoints, or a backend that has one."""
        super().__init__(enable_incremental_checkpointing)
        if (checkpoint_data_uri is None) == (checkpoint_stream_backend is None):
            message = (
                "RocksDBStateBackend needs either checkpoint_data_uri or checkpoint_stream_backend"
            )
            raise ValueError(message)
        _warn_older(
            "RocksDBStateBackend", "EmbeddedRocksDBStateBackend", "FileSystemCheckpointStorage"
        )
        if checkpoint_data_uri is not None:
            self.checkpoint_storage = FileSystemCheckpointStorage(checkpoint_data_uri)
        elif checkpoint_stream_backend is not None:
            self.checkpoint_storage = checkpoint_stream_backend.checkpoint_storage


def backend_kind(configuration: Configuration) -> str:
    """Return the backend of a job: ``"hashmap"``, which is the default, or ``"rocksdb"``."""
    name = _TYPE.get(configuration)
    word = name.strip().lower()
    kind = _OLDER_KINDS.get(word, word)
    if kind not in (_HASH_MAP, _ROCKS_DB):
        message = f"state.backend.type: there is no state backend {name!r}; use hashmap or rocksdb"
        raise ConfigurationError(message)
    return kind


def state_settings(configuration: Configuration, check_mutations: bool = False) -> StateSettings:
    """Return the state settings of a job's workers.

    ``check_mutations``: whether to check for in-place changes if the configuration does not set it.
    """
    told = _CHECK_MUTATIONS.find(configuration)
    checks = check_mutations if told is None else told
    from_local = FROM_LOCAL.get(configuration)
    if backend_kind(configuration) != _ROCKS_DB:
        return StateSettings(check_mutations=checks, from_local=from_local)
    backend = backend_of(configuration)
    assert isinstance(backend, EmbeddedRocksDBStateBackend)
    return StateSettings(
        rocksdb=True,
        directories=tuple(backend.get_db_storage_paths()),
        memory=_MEMORY.get(configuration),
        threads=backend.get_number_of_transfer_threads(),
        check_mutations=checks,
        from_local=from_local,
    )


def put_backend(configuration: Configuration, backend: StateBackend) -> None:
    """Write a backend, and the checkpoint storage of an older one, into a configuration."""
    if isinstance(backend, EmbeddedRocksDBStateBackend):
        _TYPE.put(configuration, _ROCKS_DB)
        backend._put(configuration)
    elif isinstance(backend, HashMapStateBackend):
        _TYPE.put(configuration, _HASH_MAP)
    else:
        message = (
            "a state backend must be a HashMapStateBackend or an EmbeddedRocksDBStateBackend; "
            f"got {type(backend).__name__}"
        )
        raise TypeError(message)
    if backend.checkpoint_storage is not None:
        put_storage(configuration, backend.checkpoint_storage)


def backend_of(configuration: Configuration) -> StateBackend | None:
    """Return the backend that was set, or None."""
    if _TYPE.find(configuration) is None:
        return None
    if backend_kind(configuration) == _HASH_MAP:
        return HashMapStateBackend()
    backend = EmbeddedRocksDBStateBackend(_INCREMENTAL.find(configuration))
    paths = _DB_PATHS.find(configuration)
    backend.set_db_storage_paths(*(path.strip() for path in paths.split(",")) if paths else ())
    backend.set_number_of_transfer_threads(_THREADS.get(configuration))
    return backend


def _warn_older(name: str, backend: str, storage: str) -> None:
    message = (
        f"{name} is an older name; use {backend}() and "
        f"env.get_checkpoint_config().set_checkpoint_storage({storage}(…))"
    )
    warnings.warn(message, DeprecationWarning, stacklevel=3)
