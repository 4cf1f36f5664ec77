"""The Arrow types of declared types: `schema_of`.

A class says by its annotations what can be None: a field ``x: int`` is a column without nulls, and
``x: int | None`` one with nulls. The same holds for the elements of its lists and the values of its
dicts. In type information (`Types.ROW_NAMED`) None fits every type, so all its columns can be null.
An Arrow type in an annotation is taken as it is: ``Annotated[Decimal, pa.decimal128(12, 2)]``.
"""

from __future__ import annotations

import dataclasses
import types
import typing
import uuid
from collections.abc import Sequence
from enum import Enum
from functools import singledispatch
from typing import Any, Final

import msgspec
import pyarrow as pa

from holdfast.common import typeinfo

_UTC_MICROS: Final = pa.timestamp("us", tz="UTC")
#: as Parquet names it
_ELEMENT: Final = "element"
_REMEDY: Final = "give a pyarrow.Schema instead, or convert the records to a type that has columns"

_BASIC: Final = {
    typeinfo.BasicType.STRING: pa.string(),
    typeinfo.BasicType.CHAR: pa.string(),
    typeinfo.BasicType.BOOLEAN: pa.bool_(),
    typeinfo.BasicType.BYTE: pa.int8(),
    typeinfo.BasicType.SHORT: pa.int16(),
    typeinfo.BasicType.INT: pa.int32(),
    typeinfo.BasicType.LONG: pa.int64(),
    typeinfo.BasicType.FLOAT: pa.float32(),
    typeinfo.BasicType.DOUBLE: pa.float64(),
    typeinfo.BasicType.BIG_INT: pa.decimal128(38, 0),
    typeinfo.BasicType.BIG_DEC: pa.decimal128(38, 18),
    typeinfo.BasicType.INSTANT: _UTC_MICROS,
}

#: in the order of ``LocalTimeTypeInfo.TimeType``
_LOCAL_TIMES: Final = (pa.date32(), pa.time64("us"), pa.timestamp("us"))


def schema_of(declared: Any) -> pa.Schema:
    """Return the columns for records of a declared type.

    Args:
        declared: a dataclass, a msgspec ``Struct``, a ``NamedTuple``, a row type with names, the
            type information of one of these, or a ``pyarrow.Schema``, which is returned as it is.

    Raises:
        TypeError: when the type has no named fields, or there is no column type for a field.
    """
    if isinstance(declared, pa.Schema):
        return declared
    fields = _fields(declared, ())
    if fields is None:
        message = (
            "columns need names: declare a dataclass, a msgspec.Struct, a row type with names "
            f"(Types.ROW_NAMED) or a pyarrow.Schema; got {declared!r}"
        )
        raise TypeError(message)
    return pa.schema(fields)


def arrow_type(declared: Any) -> pa.DataType:
    """Return the column type for type information or a Python type.

    Raises:
        TypeError: when there is none.
    """
    return _type(declared, ())


def _fields(declared: Any, within: tuple[type, ...]) -> list[pa.Field] | None:
    """Return the fields of a type that has names for them.

    Args:
        declared: the type.
        within: the classes that it is a part of, from outside in.
    """
    if isinstance(declared, typeinfo.PythonTypeInfo):
        declared = declared.cls
    if isinstance(declared, typeinfo.RowTypeInfo):
        pairs = zip(declared.get_field_names(), declared.get_field_types(), strict=True)
        return [pa.field(name, _type(each, within)) for name, each in pairs]
    names = _names(declared)
    if names is None:
        return None
    if declared in within:
        message = f"{declared.__qualname__} contains itself, which a column cannot; {_REMEDY}"
        raise TypeError(message)
    hints = typing.get_type_hints(declared, include_extras=True)
    return [_field(name, hints[name], (*within, declared)) for name in names]


def _names(declared: Any) -> tuple[str, ...] | None:
    if not isinstance(declared, type) or issubclass(declared, Enum):
        return None
    if dataclasses.is_dataclass(declared):
        return tuple(field.name for field in dataclasses.fields(declared))
    if issubclass(declared, msgspec.Struct):
        return declared.__struct_fields__
    return getattr(declared, "_fields", None) if issubclass(declared, tuple) else None


def _field(name: str, annotation: Any, within: tuple[type, ...]) -> pa.Field:
    """Return the field for an annotation: it is nullable if the annotation says so."""
    bare = annotation
    if typing.get_origin(annotation) is typing.Annotated:
        bare = typing.get_args(annotation)[0]
    nullable = _without_none(bare) is not bare or isinstance(bare, typeinfo.TypeInformation)
    return pa.field(name, _type(annotation, within), nullable=nullable)


def _without_none(annotation: Any) -> Any:
    """Return X for ``X | None``, and anything else as it is."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation
    others = [each for each in typing.get_args(annotation) if each is not types.NoneType]
    if len(others) != 1:
        raise _no_column_type(annotation)
    return others[0]


def _type(declared: Any, within: tuple[type, ...]) -> pa.DataType:
    if isinstance(declared, pa.DataType):
        return declared
    declared = _without_none(declared)
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin is typing.Annotated:
        given = [each for each in arguments[1:] if isinstance(each, pa.DataType)]
        return given[0] if given else _type(arguments[0], within)
    if origin is typing.Literal:
        return _choice_type(declared, arguments)
    if origin is list or (origin is tuple and arguments[1:] == (Ellipsis,)):
        return pa.list_(_field(_ELEMENT, arguments[0], within))
    if origin is dict:
        return pa.map_(_type(arguments[0], within), _field("value", arguments[1], within))
    if origin is tuple:
        return pa.struct([_field(f"f{at}", each, within) for at, each in enumerate(arguments)])
    fields = _fields(declared, within)
    return _plain_type(declared, within) if fields is None else pa.struct(fields)


def _plain_type(declared: Any, within: tuple[type, ...]) -> pa.DataType:
    """Return the type of a value without named fields."""
    if declared is uuid.UUID:
        return pa.string()
    if isinstance(declared, typeinfo.PythonTypeInfo):
        return _enum_type(declared.cls)
    if isinstance(declared, typeinfo.TypeInformation):
        return _info_type(declared, within)
    if isinstance(declared, type) and issubclass(declared, Enum):
        return _enum_type(declared)
    try:
        return _info_type(typeinfo.type_info_of(declared), within)
    except TypeError:
        raise _no_column_type(declared) from None


def _enum_type(cls: type) -> pa.DataType:
    members = list(cls) if issubclass(cls, Enum) else []
    return _choice_type(cls, [member.value for member in members])


def _choice_type(declared: Any, values: Sequence[Any]) -> pa.DataType:
    """Return the type of some values: all texts, or all whole numbers."""
    kinds = set(map(type, values))
    if kinds not in ({str}, {int}):
        raise _no_column_type(declared)
    return pa.string() if kinds == {str} else pa.int64()


@singledispatch
def _info_type(declared: typeinfo.TypeInformation, within: tuple[type, ...]) -> pa.DataType:
    raise _no_column_type(declared)


@_info_type.register
def _(declared: typeinfo.BasicTypeInfo, within: tuple[type, ...]) -> pa.DataType:
    return _BASIC[declared._basic_type]


@_info_type.register
def _(declared: typeinfo.DateTypeInfo, within: tuple[type, ...]) -> pa.DataType:
    return pa.date32()


@_info_type.register
def _(declared: typeinfo.TimeTypeInfo, within: tuple[type, ...]) -> pa.DataType:
    return pa.time64("us")


@_info_type.register
def _(declared: typeinfo.TimestampTypeInfo, within: tuple[type, ...]) -> pa.DataType:
    return _UTC_MICROS


@_info_type.register
def _(declared: typeinfo.LocalTimeTypeInfo, within: tuple[type, ...]) -> pa.DataType:
    return _LOCAL_TIMES[declared._time_type.value]


@_info_type.register
def _(declared: typeinfo.PrimitiveArrayTypeInfo, within: tuple[type, ...]) -> pa.DataType:
    if declared.msgpack_type() is bytes:
        return pa.binary()
    return pa.list_(pa.field(_ELEMENT, _type(declared.element_type, within), nullable=False))


@_info_type.register(typeinfo.BasicArrayTypeInfo)
@_info_type.register(typeinfo.ObjectArrayTypeInfo)
@_info_type.register(typeinfo.ListTypeInfo)
def _(declared: Any, within: tuple[type, ...]) -> pa.DataType:
    return pa.list_(pa.field(_ELEMENT, _type(declared.element_type, within)))


@_info_type.register
def _(declared: typeinfo.MapTypeInfo, within: tuple[type, ...]) -> pa.DataType:
    return pa.map_(_type(declared.key_type, within), _type(declared.value_type, within))


@_info_type.register
def _(declared: typeinfo.TupleTypeInfo, within: tuple[type, ...]) -> pa.DataType:
    types_ = enumerate(declared.get_field_types())
    return pa.struct([(f"f{at}", _type(each, within)) for at, each in types_])


def _no_column_type(declared: Any) -> TypeError:
    return TypeError(f"there is no column type for {declared!r}; {_REMEDY}")
