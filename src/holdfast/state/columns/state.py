"""`ColumnState`: one value per key, read and changed for all rows of a batch at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from holdfast.state.columns.column import Column
from holdfast.state.columns.given import ColumnInput, Values
from holdfast.state.columns.growing import Array, Mask, Slots
from holdfast.state.columns.keys import Keys
from holdfast.state.columns.reducing import ColumnReducer
from holdfast.state.columns.table import ColumnTable


class ColumnState:
    """One value per key, in a column.

    A method takes the keys of a batch and a value per row: an Arrow array, a numpy array, a list,
    or one value for all rows. The rows of a key count in their order, as often as it occurs. A
    value that is null removes the key's value in `put`, and is ignored by all others.

    A key without a value has the default of the descriptor. So `add`, `min` and `max` begin with
    the default; without one `add` begins with 0, `min` and `max` with the first value.
    """

    def __init__(self, table: ColumnTable, name: str) -> None:
        self.name = name
        self._table = table
        self._column: Column = table.columns[name]
        self._form = self._column.form
        self._place = f"column state {name!r} of operator {table.operator!r}"
        self._input = ColumnInput(self._form, self._place)
        self._reducer = ColumnReducer(table, self._column, self._place)

    def __repr__(self) -> str:
        return f"ColumnState({self.name!r}, {self._form.type})"

    # Reading.

    def get(self, keys: Keys) -> pa.Array:
        """Return the value of each row's key; null if it has none and there is no default."""
        return self._read(self._known(keys).rows)

    def get_distinct(self, keys: Keys) -> pa.Array:
        """Return the value of each distinct key, in the order of `Keys.distinct`."""
        return self._read(self._known(keys).slots)

    # Changing.

    def put(self, keys: Keys, values: Values) -> None:
        """Set the value of each key to that of its last row; null removes it."""
        given, valid = self._input.read(values, len(self._known(keys)))
        last = keys.last_rows
        self._set(keys.slots, given[last], None if valid is None else valid[last])

    def put_distinct(self, keys: Keys, values: Values) -> None:
        """Set the value of each distinct key, in the order of `Keys.distinct`; null removes it."""
        self._set(keys.slots, *self._input.read(values, len(self._known(keys).slots)))

    def last(self, keys: Keys, values: Values) -> None:
        """Set the value of each key to the last one that is not null."""
        keys, given = self._valid(keys, values)
        self._set(keys.slots, given[keys.last_rows], None)

    def first(self, keys: Keys, values: Values) -> None:
        """Set the value of each key that has none to the first one that is not null."""
        keys, given = self._valid(keys, values)
        column = self._column
        column.begin(keys.slots)
        firsts = keys.order[np.cumsum(keys.counts) - keys.counts]
        new = ~column.present[keys.slots]
        self._set(keys.slots[new], given[firsts[new]], None)

    def add(self, keys: Keys, values: Values) -> None:
        """Add the values of its rows to each key's value."""
        self._need(self._form.is_number, "add", "a number")
        self._reducer.reduce(np.add, *self._valid(keys, values))

    def count(self, keys: Keys) -> None:
        """Add the number of its rows to each key's value."""
        self.add(keys, 1)

    def min(self, keys: Keys, values: Values) -> None:
        """Set the value of each key to the smallest of it and its rows; NaN is ignored."""
        self._need(self._form.is_ordered, "min", "ordered")
        self._reducer.reduce(self._reducer.smaller, *self._valid(keys, values))

    def max(self, keys: Keys, values: Values) -> None:
        """Set the value of each key to the largest of it and its rows; NaN is ignored."""
        self._need(self._form.is_ordered, "max", "ordered")
        self._reducer.reduce(self._reducer.larger, *self._valid(keys, values))

    def clear(self, keys: Keys) -> None:
        """Remove the value of each key."""
        self._column.drop(self._known(keys).slots)

    # Changing, and returning the value after each row.

    def running_add(self, keys: Keys, values: Values) -> pa.Array:
        """`add`, and return the value of the row's key after each row."""
        self._need(self._form.is_number, "running_add", "a number")
        return self._run(np.add, keys, values)

    def running_count(self, keys: Keys) -> pa.Array:
        """`count`, and return the value of the row's key after each row."""
        return self.running_add(keys, 1)

    def running_min(self, keys: Keys, values: Values) -> pa.Array:
        """`min`, and return the value of the row's key after each row."""
        self._need(self._form.is_ordered, "running_min", "ordered")
        return self._run(self._reducer.smaller, keys, values)

    def running_max(self, keys: Keys, values: Values) -> pa.Array:
        """`max`, and return the value of the row's key after each row."""
        self._need(self._form.is_ordered, "running_max", "ordered")
        return self._run(self._reducer.larger, keys, values)

    # The steps of the methods above.

    def _known(self, keys: Keys) -> Keys:
        if not isinstance(keys, Keys):
            message = (
                f"{self._place}: expected the keys of a batch; got {keys!r} "
                f"({type(keys).__name__}); use the state in process_batch() or on_timers() of a "
                "KeyedBatchFunction, with the keys that it was called with"
            )
            raise TypeError(message)
        if keys.table is not self._table or keys.generation != self._table.generation:
            message = (
                f"column state {self.name!r}: the keys are not of this batch; use the keys that "
                "the function was called with"
            )
            raise ValueError(message)
        return keys

    def _read(self, slots: Slots) -> pa.Array:
        values, valid = self._column.read(slots)
        return self._form.array(values, None if self._column.has_default else valid)

    def _set(self, slots: Slots, values: Array, valid: Mask | None) -> None:
        column = self._column
        if valid is not None:
            column.drop(slots[~valid])
            slots, values = slots[valid], values[valid]
        column.values[slots] = values
        column.written(slots)

    def _valid(self, keys: Keys, values: Values) -> tuple[Keys, Array]:
        """Return the values that are not null, and the keys of their rows."""
        given, valid = self._input.read(values, len(self._known(keys)))
        if valid is None:
            return keys, given
        return keys.filter(valid), given[valid]

    def _run(self, operation: np.ufunc, keys: Keys, values: Values) -> pa.Array:
        every = self._known(keys)
        given, valid = self._input.read(values, len(every))
        keys = every if valid is None else every.filter(valid)
        chosen = given if valid is None else given[valid]
        before = None if valid is None else self._column.read(every.rows)
        after = self._reducer.running(operation, keys, chosen)
        if valid is None or before is None:
            return self._form.array(after)
        return self._with_nulls(every, valid, before, after)

    def _with_nulls(
        self, keys: Keys, valid: Mask, before: tuple[Array, Mask], after: Array
    ) -> pa.Array:
        """Return the value after each row, also for rows whose own value is null."""
        values, present = before
        values[valid], present[valid] = after, True
        # A row without a value has that of the last row of its key which has one.
        ordered, numbers = valid[keys.order], np.arange(len(valid))
        firsts = np.repeat(np.cumsum(keys.counts) - keys.counts, keys.counts)
        latest = np.maximum.accumulate(np.where(ordered, numbers, -1))
        source = np.where(latest >= firsts, latest, numbers)
        rows = np.empty_like(numbers)
        rows[keys.order] = keys.order[source]
        return self._form.array(values[rows], None if self._column.has_default else present[rows])

    def _need(self, holds: bool, method: str, what: str) -> None:
        if not holds:
            message = (
                f"{self._place}: {method} needs a type that is {what}; it is {self._form.type}"
            )
            raise TypeError(message)
