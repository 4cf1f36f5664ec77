"""`ColumnTable`: the keys of an operator, and a column for each of its states.

Every key has a slot: its place in all columns. A key gets one when it first occurs in a batch.
Slots without a value in any column are dead. `compact` numbers the slots anew without the dead
ones; captures that are not written yet keep the arrays of before.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from holdfast.state.columns.column import Column
from holdfast.state.columns.growing import Slots, grown
from holdfast.state.columns.key_index import KeyIndex
from holdfast.state.columns.key_parts import NumberPart, integers
from holdfast.state.columns.key_reader import KeyReader
from holdfast.state.columns.key_shape import KeyShape
from holdfast.state.columns.keys import Keys
from holdfast.state.errors import StateMigrationError

#: fewer dead slots than this are not worth the work
_FEW: Final = 1 << 14

#: keys that are copied at once: copies of texts need several times their size
_AT_ONCE: Final = 1 << 16
_NONE: Final = np.zeros(0, np.int64)

#: an array, or a chunked array
KeyArray: TypeAlias = Any


class ColumnTable:
    """The keys and the columns of an operator.

    Attributes:
        operator: the uid of the operator, for messages.
        columns: its columns, by name.
        expected: returns the type of keys before the first batch tells it; None if it is unknown.
        generation: how often slots were numbered anew.
        loads: how often values were loaded from files.
    """

    def __init__(self, operator: str) -> None:
        self.operator = operator
        self.columns: dict[str, Column] = {}
        self.expected: Callable[[], pa.DataType | None] = lambda: None
        self.generation = 0
        self.loads = 0
        self.shape: KeyShape | None = None
        self._index: KeyIndex | None = None
        self._scratch: Slots = np.zeros(0, np.int32)
        #: the last reader, as long as a capture keeps it
        self._reader: Callable[[], KeyReader | None] = lambda: None

    def __len__(self) -> int:
        """Return the number of slots, including dead ones."""
        return 0 if self._index is None else self._index.count

    @property
    def nbytes(self) -> int:
        """Return the bytes that keys and columns take in memory, without objects."""
        index = 0 if self._index is None else self._index.nbytes
        return index + self._scratch.nbytes + sum(c.nbytes for c in self.columns.values())

    def add_column(self, name: str, column: Column) -> None:
        """Add a column, without values."""
        column.reserve(len(self))
        self.columns[name] = column

    def clear(self) -> None:
        """Forget all keys and values. Columns stay."""
        self.shape = self._index = None
        self.generation += 1
        self._scratch = np.zeros(0, np.int32)
        for column in self.columns.values():
            column.clear()

    # Keys.

    def keys(self, keys: KeyArray, namespaces: KeyArray | None = None) -> Keys:
        """Return the keys of the rows of a batch; a new key gets a slot.

        ``keys`` is an array, or a struct array if the key has several columns. ``namespaces``: the
        namespace of each row, if the states of the operator have namespaces.

        Raises:
            ValueError: when a key is null.
            TypeError: when keys of this type are not supported.
            StateMigrationError: when the keys of earlier batches have another type.
        """
        parts = self._parts(whole(keys), None if namespaces is None else whole(namespaces))
        index = self._index
        assert index is not None
        if len(parts) == 1 and isinstance(index.parts[0], NumberPart):
            found = Keys(self, self._number_slots(index, index.parts[0].read(parts[0])))
        else:
            found = self._encoded(index, parts)
        self._reserve()
        return found

    def find(self, keys: pa.Array, namespaces: pa.Array | None = None) -> Slots:
        """Return the slots of keys; -1 for a key that has none. Nothing is added."""
        if self._index is None or self.shape is None:
            return np.full(len(keys), -1)
        values = self._read(self.shape.split(keys, namespaces))
        return self._index.find(values)

    def keys_at(self, slots: Slots) -> pa.Array:
        """Return the keys of slots, without their namespaces."""
        return self.reader()(slots)[0]

    def reader(self) -> KeyReader:
        """Return the keys as of now; it can be read in another thread."""
        assert self.shape is not None
        assert self._index is not None
        reader = self._reader()
        if reader is None or not reader.is_of(self._index):
            reader = KeyReader(self.shape, self._index)
            self._reader = weakref.ref(reader)
        return reader

    def key_type(self) -> pa.DataType | None:
        """Return the type of keys; None if it is not known yet."""
        return self.expected() if self.shape is None else self.shape.key

    def scratch(self) -> Slots:
        """Return an array with a number for each slot, of any value."""
        self._scratch = grown(self._scratch, 0, len(self))
        return self._scratch

    def _parts(self, keys: pa.Array, namespaces: pa.Array | None) -> list[pa.Array]:
        space = None if namespaces is None else namespaces.type
        if self.shape is None:
            self.shape = KeyShape(keys.type, space)
            self._index = KeyIndex(self.shape.parts)
        elif not self.shape.fits(keys.type, space):
            got = keys.type if space is None else f"{keys.type} and {space}"
            message = (
                f"operator {self.operator!r}: its keys are {self.shape}; got {got}; cast the key "
                "to the type that it had"
            )
            raise StateMigrationError(message)
        self.shape.name_as(keys.type)
        return self.shape.split(keys, namespaces)

    def _read(self, parts: list[pa.Array]) -> list[Any]:
        assert self._index is not None
        return [part.read(of) for part, of in zip(self._index.parts, parts, strict=True)]

    def _number_slots(self, index: KeyIndex, values: Slots) -> Slots:
        slots = index.find([values])
        missing = np.flatnonzero(slots < 0)
        if len(missing):
            new = pa.array(values[missing]).dictionary_encode()
            slots[missing] = index.append([new.dictionary.to_numpy()])[_codes(new)]
        return slots

    def _encoded(self, index: KeyIndex, parts: list[pa.Array]) -> Keys:
        """Look up the distinct keys of a batch only, since these are compared byte by byte."""
        if len(parts) > 1:
            indices, chosen = dense(parts)
            distinct = [part.take(chosen) for part in parts]
        else:
            encoded = parts[0].dictionary_encode()
            indices, distinct = _codes(encoded), [encoded.dictionary]
        slots = index.add(self._read(distinct))
        return Keys(self, slots[indices], indices, slots)

    def _reserve(self) -> None:
        for column in self.columns.values():
            column.reserve(len(self))

    # Dead slots.

    def dead(self) -> Slots:
        """Return the slots that have no value in any column."""
        alive = np.zeros(len(self), np.bool_)
        for column in self.columns.values():
            alive |= column.present[: len(self)]
        return np.flatnonzero(~alive)

    def many_dead(self) -> Slots:
        """Return the dead slots if they are many; otherwise none."""
        least = max(_FEW, len(self) // 2)
        # NB: a column has no more values than there are live slots; most often, the first one tells
        if any(len(self) - column.count < least for column in self.columns.values()):
            return _NONE
        dead = self.dead()
        return dead if len(dead) >= least else _NONE

    def compact(self) -> bool:
        """Remove dead slots if they are many; return whether slots have new numbers.

        Only the caller knows whether a file needs the keys of dead slots, in order to delete them.
        """
        dead, before = self.many_dead(), self._index
        if not len(dead):
            return False
        assert self.shape is not None
        assert before is not None
        kept = np.setdiff1d(np.arange(len(self)), dead, assume_unique=True)
        self.shape = KeyShape(self.shape.key, self.shape.namespace)
        self._index = KeyIndex(self.shape.parts)
        for first in range(0, len(kept), _AT_ONCE):
            self._index.append(before.stored(kept[first : first + _AT_ONCE]))
        for column in self.columns.values():
            column.renumber(kept)
        self._scratch = np.zeros(0, np.int32)
        self.generation += 1
        return True


def whole(array: KeyArray) -> pa.Array:
    """Return keys as one array without dictionaries and views."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if kinds.is_struct(array.type) and any(_is_indirect(field.type) for field in array.type):
        names = [field.name for field in array.type]
        return pa.StructArray.from_arrays([_direct(part) for part in array.flatten()], names)
    return _direct(array)


def _is_indirect(type_: pa.DataType) -> bool:
    indirect = kinds.is_dictionary, kinds.is_string_view, kinds.is_binary_view
    return any(check(type_) for check in indirect)


def _direct(array: pa.Array) -> pa.Array:
    if kinds.is_dictionary(array.type):
        return pc.dictionary_decode(array)
    if kinds.is_string_view(array.type):
        return array.cast(pa.large_string())
    return array.cast(pa.large_binary()) if kinds.is_binary_view(array.type) else array


def _codes(encoded: pa.DictionaryArray) -> Slots:
    return encoded.indices.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def dense(parts: Sequence[pa.Array]) -> tuple[Slots, Slots]:
    """Return, per row, the number of its combination of values, and a row of each combination.

    Combinations are numbered in the order in which they first occur.
    """
    encoded = _numbered(parts[0])
    codes, count = _codes(encoded), len(encoded.dictionary)
    for part in parts[1:]:
        encoded = _numbered(part)
        both = codes * len(encoded.dictionary) + _codes(encoded)
        # NB: numbered anew, so that the next product does not overflow
        encoded = pa.array(both).dictionary_encode()
        codes, count = _codes(encoded), len(encoded.dictionary)
    rows = np.empty(count, np.int64)
    rows[codes] = np.arange(len(codes))
    return codes, rows


def _numbered(part: pa.Array) -> pa.DictionaryArray:
    # NB: Arrow tells 0.0 from -0.0, and one NaN from another; as keys they are the same
    return (pa.array(integers(part)) if kinds.is_floating(part.type) else part).dictionary_encode()
