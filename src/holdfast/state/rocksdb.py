"""`RocksDBKeyedStateBackend`: state in a RocksDB of the host, for more than memory holds.

A table has the entries in memory that are in use (`CachedEntries`); all are rows of the database.
What a function changes stays in memory until the next capture, or until an epoch ends and there is
much of it. Then it is written into the database, and only marks say that the next delta has it.

A capture writes all that changed into the database. A delta is made of entries that are in memory
and of rows, as they were at the capture (a snapshot of RocksDB); a base of the tables, which are
linked into a directory until they are copied. The database is told which chain it stands for when
the capture is written, unless it has changed since.

Invariant: the database is the tables of its chain's base and what the files behind it changed, or
it says that it stands for nothing. Consequence: to go back to an accepted chain costs no more than
hard links to the tables and the deltas behind them, and a new base copies only new tables.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import msgspec

from holdfast.datastream.state import StateDescriptor
from holdfast.state.capture import Capture, Unchanged
from holdfast.state.catalog import SavedState
from holdfast.state.chain import Chain, FileRef
from holdfast.state.errors import StateCorruptionError, StateStorageError
from holdfast.state.files import Section, StateFile
from holdfast.state.heap import HeapKeyedStateBackend
from holdfast.state.heap_capture import Before, HeapCapture, Picture, Placement, Step
from holdfast.state.interface import Restored, RestoredHow, read_file
from holdfast.state.rocksdb_capture import BaseCapture, TakenRows
from holdfast.state.rocksdb_database import Changes, Snapshot, budget_of
from holdfast.state.rocksdb_home import Home, Slot
from holdfast.state.rocksdb_local import Head, LocalState, StateId, id_of
from holdfast.state.rocksdb_reading import lay_out
from holdfast.state.rocksdb_state import DeclaredState, StateRows
from holdfast.state.sections import check_kind, export_section, load_section
from holdfast.state.storage import StateStorage
from holdfast.state.table_files import TableIndex, fetch_tables, index_of
from holdfast.state.tables import Table

__all__ = ["RocksDBKeyedStateBackend", "needs_base"]

#: a new base after so many deltas, or so many bytes of them
_MOST_DELTAS: Final = 64
_DELTA_BYTES: Final = 32 << 20


def needs_base(sizes: Sequence[int]) -> bool:
    """Return whether the next file is a base; ``sizes`` are those of a chain's base and deltas.

    A base writes what RocksDB holds in memory into a table, and copies that table and those that
    it has merged since. So not too often; but to go back means to apply the deltas again.
    """
    return not sizes or len(sizes) > _MOST_DELTAS or sum(sizes[1:]) >= _DELTA_BYTES


class RocksDBKeyedStateBackend(HeapKeyedStateBackend):
    """State in a database of this host, with a chain of tables and state files as its copy."""

    def __init__(
        self, key_groups: range, max_parallelism: int, home: Home, memory: int, threads: int = 1
    ) -> None:
        """Open nothing yet.

        ``home`` is that of this subtask, for all processes of the host; ``memory`` is about how
        much all state of this process may take, in bytes; ``threads`` is how many tables are
        copied at a time.
        """
        super().__init__(key_groups, max_parallelism)
        self._home = home
        self._budget = budget_of(memory)
        self._threads = threads
        self._slot: Slot | None = None
        self._local: LocalState | None = None
        self._declared: dict[StateId, DeclaredState] = {}
        #: the names of the chain's tables in the database
        self._table_names: tuple[str, ...] = ()
        #: what changed since the last capture and is in the database
        self._unsaved = Step()
        #: how often changes were written into the database, and how often before the last capture
        self._saves = self._captured = 0
        #: the tables of the chain that was restored last; the host need have no others
        self._kept: tuple[FileRef, ...] = ()

    def restore(self, storage: StateStorage, chain: Chain) -> Restored:
        """Bring this instance to the chain, from what the host has of it if that is possible."""
        try:
            self._settle()
            self._forget_changes()
            if self._slot is None and chain.files:
                self._find_database(chain)
            restored = self._go_to(storage, chain)
        except BaseException:
            self.discard()
            raise
        if chain.tables != self._kept:
            self._kept = chain.tables
            self._home.keep_tables({ref.name for ref in chain.tables})
        return restored

    def keep_files(self, names: Container[str]) -> None:
        """Delete the tables that no file of these names holds; the database keeps its own."""
        self._home.keep_tables(names)

    def end_epoch(self) -> None:
        """Do what is due, and write what changed into the database if there is much of it."""
        super().end_epoch()
        if any(declared.has_changed_much for declared in self._declared.values()):
            self._save()
            self._limit_memory()

    def discard(self) -> None:
        """Forget everything, on the disk as well."""
        self._forget()
        if self._slot is not None:
            self._slot.wipe()

    def _forget(self) -> None:
        super().discard()
        self._unsaved = Step()
        self._saves = self._captured = 0
        self._detach()

    def close(self, ended: bool = False) -> None:
        """Let go of the database; it is there for the next process, unless the job has ended."""
        self._forget()
        if self._slot is not None:
            self._slot.release()
            self._slot = None
        self._home.release()
        if ended:
            self._home.delete()

    def import_key_groups(
        self,
        storage: StateStorage,
        chains: Iterable[Chain],
        operators: Container[str] | None = None,
    ) -> int:
        """Take over this instance's key groups from the chains of other subtasks."""
        read = super().import_key_groups(storage, chains, operators)
        self._needs_base = bool(self._unread) or bool(self._with_rows())
        return read

    def stateful(self, blob: str) -> set[str]:
        """Return the operators that have keyed state here, or a blob of that name."""
        changed = {table.operator for table in self._tables.values() if table.dirty}
        unread = {operator for operator, _, _ in self._unread}
        blobs = {operator for operator, name in self._blobs if name == blob}
        return self._with_rows() | changed | unread | blobs

    def _with_rows(self) -> set[str]:
        states = [] if self._local is None else self._local.states
        return {rows.head.operator for rows in states if not rows.is_empty()}

    def states(self) -> dict[str, list[SavedState]]:
        """Return the keyed states that have entries here, by operator."""
        states = super().states()
        for rows in [] if self._local is None else self._local.states:
            head = rows.head
            if id_of(head) not in self._tables and not rows.is_empty():
                pickled = id_of(head) in self._pickled
                of_operator = states.setdefault(head.operator, [])
                of_operator.append(
                    SavedState(
                        head.state, head.kind, head.types, head.namespaced, pickled, head.expires
                    )
                )
        return states

    def _scan(
        self, operator: str, state: str, namespaced: bool
    ) -> Iterator[tuple[Any, Any, Any]] | None:
        """Return (key, namespace, entry) of a state that the job has declared."""
        table = self._tables.get((operator, state, namespaced))
        if table is None:
            return None
        items = table.entries.items()
        return ((*key, entry) if namespaced else (key, None, entry) for key, entry in items)

    # Declaring.

    def _make_table(self, table_id: StateId, descriptor: StateDescriptor) -> Table[Any]:
        table = super()._make_table(table_id, descriptor)
        declared = DeclaredState(table, self._budget)
        if self._local is not None:
            self._bind(declared, self._local)
        self._declared[table_id] = declared
        return table

    def _add_table(self, table_id: StateId, descriptor: StateDescriptor) -> Table[Any]:
        table = self._tables[table_id] = self._make_table(table_id, descriptor)
        unread = self._unread.pop(table_id, [])
        try:
            for until, section in unread:
                self._load_section(section, until)
        except BaseException:
            del self._tables[table_id], self._declared[table_id]
            self._unread[table_id] = unread
            raise
        if unread and self._local is not None:
            self._local.write({}, self._head())
        return table

    def _bind(self, declared: DeclaredState, local: LocalState) -> None:
        """Find the rows of a declared state, and bring them into its declared types."""
        share = self.share(declared.table.operator)
        head = export_section(declared.table, declared.table.new_marks(), share.max_parallelism)
        rows = local.rows(head)
        if rows.head != head:
            saved = self._ours(rows.head)
            kinds = (saved.kind, saved.expires), (head.kind, head.expires)
            check_kind(head.operator, head.state, *kinds)
            self._migrate(declared, rows, local)
            rows.head = head
            self._needs_base = True
            local.write({}, self._head())
        declared.rows = rows

    def _migrate(self, declared: DeclaredState, rows: StateRows, local: LocalState) -> None:
        """Write all rows of a state anew."""
        scratch = copy.copy(declared.table)
        scratch.entries, scratch.dirty = {}, scratch.new_marks()
        # NB: first all are read, since one that cannot be must leave everything as it is.
        for section in rows.sections():
            load_section(scratch, section, None)
            scratch.entries.clear()
        for section in rows.sections():
            keys = load_section(scratch, section, None)
            changes: Changes = {}
            rows.put(keys, declared.encode([scratch.entries[key] for key in keys]), changes)
            local.write(changes)
            scratch.entries.clear()

    # Restoring.

    def _go_to(self, storage: StateStorage, chain: Chain) -> Restored:
        if chain.stamp == self._chain.stamp:
            return Restored(RestoredHow.CURRENT)
        start = self._missing_from(chain)
        if start:
            read = self._apply(storage, chain, start)
            return Restored(RestoredHow.CAUGHT_UP, read)
        read = self._rebuild(storage, chain)
        return Restored(RestoredHow.REBUILT, read)

    def _forget_changes(self) -> None:
        """Go back to what the database has; if it stands for nothing, to nothing."""
        # NB: a head without a chain stands for nothing, not for the state before the first epoch
        head = None if self._local is None else self._local.head.chain.stamp
        stands = self._local is None or (head is not None and head == self._chain.stamp)
        if self._has_changes() and (self._needs_base or not stands):
            self.discard()
        elif self._has_changes():
            for declared in self._declared.values():
                declared.entries.forget()
                declared.table.dirty.clear()
            self._dirty_blobs.clear()
            self._blobs = {} if self._local is None else self._local.blobs()
            self._announce()

    def _find_database(self, chain: Chain) -> None:
        """Open a database that another process has left, if it stands for this chain."""
        others: list[Slot] = []
        for slot in self._home.free_slots():
            self._slot = slot
            if not slot.is_used or self._open_left(slot, chain):
                break
            others.append(slot)
        if self._local is None and others:
            others.append(slot)
            self._slot = others.pop(0)
        for slot in others:
            slot.release()

    def _open_left(self, slot: Slot, chain: Chain) -> bool:
        if not slot.is_private:
            return False
        with suppress(StateStorageError, StateCorruptionError, msgspec.DecodeError):
            local = LocalState(slot.path, self._budget, self._home.key)
            if local.head.chain.stamp in chain.lineage:
                self._attach(local)
                return True
            local.close()
        return False

    def _rebuild(self, storage: StateStorage, chain: Chain) -> int:
        """Begin with the tables of the base, and apply all files."""
        self.discard()
        if not chain.files:
            return 0
        base = chain.files[0]
        file = read_file(storage, base.name, base.size)
        read = base.size
        if chain.tables:
            index, _, file = index_of(file, chain)
            read += self._lay_out(storage, chain, index)
            path = self._taken_slot().path
            self._attach(LocalState(path, self._budget, self._home.key))
            self._table_names = index.tables
            states = self._opened().states
            self._pickled.update(id_of(states[number].head) for number in index.pickled)
        self._load(file, base.until, None)
        return read + self._apply(storage, chain, 1)

    def _lay_out(self, storage: StateStorage, chain: Chain, index: TableIndex) -> int:
        """Make the slot a database of the chain's tables; return the bytes that had to be read."""
        slot = self._taken_slot()
        missing = [ref for ref in chain.tables if not self._home.has_table(ref.name)]
        read = fetch_tables(storage, missing, self._home.tables, self._threads)
        try:
            lay_out(chain, index, self._home.tables, slot.path)
        except FileNotFoundError:
            # Another process went on to another chain, and let go of tables meanwhile.
            slot.wipe()
            read += fetch_tables(storage, chain.tables, slot.path, self._threads)
            lay_out(chain, index, slot.path, slot.path)
        return read

    def _apply(self, storage: StateStorage, chain: Chain, start: int) -> int:
        """Apply the files of a chain from one on, which leads to the chain."""
        local = self._opened()
        if local.head.chain.files:
            local.write({})
        for ref in chain.files[start:]:
            self._load(read_file(storage, ref.name, ref.size), ref.until, None)
        self._chain = chain
        local.write(self._changes(), self._head())
        self._dirty_blobs.clear()
        return chain.size_from(start)

    def _load(self, file: StateFile, until: int, step: Any) -> None:
        super()._load(file, until, step)
        self._dirty_blobs.update(file.blobs)

    def _load_section(self, section: Section, until: int) -> None:
        state = id_of(section)
        if section.pickled:
            self._pickled.add(state)
        if state in self._unread:
            self._unread[state].append((until, section.copy()))
            return
        concerned: list[Any] = []
        for place, chunk in enumerate(section.chunks):
            keys = self._load_chunk(replace(section, chunks=(chunk,)))
            if keys is None:
                rest = replace(section, chunks=section.chunks[place:])
                self._unread[state] = [(until, rest.copy())]
                break
            concerned += keys
        if state in self._watchers:
            entries = self._tables[state].entries
            self._watchers[state](key for key in concerned if key in entries)

    def _load_chunk(self, section: Section) -> list[Any] | None:
        """Write a section of one chunk into the database; None if its types must be known."""
        local, changes = self._opened(), Changes()
        rows = local.rows(replace(section, chunks=()))
        declared = self._declared.get(id_of(section))
        as_it_is = rows.head == replace(section, chunks=())
        keys = rows.put_chunk(section.chunks[0], changes) if as_it_is else None
        if keys is not None:
            if declared is not None:
                declared.entries.forget(keys)
        elif declared is not None:
            self._needs_base |= section.types != declared.table.types
            declared.entries.limit_to(None)
            keys = load_section(declared.table, section, None)
            declared.save(keys, changes)
        local.write(changes)
        if declared is not None:
            declared.limit_memory()
        return keys

    def _announce(self) -> None:
        """Tell those who watch states that all of them may be others."""
        for state, loaded in self._watchers.items():
            loaded(None)
            loaded(self._tables[state].entries)

    # The database.

    def _opened(self) -> LocalState:
        """Return the database, which is an empty one if none is open."""
        if self._local is None:
            slot = self._taken_slot()
            slot.wipe()
            self._use(LocalState(slot.path, self._budget, self._home.key))
        assert self._local is not None
        return self._local

    def _taken_slot(self) -> Slot:
        if self._slot is None:
            self._slot = next(self._home.free_slots())
        return self._slot

    def _use(self, local: LocalState) -> None:
        self._local = local
        for declared in self._declared.values():
            self._bind(declared, local)

    def _attach(self, local: LocalState) -> None:
        """Go on with what is in a database."""
        self._chain, self._table_names = local.head.chain, local.head.tables
        self._pickled = set(local.head.pickled)
        self._use(local)
        self._blobs = local.blobs()
        self._announce()

    def _detach(self) -> None:
        self._ttl.forget()
        for declared in self._declared.values():
            declared.rows = None
            declared.entries.forget()
        self._table_names = ()
        if self._local is not None:
            self._local.close()
            self._local = None

    def _head(self) -> Head:
        """Return what the database stands for; nothing, if it has less or more than a chain."""
        if self._unread or self._needs_base or self._pending or self._saves > self._captured:
            return Head()
        return Head(self._chain, self._table_names, tuple(sorted(self._pickled)))

    # Writing into the database.

    def _changes(self) -> Changes:
        """Return the rows of all that changed."""
        local, changes = self._opened(), Changes()
        for state, declared in self._declared.items():
            if declared.table.dirty and declared.save(declared.table.dirty, changes):
                self._pickled.add(state)
        for blob_id in self._dirty_blobs:
            local.put_blob(blob_id, self._blobs.get(blob_id), changes)
        return changes

    def _save(self) -> Step:
        """Write what changed into the database, and keep only the marks for the next delta.

        Return what it was.
        """
        changes, changed = self._changes(), self._changed()
        if not changes:
            return changed
        self._opened().write(changes)
        self._saves += 1
        for table in self._tables.values():
            table.dirty.clear()
        self._dirty_blobs.clear()
        self._unsaved.blobs |= changed.blobs
        for state, marks in changed.tables.items():
            table = self._tables[state]
            older = self._unsaved.tables.get(state) or table.new_marks()
            self._unsaved.tables[state] = table.merge(older, marks)
        self._limit_marks()
        return changed

    def _limit_marks(self) -> None:
        """Forget the marks if the next file is to be a base anyway, or is better one."""
        if not self._chain.files or self._unsaved_bytes() > _DELTA_BYTES:
            self._needs_base = True
        if self._needs_base:
            self._unsaved = Step()

    def _unsaved_bytes(self) -> int:
        """Return about how large a delta of what is in the database would be."""
        return round(sum(map(len, self._unsaved.tables.values())) * self._bytes_per_change)

    def _limit_memory(self) -> None:
        for declared in self._declared.values():
            declared.limit_memory()

    # Persisting.

    def _has_changes(self) -> bool:
        return super()._has_changes() or bool(self._unsaved.tables or self._unsaved.blobs)

    def _capture(self, stamp: str, epoch: int, durable: bool, beside: bool) -> Capture:
        """Take what is to be written as a delta, or into a new base; the database has it, too."""
        self._settle()
        chain = self._chain
        full = self._must_be_clean(durable)
        rebase = full or self._needs_base or needs_base([ref.size for ref in chain.files])
        # NB: a base is no reason by itself, since it does not write all entries anew.
        sweeps = full or (rebase and chain.turned_over)
        if sweeps:
            self._ttl.before_base()
        # NB: RocksDB by itself may never do so, above all where there is little state.
        compacts = full or (sweeps and bool(chain.tables) and self._ttl.stale)
        last = self._pending[-1] if self._pending else None
        if not self._has_changes() and not (full and len(chain.files) > 1):
            return Unchanged(epoch, chain, last)
        if epoch <= chain.until:
            message = f"epoch {epoch} cannot follow epoch {chain.until}, which is already written"
            raise ValueError(message)
        local, reads = self._opened(), bool(self._unsaved.tables)
        newest = self._save()
        since = -1 if rebase else chain.until
        place = Placement(stamp, since, epoch, 0, self._swept(sweeps))
        capture: HeapCapture
        if rebase:
            capture = base = self._base(place, sweeps, compacts, durable, last)
            self._chain, self._table_names = base.planned(), base.table_names
        else:
            picture = self._delta(newest, local.snapshot() if reads else None, beside)
            capture = HeapCapture(place, picture, durable, self._begin_span(self._unsaved), last)
            # NB: the size is a guess until it is written.
            self._chain = place.extend(chain, max(self._unsaved_bytes(), 1))
        self._unsaved, self._captured = Step(), self._saves
        self._pending.append(capture)
        self._limit_memory()
        return capture

    def _base(
        self, place: Placement, sweeps: bool, compacts: bool, durable: bool, last: Capture | None
    ) -> BaseCapture:
        local = self._opened()
        if compacts:
            local.compact()
        draft = local.draft_tables(self._home.tables / f".{place.stamp}", self._pickled)
        unread = [section for entries in self._unread.values() for _, section in entries]
        heads = [rows.head for rows in local.states]
        file = StateFile([*heads, *unread], dict(self._blobs))
        before = self._begin_span(self._unsaved)
        for entries in self._unread.values():
            entries[:] = [(place.until, section) for _, section in entries]
        if compacts:
            self._ttl.compacted()
        return BaseCapture(place, file, draft, sweeps, durable, self._threads, before, last)

    def _delta(self, newest: Step, at: Snapshot | None, beside: bool) -> Picture:
        """Return what changed since the last capture.

        The newest changes are taken from memory; what changed before them is read from rows when it
        is written, since it may be much. ``at``: these rows, if there are any.
        """
        tables = []
        for state, marks in self._unsaved.tables.items():
            declared = self._declared[state]
            entries = declared.taken(newest.tables.get(state, ()))
            if beside:
                declared.table.share(entries)
            picture = declared.table.having(entries)
            read = None if at is None else declared.reader(at)
            tables.append(TakenRows(picture, marks, self.share(declared.table.operator), read))
        return Picture(tables, (), {blob: self._blobs.get(blob) for blob in self._unsaved.blobs})

    def _begin_span(self, changed: Step) -> Before:
        return replace(super()._begin_span(changed), tables=self._table_names)

    def _note_written(self, capture: HeapCapture, chain: Chain) -> None:
        before = self._bytes_per_change
        super()._note_written(capture, chain)
        if isinstance(capture, BaseCapture):
            self._bytes_per_change = before
        head = self._head()
        if head.chain.files:
            self._opened().write({}, head)

    def _take_back(self, captures: list[HeapCapture]) -> None:
        super()._take_back(captures)
        self._table_names = captures[0].before.tables
        self._limit_marks()

    def _mark_again(self, table_id: StateId, table: Table[Any], marks: Any) -> None:
        """Have marks in the next delta; what they stand for is in the database."""
        table.merge(marks, self._unsaved.tables.get(table_id) or table.new_marks())
        if marks:
            self._unsaved.tables[table_id] = marks
