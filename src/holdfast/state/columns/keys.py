"""`Keys`: the keys of the rows of a batch."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa

from holdfast.state.columns.growing import Slots
from holdfast.state.columns.ordering import order_of


class KeyTable(Protocol):
    """What keys need of the table that they are in."""

    generation: int

    def keys_at(self, slots: Slots) -> pa.Array: ...

    def scratch(self) -> Slots: ...


class Keys:
    """The key of each row of a batch.

    Attributes:
        rows: per row, the slot of its key in the table of the operator.

    Keys are valid while their batch is processed. What is not used is not computed.
    """

    def __init__(
        self, table: KeyTable, rows: Slots, indices: Slots | None = None, slots: Slots | None = None
    ) -> None:
        self.rows = rows
        self.table = table
        self.generation = table.generation
        self._given = None if indices is None or slots is None else (indices, slots)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    @property
    def indices(self) -> Slots:
        """Return, per row, the number of its key in `distinct`."""
        return self._dense[0]

    @property
    def slots(self) -> Slots:
        """Return, per distinct key, its slot in the table of the operator."""
        return self._dense[1]

    @cached_property
    def distinct(self) -> pa.Array:
        """Return the distinct keys; a struct array if the key has several columns."""
        return self.table.keys_at(self.slots)

    @property
    def values(self) -> pa.Array:
        """Return the key of each row."""
        return self.distinct.take(pa.array(self.indices))

    @cached_property
    def last_rows(self) -> Slots:
        """Return, per distinct key, its last row."""
        last = np.full(len(self.slots), -1)
        np.maximum.at(last, self.indices, np.arange(len(self.rows)))
        return last

    @cached_property
    def order(self) -> Slots:
        """Return the rows sorted by key; the rows of a key stay in their order."""
        return order_of(self.indices, len(self.slots))

    @cached_property
    def counts(self) -> Slots:
        """Return, per distinct key, how many rows it has."""
        return np.bincount(self.indices, minlength=len(self.slots))

    def filter(self, mask: pa.Array | np.ndarray) -> Keys:
        """Return the keys of the rows that the mask selects; null selects none."""
        if isinstance(mask, pa.Array | pa.ChunkedArray):
            mask = mask.fill_null(False).to_numpy(zero_copy_only=False)
        return Keys(self.table, self.rows[np.asarray(mask, np.bool_)])

    def take(self, rows: pa.Array | np.ndarray) -> Keys:
        """Return the keys of these rows."""
        if isinstance(rows, pa.Array):
            rows = rows.to_numpy(zero_copy_only=False)
        return Keys(self.table, self.rows[rows])

    @cached_property
    def _dense(self) -> tuple[Slots, Slots]:
        if self._given is not None:
            return self._given
        # Each key is represented by one of its rows: that whose number was kept. This takes a tenth
        # of the time of `np.unique`, which sorts.
        scratch, numbers = self.table.scratch(), np.arange(len(self.rows))
        scratch[self.rows] = numbers
        chosen = scratch[self.rows]
        firsts = chosen == numbers
        return (np.cumsum(firsts) - 1)[chosen], self.rows[firsts]
