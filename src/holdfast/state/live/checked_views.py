"""The states that functions use when the check for in-place changes is on.

Each wraps the view that a backend created, with or without time-to-live, and reports to a
`MutationWatch` which objects the function holds. A value is watched from the time it is read or
written until it is replaced or removed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from typing import Any, Final

from holdfast.state.descriptors import (
    AggregatingState,
    AggregatingStateDescriptor,
    FoldingState,
    FoldingStateDescriptor,
    ListState,
    MapState,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    ValueState,
)
from holdfast.state.live.mutations import SAVE_OR_COPY, ValuePlace, WatchedKeyContext, WatchedState
from holdfast.state.live.views import checked_elements
from holdfast.state.types.serializers import Serializer

_NOT_CALLED: Final = object()
#: by kind: the name of a value in messages, and how to save it
_WORDS: Final = {
    "value": ("value", "pass it to update()"),
    "list": ("element", "pass the whole list to update()"),
    "map": ("value", "pass it to put()"),
    "reducing": ("accumulator", "pass the value to add to add()"),
    "aggregating": ("accumulator", "pass the value to add to add()"),
    "folding": ("accumulator", "pass the value to add to add()"),
}


class _Checked:
    """Base of the checked views: holds the view itself, and locates its current values."""

    __slots__ = ("_context", "_namespaced", "_watch", "_watched", "inner")

    def __init__(
        self, inner: Any, descriptor: StateDescriptor, context: WatchedKeyContext, namespaced: bool
    ) -> None:
        self.inner = inner
        self._context = context
        self._watch = context.watch
        self._namespaced = namespaced
        what, saving = _WORDS[descriptor.kind]
        # NB: a name with this prefix is an internal state, such as the records of a window.
        own = descriptor.name.startswith("\0")
        remedy = "change a copy" if own else SAVE_OR_COPY.format(saving)
        name = descriptor.name.removeprefix("\0")
        self._watched = WatchedState(name, what, remedy, Serializer(descriptor.declared_types[-1]))

    def clear(self) -> None:
        self.inner.clear()
        self._watch.forget(self._place())

    def merge_namespaces(self, key: Any, target: Any, sources: Iterable[Any]) -> None:
        """Merge namespaces, as merging windows require; see the wrapped view."""
        self.inner.merge_namespaces(key, target, sources)

    def _place(self) -> ValuePlace:
        context = self._context
        return ValuePlace(
            self._watched, context.key, context.namespace if self._namespaced else None
        )


class _CheckedValue(_Checked, ValueState[Any]):
    __slots__ = ()

    def value(self) -> Any:
        value = self.inner.value()
        self._watch.note(self._place(), value)
        return value

    def update(self, value: Any) -> None:
        self.inner.update(value)
        place = self._place()
        self._watch.forget(place)
        self._watch.note(place, value)


class _CheckedList(_Checked, ListState[Any]):
    __slots__ = ()

    def get(self) -> list[Any]:
        values: list[Any] = self.inner.get()
        self._note(values)
        return values

    def add(self, value: Any) -> None:
        self.inner.add(value)
        self._note((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        added = checked_elements(values)
        self.inner.add_all(added)
        self._note(added)

    def update(self, values: Iterable[Any]) -> None:
        kept = checked_elements(values)
        self.inner.update(kept)
        self._watch.forget(self._place())
        self._note(kept)

    def _note(self, values: Iterable[Any]) -> None:
        place = self._place()
        for value in values:
            self._watch.note(place, value)


class _CheckedMap(_Checked, MapState[Any, Any]):
    __slots__ = ()

    def get(self, key: Any, default: Any = None) -> Any:
        value = self.inner.get(key, default)
        if value is not default:
            self._watch.note(self._place(), value, key)
        return value

    def put(self, key: Any, value: Any) -> None:
        self.inner.put(key, value)
        place = self._place()
        self._watch.forget_part(place, key)
        self._watch.note(place, value, key)

    def put_all(self, dict_value: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        for key, value in dict(dict_value).items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self.inner.remove(key)
        self._watch.forget_part(self._place(), key)

    def contains(self, key: Any) -> bool:
        return self.inner.contains(key)  # type: ignore[no-any-return]

    def items(self) -> ItemsView[Any, Any]:
        items: ItemsView[Any, Any] = self.inner.items()
        place = self._place()
        for key, value in items:
            self._watch.note(place, value, key)
        return items

    def keys(self) -> KeysView[Any]:
        return self.inner.keys()  # type: ignore[no-any-return]

    def values(self) -> ValuesView[Any]:
        return dict(self.items()).values()

    def is_empty(self) -> bool:
        return self.inner.is_empty()  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self.inner)


class _Accumulator:
    """The accumulator that the function of a state received or returned last."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: Any = _NOT_CALLED

    def made_by(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its result recorded as the last accumulator."""

        def call(*args: Any) -> Any:
            self.last = function(*args)
            return self.last

        return call

    def take(self, otherwise: Any) -> Any:
        taken, self.last = self.last, _NOT_CALLED
        return otherwise if taken is _NOT_CALLED else taken


class _Aggregate:
    """An aggregate function whose accumulators are recorded."""

    def __init__(self, function: Any, accumulator: _Accumulator) -> None:
        self._function = function
        self._accumulator = accumulator
        self.create_accumulator = function.create_accumulator
        self.add = accumulator.made_by(function.add)
        self.merge = getattr(function, "merge", None)

    def get_result(self, accumulator: Any) -> Any:
        # NB: the result may be the accumulator itself, or a part of it.
        self._accumulator.last = accumulator
        return self._function.get_result(accumulator)

    def __repr__(self) -> str:
        return repr(self._function)


class _CheckedAppending(_Checked):
    """A state with one accumulator per key."""

    __slots__ = ("_accumulator",)

    def __init__(
        self,
        inner: Any,
        descriptor: StateDescriptor,
        context: WatchedKeyContext,
        namespaced: bool,
        accumulator: _Accumulator,
    ) -> None:
        super().__init__(inner, descriptor, context, namespaced)
        self._accumulator = accumulator

    def get(self) -> Any:
        result = self.inner.get()
        self._watch.note(self._place(), self._accumulator.take(result))
        return result

    def add(self, value: Any) -> None:
        self.inner.add(value)
        if value is not None:
            place = self._place()
            self._watch.forget(place)
            self._watch.note(place, self._accumulator.take(value))


class _CheckedReducing(_CheckedAppending, ReducingState[Any]):
    __slots__ = ()


class _CheckedAggregating(_CheckedAppending, AggregatingState[Any, Any]):
    __slots__ = ()


class _CheckedFolding(_CheckedAppending, FoldingState[Any, Any]):
    __slots__ = ()


_PLAIN: Final[dict[str, Callable[[Any, StateDescriptor, WatchedKeyContext, bool], State]]] = {
    "value": _CheckedValue,
    "list": _CheckedList,
    "map": _CheckedMap,
}
_APPENDING: Final[dict[str, type[_CheckedAppending]]] = {
    "reducing": _CheckedReducing,
    "aggregating": _CheckedAggregating,
    "folding": _CheckedFolding,
}


def checked_view(
    descriptor: StateDescriptor,
    context: WatchedKeyContext,
    namespaced: bool,
    make: Callable[[StateDescriptor], State],
) -> State:
    """Return the state that a function uses; ``make`` creates the view of a descriptor."""
    kind = descriptor.kind
    if kind in _PLAIN:
        return _PLAIN[kind](make(descriptor), descriptor, context, namespaced)
    if kind not in _APPENDING:
        return make(descriptor)
    accumulator = _Accumulator()
    inner = make(_seen_by(accumulator, descriptor))
    view = _APPENDING[kind](inner, descriptor, context, namespaced, accumulator)
    return view  # type: ignore[return-value]


def _seen_by(accumulator: _Accumulator, descriptor: StateDescriptor) -> StateDescriptor:
    """Return the descriptor with a function whose accumulators are recorded."""
    seen = copy.copy(descriptor)
    if isinstance(seen, ReducingStateDescriptor):
        seen.reduce = accumulator.made_by(seen.reduce)
    elif isinstance(seen, FoldingStateDescriptor):
        seen.fold = accumulator.made_by(seen.fold)
    else:
        assert isinstance(seen, AggregatingStateDescriptor)
        seen._agg_function = _Aggregate(seen.get_agg_function(), accumulator)
    return seen
