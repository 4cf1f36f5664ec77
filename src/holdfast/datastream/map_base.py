"""What map states and broadcast states have in common: Flink's names, and Python's mappings.

Flink's names are abstract here, and the methods of `collections.abc.Mapping` and `MutableMapping`
are made of them. The two differ in what they do about an entry that is not there: `get` returns
None and `remove` does nothing, as in PyFlink, while ``state[k]`` and ``del state[k]`` raise a
KeyError, as with a dict.
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

__all__ = ["ReadableMap", "WritableMap"]

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
        """Return the value of an entry; the default if there is no such entry."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Return whether there is such an entry, be its value None or not."""

    @abstractmethod
    def items(self) -> ItemsView[K, V]:
        """Return the entries as they are now, as a view of a copy: later changes don't show."""

    @abstractmethod
    def keys(self) -> KeysView[K]:
        """Return the keys as they are now, as a view of a copy."""

    @abstractmethod
    def values(self) -> ValuesView[V]:
        """Return the values as they are now, as a view of a copy."""

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

    `popitem` removes some entry, not always the one that was put last: a restored map may be in
    another order.
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

    # NB: `|` makes a dict, and `|=` changes the state
    def __ior__(self, other: Mapping[K, V] | Iterable[tuple[K, V]]) -> Self:  # type: ignore[override]
        self.update(other)
        return self
