"""The states a function can keep, and the descriptors that ask for them.

A keyed state belongs to one operator, one name and one key: before each record the runtime sets
the key, and every call sees that key's state only. State is part of every checkpoint.

A change is saved only if the value is passed to ``update``, ``put`` or ``add``. Do not rely on
in-place changes: they may be visible to the next record and then be lost. In tests they raise a
``StateMutationError`` (see the setting ``holdfast.state.check-mutations``).

A value takes the shape its declared type gives it (an int under `Types.DOUBLE()` becomes a float)
when the state is written, at the end of an epoch; one that does not fit fails the epoch there.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from holdfast.common.typeinfo import MapTypeInfo, TypeInformation, type_info_of
from holdfast.datastream.map_base import ReadableMap, WritableMap
from holdfast.state.ttl_config import StateTtlConfig

__all__ = [
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BroadcastState",
    "FoldingState",
    "FoldingStateDescriptor",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "OperatorStateStore",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateTtlConfig",
    "ValueState",
    "ValueStateDescriptor",
]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class State(ABC):
    """Base of all states."""

    __slots__ = ()

    @abstractmethod
    def clear(self) -> None:
        """Remove the state of the current key."""


class ValueState(State, Generic[T]):
    """One value per key."""

    __slots__ = ()

    @abstractmethod
    def value(self) -> T | None:
        """Return the value; the descriptor's default, or None, if there is none."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Set the value; None removes it, so that the default is seen again."""


class AppendingState(State, Generic[IN, OUT]):
    """A state that takes values one by one and gives back what they make together."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> OUT | None:
        """Return what the values added so far make; None if there are none."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value; None leaves the state as it is."""


class MergingState(AppendingState[IN, OUT]):
    """An appending state of which two can be merged into one, as session windows need."""

    __slots__ = ()


class ReducingState(MergingState[T, T]):
    """The values of a key, reduced to one of the same type with each `add`."""

    __slots__ = ()


class AggregatingState(MergingState[IN, OUT]):
    """The values of a key, kept as one accumulator; `get` returns the accumulator's result."""

    __slots__ = ()


class FoldingState(AppendingState[IN, OUT]):
    """The values of a key, folded into an initial value. Deprecated: use `AggregatingState`."""

    __slots__ = ()


class ListState(MergingState[T, Iterable[T]]):
    """The values of a key, one after another. None cannot be among them."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> list[T]:
        """Return the values, in order, as a list of the caller's own; empty if there are none."""

    @abstractmethod
    def add(self, value: T) -> None:
        """Append a value; raise a TypeError if it is None."""

    @abstractmethod
    def update(self, values: Iterable[T]) -> None:
        """Replace the values; no values clear the state, None among them is a TypeError."""

    @abstractmethod
    def add_all(self, values: Iterable[T]) -> None:
        """Append all values; None among them is a TypeError, and then none is added."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class MapState(State, WritableMap[K, V]):
    """A map per key, of which each entry is read, written and saved by itself.

    It is a `collections.abc.MutableMapping`: ``state[k]`` and ``del state[k]`` raise a KeyError if
    there is no such entry, and there are ``update``, ``pop``, ``setdefault``, ``|=`` and the rest.
    An empty map is false. PyFlink's own names do what they do there: `get` returns None for an
    entry that is not there, and `remove` does nothing then. None can be a value.

    With a time-to-live an entry can expire between ``k in state`` and ``state[k]``; use `get`.
    """

    __slots__ = ()


class ReadOnlyBroadcastState(State, ReadableMap[K, V]):
    """A map that every subtask holds in full, as the side that must not change it sees it.

    It is a `collections.abc.Mapping`.
    """

    __slots__ = ()


class BroadcastState(ReadOnlyBroadcastState[K, V], WritableMap[K, V]):
    """A map that every subtask holds in full; a `collections.abc.MutableMapping`.

    Each subtask must make the same changes: they must depend on the broadcast record alone, not
    on the subtask, on keyed state, or on the order of other records.
    """

    __slots__ = ()


class OperatorStateStore(ABC):
    """The states of one subtask that belong to no key."""

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Return the broadcast state of that name; after a restore all subtasks hold the same."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return the list of that name; a restore deals the elements out over the subtasks."""

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return the list of that name; a restore gives every subtask all elements."""


class StateDescriptor(ABC):
    """The name, kind and type of a state; names are unique within a function.

    Descriptors are equal if these three are. Types are optional: `TypeInformation`, a Python type,
    or None. A state with a declared type is saved as MessagePack, any other as pickle.
    """

    #: what the state is saved as; one word per class
    kind: str

    def __init__(self, name: str, type_info: TypeInformation | type | None = None) -> None:
        if not name or type(name) is not str:
            message = f"a state needs a name, a str that is not empty; got {name!r}"
            raise ValueError(message)
        self.name = name
        self.type_info: TypeInformation | None = type_info_of(type_info)
        self._ttl_config: StateTtlConfig | None = None

    def get_name(self) -> str:
        """Return the name."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let what the state holds expire: a value, each list element, each map entry."""
        self._ttl_config = ttl_config

    @property
    def ttl_config(self) -> StateTtlConfig | None:
        """Return how the state expires; None if it does not."""
        config = self._ttl_config
        return config if config is not None and config.is_enabled() else None

    @property
    def declared_types(self) -> tuple[TypeInformation | None, ...]:
        """Return the types as they were declared: one, or for a map that of keys and values."""
        return (self.type_info,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StateDescriptor) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((self.kind, self.name))

    def __repr__(self) -> str:
        types = "".join(f", {t!r}" for t in self.declared_types if t is not None)
        return f"{type(self).__name__}({self.name!r}{types})"

    def _identity(self) -> tuple[Any, ...]:
        return self.kind, self.name, self.declared_types


class ValueStateDescriptor(StateDescriptor):
    """Asks for a `ValueState`; each key that has no value sees a copy of the default."""

    kind = "value"

    def __init__(
        self,
        name: str,
        value_type_info: TypeInformation | type | None = None,
        default_value: Any = None,
    ) -> None:
        super().__init__(name, value_type_info)
        self.default_value = default_value


class ListStateDescriptor(StateDescriptor):
    """Asks for a `ListState`; the type is that of one element."""

    kind = "list"

    def __init__(self, name: str, elem_type_info: TypeInformation | type | None = None) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor):
    """Asks for a `MapState`, or for a `BroadcastState`."""

    kind = "map"

    def __init__(
        self,
        name: str,
        key_type_info: TypeInformation | type | None = None,
        value_type_info: TypeInformation | type | None = None,
    ) -> None:
        self.key_type_info = type_info_of(key_type_info)
        self.value_type_info = type_info_of(value_type_info)
        both = None not in (self.key_type_info, self.value_type_info)
        super().__init__(
            name, MapTypeInfo(self.key_type_info, self.value_type_info) if both else None
        )

    @property
    def declared_types(self) -> tuple[TypeInformation | None, ...]:
        """Return the types of keys and of values."""
        return self.key_type_info, self.value_type_info


class ReducingStateDescriptor(StateDescriptor):
    """Asks for a `ReducingState`.

    ``reduce_function`` is an object with ``reduce(a, b)``, or a function of two values. It is
    called with each `add` but the first, and must not change its arguments.
    """

    kind = "reducing"

    def __init__(
        self,
        name: str,
        reduce_function: Any,
        type_info: TypeInformation | type | None = None,
    ) -> None:
        super().__init__(name, type_info)
        self._reduce_function = reduce_function
        self.reduce = _method(reduce_function, "reduce", "ReducingStateDescriptor", name)

    def get_reduce_function(self) -> Any:
        """Return the reduce function as it was given."""
        return self._reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    """Asks for an `AggregatingState`; the type is that of the accumulator.

    ``agg_function`` has ``create_accumulator()``, ``add(value, accumulator)`` that returns the
    accumulator, ``get_result(accumulator)``, and ``merge(a, b)``, which only session windows call.
    """

    kind = "aggregating"

    def __init__(
        self,
        name: str,
        agg_function: Any,
        state_type_info: TypeInformation | type | None = None,
    ) -> None:
        super().__init__(name, state_type_info)
        required = ("create_accumulator", "add", "get_result")
        missing = [m for m in required if not callable(getattr(agg_function, m, None))]
        if missing:
            message = (
                f"the function of the AggregatingStateDescriptor {name!r} needs the methods "
                f"{', '.join(required)} of an AggregateFunction; {agg_function!r} has no "
                f"{', '.join(missing)}"
            )
            raise TypeError(message)
        self._agg_function = agg_function

    def get_agg_function(self) -> Any:
        """Return the aggregate function."""
        return self._agg_function


class FoldingStateDescriptor(StateDescriptor):
    """Asks for a `FoldingState`. Deprecated, as in Flink: use `AggregatingStateDescriptor`.

    ``fold_function`` is an object with ``fold(accumulator, value)``, or a function of the two. Each
    key starts with a copy of the initial value.
    """

    kind = "folding"

    def __init__(
        self,
        name: str,
        initial_value: Any,
        fold_function: Any,
        type_info: TypeInformation | type | None = None,
    ) -> None:
        message = "FoldingState is deprecated; use AggregatingStateDescriptor"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        super().__init__(name, type_info)
        self.initial_value = initial_value
        self._fold_function = fold_function
        self.fold = _method(fold_function, "fold", "FoldingStateDescriptor", name)

    def get_fold_function(self) -> Any:
        """Return the fold function as it was given."""
        return self._fold_function


def _method(function: Any, method: str, descriptor: str, state: str) -> Callable[..., Any]:
    bound = getattr(function, method, None)
    if callable(bound):
        return bound  # type: ignore[no-any-return]
    if callable(function):
        return function  # type: ignore[no-any-return]
    message = (
        f"the function of the {descriptor} {state!r} must have a method {method}(a, b) or be a "
        f"function of two arguments; got {function!r}"
    )
    raise TypeError(message)
