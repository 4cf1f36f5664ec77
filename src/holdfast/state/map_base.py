"""Base classes of map states and broadcast states, with Flink's methods and Python's.

Flink's methods are abstract here, and the methods of `collections.abc.Mapping` and `MutableMapping`
are implemented with them. They treat a missing entry differently: `get` returns None and `remove`
does nothing, as in PyFlink, while ``state[k]`` and ``del state[k]`` raise a KeyError, as with a
dict.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import (
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    ValuesView,
)
from typing import Any, Final, Self, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_ABSENT: Final[Any] = object()


class ReadableMap(Mapping[K, V]):
    """A map that can be read."""

    __slots__ = ()

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | T) -> V | T: ...
    @abstractmethod
    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of an entry, or the default if there is no such entry."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Return whether there is such an entry; its value may be None."""

    @abstractmethod
    def items(self) -> ItemsView[K, V]:
        """Return the current entries, as a view of a copy that does not reflect later changes."""

    @abstractmethod
    def keys(self) -> KeysView[K]:
        """Return the current keys, as a view of a copy."""

    @abstractmethod
    def values(self) -> ValuesView[V]:
        """Return the current values, as a view of a copy."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Return whether there is no entry."""

    def __bool__(self) -> bool:
        return not self.is_empty()

    def __getitem__(self, key: K) -> V:
        value: V = self.get(key, _ABSENT)
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def __contains__(self, key: Any) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def __or__(self, other: Mapping[K, V]) -> dict[K, V]:
        if not isinstance(other, Mapping):
            return NotImplemented
        return dict(self.items()) | dict(other.items())

    def __ror__(self, other: Mapping[K, V]) -> dict[K, V]:
        if not isinstance(other, Mapping):
            return NotImplemented
        return dict(other.items()) | dict(self.items())


class WritableMap(ReadableMap[K, V], MutableMapping[K, V]):
    """A map that can be changed.

    `popitem` removes an arbitrary entry, not always the one that was added last: the order of a map
    may be different after a restore.
    """

    __slots__ = ()

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set an entry."""

    @abstractmethod
    def put_all(self, dict_value: Mapping[K, V] | Iterable[tuple[K, V]]) -> None:
        """Set all entries of a mapping, or of pairs."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove an entry, if it is there."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        if not self.contains(key):
            raise KeyError(key)
        self.remove(key)

    # NB: `|` returns a dict, but `|=` changes the state
    def __ior__(self, other: Mapping[K, V] | Iterable[tuple[K, V]]) -> Self:  # type: ignore[override]
        self.update(other)
        return self
