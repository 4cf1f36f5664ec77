"""Readers for the rows of keyed state, windows, timers and operator state.

A reader and its parts can be sent to another process. The reader yields batches: columns of plain
values, in the order of its `names`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from holdfast.checkpoint.metadata import OperatorImage
from holdfast.datastream.time_domain import TimeDomain
from holdfast.runtime.checkpointing import OPERATOR_STATE
from holdfast.runtime.operators.windows.contents import CONTENTS
from holdfast.runtime.operators.windows.merging import WINDOWS
from holdfast.runtime.timer_queue import TIMER_STATES
from holdfast.savepoint.arrow_columns import LONG, ArrowColumn, column_of, list_column, map_column
from holdfast.state.errors import decoding
from holdfast.state.format.catalog import SavedState
from holdfast.state.format.head import Head
from holdfast.state.format.stored_files import read_blobs
from holdfast.state.key_groups import key_group_range
from holdfast.state.live.operator_state import BROADCAST, ListImage, decode_image
from holdfast.state.live.ttl.pairs import split_times
from holdfast.state.names import StateId
from holdfast.state.saved_entries import read_entries
from holdfast.state.storage.directory import StateStorage
from holdfast.state.types.harmless import harmless_loads
from holdfast.state.types.key_forms import thaw_saved
from holdfast.state.types.plain_values import plain_values
from holdfast.state.types.schema import ListOf, Opaque, Plain, Schema, TupleOf
from holdfast.state.types.serializers import Codec, EncodedColumn, Loads
from holdfast.state.types.unpickling import unpickle

#: columns of equal length, in the order of a reader's names
Batch = list[list[Any]]

#: the most bytes of a head that one task reads
_PART: Final = 64 << 20


@dataclass(frozen=True)
class HeadPart:
    """A head, or some of its key groups; ``subtask`` is the index of the subtask that wrote it."""

    subtask: int
    head: Head
    key_groups: range | None = None


class Reader(Protocol):
    """Reads rows; can be pickled."""

    @property
    def columns(self) -> Mapping[str, ArrowColumn | None]:
        """Return the columns by name, each with its type; None if it must be inferred."""

    def read(self, storage: StateStorage, part: HeadPart) -> Iterator[Batch]:
        """Yield the rows of a part in batches."""


def parts_of(image: OperatorImage, heads: Sequence[Head], divisible: bool) -> list[HeadPart]:
    """Return the parts of an operator's state, each about as large as one task should read.

    ``divisible``: whether the key groups of keys can be determined.
    """
    found: list[HeadPart] = []
    for subtask, head in enumerate(heads):
        own = key_group_range(subtask, len(heads), image.max_parallelism)
        count = min(math.ceil(head.size / _PART), len(own))
        if count < 2 or not divisible:
            found.append(HeadPart(subtask, head))
            continue
        shares = (key_group_range(i, count, len(own)) for i in range(count))
        found += [
            HeadPart(subtask, head, range(own.start + s.start, own.start + s.stop)) for s in shares
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
        """Return the columns: key, window, value, and the time of the last access."""
        value, accessed = _value_columns(self.saved)
        return {
            "key": _key_column(self.key_type),
            **({"window": None} if self.state.namespaced else {}),
            "value": value,
            **({"accessed": accessed} if self.saved.expires else {}),
        }

    def read(self, storage: StateStorage, part: HeadPart) -> Iterator[Batch]:
        """Yield the rows of a part."""
        entries = read_entries(
            storage, part.head, self.state, part.key_groups, loads_of(self.trusted)
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
        """Return the columns: key, window, and the contents of the window."""
        value, _ = _value_columns(self.saved)
        return {"key": _key_column(self.key_type), "window": None, "value": value}

    def read(self, storage: StateStorage, part: HeadPart) -> Iterator[Batch]:
        """Yield the rows of a part.

        The contents of merged windows are stored under the first of them, so the window that
        resulted from the merge is looked up.
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
        self, storage: StateStorage, part: HeadPart, state: StateId
    ) -> Iterator[tuple[Any, Any]]:
        loads = loads_of(self.trusted)
        for keys, values in read_entries(storage, part.head, state, part.key_groups, loads):
            yield from zip(keys, values, strict=True)


@dataclass(frozen=True)
class TimerReader:
    """The timers of an operator."""

    uid: str
    key_type: Schema | None
    trusted: bool = False

    @property
    def columns(self) -> Mapping[str, ArrowColumn | None]:
        """Return the columns: key, time domain, timestamp, and the window of the timer."""
        domain = column_of(Plain(kind="string"))
        key = _key_column(self.key_type)
        return {"key": key, "domain": domain, "timestamp": LONG, "window": None}

    def read(self, storage: StateStorage, part: HeadPart) -> Iterator[Batch]:
        """Yield the rows of a part."""
        for domain in TimeDomain:
            state = StateId(self.uid, TIMER_STATES[domain], namespaced=True)
            loads = loads_of(self.trusted)
            for marks, _ in read_entries(storage, part.head, state, part.key_groups, loads):
                yield [
                    thaw_saved(self.key_type, [key for key, _ in marks]),
                    [domain.name] * len(marks),
                    [place[0] for _, place in marks],
                    [_window(place[1] if len(place) == 2 else place[1:]) for _, place in marks],
                ]


@dataclass(frozen=True)
class OperatorStateReader:
    """The elements of a list with their subtasks, or the entries of broadcast state."""

    uid: str
    saved: SavedState
    trusted: bool = False

    @property
    def columns(self) -> Mapping[str, ArrowColumn | None]:
        """Return the columns: subtask and value, or key and value of broadcast state."""
        schema = self.saved.types[0]
        if self.saved.kind != BROADCAST:
            return {"subtask": LONG, "value": _column(schema)}
        key, value = schema.items if isinstance(schema, TupleOf) else (None, None)
        return {"key": _column(key), "value": _column(value)}

    def image(self, storage: StateStorage, part: HeadPart) -> ListImage:
        """Return the state of a subtask; broadcast state is read from the first subtask only."""
        data = read_blobs(storage, part.head).get((self.uid, OPERATOR_STATE))
        nothing = ListImage(self.saved.kind)
        if data is None or (self.saved.kind == BROADCAST and part.subtask):
            return nothing
        return decode_image(data, self.uid).get(self.saved.name, nothing)

    def read(self, storage: StateStorage, part: HeadPart) -> Iterator[Batch]:
        """Yield the elements of a subtask."""
        image, loads = self.image(storage, part), loads_of(self.trusted)
        elements = [
            plain_values(image.schemas[place], EncodedColumn(Codec(codec), data), loads)[0]
            for codec, data, place in image.elements
        ]
        if elements and self.saved.kind == BROADCAST:
            keys, values = zip(*elements, strict=True)
            yield [list(keys), list(values)]
        elif elements:
            yield [[part.subtask] * len(elements), elements]


def batches_of(
    reader: Reader, storage: StateStorage, part: HeadPart, place: str
) -> Iterator[Batch]:
    """Yield the rows of a part; ``place`` is for errors.

    Raises:
        StateCorruptionError: if the saved data is not valid for the reader.
    """
    with decoding(place):
        for batch in reader.read(storage, part):
            if len({len(column) for column in batch}) > 1:
                message = "its columns differ in length"
                raise ValueError(message)
            yield batch


def loads_of(trusted: bool) -> Loads:
    """Return the function that unpickles values: safely, unless they are trusted."""
    return unpickle if trusted else harmless_loads


def _window(namespace: Any) -> Any:
    """Return a window for a row: start and end; None for the global window."""
    is_span = isinstance(namespace, tuple) and len(namespace) in (2, 3)
    return {"start": namespace[0], "end": namespace[1]} if is_span else namespace


def _column(schema: Schema | None) -> ArrowColumn | None:
    return None if schema is None or isinstance(schema, Opaque) else column_of(schema)


def _key_column(schema: Schema | None) -> ArrowColumn | None:
    """Return the column of keys, which are saved unchanged, whatever type is declared."""
    if isinstance(schema, ListOf):
        return _column(schema)  # these have the declared type
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
