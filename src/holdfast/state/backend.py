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
    "StateStatistics",
    "StateStorage",
    "read_blobs",
]
