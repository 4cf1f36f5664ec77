"""The views of value states, which are used more often than all others together.

Each view has a class of its own. The methods of that class refer to the dict of the table and to
the context as variables of the enclosing function. Reading these is faster than reading attributes
of the view, and a class, unlike functions that are stored in attributes, lets Python call its
methods without an intermediate object.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from holdfast.state.descriptors import ValueState, ValueStateDescriptor
from holdfast.state.live.key_context import KeyContext
from holdfast.state.live.tables import ViewedTable, is_immutable

_ABSENT: Final = object()


def make_value_view(
    table: ViewedTable, context: KeyContext, descriptor: ValueStateDescriptor
) -> ValueState[Any]:
    """Return the view of a value state at the key of a context, and its namespace if it has any."""
    default = descriptor.default_value
    make = _view_in_namespaces if table.namespaced else _view
    return (make if is_immutable(default) else _copying)(table, context, default)


def _view(table: ViewedTable, context: KeyContext, default: Any) -> ValueState[Any]:
    entries, get, pop, mark = table.entries, table.entries.get, table.entries.pop, table.dirty.add

    class ValueView(ValueState[Any]):
        """A value per key."""

        __slots__ = ()

        def value(self) -> Any:
            return get(context.key, default)

        def update(self, value: Any) -> None:
            if value is None:
                return self.clear()
            key = context.key
            entries[key] = value
            mark(key)

        def clear(self) -> None:
            key = context.key
            if pop(key, _ABSENT) is not _ABSENT:
                mark(key)

    return ValueView()


def _view_in_namespaces(table: ViewedTable, context: KeyContext, default: Any) -> ValueState[Any]:
    entries, get, pop, mark = table.entries, table.entries.get, table.entries.pop, table.dirty.add

    class ValueView(ValueState[Any]):
        """A value per key and namespace."""

        __slots__ = ()

        def value(self) -> Any:
            return get((context.key, context.namespace), default)

        def update(self, value: Any) -> None:
            if value is None:
                return self.clear()
            key = context.key, context.namespace
            entries[key] = value
            mark(key)

        def clear(self) -> None:
            key = context.key, context.namespace
            if pop(key, _ABSENT) is not _ABSENT:
                mark(key)

    return ValueView()


def _copying(table: ViewedTable, context: KeyContext, default: Any) -> ValueState[Any]:
    """Return a view with a mutable default: each read returns a copy of it."""
    plain = (_view_in_namespaces if table.namespaced else _view)(table, context, None)

    class ValueView(type(plain)):  # type: ignore[misc]
        __slots__ = ()

        def value(self) -> Any:
            value = super().value()
            return copy.deepcopy(default) if value is None else value

    return ValueView()
