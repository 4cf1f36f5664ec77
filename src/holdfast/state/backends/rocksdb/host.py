"""`HostDatabase`: the database of a process for a subtask, in a place of its home."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from holdfast.state.backends.rocksdb.database import budget_of
from holdfast.state.backends.rocksdb.home import DatabasePlace, LocalHome
from holdfast.state.backends.rocksdb.local import LocalState
from holdfast.state.backends.rocksdb.reading import lay_out
from holdfast.state.errors import StateCorruptionError, StateStorageError
from holdfast.state.format.head import FileRef, Head
from holdfast.state.format.table_files import TableIndex, fetch_tables
from holdfast.state.storage.directory import StateStorage


class HostDatabase:
    """A database of the host, open or closed.

    Attributes:
        local: the database; None while none is open.
    """

    def __init__(self, home: LocalHome, memory: int, threads: int) -> None:
        """Open nothing yet; ``threads``: the number of tables copied at the same time."""
        self.home = home
        self.budget = budget_of(memory)
        self.threads = threads
        self.local: LocalState | None = None
        self._place: DatabasePlace | None = None
        #: the tables of the head that was restored last; the host needs no others
        self._kept: tuple[FileRef, ...] = ()

    def find(self, head: Head) -> LocalState | None:
        """Open a database of an ended process, if it represents an earlier state of this subtask.

        Return None if there is none, or if this process has a place already.
        """
        if self._place is not None or not head.files:
            return None
        others: list[DatabasePlace] = []
        for place in self.home.free_places():
            self._place = place
            if not place.is_used or self._open_left(place, head):
                break
            others.append(place)
        if self.local is None and others:
            others.append(place)
            self._place = others.pop(0)
        for place in others:
            place.release()
        return self.local

    def _open_left(self, place: DatabasePlace, head: Head) -> bool:
        if not place.is_private:
            return False
        with suppress(StateStorageError, StateCorruptionError, msgspec.DecodeError):
            local = LocalState(place.path, self.budget, self.home.key)
            if local.standing.head.stamp in head.lineage:
                self.local = local
                return True
            local.close()
        return False

    def make(self) -> LocalState:
        """Open an empty database."""
        self._taken_place().wipe()
        return self._open()

    def lay_out(self, storage: StateStorage, head: Head, index: TableIndex) -> int:
        """Open a database made of the tables of a head; return the number of bytes read."""
        place = self._taken_place()
        missing = [ref for ref in head.tables if not self.home.has_table(ref.name)]
        read = fetch_tables(storage, missing, self.home.tables, self.threads)
        try:
            lay_out(head, index, self.home.tables, place.path)
        except FileNotFoundError:
            # Another process has continued to another head meanwhile, and deleted tables.
            place.wipe()
            read += fetch_tables(storage, head.tables, place.path, self.threads)
            lay_out(head, index, place.path, place.path)
        self._open()
        return read

    def keep(self, tables: tuple[FileRef, ...]) -> None:
        """Delete all other tables that the host keeps for later databases."""
        if tables != self._kept:
            self._kept = tables
            self.home.keep_tables({ref.name for ref in tables})

    def shut(self) -> None:
        """Close the database."""
        if self.local is not None:
            self.local.close()
            self.local = None

    def wipe(self) -> None:
        """Delete the closed database."""
        if self._place is not None:
            self._place.wipe()

    def release(self, ended: bool) -> None:
        """Release the database for the next process; if the job has ended, delete everything."""
        if self._place is not None:
            self._place.release()
            self._place = None
        self.home.release()
        if ended:
            self.home.delete()

    def _taken_place(self) -> DatabasePlace:
        if self._place is None:
            self._place = next(self.home.free_places())
        return self._place

    def _open(self) -> LocalState:
        self.local = LocalState(self._taken_place().path, self.budget, self.home.key)
        return self.local
