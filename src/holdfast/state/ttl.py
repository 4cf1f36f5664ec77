"""Time-to-live: how state that expires is kept, whatever the backend.

A state with a time-to-live is, for a backend, a state of pairs ``(value, stamp)``: each value,
list element or map value with the time of its last access, in milliseconds. The pair of a reducing,
aggregating or folding state holds the accumulator. So a backend saves, moves and restores such a
state like any other, and what is said here and in `holdfast.state.ttl_views` and
`holdfast.state.ttl_cleanup` holds for all of them:

- Something is over when ``stamp + ttl <= now``. It is looked at with every access, so where the
  pair was kept meanwhile does not matter.
- ``now`` is the processing time of the access, from the clock of the subtask.
- What is over is removed like anything else: it is a deletion in the next delta.

That a state has stamps is saved with it; how long it lives, and all other settings, are not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.common.typeinfo import TupleTypeInfo, TypeInformation, Types
from holdfast.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.state.views import KeyContext

__all__ = ["Aside", "Clock", "Lifetime", "Pair", "stamped"]

Clock = Callable[[], int]
#: a value, and when it was last accessed
Pair = tuple[Any, int]


class Lifetime:
    """When what a state holds is over; one object for all its views."""

    __slots__ = ("accesses", "clock", "on_read", "returns_expired", "ttl")

    def __init__(self, config: StateTtlConfig, clock: Clock) -> None:
        self.clock = clock
        self.ttl = config.get_ttl().to_milliseconds()
        self.on_read = config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite
        visible = StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
        self.returns_expired = config.get_state_visibility() is visible
        #: how often the state was read or written since the last clean-up
        self.accesses = 0

    def deadline(self) -> int:
        """Return the stamp at and before which things are over, as of now."""
        return self.clock() - self.ttl


class Aside:
    """A second view of a state, for keys other than the one that the function is at."""

    __slots__ = ("_context", "_state")

    def __init__(self, view: Callable[[KeyContext], Any]) -> None:
        self._context = KeyContext()
        self._state = view(self._context)

    def at(self, key: Any, namespace: Any) -> Any:
        """Return the state, of that key and namespace until the next call."""
        self._context.key = key
        self._context.namespace = namespace
        return self._state


def stamped(descriptor: StateDescriptor) -> StateDescriptor:
    """Return the descriptor of the pairs that stand for a state with a time-to-live."""
    pairs: StateDescriptor
    if isinstance(descriptor, ListStateDescriptor):
        pairs = ListStateDescriptor(descriptor.name, _pair_type(descriptor.type_info))
    elif isinstance(descriptor, MapStateDescriptor):
        value_type = _pair_type(descriptor.value_type_info)
        pairs = MapStateDescriptor(descriptor.name, descriptor.key_type_info, value_type)
    else:
        pairs = ValueStateDescriptor(descriptor.name, _pair_type(descriptor.type_info))
        # NB: an accumulator is kept as a value, and saved as what it is
        pairs.kind = descriptor.kind
    config = descriptor.ttl_config
    assert config is not None
    pairs.enable_time_to_live(config)
    return pairs


class _PairTypeInfo(TupleTypeInfo):
    """The type of pairs; it goes by the name of the value's type, and so do its errors."""

    def __init__(self, value_type: TypeInformation) -> None:
        super().__init__([value_type, Types.LONG()])

    def shape(self, value: Any) -> Any:
        """Return the pair with the value in its declared shape, or raise a `Mismatch`."""
        held, stamp = value
        return self._field_types[0].shape(held), stamp

    def __repr__(self) -> str:
        return repr(self._field_types[0])


def _pair_type(value_type: TypeInformation | None) -> TypeInformation | None:
    return None if value_type is None else _PairTypeInfo(value_type)
