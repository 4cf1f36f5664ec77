"""Unpickling of saved values, also from earlier versions with classes in other modules."""

from __future__ import annotations

import pickle
import re
from io import BytesIO
from typing import Any, Final

_CONNECTORS: Final = "holdfast.datastream.connectors"
#: modules up to version 0.1 with classes in saved positions and transactions, and their new names
_MOVED: Final = (
    (re.compile(rf"{_CONNECTORS}\._(kafka|hbase)_(\w+)"), rf"{_CONNECTORS}.\1.\2"),
    (re.compile(rf"{_CONNECTORS}\._flink_kafka_consumer"), f"{_CONNECTORS}.kafka.flink_consumer"),
    (re.compile(rf"{_CONNECTORS}\._file_(\w+)"), rf"{_CONNECTORS}.files.\1"),
    (re.compile(rf"{_CONNECTORS}\._part_files"), f"{_CONNECTORS}.files.part_files"),
)


def unpickle(data: bytes | memoryview) -> Any:
    """Return a value that was pickled by this version or by an earlier one."""
    try:
        return pickle.loads(data)
    except ModuleNotFoundError:
        return _MovedUnpickler(BytesIO(data)).load()


class _MovedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        for old, new in _MOVED:
            if old.fullmatch(module):
                return super().find_class(old.sub(new, module), name)
        return super().find_class(module, name)
