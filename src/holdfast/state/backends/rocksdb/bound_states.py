"""`BoundStates`: the states that a job has declared, bound to their rows in the open database."""

from __future__ import annotations

from typing import Any

from holdfast.state.backends.capture import Picture
from holdfast.state.backends.change_log import ChangeLog, SpanChanges
from holdfast.state.backends.rocksdb.capture import TakenRows
from holdfast.state.backends.rocksdb.database import Changes, RowSnapshot
from holdfast.state.backends.rocksdb.host import HostDatabase
from holdfast.state.backends.rocksdb.local import LocalState, Standing
from holdfast.state.backends.rocksdb.states import DeclaredState
from holdfast.state.key_groups import KeyGroupShares
from holdfast.state.live.sections import as_section, check_kind
from holdfast.state.names import StateId


class BoundStates(dict[StateId, DeclaredState]):
    """The declared states. They are bound to rows whenever a database is opened."""

    def __init__(self, host: HostDatabase, log: ChangeLog, shares: KeyGroupShares) -> None:
        """Start without states; ``shares``: the key groups of this subtask."""
        self._host = host
        self._log = log
        self._shares = shares

    # The database.

    def opened(self) -> LocalState:
        """Return the open database; if none is open, make an empty one."""
        if self._host.local is None:
            self.bind_all(self._host.make())
        assert self._host.local is not None
        return self._host.local

    def bind_all(self, local: LocalState) -> None:
        """Bind the states to a database that was opened."""
        for declared in self.values():
            self.bind(declared, local)

    def bind(self, declared: DeclaredState, local: LocalState) -> None:
        """Find the rows of a declared state, and convert them to its declared types."""
        share = self._shares.of(declared.table.operator)
        section = as_section(declared.table, share.max_parallelism)
        rows = local.rows(section)
        if rows.section != section:
            saved = self._log.own_part(rows.section, share)
            kinds = (saved.kind, saved.expires), (section.kind, section.expires)
            check_kind(section.id, *kinds)
            for changes in declared.migrated(rows):
                local.write(changes)
            rows.section = section
            self._log.needs_base = True
            local.write({}, self.standing())
        declared.rows = rows
        declared.entries.rows_written()

    def unbind(self) -> None:
        """Let go of the rows, because the database is being closed."""
        for declared in self.values():
            declared.rows = None

    def standing(self) -> Standing:
        """Return the head that the database represents; none, if it differs from every head."""
        log = self._log
        if log.unread or log.needs_base or log.changed or not log.is_settled:
            return Standing()
        return Standing(log.head, log.base.tables, tuple(sorted(log.pickled)))

    # Entries in memory.

    def read_ahead(self, operator: str, keys: list[Any]) -> None:
        """Read the entries of keys from the database together."""
        for state, declared in self.items():
            if state.operator == operator and not state.namespaced:
                declared.read_ahead(keys)

    def forget_entries(self) -> None:
        """Drop the entries in memory, and their changes."""
        for declared in self.values():
            declared.entries.forget()
            declared.table.dirty.clear()

    def limit_memory(self) -> None:
        """Evict entries beyond the states' shares of the memory."""
        for declared in self.values():
            declared.limit_memory()

    # Changes.

    @property
    def have_changed_much(self) -> bool:
        """Return whether a state has so many changes that they must be written to the database."""
        return any(declared.has_changed_much for declared in self.values())

    def changes(self) -> Changes:
        """Return the rows of all changes."""
        log, local, changes = self._log, self.opened(), Changes()
        for state, declared in self.items():
            if declared.table.dirty and declared.save(declared.table.dirty, changes):
                log.pickled.add(state)
        for blob_id, data in log.blobs.of(log.blobs.dirty).items():
            local.put_blob(blob_id, data, changes)
        return changes

    def changed_bytes(self) -> int:
        """Estimate the size of a delta of the changes that are in the database."""
        each, tables = self._log.bytes_per_change, self._log.changed.tables.items()
        return round(sum(len(marks) * self[s].change_bytes(each) for s, marks in tables))

    def picture(self, newest: SpanChanges, at: RowSnapshot | None, beside: bool) -> Picture:
        """Return the changes since the last capture.

        The newest changes are taken from memory. Older ones may be many, so they are read from rows
        when the capture is written. ``at``: these rows, if there are any. ``beside``: state may
        change before it is written.
        """
        log, tables = self._log, []
        for state, marks in log.changed.tables.items():
            declared = self[state]
            entries = declared.taken(newest.tables.get(state, ()))
            if beside:
                declared.table.share(entries)
            picture = declared.table.having(entries)
            read = None if at is None else declared.reader(at)
            tables.append(TakenRows(picture, marks, self._shares.of(declared.table.operator), read))
        return Picture(tables, (), log.blobs.of(log.changed.blobs))
