"""Reads the events: lines of JSON, each subtask a file of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.orders.data import event_files
from examples.orders.events import OrderEvent
from holdfast.datastream.connectors.base import Source, SourceReader

__all__ = ["RecordedEvents"]

#: bytes that are read at once
_CHUNK = 1 << 18

_decode_lines = msgspec.json.Decoder(OrderEvent).decode_lines


class RecordedEvents(Source):
    """The events of a directory; there must be a file for each subtask."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """Read the subtask's file."""
        return _Reader(event_files(self.directory)[subtask])


class _Reader(SourceReader):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = path.stat().st_size
        self._offset = 0

    def restore(self, position: Any) -> None:
        self._offset = position

    def position(self) -> Any:
        return self._offset

    @property
    def finished(self) -> bool:
        return self._offset >= self._size

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        # NB: a chunk may have more events than are asked for; that many more do not matter
        with self._path.open("rb") as file:
            file.seek(self._offset)
            while limit > 0 and (chunk := file.read(_CHUNK) + file.readline()):
                events = _decode_lines(chunk)
                self._offset += len(chunk)
                limit -= len(events)
                yield events
