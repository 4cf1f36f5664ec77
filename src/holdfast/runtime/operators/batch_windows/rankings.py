"""`Ranking`: the rows of each key and pane with the largest or the smallest values.

There is a state for each rank and column: a pane has at most as many rows as are asked for. Most
rows of a batch do not get a rank, and cost a comparison with the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.datastream.columns.aggregates import Top, type_of
from holdfast.state.columns.growing import Array, Mask, Slots
from holdfast.state.columns.keys import Keys
from holdfast.state.columns.state import ColumnState
from holdfast.state.columns.table import ColumnTable

#: returns the state with this name and type
StateMaker = Callable[[str, pa.DataType], ColumnState]


class Ranking:
    """The states of one `Top`.

    Attributes:
        states: by name.
    """

    def __init__(
        self, name: str, top: Top, rows: pa.Schema, table: ColumnTable, make_state: StateMaker
    ) -> None:
        self._top = top
        self._table = table
        self._type = top.type_in(rows)
        #: by column, the names of the states by rank
        self._names = {
            column: [f"{rank} of {name}: {column}" for rank in range(1, top.n + 1)]
            for column in top.stored_in(rows)
        }
        self._columns = {column: type_of(column, rows) for column in self._names}
        self.states = {
            state: make_state(state, self._columns[column])
            for column, states in self._names.items()
            for state in states
        }

    @property
    def _by(self) -> list[str]:
        return self._names[self._top.column or ""]

    # Adding rows.

    def add(self, keys: Keys, rows: pa.RecordBatch) -> None:
        """Give ranks to rows; those that had them move down, or are removed."""
        by = self._top.column or ""
        places = self._entering(keys, rows[by].cast(self._columns[by]))
        if not len(places):
            return
        entering = keys.take(places)
        slots = entering.slots
        old = [self._held(name, slots) for name in self._by]
        groups = np.concatenate([*old, entering.indices])
        ranks = np.repeat(np.arange(len(old) + 1), [*map(len, old), len(places)])
        chosen = pa.array(places)
        columns = {
            column: _joined(
                [
                    *(self._read(name, slots[at]) for name, at in zip(names, old, strict=True)),
                    rows[column].take(chosen).cast(self._columns[column]),
                ]
            )
            for column, names in self._names.items()
        }
        order, _ = self._order_of(columns[by])
        source, group, rank = self._best(groups, order)
        self._write(columns, source, slots[group], rank, rank != ranks[source])

    def _entering(self, keys: Keys, values: pa.Array) -> Slots:
        """Return the rows that are better than the last one of their key, without those of now."""
        order, valid = self._order_of(values)
        last = self._table.columns[self._by[-1]]
        before, _ = self._order_of(last.form.array(last.values[keys.rows]))
        return np.flatnonzero(valid & (~last.present[keys.rows] | (order < before)))

    def _held(self, name: str, slots: Slots) -> Slots:
        return np.flatnonzero(self._table.columns[name].present[slots])

    def _read(self, name: str, slots: Slots) -> pa.Array:
        return self.states[name].get(Keys(self._table, slots))

    def _write(
        self, columns: dict[str, pa.Array], source: Slots, slots: Slots, rank: Slots, changed: Mask
    ) -> None:
        for number in range(self._top.n):
            at = np.flatnonzero(changed & (rank == number))
            if len(at):
                keys = Keys(self._table, slots[at], np.arange(len(at)), slots[at])
                taken = pa.array(source[at])
                for column, names in self._names.items():
                    self.states[names[number]].put_distinct(keys, columns[column].take(taken))

    # Results.

    def combined(self, found: pa.Table, groups: Slots, count: int) -> dict[str, pa.Array]:
        """Return the states of groups of rows, by the name of the state."""
        columns, rows, _ = self._flat(found)
        order, _ = self._order_of(columns[self._top.column or ""])
        source, group, rank = self._best(groups[rows], order, rows)
        result = {}
        for number in range(self._top.n):
            at = rank == number
            places = np.full(count, -1)
            places[group[at]] = source[at]
            taken = pa.array(places, mask=places < 0)
            for column, names in self._names.items():
                result[names[number]] = columns[column].take(taken)
        return result

    def lists(self, found: pa.Table) -> pa.Array:
        """Return, per row, the list of its ranked rows, the best one first."""
        columns, rows, ranks = self._flat(found)
        order = pa.array(np.lexsort((ranks, rows)))
        ends = np.cumsum(np.bincount(rows, minlength=len(found)))
        offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
        values = {name: columns[name].take(order) for name in self._top.shown_in(self._names)}
        kind = self._type.value_type
        items = (
            pa.StructArray.from_arrays(list(values.values()), fields=list(kind))
            if pa.types.is_struct(kind) and not isinstance(self._top.columns, str)
            else next(iter(values.values()))
        )
        return pa.ListArray.from_arrays(offsets, items, type=self._type)

    def _flat(self, found: pa.Table) -> tuple[dict[str, pa.Array], Slots, Slots]:
        """Return the ranked rows one by one: their columns, the row they are in, their ranks."""
        held = [np.flatnonzero(found[name].is_valid().to_numpy()) for name in self._by]
        columns = {
            column: _joined(
                [found[name].take(pa.array(at)) for name, at in zip(names, held, strict=True)]
            )
            for column, names in self._names.items()
        }
        ranks = np.repeat(np.arange(len(held)), list(map(len, held)))
        return columns, np.concatenate(held), ranks

    # Order.

    def _order_of(self, values: pa.Array) -> tuple[Array, Mask]:
        """Return numbers that are smaller for better values, and which values are valid."""
        form = self._table.columns[self._by[0]].form
        numbers = form.numbers(values)
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        if numbers.dtype.kind == "f":
            valid = valid & ~np.isnan(numbers)
            return (numbers if self._top.smallest else -numbers), valid
        # NB: the complement has no overflow, as the negative of the smallest integer has
        return (numbers if self._top.smallest else ~numbers), valid

    def _best(
        self, groups: Slots, order: Array, ties: Slots | None = None
    ) -> tuple[Slots, Slots, Slots]:
        """Return the best rows of each group: their places, groups and ranks."""
        by: tuple[Any, ...] = (order, groups) if ties is None else (ties, order, groups)
        source = np.lexsort(by)
        sorted_groups = groups[source]
        firsts = np.flatnonzero(np.diff(sorted_groups, prepend=-1))
        counts = np.diff(np.append(firsts, len(source)))
        rank = np.arange(len(source)) - np.repeat(firsts, counts)
        kept = rank < self._top.n
        return source[kept], sorted_groups[kept], rank[kept]


def _joined(parts: list[Any]) -> pa.Array:
    """Return arrays, or chunked arrays, as one array."""
    chunks = [
        chunk
        for part in parts
        for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])
    ]
    return pa.concat_arrays(chunks)
