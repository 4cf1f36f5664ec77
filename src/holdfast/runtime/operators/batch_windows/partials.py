"""`Partials`: the partial results of windows over columns, by key and pane."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.datastream.columns.aggregates import (
    COUNT,
    EARLIEST,
    LATEST,
    Aggregate,
    Top,
    state_name,
)
from holdfast.datastream.columns.batch import Batch
from holdfast.datastream.columns.windows import END, START, BatchWindows
from holdfast.runtime.operators.batch_windows.rankings import Ranking, StateMaker
from holdfast.state.columns.growing import Mask, Slots
from holdfast.state.columns.keys import Keys
from holdfast.state.columns.state import ColumnState
from holdfast.state.columns.table import ColumnTable
from holdfast.state.errors import StateTypeError

Times = npt.NDArray[np.int64]

_SUM: Final = "sum"
_FIRST: Final = "first"
_LAST: Final = "last"
#: how partial results of several panes are combined
_COMBINE: Final = {
    **{kind: kind for kind in (_SUM, "min", "max", _FIRST, _LAST)},
    **dict.fromkeys((COUNT, "valid"), _SUM),
    **{EARLIEST: "min", LATEST: "max"},
}
_GROUP: Final = "group"
#: the largest number of 64 bits
_LARGEST: Final = (1 << 63) - 1


class TimedRows(NamedTuple):
    """Rows of a batch, with the key and the time of each."""

    columns: pa.RecordBatch
    keys: pa.Array
    times: Times

    def take(self, places: Slots) -> TimedRows:
        """Return the rows at these places."""
        at = pa.array(places)
        return TimedRows(self.columns.take(at), self.keys.take(at), self.times[places])


class Partials:
    """The states with partial results; the namespace of a state is the start of a pane."""

    def __init__(self, windows: BatchWindows, table: ColumnTable, make_state: StateMaker) -> None:
        self._windows = windows
        self._table = table
        self._states: dict[str, ColumnState] = {
            name: make_state(name, kind) for name, (_, kind) in windows.partials.items()
        }
        self._rankings = {
            name: Ranking(name, top, windows.rows, table, make_state)
            for name, top in windows.aggregates.items()
            if isinstance(top, Top)
        }

    @property
    def version(self) -> tuple[int, int]:
        """Return a number that changes when slots are not those of before."""
        return self._table.generation, self._table.loads

    # Keys and panes.

    def live(self) -> Slots:
        """Return the slots that have partial results."""
        return np.flatnonzero(self._table.columns[COUNT].present[: len(self._table)])

    def keys(self, slots: Slots) -> tuple[pa.Array, Times]:
        """Return the keys and the panes of slots."""
        keys, panes = self._table.reader()(slots)
        assert panes is not None
        return keys, panes.to_numpy()

    def key_columns(self, keys: pa.Array) -> list[pa.Array]:
        """Return the columns of keys."""
        return keys.flatten() if pa.types.is_struct(keys.type) else [keys]

    def find(self, keys: pa.Array, panes: Times) -> Slots:
        """Return the slots of keys and panes; -1 if there is no partial result."""
        slots = self._table.find(keys, pa.array(panes))
        return np.where((slots >= 0) & self._present(slots), slots, -1)

    def times(self, name: str, slots: Slots) -> Times:
        """Return the earliest or the latest times of sessions."""
        values: Times = self._table.columns[name].values[slots]
        return values

    def _present(self, slots: Slots) -> Mask:
        present = self._table.columns[COUNT].present
        return present[slots] if len(present) else np.zeros(len(slots), np.bool_)

    # States.

    def add(self, rows: TimedRows, panes: Times) -> tuple[Slots, Slots]:
        """Add rows to panes; return the slots of new panes, and a row of each."""
        keys = self._table.keys(rows.keys, pa.array(panes))
        new = ~self._present(keys.slots)
        places = keys.last_rows[new]
        for name, (part, kind) in self._windows.partials.items():
            _accumulate(self._states[name], part, keys, rows, kind)
        for ranking in self._rankings.values():
            ranking.add(keys, rows.columns)
        return keys.slots[new], places

    def read(self, slots: Slots) -> pa.Table:
        """Return the partial results of slots."""
        keys = Keys(self._table, slots)
        return pa.table({name: state.get(keys) for name, state in self._all().items()})

    def write(self, slots: Slots, found: pa.Table) -> None:
        """Set the partial results of slots, which are distinct."""
        keys = Keys(self._table, slots)
        for name, state in self._all().items():
            state.put(keys, found[name])

    def clear(self, slots: Slots) -> None:
        """Remove the partial results of slots."""
        keys = Keys(self._table, slots, np.arange(len(slots)), slots)
        for state in self._all().values():
            state.clear(keys)

    def _all(self) -> dict[str, ColumnState]:
        every = dict(self._states)
        for ranking in self._rankings.values():
            every |= ranking.states
        return every

    # Results.

    def combined(self, found: pa.Table, groups: Slots) -> pa.Table:
        """Combine the rows of each group, which are in the order of their panes."""
        calls = {name: _COMBINE[part.kind] for name, (part, _) in self._windows.partials.items()}
        count = int(groups.max()) + 1
        columns = {
            name: _edges(found[name], groups, count, how)
            for name, how in calls.items()
            if how in (_FIRST, _LAST)
        }
        columns |= _grouped(
            {name: (found[name], how) for name, how in calls.items() if name not in columns}, groups
        )
        for ranking in self._rankings.values():
            columns |= ranking.combined(found, groups, count)
        return pa.table(columns)

    def results(self, keys: pa.Array, starts: Times, ends: Times, found: pa.Table) -> Batch:
        """Return windows as rows."""
        schema, named = self._windows.schema, self._windows.aggregates.items()
        values = {
            **dict(zip(self._windows.keys, self.key_columns(keys), strict=True)),
            START: pa.array(starts),
            END: pa.array(ends),
            **{name: self._value(name, aggregate, found) for name, aggregate in named},
        }
        arrays = [_array(values[field.name], field.type) for field in schema]
        return Batch(pa.RecordBatch.from_arrays(arrays, schema=schema), pa.array(ends - 1))

    def _value(self, name: str, aggregate: Aggregate, found: pa.Table) -> Any:
        if name in self._rankings:
            return self._rankings[name].lists(found)
        if aggregate.kind != "avg":
            return found[state_name(aggregate)]
        total, valid = (found[state_name(part)] for part in aggregate.partials)
        counts = pc.if_else(pc.equal(valid, 0), None, valid)
        # NB: a sum of more than 53 bits is rounded, which a safe cast would refuse
        return pc.divide(pc.cast(total, pa.float64(), safe=False), pc.cast(counts, pa.float64()))


def _accumulate(
    state: ColumnState, part: Aggregate, keys: Keys, rows: TimedRows, kind: pa.DataType
) -> None:
    if part.kind == COUNT:
        state.count(keys)
    elif part.kind == EARLIEST:
        state.min(keys, rows.times)
    elif part.kind == LATEST:
        state.max(keys, rows.times)
    elif part.kind == "valid":
        state.add(keys, pc.cast(rows.columns[part.column].is_valid(), pa.int64()))
    elif part.kind == "sum":
        state.add(keys, rows.columns[part.column].cast(kind))
    else:
        getattr(state, part.kind)(keys, rows.columns[part.column])


def _edges(column: pa.ChunkedArray, groups: Slots, count: int, how: str) -> pa.ChunkedArray:
    """Return the first or the last value of each group that is not null."""
    valid = np.flatnonzero(column.is_valid().to_numpy())
    order = valid if how == _LAST else valid[::-1]
    places = np.full(count, -1)
    places[groups[order]] = order  # NB: of rows in one group, the last assignment counts
    return column.take(pa.array(places, mask=places < 0))


def _grouped(
    columns: dict[str, tuple[pa.ChunkedArray, str]], groups: Slots
) -> dict[str, pa.ChunkedArray]:
    """Return the sum, the smallest or the largest value of each group."""
    for name, (column, how) in columns.items():
        if how == _SUM and pa.types.is_integer(column.type):
            _check_sums(name, column, groups)
    table = pa.table({name: _comparable(column) for name, (column, _) in columns.items()})
    table = table.append_column(_GROUP, pa.array(groups))
    calls = [(name, how) for name, (_, how) in columns.items()]
    grouped = table.group_by(_GROUP, use_threads=False).aggregate(calls).sort_by(_GROUP)
    return {
        name: grouped[f"{name}_{how}"].cast(column.type) for name, (column, how) in columns.items()
    }


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values in a type that Arrow can compare in groups."""
    if pa.types.is_duration(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.float32()) if pa.types.is_float16(column.type) else column


def _check_sums(name: str, column: pa.ChunkedArray, groups: Slots) -> None:
    """Check that sums of 64 bits do not overflow, which Arrow would not tell."""
    values = pc.fill_null(column, 0).to_numpy()
    most = max(abs(int(values.max())), abs(int(values.min())))
    if most * len(values) <= _LARGEST:
        return
    sums = np.zeros(int(groups.max()) + 1, object)
    np.add.at(sums, groups, values.astype(object))
    wrong = next((total for total in sums.tolist() if not -_LARGEST - 1 <= total <= _LARGEST), None)
    if wrong is not None:
        message = (
            f"windows: the {name!r} of a window is {wrong}, which does not fit int64; cast the "
            "column to float64 before the windows"
        )
        raise StateTypeError(message)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return whole if whole.type == kind else whole.cast(kind)
