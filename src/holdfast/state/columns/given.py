"""`ColumnInput`: the values that a function gives for a column, checked and in its form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.state.columns.forms import ValueForm
from holdfast.state.columns.growing import Array, Mask
from holdfast.state.errors import StateTypeError

#: what values can be: one per row, or one for all rows
Values = Any


class ColumnInput:
    """Reads values of any kind for a column; messages begin with ``place``."""

    def __init__(self, form: ValueForm, place: str) -> None:
        self._form = form
        self._place = place

    def read(self, values: Values, count: int) -> tuple[Array, Mask | None]:
        """Return ``count`` values as the column has them, and which are not null; None: all."""
        form = self._form
        if isinstance(values, np.ndarray) and values.dtype == form.dtype != object:
            self._check_count(len(values), count)
            return values, None
        array = self._array(values)
        valid = None
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
        given = form.numbers(array)
        if _is_one(values):
            return np.broadcast_to(given, count), valid if valid is None else np.zeros(count, bool)
        self._check_count(len(given), count)
        return given, valid

    def _array(self, values: Values) -> pa.Array:
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        try:
            if isinstance(values, pa.Array | pa.Scalar):
                same = values if values.type == self._form.type else values.cast(self._form.type)
                return same if isinstance(same, pa.Array) else pa.array([same.as_py()], same.type)
            whole = [values] if _is_one(values) else values
            return pa.array(whole, self._form.type, from_pandas=False)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            message = (
                f"{self._place}: a value does not fit its type {self._form.type}: {error}; convert "
                "the values, or declare another type"
            )
            raise StateTypeError(message) from None

    def _check_count(self, got: int, expected: int) -> None:
        if got != expected:
            message = (
                f"{self._place}: expected {expected} values; got {got}; give one value for each "
                "row of the keys, or one for each distinct key to put_distinct"
            )
            raise ValueError(message)


def _is_one(values: Values) -> bool:
    return not isinstance(values, pa.Array | pa.ChunkedArray | np.ndarray | list)
