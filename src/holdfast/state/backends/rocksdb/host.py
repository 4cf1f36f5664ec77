"""`HostDatabase`: the database of a process for a subtask, in a slot of its home."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from holdfast.state.backends.rocksdb.database import budget_of
from holdfast.state.backends.rocksdb.home import DatabaseSlot, LocalHome
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
        self._slot: DatabaseSlot | None = None
        #: the tables of the head that was restored last; the host needs no others
        self._kept: tuple[FileRef, ...] = ()

    def find(self, head: Head) -> LocalState | None:
        """Open a database of an ended process, if it represents an earlier state of this subtask.

        Return None if there is none, or if this process has a slot already.
        """
        if self._slot is not None or not head.files:
            return None
        others: list[DatabaseSlot] = []
        for slot in self.home.free_slots():
            self._slot = slot
            if not slot.is_used or self._open_left(slot, head):
                break
            others.append(slot)
        if self.local is None and others:
            others.append(slot)
            self._slot = others.pop(0)
        for slot in others:
            slot.release()
        return self.local

    def _open_left(self, slot: DatabaseSlot, head: Head) -> bool:
        if not slot.is_private:
            return False
        with suppress(StateStorageError, StateCorruptionError, msgspec.DecodeError):
            local = LocalState(slot.path, self.budget, self.home.key)
            if local.standing.head.stamp in head.lineage:
                self.local = local
                return True
            local.close()
        return False

    def make(self) -> LocalState:
        """Open an empty database."""
        self._taken_slot().wipe()
        return self._open()

    def lay_out(self, storage: StateStorage, head: Head, index: TableIndex) -> int:
        """Open a database made of the tables of a head; return the number of bytes read."""
        slot = self._taken_slot()
        missing = [ref for ref in head.tables if not self.home.has_table(ref.name)]
        read = fetch_tables(storage, missing, self.home.tables, self.threads)
        try:
            lay_out(head, index, self.home.tables, slot.path)
        except FileNotFoundError:
            # Another process has continued to another head meanwhile, and deleted tables.
            slot.wipe()
            read += fetch_tables(storage, head.tables, slot.path, self.threads)
            lay_out(head, index, slot.path, slot.path)
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
        if self._slot is not None:
            self._slot.wipe()

    def release(self, ended: bool) -> None:
        """Release the database for the next process; if the job has ended, delete everything."""
        if self._slot is not None:
            self._slot.release()
            self._slot = None
        self.home.release()
        if ended:
            self.home.delete()

    def _taken_slot(self) -> DatabaseSlot:
        if self._slot is None:
            self._slot = next(self.home.free_slots())
        return self._slot

    def _open(self) -> LocalState:
        self.local = LocalState(self._taken_slot().path, self.budget, self.home.key)
        return self.local
