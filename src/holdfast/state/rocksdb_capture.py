"""Captures of the RocksDB backend: entries in memory and rows for a delta, tables for a base."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.state.capture import Capture
from holdfast.state.chain import Chain, FileRef
from holdfast.state.errors import StateStorageError
from holdfast.state.files import Chunk, Section, StateFile
from holdfast.state.heap_capture import Before, HeapCapture, Placement, TakenTable
from holdfast.state.sections import by_key_group, export_section
from holdfast.state.storage import StateStorage
from holdfast.state.table_files import TABLE, TableIndex, with_index, write_table

__all__ = ["BaseCapture", "TableDraft", "TakenRows"]

#: a key to its entry at one moment; None if there was none
ReadEntry = Callable[[Any], Any]


@dataclass(frozen=True)
class TakenRows(TakenTable):
    """A table of which some entries are in memory, and others are read when they are written.

    All have their declared shape. ``read``: None if what is not in memory is gone.
    """

    read: ReadEntry | None = None

    def export(self) -> Section:
        """Return it as a section, with the entries of some keys in memory at a time."""
        groups = self.share.max_parallelism
        if self.read is None:
            return export_section(self.table, self.marks, groups, shaped=True)
        assert self.marks is not None
        chunks: list[Chunk] = []
        for _, _, keys in by_key_group(list(self.marks), self.table.namespaced, groups):
            part = copy.copy(self.table)
            part.entries = self._entries(keys, self.read)
            chunks += export_section(part, self._marks_of(keys), groups, shaped=True).chunks
        head = export_section(self.table, self.table.new_marks(), groups)
        return replace(head, chunks=tuple(chunks))

    def _entries(self, keys: list[Any], read: ReadEntry) -> dict[Any, Any]:
        here = self.table.entries
        found = ((key, here[key] if key in here else read(key)) for key in keys)
        return {key: entry for key, entry in found if entry is not None}

    def _marks_of(self, keys: list[Any]) -> Any:
        marks = self.marks
        return {key: marks[key] for key in keys} if isinstance(marks, dict) else set(keys)


class TableDraft:
    """The tables of a database at one moment, in a directory of their own.

    Attributes:
        directory: it begins with a dot; the tables go from there to the directory around it.
        index: what makes a database of them.
    """

    def __init__(self, directory: Path, states: int, pickled: Sequence[int]) -> None:
        """Find what the database has put into the directory."""
        self.directory = directory
        names = sorted(path.name for path in directory.glob("*.sst"))
        others = [*directory.glob("CURRENT"), *directory.glob("MANIFEST-*")]
        files = {path.name: path.read_bytes() for path in others}
        self.index = TableIndex(tuple(names), files, states, tuple(pickled))

    def planned(self, stamp: str, known: Mapping[str, FileRef]) -> tuple[FileRef, ...]:
        """Return the tables as a chain has them; the sizes of those that are new are guesses."""
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
        """Write the tables that are not known yet as state files; return all.

        The new ones are left in the directory around the draft, too, under the names of their
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
        """Delete what is left of it."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _path(self, name: str) -> Path:
        return self.directory / name


def _file(stamp: str, table: str) -> str:
    return f"{stamp}-{Path(table).stem}{TABLE}"


class BaseCapture(HeapCapture):
    """A base on the tables that the database had at one moment."""

    def __init__(
        self,
        placement: Placement,
        file: StateFile,
        draft: TableDraft,
        compacted: bool,
        durable: bool,
        threads: int,
        before: Before,
        last: Capture | None,
    ) -> None:
        """Take a base as it is without the index of its tables.

        ``compacted``: no table holds anything that was written again since.
        """
        super().__init__(placement, None, durable, before, last)
        self._file = file
        self._draft = draft
        self._compacted = compacted
        self._threads = threads

    @property
    def table_names(self) -> tuple[str, ...]:
        """Return the names of its tables in the database."""
        return self._draft.index.tables

    def planned(self) -> Chain:
        """Return the chain that it will be; new files have guesses for sizes."""
        head = self.before.chain
        return self._rebased(head, self._draft.planned(*self._known(head)), 1)

    def _store(self, storage: StateStorage, head: Chain) -> Chain:
        stamp, known = self._known(head)
        tables = self._draft.save(storage, stamp, self._durable, known, self._threads)
        self._write(storage, with_index(self._file, self._draft.index))
        return self._rebased(head, tables, self.size)

    def _known(self, head: Chain) -> tuple[str, dict[str, FileRef]]:
        return self.placement.stamp, dict(zip(self.before.tables, head.tables, strict=True))

    def _rebased(self, head: Chain, tables: tuple[FileRef, ...], size: int) -> Chain:
        place = self.placement
        ref = FileRef(place.name, size, -1, place.until)
        overwritten = 0 if self._compacted else head.written
        return head.rebased(ref, place.stamp, tables, overwritten, place.swept)

    def _release(self) -> None:
        super()._release()
        self._draft.delete()
