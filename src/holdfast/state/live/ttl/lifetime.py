"""Time-to-live: the representation of state that expires, for all backends.

A backend stores a state with a time-to-live as a state of pairs ``(value, stamp)``: each value,
list element or map value with the time of its last access, in milliseconds. The pair of a reducing,
aggregating or folding state holds the accumulator. So a backend saves, moves and restores such a
state like any other, and this module, `holdfast.state.live.ttl.views` and
`holdfast.state.live.ttl.cleanup` work with all backends:

- A value has expired when ``stamp + ttl <= now``. This is checked with every access, so it does not
  matter where the pair was stored meanwhile.
- ``now`` is the processing time of the access, from the clock of the subtask.
- An expired value is removed like any other: the next delta contains a deletion.

That a state has stamps is saved with it. Its time-to-live and the other settings are not saved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.common.typeinfo import TupleTypeInfo, TypeInformation, Types
from holdfast.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from holdfast.state.ttl_config import StateTtlConfig

Clock = Callable[[], int]
#: a value, and the time of its last access
Pair = tuple[Any, int]


class Lifetime:
    """The time-to-live settings of a state; one object for all its views."""

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
        """Return the newest stamp that has expired now."""
        return self.clock() - self.ttl


def stamped(descriptor: StateDescriptor) -> StateDescriptor:
    """Return the descriptor of the pairs that represent a state with a time-to-live."""
    pairs: StateDescriptor
    if isinstance(descriptor, ListStateDescriptor):
        pairs = ListStateDescriptor(descriptor.name, _pair_type(descriptor.type_info))
    elif isinstance(descriptor, MapStateDescriptor):
        value_type = _pair_type(descriptor.value_type_info)
        pairs = MapStateDescriptor(descriptor.name, descriptor.key_type_info, value_type)
    else:
        pairs = ValueStateDescriptor(descriptor.name, _pair_type(descriptor.type_info))
        # NB: an accumulator is stored as a value, but saved with its own kind
        pairs.kind = descriptor.kind
    config = descriptor.ttl_config
    assert config is not None
    pairs.enable_time_to_live(config)
    return pairs


class _PairTypeInfo(TupleTypeInfo):
    """The type of pairs; its name, also in errors, is the name of the value's type."""

    def __init__(self, value_type: TypeInformation) -> None:
        super().__init__([value_type, Types.LONG()])

    def shape(self, value: Any) -> Any:
        """Return the pair with the value converted to its type, or raise a `Mismatch`."""
        held, stamp = value
        return self._field_types[0].shape(held), stamp

    def __repr__(self) -> str:
        return repr(self._field_types[0])


def _pair_type(value_type: TypeInformation | None) -> TypeInformation | None:
    return None if value_type is None else _PairTypeInfo(value_type)
