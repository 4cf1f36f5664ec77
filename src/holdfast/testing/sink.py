"""A sink that keeps its records for a test."""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from holdfast.datastream.functions import RuntimeContext, SinkFunction
from holdfast.errors import JobDefinitionError


class CollectingSink(SinkFunction):
    """Keeps records in a list in this process, or in files in a directory.

    Without a directory it works if the job runs in the process that created the sink, as in a
    ``LocalExecutor``. With one it also works on Spark in local mode. Like any sink function
    it is called again when an epoch is repeated, so it shows what an external system would see,
    including duplicates. ``collect`` has only accepted records.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        """Start empty; a directory must exist."""
        self._id = uuid.uuid4().hex
        self._directory = Path(directory) if directory is not None else None
        self._kept: list[Any] | None = []
        self._file: Path | None = None
        _sinks[self._id] = self

    @property
    def records(self) -> list[Any]:
        """Return the records so far; in order for each subtask."""
        if self._directory is None:
            return self._kept or []
        files = sorted(self._directory.glob(f"{self._id}-*.records"))
        return [record for file in files for record in _read(file)]

    def open(self, runtime_context: RuntimeContext) -> None:
        """Name this subtask's file, if there is a directory."""
        if self._directory is not None:
            subtask = runtime_context.get_index_of_this_subtask()
            self._file = self._directory / f"{self._id}-{subtask}-{uuid.uuid4().hex}.records"
        elif self._kept is None:
            raise JobDefinitionError(
                "a CollectingSink without a directory keeps records in the process that made it, "
                "and this is another one; give it a directory, or use execute_and_collect"
            )

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        """Keep a record."""
        if self._file is not None:
            with self._file.open("ab") as file:
                pickle.dump(value, file, 5)
        elif self._kept is not None:
            self._kept.append(value)

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: kept records do not move to another worker."""
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self._id, self._directory)


_sinks: WeakValueDictionary[str, CollectingSink] = WeakValueDictionary()


def _make(sink_id: str, directory: Path | None) -> CollectingSink:
    """The sink of a subtask: adds to the list of the original, if that is in this process."""
    sink = CollectingSink.__new__(CollectingSink)
    original = _sinks.get(sink_id)
    sink._id, sink._directory, sink._file = sink_id, directory, None
    sink._kept = None if original is None else original._kept
    return sink


def _read(file: Path) -> Iterator[Any]:
    with file.open("rb") as stream:
        while True:
            try:
                yield pickle.load(stream)
            except EOFError:
                return
