"""`ColumnReducer`: adds to the values of a column, or keeps the smallest or largest of each key.

Sums of integers and decimals that do not fit their type are an error. Where a bound shows that they
fit, numpy adds them as they are; otherwise they are added as Python's integers, and checked.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from holdfast.state.column_keys import python_keys
from holdfast.state.columns.column import Column
from holdfast.state.columns.growing import Array, Slots
from holdfast.state.columns.keys import Keys
from holdfast.state.columns.ordering import running
from holdfast.state.columns.table import ColumnTable
from holdfast.state.errors import StateTypeError


class ColumnReducer:
    """Changes the values of a column by operations of two values: adding, minimum, maximum."""

    def __init__(self, table: ColumnTable, column: Column, place: str) -> None:
        """Change a column of a table; messages begin with ``place``."""
        self._table = table
        self._column = column
        self._form = column.form
        self._place = place

    @property
    def smaller(self) -> np.ufunc:
        """Return the operation that keeps the smaller of two values; NaN is ignored."""
        return np.fmin if self._form.dtype.kind == "f" else np.minimum

    @property
    def larger(self) -> np.ufunc:
        """Return the operation that keeps the larger of two values; NaN is ignored."""
        return np.fmax if self._form.dtype.kind == "f" else np.maximum

    def reduce(self, operation: np.ufunc, keys: Keys, values: Array) -> None:
        """Apply an operation to the value of each key and the values of its rows."""
        column, rows = self._column, keys.rows
        if not len(rows):
            return
        self._begin(operation, rows, values)
        if operation is np.add and not self._fits(rows, values):
            exact = column.values[keys.slots].astype(object)
            np.add.at(exact, keys.indices, values.astype(object))
            column.values[keys.slots] = self._checked(exact, keys.slots)
        else:
            operation.at(column.values, rows, values)
        column.written(rows)

    def running(self, operation: np.ufunc, keys: Keys, values: Array) -> Array:
        """Change the column, and return the value after each row."""
        column, slots = self._column, keys.slots
        if not len(values):
            return values
        self._begin(operation, keys.rows, values)
        start, ordered = column.values[slots], values[keys.order]
        if operation is not np.add and not column.has_default:
            # NB: begin with the first value of each key, not with any
            new = ~column.present[slots]
            start[new] = ordered[(np.cumsum(keys.counts) - keys.counts)[new]]
        results = self._sums(keys, start, ordered) if operation is np.add else None
        if results is None:
            results = running(operation, start, ordered, keys.counts)
        column.values[slots] = results[np.cumsum(keys.counts) - 1]
        column.written(slots)
        after = np.empty_like(results)
        after[keys.order] = results
        return after

    def _begin(self, operation: np.ufunc, rows: Slots, values: Array) -> None:
        """Give keys without a value one to begin with."""
        column = self._column
        column.begin(rows)
        if column.has_default:
            return
        if operation is not np.add:
            # NB: any value of a key does, since the smallest of all values is wanted
            new = ~column.present[rows]
            column.values[rows[new]] = values[new]
        elif self._form.dtype == object:
            column.values[rows[~column.present[rows]]] = 0

    def _fits(self, rows: Slots, values: Array) -> bool:
        """Return whether sums of integers cannot exceed their type, by a bound of them."""
        dtype = self._form.dtype
        if dtype.kind not in "iu":
            return dtype.kind == "f"
        current = self._column.values[rows]
        largest = max(abs(int(values.max())), abs(int(values.min()))) * len(values)
        largest += max(abs(int(current.max())), abs(int(current.min())))
        within = int(current.min()) >= 0 and int(values.min()) >= 0
        return largest <= np.iinfo(dtype).max and (within or dtype.kind == "i")

    def _checked(self, exact: Array, slots: Slots) -> Array:
        """Return sums in the form of the column; raise an error if one does not fit."""
        try:
            if self._form.is_decimal:
                self._form.array(exact)
                return exact
            return exact.astype(self._form.dtype)
        except (OverflowError, pa.ArrowException) as error:
            place = self._first_wrong(exact)
            key = python_keys(self._table.keys_at(slots[place : place + 1]))[0]
            message = (
                f"{self._place}, key {key!r}: the sum {exact[place]} does not fit its type "
                f"{self._form.type}; declare a wider type"
            )
            raise StateTypeError(message) from error

    def _first_wrong(self, exact: Array) -> int:
        for place, value in enumerate(exact.tolist()):
            try:
                pa.array([value], self._form.type)
            except (OverflowError, pa.ArrowException):
                return place
        return 0

    def _sums(self, keys: Keys, start: Array, ordered: Array) -> Array | None:
        """Return running sums of integers; None if they must be added one by one."""
        if self._form.dtype.kind not in "iu":
            return None if self._form.dtype.kind == "f" else self._exact_sums(keys, start, ordered)
        if not self._fits(keys.slots, ordered):
            return self._exact_sums(keys, start, ordered)
        firsts = np.cumsum(keys.counts) - keys.counts
        # NB: sums of other keys may exceed 64 bits; their differences are right all the same
        wide = ordered.astype(np.int64)
        sums = np.cumsum(wide)
        before = sums[firsts] - wide[firsts]
        sums += np.repeat(start.astype(np.int64) - before, keys.counts)
        return sums.astype(self._form.dtype)

    def _exact_sums(self, keys: Keys, start: Array, ordered: Array) -> Array:
        exact = running(np.add, start.astype(object), ordered.astype(object), keys.counts)
        return self._checked(exact, np.repeat(keys.slots, keys.counts))
