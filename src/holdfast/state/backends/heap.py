"""`HeapKeyedStateBackend`: state as Python objects in the memory of the worker process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from holdfast.state.backends.base import KeyedStateBackend
from holdfast.state.backends.capture import (
    Capture,
    FileCapture,
    Picture,
    Placement,
    TakenTable,
)
from holdfast.state.backends.change_log import BaseFacts, SpanChanges
from holdfast.state.backends.declared import table_for
from holdfast.state.backends.head_files import read_head
from holdfast.state.descriptors import ColumnStateDescriptor, StateDescriptor
from holdfast.state.format.files import Section
from holdfast.state.format.head import Head, files_to_fold
from holdfast.state.live.column_rows import ColumnRows
from holdfast.state.live.overlaid import OverlaidTable
from holdfast.state.live.sections import as_section, load_section
from holdfast.state.live.tables import Table
from holdfast.state.names import StateId
from holdfast.state.storage.directory import StateStorage

#: entries that are merged for each record that is processed: more than a record changes
_MERGED: Final = 2


class HeapKeyedStateBackend(KeyedStateBackend):
    """State in memory, backed by a head of state files.

    A state of a file is decoded when a function declares it, since only the descriptor has its
    types. Until then it stays encoded, and is copied unchanged to new files.
    """

    def discard(self) -> None:
        self._ttl.forget()
        self._tables.forget()
        self._log.clear()

    def processed(self, operator: str, records: int) -> None:
        """Count the records, and meanwhile add what the last capture took to the entries."""
        super().processed(operator, records)
        for table in self._tables.values():
            if isinstance(table, OverlaidTable):
                table.merge_some(_MERGED * records)

    def _scan(
        self, operator: str, state: str, namespaced: bool
    ) -> Iterator[tuple[Any, Any, Any]] | None:
        table = self._tables.get(StateId(operator, state, namespaced))
        return None if table is None else _walk(table)

    def _live(self) -> list[Section]:
        return [
            as_section(table, self.shares.of(table.operator).max_parallelism)
            for table in self._tables.values()
            if table.has_entries
        ]

    def _new_table(self, state: StateId, descriptor: StateDescriptor) -> Table[Any]:
        """Return an empty table for a state."""
        if isinstance(descriptor, ColumnStateDescriptor):
            columns = self.columns.of(state.operator, state.namespaced)
            return ColumnRows(state, descriptor, columns)
        if descriptor.kind == "value" and descriptor.ttl_config is None:
            operator, name, namespaced = state
            return OverlaidTable(operator, name, descriptor.declared_types, namespaced)
        return table_for(state, descriptor)

    def _declare(self, state: StateId, descriptor: StateDescriptor) -> Table[Any]:
        table, log = self._new_table(state, descriptor), self._log
        marked: dict[int, Any] = {}
        for until, section in log.unread.get(state, ()):
            if until in log.steps:
                marked.setdefault(until, table.new_marks())
            load_section(table, section, marked.get(until))
            log.needs_base |= section.types != table.types
        # NB: not earlier, because a state that cannot be read is not declared and has no marks.
        for until, marks in marked.items():
            log.steps[until].tables[state] = marks
        log.unread.pop(state, None)
        return table

    def end_epoch(self) -> None:
        """Clean up expired state, and free keys without state if no file has them."""
        super().end_epoch()
        if not self._log.head.files and self._log.is_settled:
            self._compact()

    def _compact(self) -> None:
        if self.columns.compact():
            self._ttl.forget()  # since its unfinished rounds do not know the new places

    # Restoring.

    def restore(self, storage: StateStorage, head: Head) -> int:
        self._settle()
        log = self._log
        if head.stamp == log.head.stamp and not log.has_changes:
            return 0
        start = log.missing_from(head)
        if start:
            log.forget_after(head.files[start].since)
        else:
            self.discard()
        try:
            self._apply(storage, head, start)
        except BaseException:
            self.discard()
            raise
        log.head = head
        return head.size_from(start)

    def _apply(self, storage: StateStorage, head: Head, start: int) -> None:
        log = self._log
        for ref, file in read_head(storage, head, start):
            if ref.since >= 0:
                log.steps.setdefault(ref.until, SpanChanges()).blobs.update(file.blobs)
            for section in file.sections:
                self._load_section(section, ref.until)
            log.blobs.load(file.blobs)
            log.bytes_per_change = ref.size / max(file.count, 1)
            if ref.since < 0:
                log.base = BaseFacts(entries=self._entries())

    def _load_section(self, section: Section, until: int) -> None:
        log, own = self._log, self._log.own_part(section, self.shares.of(section.operator))
        table = self._tables.get(own.id)
        if table is not None:
            log.needs_base |= bool(own.chunks) and own.types != table.types
            keys = load_section(table, own, log.marks(until, own.id, table))
            self._tables.tell(own.id, keys)
        elif own.chunks:
            log.unread.add(until, own)

    # Capturing.

    def _capture(self, stamp: str, epoch: int, durable: bool, beside: bool) -> Capture:
        """Capture what changed, together with the changes of the files that are folded."""
        self._settle()
        log, head = self._log, self._log.head
        # NB: before anything looks at entries: a table that knows which values changed keeps them
        log.collect()
        full = self._ttl.must_be_clean(head.swept, durable) or self._must_be_compact()
        fold = len(head.files) if full else self._files_to_fold()
        is_base = fold == len(head.files)
        if is_base:
            self._ttl.before_base()
            log.collect()
        unchanged = log.unchanged(epoch, full)
        if unchanged is not None:
            return unchanged
        size = self._delta_bytes()
        since = head.since(fold)
        step = None if is_base else log.changed_since(since)
        picture = self._picture(step, since, beside)
        place = Placement(stamp, since, epoch, fold, self._ttl.swept(head.swept, is_base))
        capture = FileCapture(place, picture, durable, head, log.last)
        base = BaseFacts(entries=self._entries()) if is_base else None
        # NB: the size is an estimate until it is written.
        log.take(capture, place.extend(head, max(size, 1)), step, base)
        if is_base:
            self._ttl.compacted()
            self._compact()
        return capture

    def _must_be_compact(self) -> bool:
        """Return whether a base is needed to free keys without state: there are more than entries.

        So keys that were removed, or only looked at, take no more memory than the others.
        """
        dead, log = self.columns.dead_slots(), self._log
        if not dead or dead < self._entries():
            return False
        if log.steps or log.has_changes:
            return True
        self._compact()  # since nothing changed since the base
        return False

    def _files_to_fold(self) -> int:
        head = self._log.head
        if self._log.needs_base:
            return len(head.files)
        sizes = [file.size for file in head.files]
        return files_to_fold(sizes, self._delta_bytes(), self._live_bytes())

    def _delta_bytes(self) -> int:
        """Estimate the size of the next delta."""
        log = self._log
        changes = sum(table.changes for table in self._tables.values())
        changes += sum(map(len, log.changed.tables.values()))
        blobs = log.blobs.of(log.blobs.dirty | log.changed.blobs)
        return round(changes * log.bytes_per_change) + sum(len(b or b"") for b in blobs.values())

    def _live_bytes(self) -> int:
        """Estimate the size of a new base: the smaller of two estimates."""
        log = self._log
        if not log.base.entries:
            return 0
        entries = self._entries()
        as_in_base = log.head.files[0].size * entries // log.base.entries
        return min(as_in_base, round(log.bytes_per_change * entries))

    def _entries(self) -> int:
        return sum(table.size for table in self._tables.values())

    def _picture(self, step: SpanChanges | None, since: int, beside: bool) -> Picture:
        """Return the current state, or the part of it that a step changed."""
        log = self._log
        tables = []
        for state, table in self._tables.items():
            marks = None if step is None else step.tables.get(state)
            if table.has_entries if step is None else marks:
                taken = table.picture(marks) if beside else table
                tables.append(TakenTable(taken, marks, self.shares.of(table.operator)))
        unread = log.unread.after(None if step is None else since)
        blobs = log.blobs.live if step is None else step.blobs
        return Picture(
            tables,
            [(section, self.shares.of(section.operator)) for section in unread],
            log.blobs.of(blobs),
        )


def _walk(table: Table[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Iterate over a table whose entries may change meanwhile."""
    if isinstance(table, ColumnRows):
        for key, entry in table.walk():
            yield (*key, entry) if table.namespaced else (key, None, entry)
        return
    for key in list(table.entries):
        entry = table.entries.get(key)
        if entry is not None:
            yield (*key, entry) if table.namespaced else (key, None, entry)
