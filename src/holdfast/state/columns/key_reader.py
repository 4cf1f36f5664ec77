"""`KeyReader`: the keys of a table at one time, one by one and as chunks of a state file.

The columns of an operator mostly change in the same rows. So while their keys do not change, they
share a reader, and the keys of these rows are sorted by key group and encoded only once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from holdfast.state.column_keys import column_key_groups, python_keys
from holdfast.state.columns.growing import Array, Slots
from holdfast.state.columns.key_index import KeyIndex
from holdfast.state.columns.key_shape import KeyShape
from holdfast.state.types.arrow_columns import encode_arrow, encode_tuples
from holdfast.state.types.serializers import Codec, EncodedColumn

#: keys per chunk
_CHUNK: Final = 1 << 16
#: the rows that have a value, and those that have none any more
_KEPT: Final = 2


class KeyChunk(NamedTuple):
    """Keys with neighbouring key groups, encoded.

    Attributes:
        places: where they are in the slots that were given.
        first, last: their first and last key group.
        columns: the keys, and their namespaces if they have any.
    """

    places: Slots
    first: int
    last: int
    columns: tuple[EncodedColumn, ...]


class _Made(NamedTuple):
    """What was made of some slots."""

    slots: Slots
    max_parallelism: int
    chunks: Sequence[KeyChunk]


class KeyReader:
    """The keys of a table as they were at one time."""

    def __init__(self, shape: KeyShape, index: KeyIndex) -> None:
        #: how many slots it knows
        self.count = index.count
        self._shape = shape
        self._index = index
        self._views = index.views()
        self._made: deque[_Made] = deque(maxlen=_KEPT)

    def __call__(self, slots: Slots) -> tuple[pa.Array, pa.Array | None]:
        """Return the keys of slots, and their namespaces if they have any."""
        return self._shape.join([view(slots) for view in self._views])

    def values(self, slots: Slots) -> list[Any]:
        """Return the keys of slots as Python values; with its namespace if it has one."""
        keys, spaces = self(slots)
        if spaces is None:
            return python_keys(keys)
        return list(zip(python_keys(keys), python_keys(spaces), strict=True))

    def is_of(self, index: KeyIndex) -> bool:
        """Return whether these are still all keys of an index."""
        return self._index is index and self.count == index.count

    def chunks(self, slots: Slots, max_parallelism: int) -> Sequence[KeyChunk]:
        """Return the keys of slots sorted by key group, in chunks."""
        if not len(slots):
            return ()
        for made in tuple(self._made):
            if made.max_parallelism == max_parallelism and np.array_equal(made.slots, slots):
                return made.chunks
        chunks = self._encoded(slots, max_parallelism)
        self._made.append(_Made(slots, max_parallelism, chunks))
        return chunks

    def _encoded(self, slots: Slots, max_parallelism: int) -> Sequence[KeyChunk]:
        groups = self._groups(slots, max_parallelism)
        order = np.argsort(groups, kind="stable")
        chunks = []
        for start in range(0, len(order), _CHUNK):
            places = order[start : start + _CHUNK]
            first, last = int(groups[places[0]]), int(groups[places[-1]])
            columns = [_encode_keys(part) for part in self(slots[places]) if part is not None]
            chunks.append(KeyChunk(places, first, last, tuple(columns)))
        return chunks

    def _groups(self, slots: Slots, max_parallelism: int) -> Array:
        """Return the key groups of slots; in parts: an array of all texts may be too large."""
        parts = (slots[first : first + _CHUNK] for first in range(0, len(slots), _CHUNK))
        return np.concatenate([column_key_groups(self(part)[0], max_parallelism) for part in parts])


def _encode_keys(keys: pa.Array) -> EncodedColumn:
    if not pa.types.is_struct(keys.type):
        return EncodedColumn(Codec.ARROW, encode_arrow(keys))
    names = [field.name for field in keys.type]
    return EncodedColumn(Codec.ARROW, encode_tuples(keys.flatten(), names))
