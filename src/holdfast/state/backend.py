"""The entry point of keyed state: the interface of a backend, the backends, and their storage."""

from __future__ import annotations

from holdfast.state.backends.base import KeyedStateBackend
from holdfast.state.backends.heap import HeapKeyedStateBackend
from holdfast.state.format.head import FileRef, Head
from holdfast.state.format.stored_files import read_blobs
from holdfast.state.live.key_context import KeyContext
from holdfast.state.settings import StateSettings
from holdfast.state.storage.directory import DirectoryStateStorage, StateStorage

__all__ = [
    "DirectoryStateStorage",
    "FileRef",
    "Head",
    "HeapKeyedStateBackend",
    "KeyContext",
    "KeyedStateBackend",
    "StateSettings",
    "StateStorage",
    "make_backend",
    "read_blobs",
]


def make_backend(
    settings: StateSettings, key: bytes, level: int, subtask: int
) -> KeyedStateBackend:
    """Return a backend for a subtask; the key groups it owns are assigned later.

    ``key`` is the job's key: without it nobody can forge the job's local state.
    """
    if not settings.rocksdb:
        return HeapKeyedStateBackend(range(0), 1)
    # Imported late, so that a job without RocksDB never loads it.
    from holdfast.state.backends.rocksdb.backend import RocksDBKeyedStateBackend
    from holdfast.state.backends.rocksdb.home import LocalHome

    home = LocalHome(settings.home(key, level, subtask), key)
    return RocksDBKeyedStateBackend(range(0), 1, home, settings.memory, settings.threads)
