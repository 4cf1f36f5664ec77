"""Storage of keys: one part per column of the key, each as numpy arrays that only grow.

A part has the values of all slots, in the order of the slots. A slot's value never changes, and
arrays are replaced when they grow. So another thread can read a `PartView` that was taken.

    NumberPart  values of up to 64 bits: integers, floats, booleans, dates, times, timestamps
    TextPart    strings and binary: the bytes of all values one after another, and their ends
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from holdfast.state.columns.growing import Array, Mask, Slots, Words, grown

_WORD: Final = 8
#: by number of bytes: the mask of the bytes of a word that count
_MASKS: Final = np.array([(1 << 8 * n) - 1 for n in range(_WORD + 1)], np.uint64)
#: offsets of 32 bits are not larger
_SHORT: Final = (1 << 31) - 1
_SPREAD: Final = np.uint64(0xFF51AFD7ED558CCD)
_FOLD: Final = np.uint64(29)


class KeyPart(ABC):
    """One column of the keys of an operator."""

    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self.count = 0

    @abstractmethod
    def codes(self, values: Any) -> Words:
        """Return a number of 64 bits for each value; equal values have equal numbers."""

    @abstractmethod
    def read(self, array: pa.Array) -> Any:
        """Return the values of an Arrow array in the form of this part."""

    @abstractmethod
    def pick(self, values: Any, places: Slots) -> Any:
        """Return the values at these places."""

    @abstractmethod
    def same(self, slots: Slots, values: Any) -> Mask:
        """Return which slots have the given values."""

    @abstractmethod
    def append(self, values: Any) -> None:
        """Store the values in the next slots."""

    @abstractmethod
    def stored(self, first: int, end: int) -> Any:
        """Return the values of a range of slots."""

    @abstractmethod
    def view(self) -> Callable[[Slots], pa.Array]:
        """Return a function that returns the values of slots as Arrow, as of now."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Return the bytes that the stored values take."""


class NumberPart(KeyPart):
    """Values of up to 64 bits, each stored as one integer."""

    def __init__(self, type_: pa.DataType) -> None:
        super().__init__(type_)
        self._values: Array = np.zeros(0, np.int64)

    def codes(self, values: Array) -> Words:
        return values.view(np.uint64)

    def read(self, array: pa.Array) -> Array:
        return integers(array)

    def pick(self, values: Array, places: Slots) -> Array:
        return values[places]

    def same(self, slots: Slots, values: Array) -> Mask:
        same: Mask = self._values[slots] == values
        return same

    def append(self, values: Array) -> None:
        end = self.count + len(values)
        self._values = grown(self._values, self.count, end)
        self._values[self.count : end] = values
        self.count = end

    def stored(self, first: int, end: int) -> Array:
        return self._values[first:end]

    def view(self) -> Callable[[Slots], pa.Array]:
        stored, type_ = self._values, self.type
        return lambda slots: _from_integers(stored[slots], type_)

    @property
    def nbytes(self) -> int:
        return self._values.nbytes


class Texts:
    """Strings or binary values: where each begins, and how long it is, in one piece of bytes."""

    __slots__ = ("data", "lengths", "starts", "words")

    def __init__(self, data: Array, starts: Slots, lengths: Slots) -> None:
        self.data = data
        self.starts = starts
        self.lengths = lengths
        padded = data if len(data) >= _WORD else np.zeros(_WORD, np.uint8)
        if padded is not data:
            padded[: len(data)] = data
        #: the word that begins at each byte
        self.words: Words = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded, strides=(1,))

    def word(self, number: int, places: Slots) -> Words:
        """Return the word with that number of each text; bytes behind its end are zero."""
        starts = self.starts[places] + number * _WORD
        # NB: the last words of the data cannot be read whole where they begin
        readable = np.minimum(starts, len(self.words) - 1)
        words = self.words[readable] >> ((starts - readable) * 8).astype(np.uint64)
        left = np.minimum(self.lengths[places] - number * _WORD, _WORD)
        return words & _MASKS[left]


class TextPart(KeyPart):
    """Strings or binary values."""

    def __init__(self, type_: pa.DataType, wide: pa.DataType) -> None:
        """Hold values of a type; ``wide``: the same type with offsets of 64 bits."""
        super().__init__(type_)
        self._wide = wide
        self._data: Array = np.zeros(0, np.uint8)
        #: where the value of each slot ends, after a zero; 64 bits once the values exceed 2 GB
        self._ends: Array = np.zeros(1, np.int32)

    def read(self, array: pa.Array) -> Texts:
        array = array.cast(self._wide)
        _, ends, data = array.buffers()
        offsets = np.frombuffer(ends, np.int64)[array.offset : array.offset + len(array) + 1]
        stored = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        return Texts(stored, offsets[:-1], np.diff(offsets))

    def pick(self, values: Texts, places: Slots) -> Texts:
        return Texts(values.data, values.starts[places], values.lengths[places])

    def codes(self, values: Texts) -> Words:
        codes = values.lengths.astype(np.uint64) * _SPREAD
        for number, places in _rounds(values.lengths):
            mixed = (codes[places] ^ values.word(number, places)) * _SPREAD
            codes[places] = mixed ^ mixed >> _FOLD
        return codes

    def same(self, slots: Slots, values: Texts) -> Mask:
        stored = self._texts(self._ends[slots], self._ends[slots + 1])
        same: Mask = stored.lengths == values.lengths
        for number, places in _rounds(np.where(same, values.lengths, 0)):
            same[places] &= stored.word(number, places) == values.word(number, places)
        return same

    def append(self, values: Texts) -> None:
        count, end = len(values.starts), self.count + len(values.starts)
        first = int(self._ends[self.count])
        ends = first + np.cumsum(values.lengths, dtype=np.int64)
        total = int(ends[-1]) if count else first
        if total > _SHORT:
            self._ends = self._ends.astype(np.int64, copy=False)
        self._ends = grown(self._ends, self.count + 1, end + 1)
        self._ends[self.count + 1 : end + 1] = ends
        self._data = grown(self._data, first, total)
        # NB: the bytes of the values need not follow each other where they come from
        shifts = np.repeat(values.starts - (ends - values.lengths), values.lengths)
        self._data[first:total] = values.data[np.arange(first, total) + shifts]
        self.count = end

    def stored(self, first: int, end: int) -> Texts:
        return self._texts(self._ends[first:end], self._ends[first + 1 : end + 1])

    def _texts(self, starts: Array, ends: Array) -> Texts:
        wide = starts.astype(np.int64, copy=False)
        return Texts(self._data, wide, ends - wide)

    def view(self) -> Callable[[Slots], pa.Array]:
        count, ends, data, type_ = self.count, self._ends, self._data, self.type
        held = type_ if ends.dtype == np.int32 else self._wide

        def take(slots: Slots) -> pa.Array:
            buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
            stored = pa.Array.from_buffers(held, count, buffers)
            return stored.take(pa.array(slots)).cast(type_)

        return take

    @property
    def nbytes(self) -> int:
        return self._data.nbytes + self._ends.nbytes


def _rounds(lengths: Slots) -> Any:
    """Yield the number of each word that some text has, and which texts have it."""
    places = np.flatnonzero(lengths > 0)
    number = 0
    while len(places):
        yield number, places
        number += 1
        places = places[lengths[places] > number * _WORD]


def make_part(type_: pa.DataType) -> KeyPart | None:
    """Return storage for a part of the key; None if the type cannot be one."""
    if kinds.is_string(type_) or kinds.is_large_string(type_) or kinds.is_string_view(type_):
        return TextPart(pa.string(), pa.large_string())
    if kinds.is_binary(type_) or kinds.is_large_binary(type_) or kinds.is_binary_view(type_):
        return TextPart(pa.binary(), pa.large_binary())
    if kinds.is_uint64(type_):
        return NumberPart(pa.uint64())
    if kinds.is_integer(type_):
        return NumberPart(pa.int64())
    if kinds.is_floating(type_):
        return NumberPart(pa.float64())
    if kinds.is_boolean(type_) or kinds.is_temporal(type_):
        return NumberPart(type_) if type_ != pa.month_day_nano_interval() else None
    return None


def integers(array: pa.Array) -> Array:
    """Return an array of values of up to 64 bits as integers; equal values are equal integers."""
    type_ = array.type
    if kinds.is_floating(type_):
        # NB: adding zero turns the negative zero, which is equal to zero, into zero
        floats: Array = array.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0
        floats[np.isnan(floats)] = np.nan
        return floats.view(np.int64)
    if kinds.is_temporal(type_):
        array = array.view(pa.int64() if type_.bit_width == 64 else pa.int32())
    numbers: Array = array.to_numpy(zero_copy_only=False)
    if numbers.dtype == np.uint64:
        return numbers.view(np.int64)
    return numbers if numbers.dtype == np.int64 else numbers.astype(np.int64)


def _from_integers(numbers: Array, type_: pa.DataType) -> pa.Array:
    if kinds.is_floating(type_):
        return pa.array(numbers.view(np.float64))
    if kinds.is_uint64(type_):
        return pa.array(numbers.view(np.uint64))
    if kinds.is_boolean(type_):
        return pa.array(numbers.astype(np.bool_))
    if type_.bit_width == 32:
        return pa.array(numbers.astype(np.int32)).view(type_)
    return pa.array(numbers).view(type_)
