"""The kinds of state a function can use, and the descriptors that declare them.

A keyed state belongs to one operator, one name and one key. The runtime sets the key before each
record, and every call sees that key's state only. State is part of every checkpoint.

A change is saved only if the value is passed to ``update``, ``put`` or ``add``. Do not rely on
in-place changes: they may be visible to the next record and then be lost. In tests they raise a
``StateMutationError`` (see the setting ``holdfast.state.check-mutations``).

A value is converted to its declared type (an int under `Types.DOUBLE()` becomes a float) when the
state is written, at the end of an epoch. The epoch fails if a value does not fit its type.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.common.typeinfo import MapTypeInfo, TypeInformation, type_info_of
from holdfast.state.map_base import ReadableMap, WritableMap
from holdfast.state.ttl_config import StateTtlConfig

if TYPE_CHECKING:
    import pyarrow as pa

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
        """Return the value; if there is none, the descriptor's default or None."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Set the value; None removes it, so that `value` returns the default again."""


class AppendingState(State, Generic[IN, OUT]):
    """A state to which values are added one by one, and which returns them combined."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> OUT | None:
        """Return the result of the values added so far; None if there are none."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value; None is ignored."""


class MergingState(AppendingState[IN, OUT]):
    """An appending state that can be merged with another one, as session windows require."""

    __slots__ = ()


class ReducingState(MergingState[T, T]):
    """The values of a key, which each `add` reduces to one value of the same type."""

    __slots__ = ()


class AggregatingState(MergingState[IN, OUT]):
    """The values of a key, kept as one accumulator; `get` returns the accumulator's result."""

    __slots__ = ()


class FoldingState(AppendingState[IN, OUT]):
    """The values of a key, folded into an initial value. Deprecated: use `AggregatingState`."""

    __slots__ = ()


class ListState(MergingState[T, Iterable[T]]):
    """The values of a key, in the order in which they were added. None is not allowed."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> list[T]:
        """Return the values, in order, as a new list; empty if there are none."""

    @abstractmethod
    def add(self, value: T) -> None:
        """Append a value; raise a TypeError if it is None."""

    @abstractmethod
    def update(self, values: Iterable[T]) -> None:
        """Replace the values; an empty iterable clears the state, None in it is a TypeError."""

    @abstractmethod
    def add_all(self, values: Iterable[T]) -> None:
        """Append all values; if one is None, raise a TypeError and append nothing."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class MapState(State, WritableMap[K, V]):
    """A map per key; each entry is read, written and saved separately.

    It is a `collections.abc.MutableMapping`, with ``update``, ``pop``, ``setdefault``, ``|=`` and
    so on. ``state[k]`` and ``del state[k]`` raise a KeyError for a missing entry. An empty map is
    false. PyFlink's methods behave as in PyFlink: for a missing entry `get` returns None, and
    `remove` does nothing. A value may be None.

    With a time-to-live an entry can expire between ``k in state`` and ``state[k]``; use `get`.
    """

    __slots__ = ()


class ReadOnlyBroadcastState(State, ReadableMap[K, V]):
    """Read-only access to a broadcast state, a map that every subtask holds in full.

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
        """Return the broadcast state of that name; a restore gives all subtasks the same map."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return the list of that name; a restore splits its elements among the subtasks."""

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return the list of that name; a restore gives every subtask all elements."""


class StateDescriptor(ABC):
    """The name, kind and type of a state; names are unique within a function.

    Descriptors are equal if these three are. Types are optional: `TypeInformation`, a Python type,
    or None. A state with a declared type is saved as MessagePack, any other as pickle.
    """

    #: the kind that is saved with the state; one word per class
    kind: str

    def __init__(self, name: str, type_info: TypeInformation | type | None = None) -> None:
        if not name or type(name) is not str:
            message = f"the name of a state must be a non-empty str; got {name!r}"
            raise ValueError(message)
        self.name = name
        self.type_info: TypeInformation | None = type_info_of(type_info)
        self._ttl_config: StateTtlConfig | None = None

    def get_name(self) -> str:
        """Return the name."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let the contents of the state expire: the value, each list element, each map entry."""
        self._ttl_config = ttl_config

    @property
    def ttl_config(self) -> StateTtlConfig | None:
        """Return the TTL configuration; None if the state does not expire."""
        config = self._ttl_config
        return config if config is not None and config.is_enabled() else None

    @property
    def declared_types(self) -> tuple[TypeInformation | None, ...]:
        """Return the declared types: one, or for a map those of the keys and the values."""
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
    """Descriptor of a `ValueState`; a key without a value has a copy of the default."""

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
    """Descriptor of a `ListState`; the type is the type of one element."""

    kind = "list"

    def __init__(self, name: str, elem_type_info: TypeInformation | type | None = None) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor):
    """Descriptor of a `MapState` or a `BroadcastState`."""

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
    """Descriptor of a `ReducingState`.

    ``reduce_function`` is an object with ``reduce(a, b)``, or a function of two values. It is
    called with each `add` except the first, and must not change its arguments.
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
    """Descriptor of an `AggregatingState`; the type is the type of the accumulator.

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
        _check_called("AggregatingStateDescriptor", name, agg_function)
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
    """Descriptor of a `FoldingState`. Deprecated as in Flink: use `AggregatingStateDescriptor`.

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


class ColumnStateDescriptor(StateDescriptor):
    """Descriptor of a `ColumnState`: one value per key, in a column of an Arrow type.

    The type is an Arrow type (``pa.int64()``), or int, float, bool, str or bytes. A key without a
    value has the default; without a default it is null.
    """

    kind = "column"

    def __init__(self, name: str, value_type: Any, default: Any = None) -> None:
        # NB: pyarrow takes long to load, and most jobs have no state in columns
        from holdfast.state.types.arrow_columns import check_value_type
        from holdfast.state.types.arrow_types import arrow_type_of, type_info_of_arrow

        arrow_type = arrow_type_of(value_type)
        if arrow_type is None:
            message = (
                f"the type of the ColumnStateDescriptor {name!r} must be an Arrow type such as "
                f"pa.int64(), or int, float, bool, str or bytes; got {value_type!r}"
            )
            raise TypeError(message)
        check_value_type(arrow_type)
        super().__init__(name, type_info_of_arrow(arrow_type))
        self.arrow_type = arrow_type
        self.default = _checked_default(name, arrow_type, default)

    def __repr__(self) -> str:
        default = "" if self.default is None else f", default={self.default!r}"
        return f"ColumnStateDescriptor({self.name!r}, {self.arrow_type}{default})"

    def _identity(self) -> tuple[Any, ...]:
        return self.kind, self.name, self.arrow_type, self.default


def _checked_default(name: str, type_: pa.DataType, default: Any) -> Any:
    import pyarrow as pa

    if default is None:
        return None
    if pa.types.is_nested(type_):
        message = f"the ColumnStateDescriptor {name!r} of {type_} cannot have a default; use null"
        raise TypeError(message)
    try:
        return pa.scalar(default, type_).as_py()
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        message = (
            f"the default {default!r} of the ColumnStateDescriptor {name!r} is not a value of "
            f"{type_}: {error}"
        )
        raise TypeError(message) from None


def _check_called(descriptor: str, state: str, function: Any) -> None:
    if isinstance(function, type):
        message = (
            f"the function of the {descriptor} {state!r}: got the class {function.__name__} "
            f"instead of an object of it; call it: {function.__name__}(...)"
        )
        raise TypeError(message)


def _method(function: Any, method: str, descriptor: str, state: str) -> Callable[..., Any]:
    _check_called(descriptor, state, function)
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
