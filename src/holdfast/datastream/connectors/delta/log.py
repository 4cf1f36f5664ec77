"""The log of a Delta table: one JSON file per version, read through `holdfast.filesystem`.

`deltalake` shows the state of a table in a version. What a version has changed is only in the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from holdfast.datastream.connectors.tables.formats import DELTA_LOG
from holdfast.filesystem import MissingFileError, file_system_of, join

_JSON: Final = ".json"
_LAST_CHECKPOINT: Final = "_last_checkpoint"


@dataclass(frozen=True)
class AddedFile:
    """A data file that a version adds.

    Attributes:
        path: relative to the table.
        partition: the values of the partition columns, as text.
    """

    path: str
    partition: dict[str, str | None]
    size: int


@dataclass
class DeltaLogEntry:
    """What one version has changed.

    Attributes:
        added: the files with new rows, in the order of the log.
        paths: all files that are named in any way.
        removes_rows: whether it deletes or rewrites rows.
        maps_columns: whether columns have other names in its files from now on.
        schema: the new schema of the table, as JSON; empty if it stays.
    """

    version: int
    added: list[AddedFile] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    removes_rows: bool = False
    maps_columns: bool = False
    schema: str = ""


class DeltaLog:
    """The log of one table."""

    def __init__(self, uri: str) -> None:
        """Take the address of the table."""
        self._system, base = file_system_of(uri)
        self._directory = join(base, DELTA_LOG)

    def exists(self) -> bool:
        """Return whether there is a log: a version, or a checkpoint of one."""
        if self.has(0) or self._system.exists(join(self._directory, _LAST_CHECKPOINT)):
            return True  # most often, and without a look at a long list
        return any(
            status.name.endswith((_JSON, ".parquet"))
            for status in self._system.list_directory(self._directory)
        )

    def has(self, version: int) -> bool:
        """Return whether the log has a version as a file of its own."""
        return self._system.exists(self._path(version))

    def read(self, version: int) -> DeltaLogEntry | None:
        """Return what a version has changed; None if the log does not have it."""
        try:
            text = self._system.read(self._path(version))
        except MissingFileError:
            return None
        entry = DeltaLogEntry(version)
        for line in text.splitlines():
            if line.strip():
                _take(json.loads(line), entry)
        return entry

    def since(self, milliseconds: int) -> Iterator[DeltaLogEntry]:
        """Yield the versions that were written at a time or later, as far as the log has them."""
        for status in self._system.list_directory(self._directory):
            stem = status.name.removesuffix(_JSON)
            is_version = stem != status.name and stem.isdigit()
            if is_version and status.modified >= milliseconds:
                entry = self.read(int(stem))
                if entry is not None:
                    yield entry

    def _path(self, version: int) -> str:
        return join(self._directory, f"{version:020d}{_JSON}")


def _take(action: dict[str, Any], entry: DeltaLogEntry) -> None:
    for kind in ("add", "remove"):
        if kind in action:
            path = unquote(action[kind]["path"])
            entry.paths.add(path)
            if action[kind].get("dataChange", True):
                _take_change(kind, path, action[kind], entry)
    if "metaData" in action:
        entry.schema = action["metaData"]["schemaString"]
        settings = action["metaData"].get("configuration") or {}
        entry.maps_columns = settings.get("delta.columnMapping.mode", "none") != "none"


def _take_change(kind: str, path: str, found: dict[str, Any], entry: DeltaLogEntry) -> None:
    if kind == "remove":
        entry.removes_rows = True
        return
    partition = found.get("partitionValues") or {}
    entry.added.append(AddedFile(path, partition, found["size"]))
