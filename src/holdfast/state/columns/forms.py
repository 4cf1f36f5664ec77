"""`ValueForm`: how the values of an Arrow type are held in a numpy column.

Values of fixed width are held as numbers: integers, floats, booleans, dates, times, timestamps and
durations. Values of any other type (decimals, strings, lists, and so on) are Python objects. They
are put and read for many keys at once, too, but cost about as much as in other states.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from holdfast.state.columns.growing import Array, Mask

_INTEGERS: Final = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


class ValueForm:
    """The numpy form of an Arrow type."""

    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self._held = _held(type_)
        #: the type of numpy's values
        self.dtype = np.dtype(object if self._held is None else self._held.to_pandas_dtype())
        #: what stands for no value; it is never seen
        self.blank: Any = None if self._held is None else self.dtype.type(0)

    @property
    def is_number(self) -> bool:
        """Return whether values can be added."""
        return kinds.is_integer(self.type) or kinds.is_floating(self.type) or self.is_decimal

    @property
    def is_decimal(self) -> bool:
        """Return whether values are decimals."""
        return bool(kinds.is_decimal(self.type))

    @property
    def is_ordered(self) -> bool:
        """Return whether values have a minimum and a maximum."""
        return not kinds.is_nested(self.type) and not kinds.is_null(self.type)

    def numbers(self, array: pa.Array) -> Array:
        """Return the values of an array of this type; null has any value."""
        if self._held is None:
            return np.fromiter(array.to_pylist(), object, len(array))
        if array.null_count:
            array = pc.fill_null(array.view(self._held), pa.scalar(0).cast(self._held))
        elif self._held != self.type:
            array = array.view(self._held)
        values: Array = array.to_numpy(zero_copy_only=False)
        return values

    def array(self, values: Array, valid: Mask | None = None) -> pa.Array:
        """Return values as an Arrow array; those that are not valid are null."""
        mask = None if valid is None or valid.all() else ~valid
        if self._held is None:
            if mask is not None:
                values = values.copy()
                values[mask] = None
            return pa.array(values.tolist(), self.type)
        made = pa.array(values, self._held, mask=mask)
        return made if self._held == self.type else made.view(self.type)


def _held(type_: pa.DataType) -> pa.DataType | None:
    """Return the type of the numbers that stand for values of a type; None if they are objects."""
    if kinds.is_integer(type_) or kinds.is_floating(type_) or kinds.is_boolean(type_):
        return type_
    if kinds.is_temporal(type_) and type_ != pa.month_day_nano_interval():
        return _INTEGERS[type_.bit_width]
    return None
