"""The states that functions see when there is a time-to-live: views of pairs.

Each wraps the plain view of a backend (see `holdfast.state.ttl`), reads the clock once per access,
and removes what it finds to be over. With ``returns_expired`` a read returns it that once. An `add`
to an accumulator that is over begins a new one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from typing import Any, Final

from holdfast.datastream.state import (
    AggregatingState,
    FoldingState,
    ListState,
    MapState,
    ReducingState,
    State,
    StateDescriptor,
    ValueState,
)
from holdfast.state.ttl import Aside, Lifetime, Pair
from holdfast.state.views import ValueView, checked_elements, no_accumulator

__all__ = ["make_ttl_view"]


class _Single:
    """What all but lists and maps have in common: one pair per key."""

    __slots__ = ("_aside", "_descriptor", "_get", "_life", "_pairs", "_set")

    def __init__(self, pairs: ValueView, aside: Aside, life: Lifetime, descriptor: Any) -> None:
        self._pairs = pairs
        self._get = pairs.value
        self._set = pairs.update
        self._aside = aside
        self._life = life
        self._descriptor = descriptor

    def clear(self) -> None:
        self._pairs.clear()

    def _read(self) -> Any:
        """Return what a read sees; None if there is nothing."""
        life = self._life
        life.accesses += 1
        pair = self._get()
        if pair is None:
            return None
        held, stamp = pair
        now = life.clock()
        if stamp + life.ttl <= now:
            self._pairs.clear()
            return held if life.returns_expired else None
        if life.on_read and stamp != now:
            self._set((held, now))
        return held

    def _change(self, changed: Callable[[Any], Any]) -> None:
        """Set what a function makes of what there is; it is given None if there is nothing."""
        life = self._life
        life.accesses += 1
        now, pair = life.clock(), self._pairs.owned()
        held = None if pair is None or pair[1] + life.ttl <= now else pair[0]
        self._set((changed(held), now))

    def _merge(
        self, merge: Callable[[Any, Any], Any], key: Any, target: Any, sources: Iterable[Any]
    ) -> None:
        """Merge the accumulators of ``sources`` into that of ``target``, and remove them."""
        now = self._life.clock()
        merged: Any = None
        for namespace in (target, *sources):
            pairs = self._aside.at(key, namespace)
            pair = pairs.owned()
            pairs.clear()
            if pair is not None and pair[1] + self._life.ttl > now:
                merged = pair[0] if merged is None else merge(merged, pair[0])
        if merged is not None:
            self._aside.at(key, target).update((merged, now))


class _TtlValueView(_Single, ValueState[Any]):
    __slots__ = ()

    def value(self) -> Any:
        value = self._read()
        if value is None and self._descriptor.default_value is not None:
            return copy.deepcopy(self._descriptor.default_value)
        return value

    def update(self, value: Any) -> None:
        if value is None:
            return self.clear()
        life = self._life
        life.accesses += 1
        self._set((value, life.clock()))


class _TtlReducingView(_Single, ReducingState[Any]):
    __slots__ = ()

    def get(self) -> Any:
        return self._read()

    def add(self, value: Any) -> None:
        if value is not None:
            self._change(lambda held: self._reduced(held, value))

    def merge_namespaces(self, key: Any, target: Any, sources: Iterable[Any]) -> None:
        """Merge what a key has in other namespaces into one, as merging windows need it."""
        self._merge(self._descriptor.reduce, key, target, sources)

    def _reduced(self, held: Any, value: Any) -> Any:
        return value if held is None else self._descriptor.reduce(held, value)


class _TtlAggregatingView(_Single, AggregatingState[Any, Any]):
    __slots__ = ()

    def get(self) -> Any:
        accumulator = self._read()
        function = self._descriptor.get_agg_function()
        return None if accumulator is None else function.get_result(accumulator)

    def add(self, value: Any) -> None:
        if value is not None:
            self._change(lambda held: self._added(held, value))

    def merge_namespaces(self, key: Any, target: Any, sources: Iterable[Any]) -> None:
        """Merge what a key has in other namespaces into one, as merging windows need it."""
        self._merge(self._descriptor.get_agg_function().merge, key, target, sources)

    def _added(self, held: Any, value: Any) -> Any:
        function = self._descriptor.get_agg_function()
        accumulator = function.add(value, function.create_accumulator() if held is None else held)
        if accumulator is None:
            raise no_accumulator(function, "add")
        return accumulator


class _TtlFoldingView(_Single, FoldingState[Any, Any]):
    __slots__ = ()

    def get(self) -> Any:
        return self._read()

    def add(self, value: Any) -> None:
        if value is not None:
            self._change(lambda held: self._folded(held, value))

    def _folded(self, held: Any, value: Any) -> Any:
        fold = self._descriptor.fold
        folded = fold(
            copy.deepcopy(self._descriptor.initial_value) if held is None else held, value
        )
        if folded is None:
            raise no_accumulator(fold, "fold")
        return folded


class _TtlListView(ListState[Any]):
    """Each element is over by itself."""

    __slots__ = ("_aside", "_life", "_pairs")

    def __init__(
        self, pairs: ListState[Pair], aside: Aside, life: Lifetime, descriptor: StateDescriptor
    ) -> None:
        self._pairs = pairs
        self._aside = aside
        self._life = life

    def get(self) -> list[Any]:
        life = self._life
        life.accesses += 1
        pairs = self._pairs.get()
        if not pairs:
            return []
        now = life.clock()
        kept = [pair for pair in pairs if pair[1] + life.ttl > now]
        renews = life.on_read and any(stamp != now for _, stamp in kept)
        if renews or len(kept) < len(pairs):
            self._pairs.update([(value, now) for value, _ in kept] if renews else kept)
        return [value for value, _ in (pairs if life.returns_expired else kept)]

    def add(self, value: Any) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        self._pairs.add_all(self._stamped(values))

    def update(self, values: Iterable[Any]) -> None:
        self._pairs.update(self._stamped(values))

    def clear(self) -> None:
        self._pairs.clear()

    def merge_namespaces(self, key: Any, target: Any, sources: Iterable[Any]) -> None:
        """Append what a key has in other namespaces to one, as merging windows need it."""
        for source in sources:
            pairs = self._aside.at(key, source)
            taken = pairs.get()
            pairs.clear()
            self._aside.at(key, target).add_all(taken)

    def _stamped(self, values: Iterable[Any]) -> list[Pair]:
        checked = checked_elements(values)
        self._life.accesses += 1
        now = self._life.clock()
        return [(value, now) for value in checked]


class _TtlMapView(MapState[Any, Any]):
    """Each entry is over by itself; its value may be None."""

    __slots__ = ("_life", "_pairs")

    def __init__(
        self,
        pairs: MapState[Any, Pair],
        aside: Aside,
        life: Lifetime,
        descriptor: StateDescriptor,
    ) -> None:
        self._pairs = pairs
        self._life = life

    def get(self, key: Any, default: Any = None) -> Any:
        pair = self._read(key)
        return default if pair is None else pair[0]

    def put(self, key: Any, value: Any) -> None:
        self._life.accesses += 1
        self._pairs.put(key, (value, self._life.clock()))

    def put_all(self, dict_value: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        self._life.accesses += 1
        now = self._life.clock()
        self._pairs.put_all({key: (value, now) for key, value in dict(dict_value).items()})

    def remove(self, key: Any) -> None:
        self._life.accesses += 1
        self._pairs.remove(key)

    def contains(self, key: Any) -> bool:
        return self._read(key, taken=False) is not None

    def items(self) -> ItemsView[Any, Any]:
        return self._read_all().items()

    def keys(self) -> KeysView[Any]:
        return self._read_all(taken=False).keys()

    def values(self) -> ValuesView[Any]:
        return self._read_all().values()

    def popitem(self) -> tuple[Any, Any]:
        self._life.accesses += 1
        deadline = self._life.deadline()
        while True:
            key, (value, stamp) = self._pairs.popitem()
            if stamp > deadline or self._life.returns_expired:
                return key, value

    def is_empty(self) -> bool:
        return len(self) == 0

    def __len__(self) -> int:
        life = self._life
        if life.returns_expired:
            return len(self._pairs)
        deadline = life.deadline()
        return sum(1 for _, stamp in self._pairs.values() if stamp > deadline)

    def clear(self) -> None:
        self._pairs.clear()

    def _read(self, key: Any, taken: bool = True) -> Pair | None:
        """Return the pair that a read of an entry sees.

        An entry that is over is removed, but not one that the caller says is there without taking
        its value: ``if k in state: state[k]`` must find it.
        """
        life = self._life
        life.accesses += 1
        pair: Pair | None = self._pairs.get(key)
        if pair is None:
            return None
        now = life.clock()
        if pair[1] + life.ttl <= now:
            if taken or not life.returns_expired:
                self._pairs.remove(key)
            return pair if life.returns_expired else None
        if life.on_read and pair[1] != now:
            self._pairs.put(key, (pair[0], now))
        return pair

    def _read_all(self, taken: bool = True) -> dict[Any, Any]:
        """Return the entries that a read of all sees; for ``taken`` see `_read`."""
        life = self._life
        life.accesses += 1
        now = life.clock()
        seen = {}
        for key, (value, stamp) in self._pairs.items():
            over = stamp + life.ttl <= now
            if over and (taken or not life.returns_expired):
                self._pairs.remove(key)
            elif not over and life.on_read and stamp != now:
                self._pairs.put(key, (value, now))
            if not over or life.returns_expired:
                seen[key] = value
        return seen


_VIEWS: Final[dict[str, Callable[[Any, Aside, Lifetime, StateDescriptor], State]]] = {
    "value": _TtlValueView,
    "list": _TtlListView,
    "map": _TtlMapView,
    "reducing": _TtlReducingView,
    "aggregating": _TtlAggregatingView,
    "folding": _TtlFoldingView,
}


def make_ttl_view(descriptor: StateDescriptor, pairs: Any, aside: Aside, life: Lifetime) -> State:
    """Return the state that a function works with; ``pairs`` is the plain view of its pairs."""
    return _VIEWS[descriptor.kind](pairs, aside, life, descriptor)
