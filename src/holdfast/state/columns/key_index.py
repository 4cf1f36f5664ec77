"""`KeyIndex`: the hash index of an operator's keys, from a key to its slot.

The index is an array of slots with open addressing: a key begins at a place that its code says, and
goes on by 1, 2, 3, and so on places (so all places are visited) until it meets itself or a free
one. All keys of a batch are looked up at the same time, with numpy: each round continues with
those that have not been found yet. Measurements
and alternatives are in docs/internals/state_files.md.

Slots are given in the order in which keys first occur, and keys are never removed: `ColumnTable`
makes a new index when too many keys have no state any more.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from holdfast.state.columns.growing import Mask, Slots, Words
from holdfast.state.columns.key_parts import KeyPart

_FREE: Final = -1
_SMALLEST: Final = 1 << 10
#: at most this part of the index is in use
_LOAD: Final = 0.6
#: more slots than this do not fit the index
MOST_SLOTS: Final = (1 << 31) - 1
#: so that nobody can choose keys that all meet in one place
_MIX: Final = np.uint64(secrets.randbits(64) | 1)
_CHAIN: Final = np.uint64(0xC4CEB9FE1A85EC53)
_FOLD: Final = np.uint64(32)

#: the values of the parts of some keys, each in the form of its part
Values = Sequence[Any]


class KeyIndex:
    """The keys of an operator, and the slot of each."""

    def __init__(self, parts: Sequence[KeyPart]) -> None:
        self.parts = tuple(parts)
        self._one = self.parts[0] if len(self.parts) == 1 else None
        self._resize(_SMALLEST)

    @property
    def count(self) -> int:
        """Return the number of slots."""
        return self.parts[0].count

    @property
    def nbytes(self) -> int:
        """Return the bytes that index and keys take."""
        return self._places.nbytes + sum(part.nbytes for part in self.parts)

    def find(self, values: Values) -> Slots:
        """Return the slot of each key; -1 if it has none."""
        return self._find(values, self._codes(values))

    def add(self, values: Values) -> Slots:
        """Return the slot of each key, and give one to those that have none; keys are distinct."""
        codes = self._codes(values)
        slots = self._find(values, codes)
        new = np.flatnonzero(slots < 0)
        if len(new):
            slots[new] = self._append(self._picked(values, new), codes[new])
        return slots

    def append(self, values: Values) -> Slots:
        """Give slots to keys that are distinct and have none."""
        return self._append(values, self._codes(values))

    def stored(self, slots: Slots) -> Values:
        """Return the keys of slots."""
        return self._picked([part.stored(0, self.count) for part in self.parts], slots)

    def views(self) -> list[Callable[[Slots], pa.Array]]:
        """Return, for each part, a function that returns the values of slots, as of now."""
        return [part.view() for part in self.parts]

    def _picked(self, values: Values, places: Slots) -> Values:
        return [part.pick(of, places) for part, of in zip(self.parts, values, strict=True)]

    def _codes(self, values: Values) -> Words:
        codes = self.parts[0].codes(values[0])
        for part, others in zip(self.parts[1:], values[1:], strict=True):
            mixed = codes * _CHAIN
            codes = (mixed ^ mixed >> _FOLD) + part.codes(others)
        return codes

    def _same(self, slots: Slots, values: Values) -> Mask:
        if self._one is not None:
            return self._one.same(slots, values[0])
        same = self.parts[0].same(slots, values[0])
        for part, others in zip(self.parts[1:], values[1:], strict=True):
            same &= part.same(slots, others)
        return same

    def _home(self, codes: Words) -> Slots:
        # NB: once would not do: multiples of a number may then meet in few places
        mixed = codes * _MIX
        places: Slots = (((mixed ^ mixed >> _FOLD) * _MIX) >> self._shift).astype(np.int64)
        return places

    def _find(self, values: Values, codes: Words) -> Slots:
        if not self.count:
            return np.full(len(codes), _FREE, np.int64)
        places = self._home(codes)
        slots = self._places[places].astype(np.int64)
        left = self._others(slots, values, np.arange(len(slots)))
        step = 1
        while len(left):
            places[left] = places[left] + step & self._mask
            slots[left] = self._places[places[left]]
            left = self._others(slots, values, left)
            step += 1
        return slots

    def _others(self, slots: Slots, values: Values, places: Slots) -> Slots:
        """Return those of the places at which the slot is of another key."""
        taken: Slots = places[slots[places] != _FREE]
        if len(taken) == len(slots):
            return np.flatnonzero(~self._same(slots, values))
        return taken[~self._same(slots[taken], self._picked(values, taken))]

    def _append(self, values: Values, codes: Words) -> Slots:
        first, count = self.count, len(codes)
        if first + count > MOST_SLOTS:
            message = f"more than {MOST_SLOTS} keys in one subtask; use a higher parallelism"
            raise OverflowError(message)
        for part, of in zip(self.parts, values, strict=True):
            part.append(of)
        slots = np.arange(first, first + count)
        if first + count > self._mask * _LOAD:
            self._rebuild()
        else:
            self._insert(slots, codes)
        return slots

    def _insert(self, slots: Slots, codes: Words) -> None:
        """Enter new slots; in each round those that met on one free place leave it to one."""
        places, step = self._home(codes), 1
        while len(slots):
            free = np.flatnonzero(self._places[places] == _FREE)
            self._places[places[free]] = slots[free]
            left = np.flatnonzero(self._places[places] != slots)
            slots, places = slots[left], places[left] + step & self._mask
            step += 1

    def _rebuild(self) -> None:
        self._resize(1 << int(np.ceil(np.log2(self.count / _LOAD))))
        stored = [part.stored(0, self.count) for part in self.parts]
        self._insert(np.arange(self.count), self._codes(stored))

    def _resize(self, places: int) -> None:
        self._mask = places - 1
        self._shift = np.uint64(64 - (places.bit_length() - 1))
        self._places = np.full(places, _FREE, np.int32)
