"""`HeapKeyedStateBackend`: state as Python objects in the memory of the worker process."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Container, Iterable, Iterator
from typing import Any

from holdfast.datastream.state import State, StateDescriptor, ValueStateDescriptor
from holdfast.state.capture import Capture, Unchanged
from holdfast.state.catalog import SavedState
from holdfast.state.chain import Chain, files_to_fold
from holdfast.state.errors import StateMigrationError, StateRegistrationError
from holdfast.state.files import BlobId, Section, StateFile
from holdfast.state.heap_capture import (
    Before,
    HeapCapture,
    Picture,
    Placement,
    Step,
    TableId,
    TakenTable,
)
from holdfast.state.interface import (
    KeyedStateBackend,
    Restored,
    RestoredHow,
    StateStatistics,
    Watcher,
)
from holdfast.state.sections import export_section, kind_name, load_section
from holdfast.state.storage import StateStorage
from holdfast.state.table_files import read_chain
from holdfast.state.tables import Table, ValueTable, make_table
from holdfast.state.views import KeyContext, KeyedMarks, make_view

__all__ = ["HeapKeyedStateBackend"]

#: what a change is taken to cost in a file before there is any to go by
_BYTES_PER_CHANGE = 32.0


class HeapKeyedStateBackend(KeyedStateBackend):
    """State in memory, with a chain of state files as its copy.

    A state that a file holds and no function has asked for yet stays as it is in the file, and is
    decoded when it is asked for, since its types come with the descriptor. If it never is, it is
    carried along unread.
    """

    def __init__(self, key_groups: range, max_parallelism: int) -> None:
        super().__init__(key_groups, max_parallelism)
        self._tables: dict[TableId, Table[Any]] = {}
        self._watchers: dict[TableId, Watcher] = {}
        self._blobs: dict[BlobId, bytes] = {}
        self._dirty_blobs: set[BlobId] = set()
        #: sections of states that are not declared yet, each with the `until` of the file of
        #: the chain that holds it
        self._unread: dict[TableId, list[tuple[int, Section]]] = {}
        #: by `until`: what each file of the chain but the base changed
        self._steps: dict[int, Step] = {}
        #: the chain whose state this is, but for what is dirty; captures that are not written yet
        #: are in it, too
        self._chain = Chain()
        #: captures of which nobody knows yet that they were written, oldest first
        self._pending: deque[HeapCapture] = deque()
        #: states of which something is pickled in some file
        self._pickled: set[TableId] = set()
        #: whether only a base can hold the state: it is that of no chain, or of files with old
        #: types, which are to be gone before the types change once more
        self._needs_base = False
        self._bytes_per_change = _BYTES_PER_CHANGE
        #: how many entries there were when the base was written; 0 if nobody knows
        self._entries_in_base = 0

    def _plain_state(
        self, operator: str, descriptor: StateDescriptor, context: KeyContext, namespaced: bool
    ) -> State:
        """Return a view of a state; its saved values are decoded when it is first asked for."""
        table = self._table((operator, descriptor.name, namespaced), descriptor)
        return make_view(descriptor, table, context)

    def marks(self, operator: str, state: str, loaded: Watcher) -> KeyedMarks:
        """Return a state of marks, and tell of those that there are, or come from files."""
        table = self._table((operator, state, True), ValueStateDescriptor(state))
        assert isinstance(table, ValueTable)
        self._watchers[operator, state, True] = loaded
        loaded(table.entries)
        return KeyedMarks(table)

    def _table(self, table_id: TableId, descriptor: StateDescriptor) -> Table[Any]:
        table = self._tables.get(table_id)
        if table is None:
            table = self._add_table(table_id, descriptor)
        _check_same(table, descriptor)
        return table

    def get_blob(self, operator: str, name: str) -> bytes | None:
        """Return an operator's bytes of that name."""
        return self._blobs.get((operator, name))

    def set_blob(self, operator: str, name: str, data: bytes | None) -> None:
        """Set an operator's bytes of that name."""
        blob_id = operator, name
        if self._blobs.get(blob_id) != data:
            self._dirty_blobs.add(blob_id)
            _set(self._blobs, blob_id, data)

    def restore(self, storage: StateStorage, chain: Chain) -> Restored:
        """Bring this instance to the chain."""
        self._settle()
        if chain.stamp == self._chain.stamp and not self._has_changes():
            return Restored(RestoredHow.CURRENT)
        start = self._missing_from(chain)
        if start:
            self._forget_after(chain.files[start].since)
        else:
            self.discard()
        read = self._apply_all(storage, chain, start)
        self._chain = chain
        return Restored(RestoredHow.CAUGHT_UP if start else RestoredHow.REBUILT, read)

    def persist(
        self, storage: StateStorage, stamp: str, epoch: int, durable: bool = False
    ) -> Chain:
        """Write what changed, together with the changes of the files that are to be folded."""
        self._ttl.end_epoch()
        # NB: written before anything can change, so no copy is needed.
        capture = self._capture(stamp, epoch, durable, beside=False)
        try:
            return capture.write(storage)
        finally:
            self._settle()

    def capture(self, stamp: str, epoch: int, durable: bool = False) -> Capture:
        """Take what changed, together with the changes of the files that are to be folded."""
        return self._capture(stamp, epoch, durable, beside=True)

    def discard(self) -> None:
        """Forget everything; tables and views stay."""
        self._ttl.forget()
        for table in self._tables.values():
            table.clear()
        for loaded in self._watchers.values():
            loaded(None)
        self._blobs.clear()
        self._dirty_blobs.clear()
        self._unread.clear()
        self._pickled.clear()
        self._steps.clear()
        for capture in self._pending:
            capture.drop()
        self._pending.clear()
        self._chain = Chain()
        self._needs_base = False
        self._entries_in_base = 0

    def import_key_groups(
        self,
        storage: StateStorage,
        chains: Iterable[Chain],
        operators: Container[str] | None = None,
    ) -> int:
        """Take over this instance's key groups from the chains of other subtasks."""
        self.discard()
        read = 0
        try:
            for chain in chains:
                for _, file in read_chain(storage, chain):
                    for section in file.sections:
                        if operators is None or section.operator in operators:
                            self._load_section(self._ours(section), -1)
                read += chain.size
        except BaseException:
            self.discard()
            raise
        self._needs_base = bool(self._unread) or any(t.entries for t in self._tables.values())
        return read

    def _scan(
        self, operator: str, state: str, namespaced: bool
    ) -> Iterator[tuple[Any, Any, Any]] | None:
        """Return (key, namespace, entry) of a state that the job has declared."""
        table = self._tables.get((operator, state, namespaced))
        return None if table is None else _walk(table)

    def section_of(self, operator: str, state: str, namespaced: bool, key: Any) -> Section | None:
        """Return what a key has in a state now, as a file would hold it."""
        table = self._tables.get((operator, state, namespaced))
        if table is None:
            return None
        alone = copy.copy(table)
        entry = table.entries.get(key)
        alone.entries = {} if entry is None else {key: entry}
        return export_section(alone, None, self.share(operator).max_parallelism)

    def stateful(self, blob: str) -> set[str]:
        """Return the operators that have keyed state here, or a blob of that name."""
        live = {table.operator for table in self._tables.values() if table.entries}
        unread = {operator for operator, _, _ in self._unread}
        return live | unread | {operator for operator, name in self._blobs if name == blob}

    def states(self) -> dict[str, list[SavedState]]:
        """Return the keyed states that have entries here, by operator."""
        found = [
            (table_id, table.kind, table.types, table.expires)
            for table_id, table in self._tables.items()
            if table.entries
        ]
        for table_id, sections in self._unread.items():
            found += [(table_id, s.kind, s.types, s.expires) for _, s in sections]
        states: dict[str, list[SavedState]] = {}
        for table_id, kind, types, expires in found:
            operator, name, namespaced = table_id
            pickled = table_id in self._pickled
            state = SavedState(name, kind, types, namespaced, pickled, expires)
            states.setdefault(operator, []).append(state)
        return states

    def statistics(self) -> StateStatistics:
        """Return how much state there is; states that are not declared do not count as entries."""
        counts: dict[tuple[str, str], int] = {}
        for (operator, state, _), table in self._tables.items():
            counts[operator, state] = counts.get((operator, state), 0) + len(table.entries)
        changed = sum(len(table.dirty) for table in self._tables.values())
        return StateStatistics(counts, changed, len(self._chain.files), self._chain.size)

    # Declaring.

    def _add_table(self, table_id: TableId, descriptor: StateDescriptor) -> Table[Any]:
        table = self._make_table(table_id, descriptor)
        for until, section in self._unread.get(table_id, ()):
            load_section(table, section, self._marks(until, table_id, table))
            self._needs_base |= section.types != table.types
        self._unread.pop(table_id, None)
        self._tables[table_id] = table
        return table

    def _make_table(self, table_id: TableId, descriptor: StateDescriptor) -> Table[Any]:
        operator, name, namespaced = table_id
        types = descriptor.declared_types
        expires = descriptor.ttl_config is not None
        return make_table(operator, name, descriptor.kind, types, namespaced, expires)

    # Restoring.

    def _missing_from(self, chain: Chain) -> int:
        """Return the index of the first file that is to be applied; 0: everything is to be read.

        A base cannot be applied to what is there, since it does not say what was removed.
        """
        if self._has_changes() or self._chain.stamp not in chain.lineage:
            return 0
        return next(i for i, file in enumerate(chain.files) if file.until > self._chain.until)

    def _forget_after(self, since: int) -> None:
        """Forget what the files after that epoch changed, though not the changes themselves.

        The next file to be applied begins there, and may cover more than what is missing here: it
        stands for the forgotten files, and its own marks take the place of theirs.
        """
        for until in [until for until in self._steps if until > since]:
            del self._steps[until]
        for table_id, sections in self._unread.items():
            self._unread[table_id] = [(until, s) for until, s in sections if until <= since]

    def _apply_all(self, storage: StateStorage, chain: Chain, start: int) -> int:
        try:
            for ref, file in read_chain(storage, chain, start):
                step = None if ref.since < 0 else self._steps.setdefault(ref.until, Step())
                self._load(file, ref.until, step)
                self._bytes_per_change = ref.size / max(file.count, 1)
                if step is None:
                    self._entries_in_base = self._entries()
        except BaseException:
            self.discard()
            raise
        return chain.size_from(start)

    def _load(self, file: StateFile, until: int, step: Step | None) -> None:
        for section in file.sections:
            self._load_section(self._ours(section), until)
        for blob_id, data in file.blobs.items():
            _set(self._blobs, blob_id, None if data is None else bytes(data))
        if step is not None:
            step.blobs.update(file.blobs)

    def _ours(self, section: Section) -> Section:
        groups, max_parallelism = self.share(section.operator)
        if section.max_parallelism != max_parallelism:
            message = (
                f"state {section.state!r} of operator {section.operator!r} was written with max "
                f"parallelism {section.max_parallelism}; this job has {max_parallelism}; keys "
                "cannot be moved between key groups, so call "
                f"set_max_parallelism({section.max_parallelism})"
            )
            raise StateMigrationError(message)
        return section.clip(groups)

    def _load_section(self, section: Section, until: int) -> None:
        table_id = section.operator, section.state, section.namespaced
        table = self._tables.get(table_id)
        if section.pickled:
            self._pickled.add(table_id)
        if table is not None:
            self._needs_base |= bool(section.chunks) and section.types != table.types
            keys = load_section(table, section, self._marks(until, table_id, table))
            if table_id in self._watchers:
                self._watchers[table_id](key for key in keys if key in table.entries)
        elif section.chunks:
            self._unread.setdefault(table_id, []).append((until, section.copy()))

    def _marks(self, until: int, table_id: TableId, table: Table[Any]) -> Any | None:
        """Return the marks of a table in a step; None for a base, which has none."""
        step = self._steps.get(until)
        return None if step is None else step.tables.setdefault(table_id, table.new_marks())

    # Persisting.

    def _has_changes(self) -> bool:
        tables = self._tables.values()
        return self._needs_base or bool(self._dirty_blobs) or any(t.dirty for t in tables)

    def _must_be_clean(self, durable: bool) -> bool:
        """Return whether the next write must leave no expired entry in the files."""
        in_snapshot = durable and self._ttl.in_snapshots
        return in_snapshot or self._ttl.clean_up_if_overdue(self._chain.swept)

    def _swept(self, now: bool = False) -> int:
        """Return when all entries were last checked; where nobody knows, the time begins now."""
        return self._ttl.clock() if now else self._chain.swept or self._ttl.clock()

    def _files_to_fold(self) -> int:
        if self._needs_base:
            return len(self._chain.files)
        sizes = [file.size for file in self._chain.files]
        return files_to_fold(sizes, self._delta_bytes(), self._live_bytes())

    def _delta_bytes(self) -> int:
        """Return about how large the next delta is."""
        changes = sum(len(table.dirty) for table in self._tables.values())
        blobs = sum(len(self._blobs.get(blob_id, b"")) for blob_id in self._dirty_blobs)
        return round(changes * self._bytes_per_change) + blobs

    def _live_bytes(self) -> int:
        """Return about how large a new base would be: the less of two guesses."""
        if not self._entries_in_base:
            return 0
        entries = self._entries()
        as_in_base = self._chain.files[0].size * entries // self._entries_in_base
        return min(as_in_base, round(self._bytes_per_change * entries))

    def _entries(self) -> int:
        return sum(len(table.entries) for table in self._tables.values())

    def _capture(self, stamp: str, epoch: int, durable: bool, beside: bool) -> Capture:
        """Take what is to be written; ``beside``: while state goes on to change."""
        self._settle()
        chain = self._chain
        full = self._must_be_clean(durable)
        fold = len(chain.files) if full else self._files_to_fold()
        is_base = fold == len(chain.files)
        if is_base:
            self._ttl.before_base()
        last = self._pending[-1] if self._pending else None
        if not self._has_changes() and not (full and fold > 1):
            return Unchanged(epoch, chain, last)
        if epoch <= chain.until:
            message = f"epoch {epoch} cannot follow epoch {chain.until}, which is already written"
            raise ValueError(message)
        since = chain.since(fold)
        size = self._delta_bytes()
        changed = self._changed()
        step = None if is_base else self._with_steps_since(since, changed)
        picture = self._picture(step, since, beside)
        placement = Placement(stamp, since, epoch, fold, self._swept(is_base))
        capture = HeapCapture(placement, picture, durable, self._begin_span(changed), last)
        self._pending.append(capture)
        self._taken(placement, step)
        # NB: the size is a guess until it is written.
        self._chain = placement.extend(chain, max(size, 1))
        return capture

    def _changed(self) -> Step:
        """Return the marks of what changed since the last capture."""
        changed = Step()
        for table_id, table in self._tables.items():
            if table.dirty:
                changed.tables[table_id] = table.dirty.copy()
        changed.blobs.update(self._dirty_blobs)
        return changed

    def _with_steps_since(self, since: int, changed: Step) -> Step:
        """Return what changed after that epoch, up to now."""
        folded = [step for until, step in self._steps.items() if until > since]
        if not folded:
            return changed
        merged = Step()
        for table_id, table in self._tables.items():
            marks = table.new_marks()
            for step in (*folded, changed):
                if table_id in step.tables:
                    table.merge(marks, step.tables[table_id])
            if marks:
                merged.tables[table_id] = marks
        merged.blobs.update(changed.blobs, *(step.blobs for step in folded))
        return merged

    def _picture(self, step: Step | None, since: int, beside: bool) -> Picture:
        """Return everything, or what a step changed, as it stands now."""
        unread = [entry for entries in self._unread.values() for entry in entries]
        tables = []
        for table_id, table in self._tables.items():
            marks = None if step is None else step.tables.get(table_id)
            if table.entries if step is None else marks:
                taken = table.picture(marks) if beside else table
                tables.append(TakenTable(taken, marks, self.share(table.operator)))
        blobs = self._blobs.keys() if step is None else step.blobs
        return Picture(
            tables,
            [(s, self.share(s.operator)) for u, s in unread if step is None or u > since],
            {blob_id: self._blobs.get(blob_id) for blob_id in blobs},
        )

    def _begin_span(self, changed: Step) -> Before:
        """Have nothing marked; return what it takes to go back."""
        before = Before(
            changed,
            self._chain,
            dict(self._steps),
            self._entries_in_base,
            self._needs_base,
            {table_id: [*entries] for table_id, entries in self._unread.items()},
            self._ttl.stale_states(),
        )
        for table in self._tables.values():
            table.dirty.clear()
        self._dirty_blobs.clear()
        self._needs_base = False
        return before

    def _taken(self, placement: Placement, step: Step | None) -> None:
        """Take note of what the files of the chain change from now on."""
        since, until = placement.since, placement.until
        for old in [old for old in self._steps if old > since]:
            del self._steps[old]
        if step is not None:
            self._steps[until] = step
        else:
            self._entries_in_base = self._entries()
            self._ttl.compacted()
        for entries in self._unread.values():
            entries[:] = [(until if u > since else u, section) for u, section in entries]

    def _settle(self) -> None:
        """Take note of what became of the captures that were written, or could not be."""
        pending = self._pending
        while pending and (chain := pending[0].chain) is not None:
            self._note_written(pending.popleft(), chain)
        if pending and pending[0].failed:
            self._take_back([*pending])
            pending.clear()
        if not pending:
            for table in self._tables.values():
                table.shared.clear()

    def _note_written(self, capture: HeapCapture, chain: Chain) -> None:
        self._pickled |= capture.pickled
        self._bytes_per_change = capture.size / max(capture.changes, 1)
        if self._pending:
            self._chain = self._chain.resized(chain)
            self._pending[0].before.chain = chain
        else:
            self._chain = chain

    def _take_back(self, captures: list[HeapCapture]) -> None:
        """Have all that captures were to write marked again, as the last written chain needs it."""
        first = captures[0].before
        self._chain, self._steps = first.chain, first.steps
        self._entries_in_base = first.entries_in_base
        # NB: what was read meanwhile has its marks in steps that are gone
        was_read = first.unread.keys() - self._unread.keys()
        self._unread = {table_id: first.unread[table_id] for table_id in self._unread}
        self._needs_base |= bool(was_read) or any(c.before.needs_base for c in captures)
        self._ttl.not_compacted(first.stale)
        for table_id, table in self._tables.items():
            marks = table.new_marks()
            for changed in (capture.before.changed.tables for capture in captures):
                if table_id in changed:
                    table.merge(marks, changed[table_id])
            self._mark_again(table_id, table, marks)
        self._dirty_blobs.update(*(capture.before.changed.blobs for capture in captures))

    def _mark_again(self, table_id: TableId, table: Table[Any], marks: Any) -> None:
        table.merge(marks, table.dirty)
        table.dirty.clear()
        table.dirty.update(marks)
        if table_id in self._watchers and isinstance(table, ValueTable):
            KeyedMarks(table).doubt(marks)


def _walk(table: Table[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Walk over a table whose entries may come and go meanwhile."""
    for key in list(table.entries):
        entry = table.entries.get(key)
        if entry is not None:
            yield (*key, entry) if table.namespaced else (key, None, entry)


def _set(blobs: dict[BlobId, bytes], blob_id: BlobId, data: bytes | None) -> None:
    if data is None:
        blobs.pop(blob_id, None)
    else:
        blobs[blob_id] = data


def _check_same(table: Table[Any], descriptor: StateDescriptor) -> None:
    declared = tuple(map(repr, descriptor.declared_types))
    known = tuple(repr(serializer.type_info) for serializer in table.serializers)
    expires = descriptor.ttl_config is not None
    if (table.kind, known, table.expires) == (descriptor.kind, declared, expires):
        return
    before = f"{kind_name(table.kind, table.expires)}{_types(known)}"
    now = f"{kind_name(descriptor.kind, expires)}{_types(declared)}"
    message = (
        f"operator {table.operator!r} declares the state {table.name!r} twice: as {before} and as "
        f"{now}; give each state a name of its own"
    )
    raise StateRegistrationError(message)


def _types(types: tuple[str, ...]) -> str:
    if all(name == "None" for name in types):
        return ""
    return f" of {', '.join('no type' if name == 'None' else name for name in types)}"
