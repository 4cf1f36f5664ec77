"""Arrow types of state in columns: what they are as type information, and which can be widened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds

from holdfast.common.typeinfo import TypeInformation, Types

_BY_TYPE: Final[dict[pa.DataType, Callable[[], TypeInformation]]] = {
    pa.bool_(): Types.BOOLEAN,
    pa.int8(): Types.BYTE,
    pa.int16(): Types.SHORT,
    pa.int32(): Types.INT,
    pa.int64(): Types.LONG,
    pa.uint8(): Types.SHORT,
    pa.uint16(): Types.INT,
    pa.uint32(): Types.LONG,
    pa.uint64(): Types.BIG_INT,
    pa.float32(): Types.FLOAT,
    pa.float64(): Types.DOUBLE,
    pa.string(): Types.STRING,
    pa.large_string(): Types.STRING,
    pa.binary(): Types.PICKLED_BYTE_ARRAY,
    pa.large_binary(): Types.PICKLED_BYTE_ARRAY,
    pa.date32(): Types.SQL_DATE,
}
_BY_KIND: Final = (
    (kinds.is_timestamp, Types.SQL_TIMESTAMP),
    (kinds.is_time, Types.SQL_TIME),
    (kinds.is_decimal, Types.BIG_DEC),
)
_PYTHON: Final[dict[Any, pa.DataType]] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
    bytes: pa.binary(),
}
_UNITS: Final = ("s", "ms", "us", "ns")


def arrow_type_of(declared: Any) -> pa.DataType | None:
    """Return the Arrow type for an Arrow type, or for int, float, bool, str or bytes; else None."""
    return declared if isinstance(declared, pa.DataType) else _PYTHON.get(declared)


def type_info_of_arrow(type_: pa.DataType) -> TypeInformation | None:
    """Return the type information that is saved with values of an Arrow type; None if none fits."""
    if kinds.is_list(type_) or kinds.is_large_list(type_):
        item = type_info_of_arrow(type_.value_type)
        return None if item is None else Types.LIST(item)
    known = _BY_TYPE.get(type_)
    if known is None:
        known = next((made for is_kind, made in _BY_KIND if is_kind(type_)), None)
    return None if known is None else known()


def can_widen(saved: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether every value of the saved type is a value of the declared one."""
    if saved == declared:
        return True
    if kinds.is_integer(saved) and kinds.is_integer(declared):
        if kinds.is_unsigned_integer(saved) == kinds.is_unsigned_integer(declared):
            return bool(saved.bit_width <= declared.bit_width)
        unsigned = kinds.is_unsigned_integer(saved)
        return bool(unsigned and saved.bit_width < declared.bit_width)
    if kinds.is_floating(declared):
        # NB: a float has 11, 24 or 53 bits for the number itself
        exact = {16: 11, 32: 24, 64: 53}[declared.bit_width]
        if kinds.is_floating(saved):
            return bool(saved.bit_width <= declared.bit_width)
        return bool(kinds.is_integer(saved) and saved.bit_width <= exact)
    if kinds.is_decimal(saved) and kinds.is_decimal(declared):
        whole = saved.precision - saved.scale, declared.precision - declared.scale
        return whole[0] <= whole[1] and bool(saved.scale <= declared.scale)
    if kinds.is_timestamp(saved) and kinds.is_timestamp(declared):
        finer = _UNITS.index(saved.unit) <= _UNITS.index(declared.unit)
        return finer and bool(saved.tz == declared.tz)
    both = {saved, declared}
    return both in ({pa.string(), pa.large_string()}, {pa.binary(), pa.large_binary()})
