"""Views of states with a time-to-live.

They read the clock with each access (see `holdfast.state.live.ttl.lifetime`), and remove the
expired values that they find. With ``returns_expired`` a read still returns such a value once. An
`add` to an expired accumulator starts a new one.

A state with one value or accumulator per key has the plain view, which gets its values from
`LivingValues`. The elements of lists and the entries of maps expire separately: these states have
views of their own, which wrap the plain views of their pairs.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, KeysView, Mapping, ValuesView
from typing import Any

from holdfast.state.descriptors import ListState, MapState, State, StateDescriptor
from holdfast.state.live.key_context import KeyContext
from holdfast.state.live.tables import ListTable, MapTable, Table
from holdfast.state.live.ttl.lifetime import Lifetime, Pair
from holdfast.state.live.views import checked_elements, make_view


class LivingValues:
    """The pairs of a table as plain views need them: the values that have not expired.

    Attributes:
        shared: never empty, so that a view takes what it is going to change by `own`.
        lent: always empty: `get` itself hands out copies.
    """

    __slots__ = ("_life", "_pairs", "_table", "dirty", "entries", "lent", "namespaced", "shared")

    def __init__(self, table: Table[Any], life: Lifetime) -> None:
        self.dirty = table.dirty
        self.entries = self
        self.namespaced = table.namespaced
        self.shared = True
        self.lent = False
        self._life = life
        self._table = table
        self._pairs = table.entries

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value that a read sees."""
        life = self._life
        life.accesses += 1
        table = self._table
        is_taken = table.lent or table.shared
        pair = table.own_values(key) if is_taken else self._pairs.get(key)
        if pair is None:
            return default
        held, stamp = pair
        now = life.clock()
        if stamp + life.ttl <= now:
            self.pop(key)
            return held if life.returns_expired else default
        if life.on_read and stamp != now:
            self._pairs[key] = held, now
            self.dirty.add(key)
        return held

    def own(self, key: Any) -> Any:
        """Return the value that a change builds on, to be changed in place."""
        pair = self._table.own(key)
        return None if pair is None or pair[1] <= self._life.deadline() else pair[0]

    def own_values(self, key: Any) -> None:
        """Do nothing, because `get` hands out copies."""

    def __setitem__(self, key: Any, value: Any) -> None:
        self._life.accesses += 1
        self._pairs[key] = value, self._life.clock()

    def pop(self, key: Any, default: Any = None) -> Any:
        """Remove a pair, and return it."""
        pair = self._pairs.pop(key, None)
        if pair is None:
            return default
        self.dirty.add(key)
        return pair


class _TtlListView(ListState[Any]):
    """Each element expires by itself."""

    __slots__ = ("_life", "_pairs")

    def __init__(self, pairs: Any, life: Lifetime) -> None:
        self._pairs = pairs
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
        self._pairs.merge_namespaces(key, target, sources)

    def _stamped(self, values: Iterable[Any]) -> list[Pair]:
        checked = checked_elements(values)
        self._life.accesses += 1
        now = self._life.clock()
        return [(value, now) for value in checked]


class _TtlMapView(MapState[Any, Any]):
    """Each entry expires by itself; its value may be None."""

    __slots__ = ("_life", "_pairs")

    def __init__(self, pairs: Any, life: Lifetime) -> None:
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

        An expired entry is removed, unless the caller only asks whether it is there: after
        ``k in state``, ``state[k]`` must find it.
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


def make_ttl_view(
    descriptor: StateDescriptor, table: Table[Any], context: KeyContext, life: Lifetime
) -> State:
    """Return the state that a function works with; the table holds pairs."""
    if isinstance(table, ListTable):
        return _TtlListView(make_view(descriptor, table, context), life)
    if isinstance(table, MapTable):
        return _TtlMapView(make_view(descriptor, table, context), life)
    return make_view(descriptor, LivingValues(table, life), context)
