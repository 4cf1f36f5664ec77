"""`CachedEntries`: the entries of a table in a database, some of them cached in memory."""

from __future__ import annotations

import sys
from collections.abc import (
    Callable,
    Collection,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    ValuesView,
)
from itertools import islice
from typing import Any, Final

_RAISE: Final = object()
#: this many entries may always be in memory, no matter how large they are
_LEAST: Final = 256


class CachedEntries(dict[Any, Any]):
    """A dict of the entries that are in use; a missing entry is read from its row.

    Invariant: an entry that changed since the last write is in the dict, or was removed and is
    marked in ``dirty``. Consequence: all other entries can be evicted at any time, and an entry
    that is neither in the dict nor marked is equal to its row.

    Entries that are needed soon can be read together (`missing`, `put_ahead`). Keys that had no row
    then are remembered until rows are written, so that they are not looked up again one by one.

    Eviction uses two generations: when the dict is full, its contents become the older generation,
    and entries that are used again come back. So an entry that is used at least once per generation
    is read only once.
    """

    __slots__ = ("__weakref__", "_absent", "_dirty", "_hot", "_limit", "_older", "_read", "_rows")

    def __init__(
        self,
        dirty: Collection[Any],
        read: Callable[[Any], Any],
        rows: Callable[[], Iterator[tuple[Any, Any]]],
    ) -> None:
        """Start with nothing in memory.

        Args:
            dirty: the table's marks.
            read: returns the entry of a key from its row; None if there is no row.
            rows: returns all keys and entries from their rows.
        """
        super().__init__()
        self._hot = super().get
        self._older: dict[Any, Any] = {}
        #: keys without a row
        self._absent: set[Any] = set()
        self._dirty = dirty
        self._read = read
        self._rows = rows
        self._limit = _LEAST

    def limit_to(self, count: int | None) -> None:
        """Limit the number of entries in memory, not counting changed ones.

        None: evict none. This is needed while there are entries without a mark and without a row.
        """
        self._limit = sys.maxsize if count is None else max(count // 2, _LEAST)
        if len(self.in_memory) > self._limit:
            self._turn()

    @property
    def in_memory(self) -> KeysView[Any]:
        """Return the keys of the newer generation, which includes all changed ones."""
        return super().keys()

    def forget(self, keys: list[Any] | None = None) -> None:
        """Evict these keys, or all; their entries must be in the rows."""
        self._absent.clear()
        if keys is None:
            self._older.clear()
            super().clear()
        else:
            for key in keys:
                super().pop(key, None)
                self._older.pop(key, None)

    def missing(self, keys: Iterable[Any]) -> list[Any]:
        """Return the distinct keys whose entries would have to be read, as many as fit."""
        hot, older, dirty = self._hot, self._older, self._dirty
        found = (
            key
            for key in dict.fromkeys(keys)
            if hot(key) is None and key not in older and key not in dirty
        )
        return list(islice(found, self._limit))

    def put_ahead(self, keys: list[Any], entries: list[Any]) -> None:
        """Take the entries that were read for missing keys; None stands for one without a row."""
        read = {key: entry for key, entry in zip(keys, entries, strict=True) if entry is not None}
        self._absent = set(keys).difference(read) if len(read) < len(keys) else set()
        if dict.__len__(self) + len(read) > self._limit:
            self._turn()
        self.update(read)

    def rows_written(self) -> None:
        """Look for all rows again, because some were written."""
        self._absent.clear()

    # What views and tables do with entries.

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the entry of a key."""
        value = self._hot(key)
        if value is None:
            value = self._find(key)
            if value is None:
                return default
        return value

    def __missing__(self, key: Any) -> Any:
        value = self._find(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return self._hot(key) is not None or self._find(key) is not None

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the entry of a key; if there is none, set it to the default."""
        value = self.get(key)
        if value is None:
            value = self[key] = default
        return value

    def pop(self, key: Any, default: Any = _RAISE) -> Any:
        """Remove an entry; the caller must mark it."""
        value = self.get(key)
        if value is None:
            if default is _RAISE:
                raise KeyError(key)
            return default
        super().pop(key)
        self._older.pop(key, None)
        return value

    def __delitem__(self, key: Any) -> None:
        self.pop(key)

    # All of them, wherever they are.

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._all())

    def keys(self) -> KeysView[Any]:  # type: ignore[override]
        """Return all keys."""
        return KeysView(self)

    def items(self) -> ItemsView[Any, Any]:  # type: ignore[override]
        """Return all keys and entries."""
        return _Items(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """Return all entries."""
        return ValuesView(self)

    def __len__(self) -> int:
        return sum(1 for _ in self._all())

    def __bool__(self) -> bool:
        return next(self._all(), None) is not None

    def clear(self) -> None:
        """Clear the memory; the backend deletes the rows."""
        self.forget()

    def _all(self) -> Iterator[tuple[Any, Any]]:
        # NB: a copy, since the caller may read other entries during the iteration.
        here = dict(super().items())
        for key, value in self._rows():
            if key not in here and key not in self._dirty:
                yield key, value
        yield from here.items()

    def _find(self, key: Any) -> Any:
        """Return an entry that is not in the newer generation, and move it there."""
        value = self._older.get(key)
        if value is None:
            if key in self._dirty or key in self._absent:
                return None
            value = self._read(key)
            if value is None:
                return None
        if dict.__len__(self) >= self._limit:
            self._turn()
        self[key] = value
        return value

    def _turn(self) -> None:
        """Make the entries in memory the older generation, except for changed ones."""
        self._older = dict(super().items())
        items = self._older.items() if self._dirty else ()
        changed = {key: value for key, value in items if key in self._dirty}
        super().clear()
        self.update(changed)
        # NB: twice what cannot be evicted; otherwise there would be a turn every few entries
        self._limit = max(self._limit, 2 * len(changed))


class _Items(ItemsView[Any, Any]):
    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping._all()  # type: ignore[attr-defined,no-any-return]
