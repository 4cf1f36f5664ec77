"""`HeapKeyedStateBackend`: state as Python objects in the memory of the worker process."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any

from holdfast.datastream.state import State, StateDescriptor, ValueStateDescriptor
from holdfast.errors import InternalError
from holdfast.state.catalog import SavedState
from holdfast.state.chain import Chain, FileRef, files_to_fold
from holdfast.state.errors import StateMigrationError, StateRegistrationError
from holdfast.state.files import BlobId, Section, StateFile, encode_file
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

#: operator, state, namespaced
_TableId = tuple[str, str, bool]

#: what a change is taken to cost in a file before there is any to go by
_BYTES_PER_CHANGE = 32.0


class _Step:
    """What one delta of the chain changed: the marks of each table, and blobs."""

    __slots__ = ("blobs", "tables")

    def __init__(self) -> None:
        self.tables: dict[_TableId, Any] = {}
        self.blobs: set[BlobId] = set()


class HeapKeyedStateBackend(KeyedStateBackend):
    """State in memory, with a chain of state files as its copy.

    A state that a file holds and no function has asked for yet stays as it is in the file, and is
    decoded when it is asked for, since its types come with the descriptor. If it never is, it is
    carried along unread.
    """

    def __init__(self, key_groups: range, max_parallelism: int) -> None:
        super().__init__(key_groups, max_parallelism)
        self._tables: dict[_TableId, Table[Any]] = {}
        self._watchers: dict[_TableId, Watcher] = {}
        self._blobs: dict[BlobId, bytes] = {}
        self._dirty_blobs: set[BlobId] = set()
        #: sections of states that are not declared yet, each with the `until` of the file of
        #: the chain that holds it
        self._unread: dict[_TableId, list[tuple[int, Section]]] = {}
        #: by `until`: what each file of the chain but the base changed
        self._steps: dict[int, _Step] = {}
        #: the chain whose state this is, but for what is dirty
        self._chain = Chain()
        #: states of which something is pickled in some file
        self._pickled: set[_TableId] = set()
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

    def _table(self, table_id: _TableId, descriptor: StateDescriptor) -> Table[Any]:
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
        chain = self._chain
        full = self._must_be_clean(durable)
        fold = len(chain.files) if full else self._files_to_fold()
        if fold == len(chain.files):
            self._ttl.before_base()
        if not self._has_changes() and not (full and fold > 1):
            return chain
        if epoch <= chain.until:
            message = f"epoch {epoch} cannot follow epoch {chain.until}, which is already written"
            raise ValueError(message)
        step = None if fold == len(chain.files) else self._marks_since(chain.since(fold))
        file = self._export(step, chain.since(fold))
        name = f"{stamp}.state"
        data = encode_file(file, name)
        ref = FileRef(name, len(data), chain.since(fold), epoch)
        storage.write(ref.name, data, durable=durable)
        # NB: nothing is taken for written before this line.
        self._chain = chain.extended(ref, stamp, self._swept(step is None), fold)
        self._bytes_per_change = ref.size / max(file.count, 1)
        self._written(ref, step)
        if step is None:
            self._ttl.compacted()
        return self._chain

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

    def _add_table(self, table_id: _TableId, descriptor: StateDescriptor) -> Table[Any]:
        table = self._make_table(table_id, descriptor)
        for until, section in self._unread.get(table_id, ()):
            load_section(table, section, self._marks(until, table_id, table))
            self._needs_base |= section.types != table.types
        self._unread.pop(table_id, None)
        self._tables[table_id] = table
        return table

    def _make_table(self, table_id: _TableId, descriptor: StateDescriptor) -> Table[Any]:
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
                step = None if ref.since < 0 else self._steps.setdefault(ref.until, _Step())
                self._load(file, ref.until, step)
                self._bytes_per_change = ref.size / max(file.count, 1)
                if step is None:
                    self._entries_in_base = self._entries()
        except BaseException:
            self.discard()
            raise
        return chain.size_from(start)

    def _load(self, file: StateFile, until: int, step: _Step | None) -> None:
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

    def _marks(self, until: int, table_id: _TableId, table: Table[Any]) -> Any | None:
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
        changes = sum(len(table.dirty) for table in self._tables.values())
        blobs = sum(len(self._blobs.get(blob_id, b"")) for blob_id in self._dirty_blobs)
        size = round(changes * self._bytes_per_change) + blobs
        return files_to_fold([file.size for file in self._chain.files], size, self._live_bytes())

    def _live_bytes(self) -> int:
        """Return about how large a new base would be: the less of two guesses."""
        if not self._entries_in_base:
            return 0
        entries = self._entries()
        as_in_base = self._chain.files[0].size * entries // self._entries_in_base
        return min(as_in_base, round(self._bytes_per_change * entries))

    def _entries(self) -> int:
        return sum(len(table.entries) for table in self._tables.values())

    def _marks_since(self, since: int) -> _Step:
        """Return what changed after that epoch, up to now."""
        merged = _Step()
        for table_id, table in self._tables.items():
            marks = table.new_marks()
            for until, step in self._steps.items():
                if until > since and table_id in step.tables:
                    table.merge(marks, step.tables[table_id])
            table.merge(marks, table.dirty)
            if marks:
                merged.tables[table_id] = marks
        later = (step.blobs for until, step in self._steps.items() if until > since)
        merged.blobs.update(self._dirty_blobs, *later)
        return merged

    def _export(self, step: _Step | None, since: int) -> StateFile:
        """Return everything, or what a step changed, as it stands now."""
        unread = [entry for entries in self._unread.values() for entry in entries]
        sections = [section for until, section in unread if step is None or until > since]
        for table_id, table in self._tables.items():
            marks = None if step is None else step.tables.get(table_id)
            if table.entries if step is None else marks:
                share = self.share(table.operator)
                sections.append(export_section(table, marks, share.max_parallelism))
        blobs = self._blobs.keys() if step is None else step.blobs
        for section in sections:
            _check_key_groups(section, self.share(section.operator).key_groups)
            if section.pickled:
                self._pickled.add((section.operator, section.state, section.namespaced))
        return StateFile(sections, {b: self._blobs.get(b) for b in blobs})

    def _written(self, file: FileRef, step: _Step | None) -> None:
        for until in [until for until in self._steps if until > file.since]:
            del self._steps[until]
        if step is not None:
            self._steps[file.until] = step
        else:
            self._entries_in_base = self._entries()
        for entries in self._unread.values():
            entries[:] = [(file.until if u > file.since else u, section) for u, section in entries]
        for table in self._tables.values():
            table.dirty.clear()
        self._dirty_blobs.clear()
        self._needs_base = False


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


def _check_key_groups(section: Section, own: range) -> None:
    for chunk in section.chunks:
        if chunk.first not in own or chunk.last not in own:
            message = (
                f"state {section.state!r} of operator {section.operator!r} has keys of the key "
                f"groups {chunk.first} to {chunk.last}; this subtask owns {own.start} to "
                f"{own.stop - 1}, so a record came to the wrong subtask"
            )
            raise InternalError(message)


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
