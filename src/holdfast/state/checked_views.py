"""The states that functions see when changes in place are looked for.

Each wraps the view that a backend made, with or without time-to-live, and tells a `MutationWatch`
which objects the function holds. Reading or writing a value begins its watch; replacing or removing
it ends the watch of what was there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from typing import Any, Final

from holdfast.datastream.state import (
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
from holdfast.state.mutations import SAVE_OR_COPY, Place, WatchedKeyContext, WatchedState
from holdfast.state.serializers import Serializer
from holdfast.state.views import checked_elements

__all__ = ["checked_view"]

_NOT_CALLED: Final = object()
#: by kind: what a value of it is called, and how it is saved
_WORDS: Final = {
    "value": ("value", "pass it to update()"),
    "list": ("element", "pass the whole list to update()"),
    "map": ("value", "pass it to put()"),
    "reducing": ("accumulator", "pass what is to be added to add()"),
    "aggregating": ("accumulator", "pass what is to be added to add()"),
    "folding": ("accumulator", "pass what is to be added to add()"),
}


class _Checked:
    """What all have in common: the view itself, and where its current values are."""

    __slots__ = ("_context", "_namespaced", "_watch", "_watched", "inner")

    def __init__(
        self, inner: Any, descriptor: StateDescriptor, context: WatchedKeyContext, namespaced: bool
    ) -> None:
        self.inner = inner
        self._context = context
        self._watch = context.watch
        self._namespaced = namespaced
        what, saving = _WORDS[descriptor.kind]
        # NB: a state whose name begins so is our own, such as the records of a window.
        own = descriptor.name.startswith("\0")
        remedy = "change a copy" if own else SAVE_OR_COPY.format(saving)
        name = descriptor.name.removeprefix("\0")
        self._watched = WatchedState(name, what, remedy, Serializer(descriptor.declared_types[-1]))

    def clear(self) -> None:
        self.inner.clear()
        self._watch.forget(self._place())

    def merge_namespaces(self, key: Any, target: Any, sources: Iterable[Any]) -> None:
        """Do what merging windows need; see the view itself."""
        self.inner.merge_namespaces(key, target, sources)

    def _place(self) -> Place:
        context = self._context
        return Place(self._watched, context.key, context.namespace if self._namespaced else None)


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
    """The accumulator that a function of a state was given, or has made, last."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: Any = _NOT_CALLED

    def made_by(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, whose results are accumulators."""

        def call(*args: Any) -> Any:
            self.last = function(*args)
            return self.last

        return call

    def take(self, otherwise: Any) -> Any:
        taken, self.last = self.last, _NOT_CALLED
        return otherwise if taken is _NOT_CALLED else taken


class _Aggregate:
    """An aggregate function whose accumulators are seen."""

    def __init__(self, function: Any, accumulator: _Accumulator) -> None:
        self._function = function
        self._accumulator = accumulator
        self.create_accumulator = function.create_accumulator
        self.add = accumulator.made_by(function.add)
        self.merge = getattr(function, "merge", None)

    def get_result(self, accumulator: Any) -> Any:
        # NB: the result may be the accumulator, or a part of it.
        self._accumulator.last = accumulator
        return self._function.get_result(accumulator)

    def __repr__(self) -> str:
        return repr(self._function)


class _CheckedAppending(_Checked):
    """The states of one accumulator per key."""

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
    """Return the state that a function works with; ``make`` makes the view of a descriptor."""
    if descriptor.kind == "list":
        return _CheckedList(make(descriptor), descriptor, context, namespaced)
    if descriptor.kind == "map":
        return _CheckedMap(make(descriptor), descriptor, context, namespaced)
    if descriptor.kind == "value":
        return _CheckedValue(make(descriptor), descriptor, context, namespaced)
    accumulator = _Accumulator()
    inner = make(_seen_by(accumulator, descriptor))
    kind = _APPENDING[descriptor.kind]
    return kind(inner, descriptor, context, namespaced, accumulator)  # type: ignore[return-value]


def _seen_by(accumulator: _Accumulator, descriptor: StateDescriptor) -> StateDescriptor:
    """Return the descriptor with a function whose accumulators are seen."""
    seen = copy.copy(descriptor)
    if isinstance(seen, ReducingStateDescriptor):
        seen.reduce = accumulator.made_by(seen.reduce)
    elif isinstance(seen, FoldingStateDescriptor):
        seen.fold = accumulator.made_by(seen.fold)
    else:
        assert isinstance(seen, AggregatingStateDescriptor)
        seen._agg_function = _Aggregate(seen.get_agg_function(), accumulator)
    return seen
