"""The front door of keyed state: the interface of a backend, the backends, and their storage."""

from __future__ import annotations

from holdfast.state.chain import Chain, FileRef
from holdfast.state.heap import HeapKeyedStateBackend
from holdfast.state.interface import (
    KeyedStateBackend,
    Restored,
    RestoredHow,
    StateStatistics,
    read_blobs,
)
from holdfast.state.settings import StateSettings
from holdfast.state.storage import DirectoryStateStorage, StateStorage
from holdfast.state.views import KeyContext

__all__ = [
    "Chain",
    "DirectoryStateStorage",
    "FileRef",
    "HeapKeyedStateBackend",
    "KeyContext",
    "KeyedStateBackend",
    "Restored",
    "RestoredHow",
    "StateSettings",
    "StateStatistics",
    "StateStorage",
    "make_backend",
    "read_blobs",
]


def make_backend(
    settings: StateSettings, key: bytes, level: int, subtask: int
) -> KeyedStateBackend:
    """Return a backend for a subtask, which is told later what key groups it owns.

    ``key`` is that of the job: only who has it can say what the job's local state is.
    """
    if not settings.rocksdb:
        return HeapKeyedStateBackend(range(0), 1)
    # Late, so that a job without RocksDB never loads it.
    from holdfast.state.rocksdb import RocksDBKeyedStateBackend
    from holdfast.state.rocksdb_home import Home

    home = Home(settings.home(key, level, subtask), key)
    return RocksDBKeyedStateBackend(range(0), 1, home, settings.memory, settings.threads)
