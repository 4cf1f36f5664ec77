"""`RocksDBKeyedStateBackend`: state in a RocksDB of the host, for more than memory holds.

A table keeps the entries in memory that are in use (`CachedEntries`); the database has a row for
each entry. Changes stay in memory until the next capture, or until there are many. Then they are
written to the database, and only marks remain, which say what the next delta contains.

A capture writes all changes to the database. A delta consists of entries in memory and of rows as
of the capture (a snapshot of RocksDB). A base consists of the tables, which are linked into a
directory until they are copied. When the capture is written, the database records which head it
represents, unless it has changed since.

Invariant: the database contains the tables of its head's base and the changes of the files after
it, or it records that it represents nothing. Consequence: returning to an accepted head costs hard
links to the tables and applying the deltas, and a new base copies only new tables.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, Final

from holdfast.state.backends.base import KeyedStateBackend
from holdfast.state.backends.capture import Capture, FileCapture, Picture, Placement
from holdfast.state.backends.change_log import BaseFacts, SpanChanges
from holdfast.state.backends.declared import table_for
from holdfast.state.backends.rocksdb.bound_states import BoundStates
from holdfast.state.backends.rocksdb.capture import BaseCapture
from holdfast.state.backends.rocksdb.home import LocalHome
from holdfast.state.backends.rocksdb.host import HostDatabase
from holdfast.state.backends.rocksdb.loading import FileLoader
from holdfast.state.backends.rocksdb.local import LocalState
from holdfast.state.backends.rocksdb.states import DeclaredState
from holdfast.state.descriptors import ColumnStateDescriptor, StateDescriptor
from holdfast.state.errors import StateRegistrationError
from holdfast.state.format.files import Section
from holdfast.state.format.head import Head
from holdfast.state.format.stored_files import read_file
from holdfast.state.format.table_files import index_of
from holdfast.state.live.sections import as_section
from holdfast.state.live.tables import Table
from holdfast.state.names import StateId
from holdfast.state.storage.directory import StateStorage

#: a new base is written after this number of deltas, or of bytes in them
_MOST_DELTAS: Final = 64
_DELTA_BYTES: Final = 32 << 20


def needs_base(sizes: Sequence[int]) -> bool:
    """Return whether the next file is a base; ``sizes``: the sizes of the current base and deltas.

    A base flushes RocksDB's memory to a table and copies all tables that are new since the last
    base, so it should be rare. But a restore has to apply all deltas.
    """
    return not sizes or len(sizes) > _MOST_DELTAS or sum(sizes[1:]) >= _DELTA_BYTES


class RocksDBKeyedStateBackend(KeyedStateBackend):
    """State in a database of this host, backed by a head of tables and state files.

    `ChangeLog.changed` has the changes since the last capture that are already in the database.
    """

    reads_ahead = True

    def __init__(
        self,
        key_groups: range,
        max_parallelism: int,
        home: LocalHome,
        memory: int,
        threads: int = 1,
    ) -> None:
        """Open nothing yet.

        ``home``: the directory of this subtask, shared by all processes of the host. ``memory``:
        approximate limit for all state of this process, in bytes. ``threads``: the number of tables
        that are copied at the same time.
        """
        super().__init__(key_groups, max_parallelism)
        self._host = HostDatabase(home, memory, threads)
        self._states = BoundStates(self._host, self._log, self.shares)
        self._loader = FileLoader(self._states, self._tables, self._log, self.shares)

    def keep_files(self, names: Container[str]) -> None:
        """Delete the tables that no file of these names needs; the database keeps its own."""
        self._host.home.keep_tables(names)

    def read_ahead(self, operator: str, keys: list[Any]) -> None:
        """Read the entries of keys from the database together."""
        self._states.read_ahead(operator, keys)

    def processed(self, operator: str, records: int) -> None:
        """Count records of an operator; if there are many changes, write them."""
        super().processed(operator, records)
        self._limit_changes()

    def end_epoch(self) -> None:
        """Clean up expired state, and write changes to the database if there are many."""
        super().end_epoch()
        self._limit_changes()

    def discard(self) -> None:
        self._forget()
        self._host.wipe()

    def close(self, ended: bool = False) -> None:
        """Close the database; the next process can use it, unless the job has ended."""
        self._forget()
        self._host.release(ended)

    def _forget(self) -> None:
        self._ttl.forget()
        self._tables.forget()
        self._log.clear()
        self._states.unbind()
        self._host.shut()

    def _scan(
        self, operator: str, state: str, namespaced: bool
    ) -> Iterator[tuple[Any, Any, Any]] | None:
        table = self._tables.get(StateId(operator, state, namespaced))
        if table is None:
            return None
        items = table.entries.items()
        return ((*key, entry) if namespaced else (key, None, entry) for key, entry in items)

    def _live(self) -> list[Section]:
        states = [] if self._host.local is None else self._host.local.states
        with_rows = {rows.section.id: rows.section for rows in states if not rows.is_empty()}
        changed = {
            state: as_section(table, self.shares.of(table.operator).max_parallelism)
            for state, table in self._tables.items()
            if table.dirty
        }
        return list({**changed, **with_rows}.values())

    # Declaring.

    def _declare(self, state: StateId, descriptor: StateDescriptor) -> Table[Any]:
        if isinstance(descriptor, ColumnStateDescriptor):
            message = (
                f"{state} is state in columns, which is held in memory, and the state backend is "
                "RocksDB; set state.backend.type to hashmap, or use ValueState"
            )
            raise StateRegistrationError(message)
        declared = DeclaredState(table_for(state, descriptor), self._host.budget)
        if self._host.local is not None:
            self._states.bind(declared, self._host.local)
        self._states[state] = declared
        unread = self._log.unread.pop(state, [])
        try:
            for until, section in unread:
                self._load_section(section, until)
        except BaseException:
            del self._states[state]
            self._log.unread[state] = unread
            raise
        if unread:
            self._states.opened().write({}, self._states.standing())
        return declared.table

    # Restoring.

    def _attach(self, local: LocalState) -> None:
        """Continue with the contents of a database."""
        log, standing = self._log, local.standing
        log.head, log.base = standing.head, BaseFacts(tables=standing.tables)
        log.pickled = set(standing.pickled)
        self._states.bind_all(local)
        log.blobs.live = local.blobs()
        self._tables.tell_of_all()

    def restore(self, storage: StateStorage, head: Head) -> int:
        """Restore this instance to the head, from files of the host where possible."""
        try:
            self._settle()
            self._forget_changes()
            left = self._host.find(head)
            if left is not None:
                self._attach(left)
            read = self._go_to(storage, head)
        except BaseException:
            self.discard()
            raise
        self._host.keep(head.tables)
        return read

    def _go_to(self, storage: StateStorage, head: Head) -> int:
        if head.stamp == self._log.head.stamp:
            return 0
        start = self._log.missing_from(head)
        return self._apply(storage, head, start) if start else self._rebuild(storage, head)

    def _forget_changes(self) -> None:
        """Return to the contents of the database; to empty state, if it represents nothing."""
        log, local = self._log, self._host.local
        if not log.has_changes:
            return
        # NB: a head without files represents nothing, not the state before the first epoch
        stamp = None if local is None else local.standing.head.stamp
        stands = local is None or (stamp is not None and stamp == log.head.stamp)
        if log.needs_base or log.changed or not stands:
            self.discard()
            return
        self._states.forget_entries()
        log.blobs.clear()
        log.blobs.live = {} if local is None else local.blobs()
        self._tables.tell_of_all()

    def _rebuild(self, storage: StateStorage, head: Head) -> int:
        """Start from the tables of the base, and apply all files."""
        self.discard()
        if not head.files:
            return 0
        base = head.files[0]
        file = read_file(storage, base.name, base.size)
        read = base.size
        if head.tables:
            index, _, file = index_of(file, head)
            read += self._host.lay_out(storage, head, index)
            local = self._states.opened()
            self._attach(local)
            self._log.base = BaseFacts(tables=index.tables)
            self._log.pickled.update(local.states[n].section.id for n in index.pickled)
        self._loader.load(file, base.until)
        return read + self._apply(storage, head, 1)

    def _apply(self, storage: StateStorage, head: Head, start: int) -> int:
        """Apply the files of a head, from a given one on."""
        local = self._states.opened()
        if local.standing.head.files:
            local.write({})
        for ref in head.files[start:]:
            self._loader.load(read_file(storage, ref.name, ref.size), ref.until)
        self._log.head = head
        local.write(self._states.changes(), self._states.standing())
        self._log.blobs.dirty.clear()
        return head.size_from(start)

    def _load_section(self, section: Section, until: int) -> None:
        self._loader.load_section(section, until)

    # Writing into the database.

    def _save(self) -> SpanChanges:
        """Write the changes to the database, and keep only marks for the next delta.

        Return the changes.
        """
        changes = self._states.changes()
        if changes:
            self._states.opened().write(changes)
        newest = self._log.collect()
        self._limit_marks()
        return newest

    def _limit_changes(self) -> None:
        if self._states.have_changed_much:
            self._save()
            self._states.limit_memory()

    def _limit_marks(self) -> None:
        """Drop the marks if the next file will be, or should be, a base."""
        log = self._log
        if log.changed and (not log.head.files or self._states.changed_bytes() > _DELTA_BYTES):
            log.needs_base = True
        if log.needs_base:
            log.changed = SpanChanges()

    # Capturing.

    def _settle(self) -> None:
        """Record which captures were written, and in the database which head it represents."""
        if self._log.settle():
            self._limit_marks()
            standing = self._states.standing()
            if standing.head.files:
                self._states.opened().write({}, standing)

    def _capture(self, stamp: str, epoch: int, durable: bool, beside: bool) -> Capture:
        """Capture a delta or a new base; its changes are also written to the database."""
        self._settle()
        log, head = self._log, self._log.head
        full = self._ttl.must_be_clean(head.swept, durable)
        rebase = full or log.needs_base or needs_base([ref.size for ref in head.files])
        # NB: a base alone is no reason to compact, since it does not rewrite all entries.
        sweeps = full or (rebase and head.turned_over)
        if sweeps:
            self._ttl.before_base()
        unchanged = log.unchanged(epoch, full)
        if unchanged is not None:
            return unchanged
        reads = bool(log.changed.tables)
        newest = self._save()
        swept = self._ttl.swept(head.swept, sweeps)
        # NB: what was just saved may be too much for a delta; then its marks are gone
        if rebase or log.needs_base:
            # NB: RocksDB may never compact by itself, above all if there is little state.
            compacts = full or (sweeps and bool(head.tables) and self._ttl.stale)
            capture = self._base(Placement(stamp, -1, epoch, 0, swept), sweeps, compacts, durable)
        else:
            picture = self._states.picture(
                newest, self._states.opened().snapshot() if reads else None, beside
            )
            capture = self._delta(Placement(stamp, head.until, epoch, 0, swept), picture, durable)
        self._states.limit_memory()
        return capture

    def _delta(self, place: Placement, picture: Picture, durable: bool) -> Capture:
        log = self._log
        capture = FileCapture(place, picture, durable, log.head, log.last)
        # NB: the size is an estimate until it is written.
        log.take(capture, place.extend(log.head, max(self._states.changed_bytes(), 1)))
        return capture

    def _base(self, place: Placement, sweeps: bool, compacts: bool, durable: bool) -> Capture:
        log, host, local = self._log, self._host, self._states.opened()
        if compacts:
            local.compact()
        draft = local.draft_tables(host.home.tables / f".{place.stamp}", log.pickled)
        sections = [*(rows.section for rows in local.states), *log.unread.after(None)]
        owned = [(section, self.shares.of(section.operator)) for section in sections]
        picture = Picture((), owned, log.blobs.of(log.blobs.live))
        before = log.head, log.base.tables
        capture = BaseCapture(
            place, picture, draft, sweeps, durable, host.threads, before, log.last
        )
        log.take(capture, capture.planned(log.head), base=BaseFacts(tables=capture.table_names))
        if compacts:
            self._ttl.compacted()
        return capture
