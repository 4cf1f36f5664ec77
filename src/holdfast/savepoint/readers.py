"""What reads the rows of keyed state, windows, timers and operator state from a part of it.

A reader and its parts can be sent to another process, where the reader yields batches: columns of
plain values, in the order of its `names`.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from holdfast.checkpoint.metadata import OperatorImage
from holdfast.datastream.time_domain import TimeDomain
from holdfast.runtime.checkpointing import OPERATOR_STATE
from holdfast.runtime.timers import TIMER_STATES
from holdfast.runtime.window_contents import CONTENTS
from holdfast.runtime.window_merging import WINDOWS
from holdfast.savepoint.arrow_columns import LONG, ArrowColumn, column_of, list_column, map_column
from holdfast.state.catalog import SavedState
from holdfast.state.chain import Chain
from holdfast.state.errors import decoding
from holdfast.state.harmless import harmless_loads
from holdfast.state.interface import read_blobs
from holdfast.state.key_forms import thaw_saved
from holdfast.state.key_groups import key_group_range
from holdfast.state.operator_state import BROADCAST, ListImage, decode_image
from holdfast.state.plain_values import plain_values
from holdfast.state.saved_entries import StateId, read_entries
from holdfast.state.schema import ListOf, Opaque, Plain, Schema, TupleOf
from holdfast.state.serializers import Codec, Column, Loads
from holdfast.state.storage import StateStorage
from holdfast.state.ttl_pairs import split_times

__all__ = [
    "Batch",
    "KeyedReader",
    "OperatorStateReader",
    "Part",
    "Reader",
    "TimerReader",
    "WindowReader",
    "batches_of",
    "loads_of",
    "parts_of",
]

#: columns of equal length, in the order of a reader's names
Batch = list[list[Any]]

#: how much of a chain one task reads
_PART: Final = 64 << 20


@dataclass(frozen=True)
class Part:
    """A chain, or some key groups of it; the number is that of the subtask that wrote it."""

    subtask: int
    chain: Chain
    key_groups: range | None = None


class Reader(Protocol):
    """Reads rows; can be pickled."""

    @property
    def columns(self) -> Mapping[str, ArrowColumn | None]:
        """The names of the columns, each with its type; None where only the values can tell."""

    def read(self, storage: StateStorage, part: Part) -> Iterator[Batch]:
        """Yield the rows of a part, some at a time."""


def parts_of(image: OperatorImage, chains: Sequence[Chain], divisible: bool) -> list[Part]:
    """Return the parts of an operator's state, each about as much as one task should read.

    ``divisible``: whether keys can be told apart by their key groups.
    """
    found: list[Part] = []
    for subtask, chain in enumerate(chains):
        own = key_group_range(subtask, len(chains), image.max_parallelism)
        count = min(math.ceil(chain.size / _PART), len(own))
        if count < 2 or not divisible:
            found.append(Part(subtask, chain))
            continue
        shares = (key_group_range(i, count, len(own)) for i in range(count))
        found += [
            Part(subtask, chain, range(own.start + s.start, own.start + s.stop)) for s in shares
        ]
    return found


@dataclass(frozen=True)
class KeyedReader:
    """The rows of a keyed state: one per key, or per key and window."""

    state: StateId
    saved: SavedState
    key_type: Schema | None
    trusted: bool = False

    @property
    def columns(self) -> Mapping[str, ArrowColumn | None]:
        """Key, window, value, and when that was last accessed."""
        value, accessed = _value_columns(self.saved)
        return {
            "key": _key_column(self.key_type),
            **({"window": None} if self.state.namespaced else {}),
            "value": value,
            **({"accessed": accessed} if self.saved.expires else {}),
        }

    def read(self, storage: StateStorage, part: Part) -> Iterator[Batch]:
        """Yield the rows of a part."""
        entries = read_entries(
            storage, part.chain, self.state, part.key_groups, loads_of(self.trusted)
        )
        for keys, values in entries:
            if keys:
                yield [*self._places(keys), *self._values(values)]

    def _places(self, keys: list[Any]) -> Batch:
        if not self.state.namespaced:
            return [thaw_saved(self.key_type, keys)]
        plain = thaw_saved(self.key_type, [key for key, _ in keys])
        return [plain, [_window(space) for _, space in keys]]

    def _values(self, values: list[Any]) -> Batch:
        if not self.saved.expires:
            return [values]
        pairs = [split_times(self.saved.kind, value) for value in values]
        return [list(column) for column in zip(*pairs, strict=True)]


@dataclass(frozen=True)
class WindowReader:
    """The contents of windows: one row per key and window."""

    uid: str
    saved: SavedState
    key_type: Schema | None
    trusted: bool = False

    @property
    def columns(self) -> Mapping[str, ArrowColumn | None]:
        """Key, window, and what the window holds."""
        value, _ = _value_columns(self.saved)
        return {"key": _key_column(self.key_type), "window": None, "value": value}

    def read(self, storage: StateStorage, part: Part) -> Iterator[Batch]:
        """Yield the rows of a part.

        What is in windows that merge is kept under the first of them, so it is looked up which
        window that has become.
        """
        merged = dict(self._entries(storage, part, StateId(self.uid, WINDOWS.name)))
        found = self._entries(storage, part, StateId(self.uid, CONTENTS, namespaced=True))
        rows = [
            (key, _window(merged.get(key, {}).get(window, window)), value)
            for (key, window), value in found
        ]
        if rows:
            keys, *others = [list(column) for column in zip(*rows, strict=True)]
            yield [thaw_saved(self.key_type, keys), *others]

    def _entries(
        self, storage: StateStorage, part: Part, state: StateId
    ) -> Iterator[tuple[Any, Any]]:
        loads = loads_of(self.trusted)
        for keys, values in read_entries(storage, part.chain, state, part.key_groups, loads):
            yield from zip(keys, values, strict=True)


@dataclass(frozen=True)
class TimerReader:
    """The timers of an operator."""

    uid: str
    key_type: Schema | None
    trusted: bool = False

    @property
    def columns(self) -> Mapping[str, ArrowColumn | None]:
        """Key, which time it goes by, when it is due, and the window that it belongs to."""
        domain = column_of(Plain(kind="string"))
        key = _key_column(self.key_type)
        return {"key": key, "domain": domain, "timestamp": LONG, "window": None}

    def read(self, storage: StateStorage, part: Part) -> Iterator[Batch]:
        """Yield the rows of a part."""
        for domain in TimeDomain:
            state = StateId(self.uid, TIMER_STATES[domain], namespaced=True)
            loads = loads_of(self.trusted)
            for marks, _ in read_entries(storage, part.chain, state, part.key_groups, loads):
                yield [
                    thaw_saved(self.key_type, [key for key, _ in marks]),
                    [domain.name] * len(marks),
                    [place[0] for _, place in marks],
                    [_window(place[1] if len(place) == 2 else place[1:]) for _, place in marks],
                ]


@dataclass(frozen=True)
class OperatorStateReader:
    """The elements of a list, each with the subtask that had it; the entries of broadcast state."""

    uid: str
    saved: SavedState
    trusted: bool = False

    @property
    def columns(self) -> Mapping[str, ArrowColumn | None]:
        """Subtask and value; key and value of broadcast state."""
        schema = self.saved.types[0]
        if self.saved.kind != BROADCAST:
            return {"subtask": LONG, "value": _column(schema)}
        key, value = schema.items if isinstance(schema, TupleOf) else (None, None)
        return {"key": _column(key), "value": _column(value)}

    def image(self, storage: StateStorage, part: Part) -> ListImage:
        """Return what a subtask has; all have the same broadcast state, which the first tells."""
        data = read_blobs(storage, part.chain).get((self.uid, OPERATOR_STATE))
        nothing = ListImage(self.saved.kind)
        if data is None or (self.saved.kind == BROADCAST and part.subtask):
            return nothing
        return decode_image(data, self.uid).get(self.saved.name, nothing)

    def read(self, storage: StateStorage, part: Part) -> Iterator[Batch]:
        """Yield what a subtask has."""
        image, loads = self.image(storage, part), loads_of(self.trusted)
        elements = [
            plain_values(image.schemas[place], Column(Codec(codec), data), loads)[0]
            for codec, data, place in image.elements
        ]
        if elements and self.saved.kind == BROADCAST:
            keys, values = zip(*elements, strict=True)
            yield [list(keys), list(values)]
        elif elements:
            yield [[part.subtask] * len(elements), elements]


def batches_of(reader: Reader, storage: StateStorage, part: Part, place: str) -> Iterator[Batch]:
    """Yield the rows of a part; ``place`` is for errors.

    Raises:
        StateCorruptionError: when what is saved there cannot be rows of that reader.
    """
    with decoding(place):
        for batch in reader.read(storage, part):
            if len({len(column) for column in batch}) > 1:
                message = "its columns are not of one length"
                raise ValueError(message)
            yield batch


def loads_of(trusted: bool) -> Loads:
    """Return what unpickles what is read, as far as it is trusted."""
    return pickle.loads if trusted else harmless_loads


def _window(namespace: Any) -> Any:
    """Return a window as rows have it: start and end; None for the global one."""
    is_span = isinstance(namespace, tuple) and len(namespace) in (2, 3)
    return {"start": namespace[0], "end": namespace[1]} if is_span else namespace


def _column(schema: Schema | None) -> ArrowColumn | None:
    return None if schema is None or isinstance(schema, Opaque) else column_of(schema)


def _key_column(schema: Schema | None) -> ArrowColumn | None:
    """Return the column of keys, which are saved as they are, whatever type is declared."""
    if isinstance(schema, ListOf):
        return _column(schema)  # these are in the declared shape
    parts = schema.items if isinstance(schema, TupleOf) else (schema,)
    return _column(schema) if all(isinstance(part, Plain) for part in parts) else None


def _value_columns(saved: SavedState) -> tuple[ArrowColumn | None, ArrowColumn | None]:
    """Return the columns of the values, and of the times of their last access."""
    *keys, value = saved.types
    if saved.expires and isinstance(value, TupleOf):
        value = value.items[0]
    if saved.kind == "list":
        return _over(list_column, _column(value)), list_column(LONG)
    if saved.kind == "map":
        key = _column(keys[0])
        return _over(map_column, key, _column(value)), _over(map_column, key, LONG)
    return _column(value), LONG


def _over(make: Callable[..., ArrowColumn], *parts: ArrowColumn | None) -> ArrowColumn | None:
    return None if None in parts else make(*parts)
