"""Conversion of type information, and of classes with fields, to schemas."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import singledispatch
from typing import Any, Final

import msgspec
from msgspec import NODEFAULT, inspect

from holdfast.common import typeinfo
from holdfast.common.time import Instant
from holdfast.state.types.schema import (
    CustomSchema,
    Enumeration,
    Field,
    Layout,
    ListOf,
    MapOf,
    OneOf,
    Opaque,
    Plain,
    Record,
    Reference,
    Schema,
    TupleOf,
)


def schema_of(type_info: typeinfo.TypeInformation | None) -> Schema | None:
    """Return the schema of a type's values; None if there is no type."""
    if type_info is None:
        return None
    if type_info.msgpack_type() is None:
        return Opaque(name=repr(type_info))
    return _schema(type_info)


def has_classes(schema: Schema | None) -> bool:
    """Return whether values contain objects of a class, whose fields are not type-checked."""
    match schema:
        case Record(fields=fields, layout=layout):
            return layout is not Layout.ROW or any(has_classes(f.schema) for f in fields)
        case ListOf(item=item):
            return has_classes(item)
        case MapOf(key=key, value=value):
            return has_classes(key) or has_classes(value)
        case TupleOf(items=items):
            return any(map(has_classes, items))
    return False


@singledispatch
def _schema(type_info: typeinfo.TypeInformation) -> Schema:
    """Return the schema of a type that MessagePack can represent."""
    message = f"no schema for {type_info!r}"  # a user's subclass, which must be pickled
    raise TypeError(message)


def _nullable(type_info: typeinfo.TypeInformation) -> Schema:
    return msgspec.structs.replace(_schema(type_info), nullable=True)


_BASIC: Final = {
    "String": "string",
    "Byte": "byte",
    "Boolean": "boolean",
    "Short": "short",
    "Integer": "int",
    "Long": "long",
    "Float": "float",
    "Double": "double",
    "Char": "char",
    "BigInteger": "big int",
    "BigDecimal": "decimal",
    "Instant": "instant",
}
_TIMES: Final = {datetime.date: "date", datetime.time: "time", datetime.datetime: "timestamp"}


@_schema.register
def _(type_info: typeinfo.BasicTypeInfo) -> Schema:
    return Plain(kind=_BASIC[repr(type_info)])


@_schema.register(typeinfo.DateTypeInfo)
@_schema.register(typeinfo.TimeTypeInfo)
@_schema.register(typeinfo.TimestampTypeInfo)
@_schema.register(typeinfo.LocalTimeTypeInfo)
def _(type_info: typeinfo.TypeInformation) -> Schema:
    python_type: Any = type_info.msgpack_type()
    return Plain(kind=_TIMES[python_type])


@_schema.register
def _(type_info: typeinfo.PrimitiveArrayTypeInfo) -> Schema:
    if type_info.msgpack_type() is bytes:
        return Plain(kind="bytes")
    return ListOf(item=_schema(type_info.element_type))


@_schema.register(typeinfo.BasicArrayTypeInfo)
@_schema.register(typeinfo.ObjectArrayTypeInfo)
@_schema.register(typeinfo.ListTypeInfo)
def _(type_info: Any) -> Schema:
    return ListOf(item=_nullable(type_info.element_type))


@_schema.register
def _(type_info: typeinfo.MapTypeInfo) -> Schema:
    return MapOf(key=_schema(type_info.key_type), value=_nullable(type_info.value_type))


@_schema.register
def _(type_info: typeinfo.TupleTypeInfo) -> Schema:
    return TupleOf(items=tuple(map(_nullable, type_info.get_field_types())))


@_schema.register
def _(type_info: typeinfo.RowTypeInfo) -> Schema:
    names, types = type_info.get_field_names(), type_info.get_field_types()
    # A field that is missing in a row is None, so the default of a new field is None.
    fields = tuple(
        Field(name, _nullable(of), required=False, default=(None,))
        for name, of in zip(names, types, strict=True)
    )
    return Record(name="Row", fields=fields, layout=Layout.ROW)


@_schema.register
def _(type_info: typeinfo.SerializerTypeInfo) -> Schema:
    serializer = type_info.serializer
    versions = (v for v in range(serializer.version + 1) if serializer.reader(v) is not None)
    return CustomSchema(
        name=type(serializer).__qualname__, version=serializer.version, reads=tuple(versions)
    )


@_schema.register
def _(type_info: typeinfo.PythonTypeInfo) -> Schema:
    return _of_node(inspect.type_info(type_info.cls), ())


#: the records that enclose a node, outermost first
_Around = tuple[inspect.Type, ...]
_PLAIN_NODES: Final[dict[type, str]] = {
    inspect.BoolType: "boolean",
    inspect.IntType: "long",
    inspect.FloatType: "double",
    inspect.StrType: "string",
    inspect.BytesType: "bytes",
    inspect.ByteArrayType: "bytes",
    inspect.DecimalType: "decimal",
    inspect.DateTimeType: "timestamp",
    inspect.DateType: "date",
    inspect.TimeType: "time",
    inspect.TimeDeltaType: "duration",
    inspect.UUIDType: "uuid",
    inspect.NoneType: "null",
}
_LISTS: Final[dict[type, str]] = {
    inspect.ListType: "list",
    inspect.SetType: "set",
    inspect.FrozenSetType: "frozenset",
    inspect.VarTupleType: "tuple",
}


def _of_node(node: Any, around: _Around) -> Schema:
    if type(node) in _PLAIN_NODES:
        return Plain(kind=_PLAIN_NODES[type(node)])
    if type(node) in _LISTS:
        return ListOf(item=_of_node(node.item_type, around), made=_LISTS[type(node)])
    return _NODES[type(node)](node, around)


def _of_dict(node: inspect.DictType, around: _Around) -> Schema:
    return MapOf(key=_of_node(node.key_type, around), value=_of_node(node.value_type, around))


def _of_tuple(node: inspect.TupleType, around: _Around) -> Schema:
    return TupleOf(items=tuple(_of_node(item, around) for item in node.item_types))


def _of_enum(node: inspect.EnumType, around: _Around) -> Schema:
    return Enumeration(name=node.cls.__name__, values=tuple(member.value for member in node.cls))


def _of_literal(node: inspect.LiteralType, around: _Around) -> Schema:
    return Enumeration(name="Literal", values=tuple(node.values))


def _of_union(node: inspect.UnionType, around: _Around) -> Schema:
    options = [t for t in node.types if not isinstance(t, inspect.NoneType)]
    schemas = tuple(_of_node(option, around) for option in options)
    schema = schemas[0] if len(schemas) == 1 else OneOf(options=schemas)
    return msgspec.structs.replace(schema, nullable=len(options) < len(node.types))


def _of_class(node: Any, around: _Around) -> Schema:
    if getattr(node, "cls", None) is Instant:
        return Plain(kind="instant")
    for up, other in enumerate(reversed(around), start=1):
        if other is node:
            return Reference(up=up)
    array = isinstance(node, inspect.NamedTupleType) or getattr(node, "array_like", False)
    tag = getattr(node, "tag", None)
    return Record(
        name=node.cls.__qualname__.rpartition("<locals>.")[2],
        fields=tuple(_field(field, array, (*around, node)) for field in node.fields),
        layout=Layout.ARRAY if array else Layout.MAP,
        mark=None if tag is None else (node.tag_field, tag),
        strict=getattr(node, "forbid_unknown_fields", False),
    )


def _field(field: inspect.Field, in_array: bool, around: _Around) -> Field:
    return Field(
        name=field.name,
        schema=_of_node(field.type, around),
        key="" if field.encode_name == field.name else field.encode_name,
        required=field.required,
        default=_default(field) if in_array else (),
    )


def _default(field: inspect.Field) -> tuple[Any, ...]:
    """Return a constant default as it is written; empty if there is none."""
    default = field.default
    if field.default_factory in (list, dict, set, tuple):
        default = field.default_factory()
    if default is NODEFAULT:
        return ()
    return (msgspec.msgpack.decode(msgspec.msgpack.encode(default)),)


_NODES: Final[dict[type, Callable[[Any, _Around], Schema]]] = {
    inspect.DictType: _of_dict,
    inspect.TupleType: _of_tuple,
    inspect.EnumType: _of_enum,
    inspect.LiteralType: _of_literal,
    inspect.UnionType: _of_union,
    inspect.DataclassType: _of_class,
    inspect.NamedTupleType: _of_class,
    inspect.StructType: _of_class,
    inspect.TypedDictType: _of_class,
}
