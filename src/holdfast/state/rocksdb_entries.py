"""`CachedEntries`: the entries of a table, of which some are in memory and all in a database."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, ItemsView, Iterator, KeysView, ValuesView
from typing import Any, Final

__all__ = ["CachedEntries"]

_RAISE: Final = object()
#: there are always that many in memory, whatever they take
_LEAST: Final = 256


class CachedEntries(dict[Any, Any]):
    """A dict whose items are those that are in use; one that is missing is read from its row.

    Invariant: an entry that changed since the last write is in the dict, or was removed and is
    marked in ``dirty``. Consequence: the dict can be emptied of all others at any time, and what is
    neither in it nor marked is what its row says.

    What is in use is found out in two generations: when the dict is full, all of it becomes the
    older generation, and what is used again comes back. So an entry that is used at least once in
    a generation is read once.
    """

    __slots__ = ("__weakref__", "_dirty", "_hot", "_limit", "_older", "_read", "_rows")

    def __init__(
        self,
        dirty: Collection[Any],
        read: Callable[[Any], Any],
        rows: Callable[[], Iterator[tuple[Any, Any]]],
    ) -> None:
        """Begin with nothing in memory.

        Args:
            dirty: the table's marks.
            read: the entry of a key as its row has it; None if there is none.
            rows: all keys and entries as their rows have them.
        """
        super().__init__()
        self._hot = super().get
        self._older: dict[Any, Any] = {}
        self._dirty = dirty
        self._read = read
        self._rows = rows
        self._limit = _LEAST

    def limit_to(self, count: int | None) -> None:
        """Have at most about so many entries in memory besides those that changed.

        None: let none go, as is needed while entries are there that no mark and no row knows of.
        """
        self._limit = sys.maxsize if count is None else max(count // 2, _LEAST)
        if len(self.in_memory) > self._limit:
            self._turn()

    @property
    def in_memory(self) -> KeysView[Any]:
        """Return the keys of the newer generation; all that changed are among them."""
        return super().keys()

    def forget(self, keys: list[Any] | None = None) -> None:
        """Have nothing of these keys, or of any, in memory; it must be in the rows."""
        if keys is None:
            self._older.clear()
            super().clear()
        else:
            for key in keys:
                super().pop(key, None)
                self._older.pop(key, None)

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
        """Return the entry of a key, which is from now on the default if there was none."""
        value = self.get(key)
        if value is None:
            value = self[key] = default
        return value

    def pop(self, key: Any, default: Any = _RAISE) -> Any:
        """Take an entry out; it has to be marked."""
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
        """Forget what is in memory; rows are the backend's."""
        self.forget()

    def _all(self) -> Iterator[tuple[Any, Any]]:
        # NB: a copy, since what is done with one entry may read others.
        here = dict(super().items())
        for key, value in self._rows():
            if key not in here and key not in self._dirty:
                yield key, value
        yield from here.items()

    def _find(self, key: Any) -> Any:
        """Return an entry that is not in the newer generation, and bring it there."""
        value = self._older.get(key)
        if value is None:
            if key in self._dirty:
                return None
            value = self._read(key)
            if value is None:
                return None
        if dict.__len__(self) >= self._limit:
            self._turn()
        self[key] = value
        return value

    def _turn(self) -> None:
        """Make what is in memory the older generation, but for what changed."""
        self._older = dict(super().items())
        items = self._older.items() if self._dirty else ()
        changed = {key: value for key, value in items if key in self._dirty}
        super().clear()
        self.update(changed)
        # NB: twice what cannot go, or there would be a turn with every few entries.
        self._limit = max(self._limit, 2 * len(changed))


class _Items(ItemsView[Any, Any]):
    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping._all()  # type: ignore[attr-defined,no-any-return]
