"""Captures of the RocksDB backend: entries in memory and rows for a delta, tables for a base."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.state.backends.capture import (
    Capture,
    FileCapture,
    Picture,
    Placement,
    TakenTable,
)
from holdfast.state.errors import StateStorageError
from holdfast.state.format.files import Section, SectionChunk
from holdfast.state.format.head import FileRef, Head
from holdfast.state.format.table_files import TABLE, TableIndex, with_index, write_table
from holdfast.state.live.sections import as_section, by_key_group, export_section
from holdfast.state.storage.directory import StateStorage

#: returns the entries of some keys at one moment; None for a key that had none
ReadEntries = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True)
class TakenRows(TakenTable):
    """A table with some entries in memory; the others are read when they are written.

    All have their declared types. ``read``: None if entries that are not in memory were removed.
    """

    read: ReadEntries | None = None

    def export(self) -> Section:
        """Return the table as a section; only a few entries are in memory at a time."""
        groups = self.share.max_parallelism
        if self.read is None:
            return export_section(self.table, self.marks, groups, shaped=True)
        assert self.marks is not None
        chunks: list[SectionChunk] = []
        for _, _, keys in by_key_group(list(self.marks), self.table.namespaced, groups):
            part = copy.copy(self.table)
            part.entries = self._entries(keys, self.read)
            chunks += export_section(part, self._marks_of(keys), groups, shaped=True).chunks
        return as_section(self.table, groups, tuple(chunks))

    def _entries(self, keys: list[Any], read: ReadEntries) -> dict[Any, Any]:
        here = self.table.entries
        entries = {key: here[key] for key in keys if key in here}
        others = [key for key in keys if key not in here]
        found = zip(others, read(others), strict=True)
        return entries | {key: entry for key, entry in found if entry is not None}

    def _marks_of(self, keys: list[Any]) -> Any:
        marks = self.marks
        return {key: marks[key] for key in keys} if isinstance(marks, dict) else set(keys)


class TableDraft:
    """The tables of a database at one moment, in a directory of their own.

    Attributes:
        directory: its name begins with a dot; tables are moved from it to its parent directory.
        index: what RocksDB needs to open the tables as a database.
    """

    def __init__(self, directory: Path, states: int, pickled: Sequence[int]) -> None:
        """List what the database has put into the directory."""
        self.directory = directory
        names = sorted(path.name for path in directory.glob("*.sst"))
        others = [*directory.glob("CURRENT"), *directory.glob("MANIFEST-*")]
        files = {path.name: path.read_bytes() for path in others}
        self.index = TableIndex(tuple(names), files, states, tuple(pickled))

    def planned(self, stamp: str, known: Mapping[str, FileRef]) -> tuple[FileRef, ...]:
        """Return the tables as they are in a head; the sizes of new ones are estimates."""
        return tuple(
            known.get(name) or FileRef(_file(stamp, name), self._path(name).stat().st_size, -1, -1)
            for name in self.index.tables
        )

    def save(
        self,
        storage: StateStorage,
        stamp: str,
        durable: bool,
        known: Mapping[str, FileRef],
        threads: int,
    ) -> tuple[FileRef, ...]:
        """Write the new tables as state files; return all tables.

        The new ones are also kept in the parent directory of the draft, under the names of their
        files.
        """

        def save(name: str) -> FileRef:
            if name in known:
                return known[name]
            file = _file(stamp, name)
            size = write_table(storage, file, self._path(name), durable)
            self._path(name).rename(self.directory.parent / file)
            return FileRef(file, size, -1, -1)

        try:
            with ThreadPoolExecutor(threads, "holdfast-tables") as pool:
                return tuple(pool.map(save, self.index.tables))
        except FileNotFoundError as error:
            message = f"cannot write the tables of {stamp}: they were given up meanwhile"
            raise StateStorageError(message) from error

    def delete(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _path(self, name: str) -> Path:
        return self.directory / name


def _file(stamp: str, table: str) -> str:
    return f"{stamp}-{Path(table).stem}{TABLE}"


class BaseCapture(FileCapture):
    """A base on the tables that the database had at one moment."""

    def __init__(
        self,
        placement: Placement,
        picture: Picture,
        draft: TableDraft,
        compacted: bool,
        durable: bool,
        threads: int,
        before: tuple[Head, tuple[str, ...]],
        last: Capture | None,
    ) -> None:
        """Capture a base, without the index of its tables.

        ``compacted``: no table contains rows that were overwritten since. ``before``: the previous
        head, and the names of its tables in the database.
        """
        super().__init__(placement, picture, durable, before[0], last)
        self._draft = draft
        self._compacted = compacted
        self._threads = threads
        self._known_names = before[1]

    @property
    def table_names(self) -> tuple[str, ...]:
        """Return the names of its tables in the database."""
        return self._draft.index.tables

    def planned(self, head: Head) -> Head:
        """Return the head that will follow that one; the sizes of new files are estimates."""
        tables = self._draft.planned(self.placement.stamp, self._known(head))
        return self._rebased(head, tables, 1)

    def _store(self, storage: StateStorage, head: Head) -> Head:
        file, stamp = self._file(), self.placement.stamp
        tables = self._draft.save(storage, stamp, self._durable, self._known(head), self._threads)
        size = self._write(storage, with_index(file, self._draft.index))
        return self._rebased(head, tables, size)

    def _known(self, head: Head) -> dict[str, FileRef]:
        return dict(zip(self._known_names, head.tables, strict=True))

    def _rebased(self, head: Head, tables: tuple[FileRef, ...], size: int) -> Head:
        place = self.placement
        ref = FileRef(place.name, size, -1, place.until)
        overwritten = 0 if self._compacted else head.written
        return head.rebased(ref, place.stamp, tables, overwritten, place.swept)

    def _release(self) -> None:
        super()._release()
        self._draft.delete()
