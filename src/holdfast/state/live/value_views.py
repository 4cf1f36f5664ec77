"""The views of value states, which are used more often than all others together.

Each view has a class of its own. The methods of that class refer to the dict of the table and to
the context as variables of the enclosing function. Reading these is faster than reading attributes
of the view, and a class, unlike functions that are stored in attributes, lets Python call its
methods without an intermediate object.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final, NoReturn

from holdfast.state.descriptors import ValueState, ValueStateDescriptor
from holdfast.state.live.key_context import KeyContext
from holdfast.state.live.overlaid import OverlaidTable, Overlay, OverlayViews
from holdfast.state.live.tables import ViewedTable, is_immutable

_ABSENT: Final = object()


def make_value_view(
    table: ViewedTable, context: KeyContext, descriptor: ValueStateDescriptor
) -> ValueState[Any]:
    """Return the view of a value state at the key of a context, and its namespace if it has any."""
    default = descriptor.default_value
    return (_plain if is_immutable(default) else _copying)(table, context, default)


def _plain(table: ViewedTable, context: KeyContext, default: Any) -> ValueState[Any]:
    if isinstance(table, OverlaidTable):
        table.views = table.views or _overlaid(table)
        return table.views.make(context, default)
    return (_view_in_namespaces if table.namespaced else _view)(table, context, default)


def _view(table: ViewedTable, context: KeyContext, default: Any) -> ValueState[Any]:
    entries, get, pop, mark = table.entries, table.entries.get, table.entries.pop, table.dirty.add
    lent, own = table.lent, table.own_values

    class ValueView(ValueState[Any]):
        """A value per key."""

        __slots__ = ()

        def value(self) -> Any:
            key = context.key
            if lent:
                own(key)
            return get(key, default)

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
    lent, own = table.lent, table.own_values

    class ValueView(ValueState[Any]):
        """A value per key and namespace."""

        __slots__ = ()

        def value(self) -> Any:
            key = context.key, context.namespace
            if lent:
                own(key)
            return get(key, default)

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


def _overlaid(table: OverlaidTable) -> OverlayViews:
    """Return how to make views of a table; all of them share one variable with its overlay."""
    overlay = table.overlay

    def replace(newer: Overlay) -> None:
        nonlocal overlay
        overlay = newer

    def view(context: KeyContext, default: Any) -> ValueState[Any]:
        class ValueView(ValueState[Any]):
            """A value per key, on the heap."""

            __slots__ = ()

            def value(self) -> Any:
                value = overlay[context.key]
                return default if value is None else value

            def update(self, value: Any) -> None:
                if value is None:
                    return self.clear()
                overlay[context.key] = value

            def clear(self) -> None:
                key = context.key
                if overlay[key] is not None:
                    overlay[key], table.removes = None, True

        return ValueView()

    def view_in_namespaces(context: KeyContext, default: Any) -> ValueState[Any]:
        class ValueView(ValueState[Any]):
            """A value per key and namespace, on the heap."""

            __slots__ = ()

            def value(self) -> Any:
                value = overlay[context.key, context.namespace]
                return default if value is None else value

            def update(self, value: Any) -> None:
                if value is None:
                    return self.clear()
                overlay[context.key, context.namespace] = value

            def clear(self) -> None:
                key = context.key, context.namespace
                if overlay[key] is not None:
                    overlay[key], table.removes = None, True

            def folding(
                self,
                create: Callable[[], Any],
                add: Callable[[Any, Any], Any],
                refuse: Callable[[], NoReturn],
            ) -> Callable[[Any, Any], bool]:
                """Return a function that adds a record to the value, and returns if it is new.

                ``add`` may change the value in place. If it returns None, ``refuse`` is called. A
                second argument of the function is ignored.
                """

                def fold(record: Any, _: Any) -> bool:
                    place = context.key, context.namespace
                    before = overlay[place]
                    after = add(record, create() if before is None else before)
                    if after is None:
                        refuse()
                    overlay[place] = after
                    return before is None

                return fold

        return ValueView()

    return OverlayViews(view_in_namespaces if table.namespaced else view, replace)


def _copying(table: ViewedTable, context: KeyContext, default: Any) -> ValueState[Any]:
    """Return a view with a mutable default: each read returns a copy of it."""
    plain = _plain(table, context, None)

    class ValueView(type(plain)):  # type: ignore[misc]
        __slots__ = ()

        def value(self) -> Any:
            value = super().value()
            return copy.deepcopy(default) if value is None else value

    return ValueView()
