"""The input of a new savepoint: states, each with its data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from holdfast.common.time import wall_clock
from holdfast.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
)
from holdfast.datastream.time_domain import TimeDomain
from holdfast.runtime.timer_queue import TIMER_STATES
from holdfast.savepoint.made_states import KeyedLayout, layout_of
from holdfast.state.errors import StateTypeError
from holdfast.state.live.operator_state import BROADCAST, SPLIT, UNION, OperatorStateBackend
from holdfast.state.live.ttl.pairs import with_times
from holdfast.state.saved_entries import key_of

#: a key, or a key and a namespace; and its value
Entry = tuple[Any, Any]


@dataclass(frozen=True)
class KeyedState:
    """A keyed state, created from rows: one per key.

    Attributes:
        descriptor: the job's descriptor of the state.
        data: a Spark DataFrame or an Arrow table; or a dict, or pairs, of keys and values.
        key: the column of the keys; several columns form a tuple.
        value: the column of the values; several columns form a record. A list state takes lists, a
            map state maps. A reducing or aggregating state takes accumulators.
        accessed: with a time-to-live, the column of the times of the last access, in milliseconds;
            by default the current time.
    """

    descriptor: StateDescriptor
    data: Any
    key: str | Sequence[str] = "key"
    value: str | Sequence[str] = "value"
    accessed: str | None = None

    @property
    def columns(self) -> list[str]:
        """Return the columns that are read."""
        found = [*_names(self.key), *_names(self.value), *_names(self.accessed or ())]
        return list(dict.fromkeys(found))

    def layout(self, uid: str, max_parallelism: int, key_type: Any) -> KeyedLayout:
        """Return its layout."""
        return layout_of(uid, self.descriptor, max_parallelism, key_type)

    def keys(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the keys of rows, as in the table."""
        return _column(batch, self.key, tuple)

    def entries(self, layout: KeyedLayout, batch: pa.RecordBatch) -> Iterator[Entry]:
        """Yield the entries of the rows of a table."""
        keys = layout.keys(self.keys(batch))
        names = None if isinstance(self.value, str) else list(self.value)
        values = _column(batch, self.value, lambda row: dict(zip(names or (), row, strict=True)))
        times = None if self.accessed is None else _column(batch, self.accessed, tuple)
        return self._entries(keys, values, times)

    def pairs(self, layout: KeyedLayout) -> Iterator[Entry]:
        """Yield the entries of pairs, if ``data`` contains pairs."""
        pairs = list(self.data.items() if isinstance(self.data, Mapping) else self.data)
        keys = layout.keys([key for key, _ in pairs])
        return self._entries(keys, [value for _, value in pairs], None)

    def _entries(
        self, keys: list[Any], values: list[Any], times: list[Any] | None
    ) -> Iterator[Entry]:
        kind = self.descriptor.kind
        if kind == "map":
            values = list(map(_as_dict, values))
        if self.descriptor.ttl_config is None:
            return zip(keys, values, strict=True)
        each = times or [wall_clock()] * len(keys)
        pairs = zip(values, each, strict=True)
        stamped = (None if value is None else with_times(kind, value, at) for value, at in pairs)
        return zip(keys, stamped, strict=True)


@dataclass(frozen=True)
class Timers:
    """Timers of a `KeyedProcessFunction`, created from rows: one per timer.

    Attributes:
        data: a Spark DataFrame or an Arrow table; or pairs of keys and times.
        key: the column of the keys; several columns form a tuple.
        timestamp: the column of the times, in milliseconds.
        domain: whether they are timers of event time or of processing time.
    """

    data: Any
    key: str | Sequence[str] = "key"
    timestamp: str = "timestamp"
    domain: TimeDomain = TimeDomain.EVENT_TIME

    @property
    def columns(self) -> list[str]:
        """Return the columns that are read."""
        return list(dict.fromkeys([*_names(self.key), self.timestamp]))

    def layout(self, uid: str, max_parallelism: int, key_type: Any) -> KeyedLayout:
        """Return their layout."""
        return KeyedLayout(
            operator=uid,
            name=TIMER_STATES[self.domain],
            kind="value",
            schemas=(None,),
            types=(None,),
            max_parallelism=max_parallelism,
            key_type=key_type,
            namespaced=True,
        )

    def keys(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the keys of rows, as in the table."""
        return _column(batch, self.key, tuple)

    def entries(self, layout: KeyedLayout, batch: pa.RecordBatch) -> Iterator[Entry]:
        """Yield the entries of the rows of a table."""
        keys = layout.keys(self.keys(batch))
        return _timers(layout, zip(keys, _column(batch, self.timestamp, tuple), strict=True))

    def pairs(self, layout: KeyedLayout) -> Iterator[Entry]:
        """Yield the entries of pairs, if ``data`` contains pairs."""
        pairs = list(self.data)
        keys = layout.keys([key for key, _ in pairs])
        return _timers(layout, zip(keys, (time for _, time in pairs), strict=True))


@dataclass(frozen=True)
class OperatorState:
    """Operator state, which belongs to no key.

    Attributes:
        descriptor: the job's descriptor of the state: of a list, or of a map, which is broadcast
            state.
        elements: the elements of the list, or the map.
        mode: how a list is redistributed: split among the subtasks, or as a union for all.
    """

    descriptor: ListStateDescriptor | MapStateDescriptor
    elements: Any
    mode: Literal["split", "union"] = "split"

    def put_into(self, states: OperatorStateBackend) -> None:
        """Add it to the states of an operator."""
        if isinstance(self.descriptor, MapStateDescriptor):
            states.by_reference(BROADCAST, self.descriptor).put_all(self.elements)
        elif self.mode in (SPLIT, UNION):
            states.by_reference(self.mode, self.descriptor).add_all(self.elements)
        else:
            message = (
                f"the operator state {self.descriptor.name!r} has the mode {self.mode!r}; it can "
                f"be {SPLIT!r} or {UNION!r}"
            )
            raise ValueError(message)


def is_frame(data: Any) -> bool:
    """Return whether data is a Spark DataFrame."""
    return hasattr(data, "mapInArrow")


def _names(columns: str | Sequence[str]) -> Sequence[str]:
    return (columns,) if isinstance(columns, str) else columns


def _column(batch: pa.RecordBatch, columns: str | Sequence[str], join: Any) -> list[Any]:
    values: list[list[Any]] = [batch.column(name).to_pylist() for name in _names(columns)]
    return values[0] if isinstance(columns, str) else list(map(join, zip(*values, strict=True)))


def _as_dict(entries: Any) -> dict[Any, Any] | None:
    """Return a map as a dict; in Arrow it is a list of pairs."""
    if entries is None:
        return None
    pairs = entries.items() if isinstance(entries, Mapping) else entries
    return {key_of(key): value for key, value in pairs}


def _timers(layout: KeyedLayout, pairs: Iterable[tuple[Any, Any]]) -> Iterator[Entry]:
    for key, time in pairs:
        if type(time) is not int:
            message = (
                f"timers of operator {layout.operator!r}: the time of key {key!r} is {time!r}; "
                "expected milliseconds, an int"
            )
            raise StateTypeError(message)
        yield (key, (time, None)), True
