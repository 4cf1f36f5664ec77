"""The states that functions use: thin views of a table at the current key.

These run for every record, so each method does as little as possible: it gets the key from the
context, reads or changes the entry, and marks it. A view caches the dicts of its table and their
methods, which never change (see `holdfast.state.live.tables`). Value states have views that do
even less (`holdfast.state.live.value_views`).
"""

from __future__ import annotations

import copy
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    KeysView,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    ValuesView,
)
from typing import Any, Final, Protocol

from holdfast.common.callables import described, with_place
from holdfast.state.descriptors import (
    AggregatingState,
    AggregatingStateDescriptor,
    FoldingState,
    FoldingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    ValueStateDescriptor,
)
from holdfast.state.live.key_context import KeyContext
from holdfast.state.live.tables import ValueTable, ViewedTable
from holdfast.state.live.value_views import make_value_view

_ABSENT: Final = object()
_REPLACED: Final = -1
_NOTHING: Final[dict[Any, Any]] = {}
#: types of accumulators that functions change in place
_CHANGEABLE: Final = (MutableSequence, MutableMapping, MutableSet, bytearray)
#: types of accumulators of which there may be one object only; looking there first is much faster
_CONSTANT: Final = frozenset({bool, int, float, complex, str, bytes, tuple, frozenset})


class _Keyed(Protocol):
    @property
    def key(self) -> Any: ...


class _Scoped:
    """A context whose key is the key and the namespace together."""

    __slots__ = ("_context",)

    def __init__(self, context: KeyContext) -> None:
        self._context = context

    @property
    def key(self) -> tuple[Any, Any]:
        context = self._context
        return context.key, context.namespace


class _Accumulating:
    """Base of reducing, aggregating and folding states: one accumulator per key."""

    __slots__ = ("_context", "_entries", "_get", "_mark", "_own", "_own_values", "_pop", "_shared")

    def __init__(self, table: ViewedTable, context: _Keyed) -> None:
        self._context = context
        self._own = table.own
        self._own_values = table.own_values
        self._shared = table.shared
        self._entries = table.entries
        self._get = table.entries.get
        self._pop = table.entries.pop
        self._mark = table.dirty.add

    def get(self) -> Any:
        key = self._context.key
        if self._shared:
            self._own_values(key)
        return self._get(key)

    def clear(self) -> None:
        key = self._context.key
        if self._pop(key, _ABSENT) is not _ABSENT:
            self._mark(key)

    def _merge(
        self, merge: Callable[[Any, Any], Any], key: Any, target: Any, sources: Iterable[Any]
    ) -> None:
        """Merge the accumulators of ``sources`` into that of ``target``, and remove them."""
        merged = self._own((key, target))
        for source in sources:
            part = self._own((key, source))
            self._pop((key, source), None)
            if part is not None:
                self._mark((key, source))
                merged = part if merged is None else merge(merged, part)
        if merged is not None:
            self._entries[key, target] = merged
            self._mark((key, target))


class _ReducingView(_Accumulating, ReducingState[Any]):
    __slots__ = ("_reduce",)

    def __init__(
        self, table: ViewedTable, context: _Keyed, descriptor: ReducingStateDescriptor
    ) -> None:
        super().__init__(table, context)
        self._reduce = descriptor.reduce

    def add(self, value: Any) -> None:
        if value is None:
            return
        key = self._context.key
        current = self._own(key) if self._shared else self._get(key)
        self._entries[key] = value if current is None else self._reduce(current, value)
        self._mark(key)

    def merge_namespaces(self, key: Any, target: Any, sources: Iterable[Any]) -> None:
        """Merge the state of other namespaces of a key into one, as merging windows require."""
        self._merge(self._reduce, key, target, sources)


class _AggregatingView(_Accumulating, AggregatingState[Any, Any]):
    __slots__ = ("_add", "_create", "_function", "_result")

    def __init__(
        self, table: ViewedTable, context: _Keyed, descriptor: AggregatingStateDescriptor
    ) -> None:
        super().__init__(table, context)
        self._function = function = descriptor.get_agg_function()
        self._create = new_accumulators(function)
        self._add = function.add
        self._result = function.get_result

    def get(self) -> Any:
        accumulator = super().get()
        return None if accumulator is None else self._result(accumulator)

    def add(self, value: Any) -> None:
        if value is None:
            return
        key = self._context.key
        accumulator = self._own(key) if self._shared else self._get(key)
        accumulator = self._add(value, self._create() if accumulator is None else accumulator)
        if accumulator is None:
            raise _no_accumulator(self._function, "add")
        self._entries[key] = accumulator
        self._mark(key)

    def merge_namespaces(self, key: Any, target: Any, sources: Iterable[Any]) -> None:
        """Merge the state of other namespaces of a key into one, as merging windows require."""
        self._merge(self._function.merge, key, target, sources)


class _FoldingView(_Accumulating, FoldingState[Any, Any]):
    __slots__ = ("_fold", "_initial")

    def __init__(
        self, table: ViewedTable, context: _Keyed, descriptor: FoldingStateDescriptor
    ) -> None:
        super().__init__(table, context)
        self._fold = descriptor.fold
        self._initial = descriptor.initial_value

    def add(self, value: Any) -> None:
        if value is None:
            return
        key = self._context.key
        current = self._own(key) if self._shared else self._get(key)
        folded = self._fold(copy.deepcopy(self._initial) if current is None else current, value)
        if folded is None:
            raise _no_accumulator(self._fold, "fold")
        self._entries[key] = folded
        self._mark(key)


class _InPlace:
    """What lists and maps have in common: entries that are changed in place."""

    __slots__ = ("_context", "_dirty", "_entries", "_get", "_lent", "_own", "_shared", "_table")

    def __init__(self, table: Any, context: _Keyed, _: StateDescriptor) -> None:
        self._context = context
        self._table = table
        self._lent = table.lent
        self._dirty = table.dirty
        self._entries = table.entries
        self._get = table.entries.get
        self._own = table.own
        self._shared = table.shared


class _ListView(_InPlace, ListState[Any]):
    __slots__ = ()

    def get(self) -> list[Any]:
        key = self._context.key
        if self._lent:
            self._table.own_values(key)
        return [*self._get(key, ())]

    def add(self, value: Any) -> None:
        if value is None:
            raise _no_none()
        key = self._context.key
        values = self._own(key) if self._shared else self._get(key)
        if values is None:
            self._entries[key] = [value]
            self._dirty.setdefault(key, 0)
        else:
            if key not in self._dirty:
                self._dirty[key] = len(values)
            values.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        self._append(self._context.key, checked_elements(values))

    def update(self, values: Iterable[Any]) -> None:
        checked = checked_elements(values)
        if not checked:
            return self.clear()
        key = self._context.key
        self._entries[key] = checked
        self._dirty[key] = _REPLACED

    def clear(self) -> None:
        self._take(self._context.key)

    def merge_namespaces(self, key: Any, target: Any, sources: Iterable[Any]) -> None:
        """Append the lists of other namespaces of a key to one, as merging windows require."""
        for source in sources:
            if self._lent:
                self._table.own_values((key, source))
            self._append((key, target), self._take((key, source)))

    def _append(self, key: Any, added: list[Any]) -> None:
        if added:
            if self._shared:
                self._own(key)
            values = self._entries.setdefault(key, [])
            self._dirty.setdefault(key, len(values))
            values.extend(added)

    def _take(self, key: Any) -> list[Any]:
        values: list[Any] | None = self._entries.pop(key, None)
        if values is None:
            return []
        if self._dirty.get(key) == 0:
            del self._dirty[key]  # this list is in no file
        else:
            self._dirty[key] = _REPLACED
        return values


class _MapView(_InPlace, MapState[Any, Any]):
    __slots__ = ()

    def get(self, key: Any, default: Any = None) -> Any:
        scope = self._context.key
        if self._lent and scope in self._lent:
            self._table.own_value_of(scope, key)
        entry = self._get(scope)
        return default if entry is None else entry.get(key, default)

    def put(self, key: Any, value: Any) -> None:
        scope = self._context.key
        entry = self._own(scope) if self._shared else self._get(scope)
        if entry is None:
            self._entries[scope] = {key: value}
        else:
            entry[key] = value
        self._touch(scope, key)

    def put_all(self, dict_value: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        for key, value in dict(dict_value).items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        scope = self._context.key
        entry = self._get(scope)
        if entry is not None and key in entry:
            if self._shared:
                entry = self._own(scope)
            del entry[key]
            if not entry:
                del self._entries[scope]
            self._touch(scope, key)

    def contains(self, key: Any) -> bool:
        return key in self._get(self._context.key, ())

    def items(self) -> ItemsView[Any, Any]:
        return self._copy().items()

    def live_items(self) -> ItemsView[Any, Any]:
        """Return the items without copying them; the map must not change meanwhile."""
        return self._get(self._context.key, _NOTHING).items()  # type: ignore[no-any-return]

    def keys(self) -> KeysView[Any]:
        return dict(self._get(self._context.key, ())).keys()

    def values(self) -> ValuesView[Any]:
        return self._copy().values()

    def popitem(self) -> tuple[Any, Any]:
        # NB: `MutableMapping.popitem` would copy all keys each time, slow in a loop that empties it
        entry = self._get(self._context.key)
        if entry is None:
            message = "popitem(): the map is empty"
            raise KeyError(message)
        key = next(reversed(entry))
        value = self.get(key)
        self.remove(key)
        return key, value

    def is_empty(self) -> bool:
        return self._context.key not in self._entries

    def __len__(self) -> int:
        return len(self._get(self._context.key, ()))

    def clear(self) -> None:
        scope = self._context.key
        if self._entries.pop(scope, None) is not None:
            self._dirty[scope] = None

    def _copy(self) -> dict[Any, Any]:
        scope = self._context.key
        if self._lent:
            self._table.own_values(scope)
        return dict(self._get(scope, ()))

    def _touch(self, scope: Any, key: Any) -> None:
        changed = self._dirty.get(scope, _ABSENT)
        if changed is _ABSENT:
            self._dirty[scope] = {key}
        elif changed is not None:
            changed.add(key)


class KeyedMarks:
    """A state that is a set of marks, each a key and a namespace.

    Most marks are added and removed between two writes, and nothing is written for them. To detect
    this, the entry of a mark is False if the mark was dirty when it was added, which means that it
    had been removed since the last write and a file may contain it.
    """

    __slots__ = ("_dirty", "_entries", "_pop")

    def __init__(self, table: ValueTable) -> None:
        self._entries = table.entries
        self._pop = table.entries.pop
        self._dirty = table.dirty

    def add(self, mark: tuple[Any, Any]) -> bool:
        """Add a mark; return whether it is new."""
        if mark in self._entries:
            return False
        self._entries[mark] = mark not in self._dirty
        self._dirty.add(mark)
        return True

    def remove(self, mark: tuple[Any, Any]) -> bool:
        """Remove a mark; return whether it was there."""
        was_new = self._pop(mark, None)
        if was_new is None:
            return False
        if was_new and mark in self._dirty:
            self._dirty.remove(mark)  # it is in no file
        else:
            self._dirty.add(mark)
        return True

    def __contains__(self, mark: tuple[Any, Any]) -> bool:
        return mark in self._entries


#: creates the view of a kind of state from its table, the context and its descriptor
_VIEWS: Final[dict[type[StateDescriptor], Callable[[Any, Any, Any], State]]] = {
    ValueStateDescriptor: make_value_view,
    ListStateDescriptor: _ListView,
    MapStateDescriptor: _MapView,
    ReducingStateDescriptor: _ReducingView,
    AggregatingStateDescriptor: _AggregatingView,
    FoldingStateDescriptor: _FoldingView,
}


def make_view(descriptor: StateDescriptor, table: ViewedTable, context: KeyContext) -> State:
    """Return the state that a function uses."""
    make = next(_VIEWS[cls] for cls in type(descriptor).__mro__ if cls in _VIEWS)
    # NB: views of values read the namespace themselves
    scopes = table.namespaced and make is not make_value_view
    return make(table, _Scoped(context) if scopes else context, descriptor)


def new_accumulators(function: Any) -> Callable[[], Any]:
    """Return ``create_accumulator`` of a function, which must not return one object twice."""
    create, last = function.create_accumulator, None

    def make() -> Any:
        nonlocal last
        made = create()
        if made is last and type(made) not in _CONSTANT and isinstance(made, _CHANGEABLE):
            message = (
                f"{described(create)} returned the same {type(made).__name__} twice, so several "
                "keys or windows would share it; return a new one from each call"
            )
            raise with_place(TypeError(message), create)
        last = made
        return made

    return make


def checked_elements(values: Iterable[Any]) -> list[Any]:
    """Return the elements of a list state; raise a TypeError if None is among them."""
    if values is None:
        raise _no_none()
    checked = list(values)
    for value in checked:
        # NB: compare by identity, not "None in checked": elements may override ==.
        if value is None:
            raise _no_none()
    return checked


def _no_none() -> TypeError:
    return TypeError(
        "a ListState cannot hold None; leave it out, or add a value that stands for it"
    )


def _no_accumulator(function: Any, method: str) -> TypeError:
    """Return the error for a function that did not return its accumulator."""
    return TypeError(f"{method} of {function!r} returned None; it must return the accumulator")
