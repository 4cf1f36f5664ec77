"""Type information of numbers, texts and instants, and of pickled objects."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from holdfast.common._type_infos.base import Scope, TypeInformation, wrong_range, wrong_type
from holdfast.common.time import Instant

_FLOAT: Final = struct.Struct("<f")


class BasicType(Enum):
    """The types of single values that are not dates or times of day."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


_PYTHON_TYPES: Final[dict[BasicType, type]] = {
    BasicType.STRING: str,
    BasicType.BYTE: int,
    BasicType.BOOLEAN: bool,
    BasicType.SHORT: int,
    BasicType.INT: int,
    BasicType.LONG: int,
    BasicType.FLOAT: float,
    BasicType.DOUBLE: float,
    BasicType.CHAR: str,
    BasicType.BIG_INT: int,
    BasicType.BIG_DEC: Decimal,
    BasicType.INSTANT: Instant,
}
_BITS: Final = {BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32, BasicType.LONG: 64}


@dataclass(frozen=True, repr=False)
class BasicTypeInfo(TypeInformation):
    """Type information of one of the `BasicType`s."""

    _basic_type: BasicType

    def shape(self, value: Any) -> Any:
        return None if value is None else _SHAPES[self._basic_type._value_](self, value)

    def msgpack_type(self) -> Any:
        """Return the type that msgspec decodes.

        MessagePack has integers of 64 bits; a larger `BIG_INT` is written as text.
        """
        return int | str if self._is_big_int() else _PYTHON_TYPES[self._basic_type]

    def to_msgpack(self) -> Callable[[Any], Any] | None:
        """Return the function to the object that msgspec encodes, for `BIG_INT`; else None."""
        return _big_int_to_msgpack if self._is_big_int() else None

    def from_msgpack(self) -> Callable[[Any], Any] | None:
        """Return the function from the object that msgspec decoded, for `BIG_INT`; else None."""
        return _big_int_from_msgpack if self._is_big_int() else None

    def need_conversion(self) -> bool:
        """Return whether `to_internal_type` changes values: for `INSTANT` it does."""
        return self._basic_type is BasicType.INSTANT

    def to_internal_type(self, obj: Any) -> Any:
        """Return an `Instant` as microseconds, any other value unchanged."""
        if obj is None or not self.need_conversion():
            return obj
        return obj.to_epoch_milli() * 1000

    def from_internal_type(self, obj: Any) -> Any:
        """Return the value from the result of `to_internal_type`; an `Instant` has milliseconds."""
        if obj is None or not self.need_conversion():
            return obj
        return Instant.of_epoch_milli(obj // 1000)

    def _is_big_int(self) -> bool:
        return self._basic_type is BasicType.BIG_INT

    def _test(self, value: str, scope: Scope) -> str:
        name = _PYTHON_TYPES[self._basic_type].__name__
        if name not in ("str", "int", "bool", "float"):
            name = scope.bind(_PYTHON_TYPES[self._basic_type])
        test = f"type({value}) is {name}"
        if self._basic_type in _BITS:
            low, high = _range(self._basic_type)
            return f"{test} and {low} <= {value} <= {high}"
        if self._basic_type is BasicType.FLOAT:
            return f"{test} and {scope.bind(_is_single)}({value})"
        return f"{test} and len({value}) == 1" if self._basic_type is BasicType.CHAR else test

    def __repr__(self) -> str:
        return self._basic_type.value

    @staticmethod
    def STRING_TYPE_INFO() -> BasicTypeInfo:
        """Return the type of `str`."""
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BOOLEAN_TYPE_INFO() -> BasicTypeInfo:
        """Return the type of `bool`."""
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def BYTE_TYPE_INFO() -> BasicTypeInfo:
        """Return the type of an `int` of 8 bits."""
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def SHORT_TYPE_INFO() -> BasicTypeInfo:
        """Return the type of an `int` of 16 bits."""
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT_TYPE_INFO() -> BasicTypeInfo:
        """Return the type of an `int` of 32 bits."""
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG_TYPE_INFO() -> BasicTypeInfo:
        """Return the type of an `int` of 64 bits."""
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT_TYPE_INFO() -> BasicTypeInfo:
        """Return the type of a `float` rounded to 32 bits."""
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE_TYPE_INFO() -> BasicTypeInfo:
        """Return the type of `float`."""
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR_TYPE_INFO() -> BasicTypeInfo:
        """Return the type of a `str` of one character."""
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT_TYPE_INFO() -> BasicTypeInfo:
        """Return the type of an `int` of any size."""
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC_TYPE_INFO() -> BasicTypeInfo:
        """Return the type of `decimal.Decimal`."""
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT_TYPE_INFO() -> BasicTypeInfo:
        """Return the type of `Instant`."""
        return BasicTypeInfo(BasicType.INSTANT)


@dataclass(frozen=True, repr=False)
class PickledBytesTypeInfo(TypeInformation):
    """Type information of any value that can be pickled; nothing is checked."""

    def coercer(self) -> None:
        """Return None: there is nothing to do."""
        return None

    def test(self, value: str, scope: Scope) -> str:
        return "True"

    def __repr__(self) -> str:
        return "PickledByteArrayTypeInfo"


def _range(basic_type: BasicType) -> tuple[int, int]:
    high: int = (1 << (_BITS[basic_type] - 1)) - 1
    return -high - 1, high


def _is_single(value: float) -> bool:
    try:
        return bool(_FLOAT.unpack(_FLOAT.pack(value))[0] == value)
    except OverflowError:
        return False


def _shape_string(declared: BasicTypeInfo, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong_type(declared, value)
    return str.__str__(value)


def _shape_char(declared: BasicTypeInfo, value: Any) -> str:
    text = _shape_string(declared, value)
    if len(text) != 1:
        raise wrong_range(declared, value, "a Char is one character; declare Types.STRING()")
    return text


def _shape_big_int(declared: BasicTypeInfo, value: Any) -> int:
    # __index__ accepts bool and the integers of numpy, and rejects float.
    try:
        return int(operator.index(value))
    except TypeError:
        raise wrong_type(declared, value) from None


def _shape_int(declared: BasicTypeInfo, value: Any) -> int:
    number = _shape_big_int(declared, value)
    low, high = _range(declared._basic_type)
    if not low <= number <= high:
        wider = "Types.BIG_INT()" if declared._basic_type is BasicType.LONG else "Types.LONG()"
        raise wrong_range(declared, value, f"its range is {low} to {high}; declare {wider}")
    return number


def _shape_double(declared: BasicTypeInfo, value: Any) -> float:
    if not hasattr(value, "__float__") and not hasattr(value, "__index__"):
        raise wrong_type(declared, value)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise wrong_type(declared, value) from None
    except OverflowError:
        raise wrong_range(declared, value, "it is too large") from None


def _shape_float(declared: BasicTypeInfo, value: Any) -> float:
    number = value if type(value) is float else _shape_double(declared, value)
    try:
        single: float = _FLOAT.unpack(_FLOAT.pack(number))[0]
    except OverflowError:
        hint = "it is too large for 32 bits; declare Types.DOUBLE()"
        raise wrong_range(declared, value, hint) from None
    return single


def _shape_boolean(declared: BasicTypeInfo, value: Any) -> bool:
    number_like = isinstance(value, int) or type(value).__module__ == "numpy"
    if number_like and getattr(value, "shape", ()) == () and value in (0, 1):
        return bool(value)
    raise wrong_type(declared, value)


def _shape_big_dec(declared: BasicTypeInfo, value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return Decimal(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(str(value))
    raise wrong_type(declared, value)


def _shape_instant(declared: BasicTypeInfo, value: Any) -> Instant:
    if not isinstance(value, Instant):
        raise wrong_type(declared, value)
    return value


#: by the value of the basic type: a str hashes faster than an Enum
_SHAPES: Final[dict[str, Callable[[BasicTypeInfo, Any], Any]]] = {
    BasicType.STRING.value: _shape_string,
    BasicType.BYTE.value: _shape_int,
    BasicType.BOOLEAN.value: _shape_boolean,
    BasicType.SHORT.value: _shape_int,
    BasicType.INT.value: _shape_int,
    BasicType.LONG.value: _shape_int,
    BasicType.FLOAT.value: _shape_float,
    BasicType.DOUBLE.value: _shape_double,
    BasicType.CHAR.value: _shape_char,
    BasicType.BIG_INT.value: _shape_big_int,
    BasicType.BIG_DEC.value: _shape_big_dec,
    BasicType.INSTANT.value: _shape_instant,
}


def _big_int_to_msgpack(value: int | None) -> int | str | None:
    return value if value is None or -(1 << 63) <= value < 1 << 63 else hex(value)


def _big_int_from_msgpack(value: int | str | None) -> int | None:
    return int(value, 16) if isinstance(value, str) else value
