"""Type information: the types of a stream's records and a state's values.

`Types` creates it, `type_info_of` accepts Python's own types as well. PyFlink passes a value that
does not fit its declared type on to a coder in the JVM; Holdfast checks and converts it in Python
(`TypeInformation.coerce`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.common._type_infos.base import TypeInformation
from holdfast.common._type_infos.basic import (
    BasicType,
    BasicTypeInfo,
    PickledBytesTypeInfo,
)
from holdfast.common._type_infos.collections import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
)
from holdfast.common._type_infos.python import PythonTypeInfo, SerializerTypeInfo, type_info_of
from holdfast.common._type_infos.records import (
    RowTypeInfo,
    TupleTypeInfo,
)
from holdfast.common._type_infos.time import (
    DateTypeInfo,
    LocalTimeTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
)

__all__ = [
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "DateTypeInfo",
    "ListTypeInfo",
    "LocalTimeTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "PythonTypeInfo",
    "RowTypeInfo",
    "SerializerTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
    "type_info_of",
]


class Types:
    """Creates type information.

    Python's own types are accepted as arguments: ``Types.TUPLE([str, int])``.
    """

    @staticmethod
    def STRING() -> TypeInformation:
        """Return the type of `str`."""
        return BasicTypeInfo.STRING_TYPE_INFO()

    @staticmethod
    def BYTE() -> TypeInformation:
        """Return the type of an `int` of 8 bits."""
        return BasicTypeInfo.BYTE_TYPE_INFO()

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """Return the type of `bool`."""
        return BasicTypeInfo.BOOLEAN_TYPE_INFO()

    @staticmethod
    def SHORT() -> TypeInformation:
        """Return the type of an `int` of 16 bits."""
        return BasicTypeInfo.SHORT_TYPE_INFO()

    @staticmethod
    def INT() -> TypeInformation:
        """Return the type of an `int` of 32 bits."""
        return BasicTypeInfo.INT_TYPE_INFO()

    @staticmethod
    def LONG() -> TypeInformation:
        """Return the type of an `int` of 64 bits."""
        return BasicTypeInfo.LONG_TYPE_INFO()

    @staticmethod
    def FLOAT() -> TypeInformation:
        """Return the type of a `float` rounded to 32 bits."""
        return BasicTypeInfo.FLOAT_TYPE_INFO()

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """Return the type of `float`."""
        return BasicTypeInfo.DOUBLE_TYPE_INFO()

    @staticmethod
    def CHAR() -> TypeInformation:
        """Return the type of a `str` of one character."""
        return BasicTypeInfo.CHAR_TYPE_INFO()

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """Return the type of an `int` of any size."""
        return BasicTypeInfo.BIG_INT_TYPE_INFO()

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """Return the type of `decimal.Decimal`; an int or float becomes one."""
        return BasicTypeInfo.BIG_DEC_TYPE_INFO()

    @staticmethod
    def INSTANT() -> TypeInformation:
        """Return the type of `holdfast.common.Instant`."""
        return BasicTypeInfo.INSTANT_TYPE_INFO()

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """Return the type of `datetime.date`."""
        return SqlTimeTypeInfo.DATE()

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """Return the type of `datetime.time`."""
        return SqlTimeTypeInfo.TIME()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """Return the type of `datetime.datetime`."""
        return SqlTimeTypeInfo.TIMESTAMP()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Return the type of any value that can be pickled."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: Sequence[Any]) -> RowTypeInfo:
        """Return the type of a `Row` with these fields, called f0, f1, and so on."""
        return RowTypeInfo(_types(field_types))

    @staticmethod
    def ROW_NAMED(field_names: Sequence[str], field_types: Sequence[Any]) -> RowTypeInfo:
        """Return the type of a `Row` with these fields."""
        return RowTypeInfo(_types(field_types), field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[Any]) -> TupleTypeInfo:
        """Return the type of a tuple with these fields."""
        return TupleTypeInfo(_types(field_types))

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: Any) -> PrimitiveArrayTypeInfo:
        """Return the type of a list of numbers without None; of BYTE, the type of `bytes`."""
        return PrimitiveArrayTypeInfo(_type(element_type))

    @staticmethod
    def BASIC_ARRAY(element_type: Any) -> BasicArrayTypeInfo:
        """Return the type of a list of numbers or strings."""
        return BasicArrayTypeInfo(_type(element_type))

    @staticmethod
    def OBJECT_ARRAY(element_type: Any) -> ObjectArrayTypeInfo:
        """Return the type of a list of any type."""
        return ObjectArrayTypeInfo(_type(element_type))

    @staticmethod
    def MAP(key_type_info: Any, value_type_info: Any) -> MapTypeInfo:
        """Return the type of a dict."""
        return MapTypeInfo(_type(key_type_info), _type(value_type_info))

    @staticmethod
    def LIST(element_type_info: Any) -> ListTypeInfo:
        """Return the type of a list."""
        return ListTypeInfo(_type(element_type_info))


def _type(given: Any) -> TypeInformation:
    # Inside another type, None means any type.
    return PickledBytesTypeInfo() if given is None else type_info_of(given)


def _types(given: Sequence[Any]) -> list[TypeInformation]:
    if isinstance(given, str | TypeInformation | type):
        message = f"field types must be a list of types; got {given!r}"
        raise TypeError(message)
    return [_type(t) for t in given]
