"""`DeclaredTables`: the tables of the states that a job has declared, and their watchers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.state.descriptors import ColumnStateDescriptor, StateDescriptor
from holdfast.state.errors import StateRegistrationError
from holdfast.state.format.files import Section
from holdfast.state.live.column_rows import ColumnRows
from holdfast.state.live.sections import as_section, export_section, kind_name
from holdfast.state.live.tables import Table, ValueTable, make_table
from holdfast.state.live.views import KeyedMarks
from holdfast.state.names import StateId

#: called with the keys that were loaded, and with None when everything was discarded
Watcher = Callable[[Iterable[Any] | None], None]


class DeclaredTables(dict[StateId, Table[Any]]):
    """The tables of the states that the job has declared.

    A watcher is called when entries of a state are loaded from files or everything is discarded.
    """

    def __init__(self) -> None:
        super().__init__()
        self._watchers: dict[StateId, Watcher] = {}

    def find(
        self,
        state: StateId,
        descriptor: StateDescriptor,
        declare: Callable[[StateId, StateDescriptor], Table[Any]],
    ) -> Table[Any]:
        """Return the table of a state; ``declare`` makes it if there is none yet."""
        table = self.get(state)
        if table is None:
            table = self[state] = declare(state, descriptor)
        _check_same(table, descriptor)
        return table

    def watch(self, state: StateId, loaded: Watcher) -> KeyedMarks:
        """Return a state of marks; the watcher is called for existing and for loaded marks."""
        table = self[state]
        assert isinstance(table, ValueTable)
        self._watchers[state] = loaded
        loaded(table.entries)
        return KeyedMarks(table)

    def tell(self, state: StateId, keys: Iterable[Any]) -> None:
        """Tell the watcher of a state that entries of these keys were loaded or removed."""
        if state in self._watchers:
            entries = self[state].entries
            self._watchers[state](key for key in keys if key in entries)

    def tell_of_all(self) -> None:
        """Tell all watchers that any entry may have changed."""
        for state, loaded in self._watchers.items():
            loaded(None)
            loaded(self[state].entries)

    def forget(self) -> None:
        """Clear the tables; they and their views stay valid."""
        for table in self.values():
            table.clear()
        for loaded in self._watchers.values():
            loaded(None)

    def section_of(self, state: StateId, key: Any, max_parallelism: int) -> Section | None:
        """Return the entries of a key as a file section; None if there is no such state."""
        table = self.get(state)
        if table is None:
            return None
        if isinstance(table, ColumnRows):
            chunks = table.export_key(key, max_parallelism)
            return as_section(table, max_parallelism, chunks)
        alone = copy.copy(table)
        entry = table.entries.get(key)
        alone.entries = {} if entry is None else {key: entry}
        return export_section(alone, None, max_parallelism)


def table_for(state: StateId, descriptor: StateDescriptor) -> Table[Any]:
    """Return a new table for a descriptor."""
    operator, name, namespaced = state
    types = descriptor.declared_types
    expires = descriptor.ttl_config is not None
    return make_table(operator, name, descriptor.kind, types, namespaced, expires)


def _check_same(table: Table[Any], descriptor: StateDescriptor) -> None:
    if isinstance(table, ColumnRows) and isinstance(descriptor, ColumnStateDescriptor):
        same = table.column.form.type == descriptor.arrow_type
        if not same or table.expires != (descriptor.ttl_config is not None):
            raise _declared_twice(table, f"{table.column.form.type}", repr(descriptor))
        return
    declared = tuple(map(repr, descriptor.declared_types))
    known = tuple(repr(serializer.type_info) for serializer in table.serializers)
    expires = descriptor.ttl_config is not None
    if (table.kind, known, table.expires) == (descriptor.kind, declared, expires):
        return
    before = f"{kind_name(table.kind, table.expires)}{_types(known)}"
    now = f"{kind_name(descriptor.kind, expires)}{_types(declared)}"
    raise _declared_twice(table, before, now)


def _declared_twice(table: Table[Any], before: str, now: str) -> StateRegistrationError:
    return StateRegistrationError(
        f"operator {table.operator!r} declares the state {table.name!r} twice: as {before} and as "
        f"{now}; give each state a name of its own"
    )


def _types(types: tuple[str, ...]) -> str:
    if all(name == "None" for name in types):
        return ""
    return f" of {', '.join('no type' if name == 'None' else name for name in types)}"
