"""`RocksDBKeyedStateBackend`: state in a RocksDB of the host, for more than memory holds.

A table has the entries in memory that are in use (`CachedEntries`); all are rows of the database.
What a function changes stays in memory until the epoch ends. Then it is written twice: as a delta
of the chain, as any backend does, and in one batch into the database, together with the chain that
the database stands for from then on.

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
from holdfast.state.catalog import SavedState
from holdfast.state.chain import Chain, FileRef
from holdfast.state.errors import StateCorruptionError, StateStorageError
from holdfast.state.files import Section, StateFile, encode_file
from holdfast.state.heap import HeapKeyedStateBackend
from holdfast.state.interface import Restored, RestoredHow, read_file
from holdfast.state.rocksdb_database import Changes, budget_of
from holdfast.state.rocksdb_home import Home, Slot
from holdfast.state.rocksdb_local import Head, LocalState, StateId, id_of
from holdfast.state.rocksdb_reading import lay_out
from holdfast.state.rocksdb_state import DeclaredState, StateRows
from holdfast.state.sections import check_kind, export_section, load_section
from holdfast.state.storage import StateStorage
from holdfast.state.table_files import TableIndex, fetch_tables, index_of, with_index
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
        #: the tables of the chain that was restored last; the host need have no others
        self._kept: tuple[FileRef, ...] = ()

    def restore(self, storage: StateStorage, chain: Chain) -> Restored:
        """Bring this instance to the chain, from what the host has of it if that is possible."""
        try:
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

    def persist(
        self, storage: StateStorage, stamp: str, epoch: int, durable: bool = False
    ) -> Chain:
        """Write what changed, as a delta or into a new base, and into the database."""
        self._ttl.end_epoch()
        chain = self._chain
        full = self._must_be_clean(durable)
        rebase = full or self._needs_base or needs_base([ref.size for ref in chain.files])
        # NB: a base is no reason by itself, since it does not write all entries anew.
        sweeps = full or (rebase and chain.turned_over)
        if sweeps:
            self._ttl.before_base()
        # NB: RocksDB by itself may never do so, above all where there is little state.
        compacts = full or (sweeps and bool(chain.tables) and self._ttl.stale)
        if not self._has_changes() and not (full and len(chain.files) > 1):
            return chain
        local = self._opened()
        if epoch <= chain.until:
            message = f"epoch {epoch} cannot follow epoch {chain.until}, which is already written"
            raise ValueError(message)
        file = self._export(self._marks_since(chain.until), chain.until)
        changes = self._changes()
        name = f"{stamp}.state"
        if rebase:
            local.write(changes)
            if compacts:
                local.compact()
            file, tables = self._make_base(storage, stamp, durable)
            ref = _write(storage, name, file, durable, -1, epoch)
            overwritten = 0 if sweeps else chain.written
            refs = tuple(tables.values())
            chain = chain.rebased(ref, stamp, refs, overwritten, self._swept(sweeps))
            changes, self._table_names, self._needs_base = {}, tuple(tables), False
        else:
            ref = _write(storage, name, file, durable, chain.until, epoch)
            chain = chain.extended(ref, stamp, self._swept())
        # NB: from here on a failure leaves a chain that nobody was told of.
        self._chain = chain
        local.write(changes, self._head())
        self._written(ref, None)
        if compacts:
            self._ttl.compacted()
        for declared in self._declared.values():
            declared.limit_memory()
        return self._chain

    def discard(self) -> None:
        """Forget everything, on the disk as well."""
        super().discard()
        self._detach()
        if self._slot is not None:
            self._slot.wipe()

    def close(self, ended: bool = False) -> None:
        """Let go of the database; it is there for the next process, unless the job has ended."""
        super().discard()
        self._detach()
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
        """Return what the database stands for; nothing, while not all of it is written there."""
        if self._unread or self._needs_base:
            return Head()
        return Head(self._chain, self._table_names, tuple(sorted(self._pickled)))

    # Persisting.

    def _changes(self) -> Changes:
        """Return the rows of all that changed."""
        local, changes = self._opened(), Changes()
        for declared in self._declared.values():
            if declared.table.dirty:
                declared.save(declared.table.dirty, changes)
        for blob_id in self._dirty_blobs:
            local.put_blob(blob_id, self._blobs.get(blob_id), changes)
        return changes

    def _make_base(
        self, storage: StateStorage, stamp: str, durable: bool
    ) -> tuple[StateFile, dict[str, FileRef]]:
        """Write the tables that are new; return the base on them, and all by name."""
        local = self._opened()
        known = dict(zip(self._table_names, self._chain.tables, strict=True))
        index, tables = local.save_tables(
            storage, stamp, durable, known, self._pickled, self._home.tables, self._threads
        )
        unread = [section for entries in self._unread.values() for _, section in entries]
        heads = [rows.head for rows in local.states]
        return with_index(StateFile([*heads, *unread], dict(self._blobs)), index), tables


def _write(
    storage: StateStorage, name: str, file: StateFile, durable: bool, since: int, until: int
) -> FileRef:
    data = encode_file(file, name)
    storage.write(name, data, durable=durable)
    return FileRef(name, len(data), since, until)
