"""Schemas: the types of saved state as data, which can be read without the job's classes.

A schema defines how the values of a column are written in MessagePack, and what they mean:

    node         in MessagePack                             in Python
    Plain        see `PLAIN`                                a number, a text, a date, and so on
    ListOf       array                                      list, tuple, set or frozenset
    MapOf        map                                        dict
    TupleOf      array                                      tuple
    Record       map by `Field.key`, or array in the        a class with fields, or a row
                 order of the fields; see `Layout`
    Enumeration  one of its values                          a member of an Enum, or a literal
    OneOf        as one of its options                      a value of one of several types
    Reference    as the record that it refers to            a record inside itself
    Custom       array: version of the serializer, bytes    any object that the serializer supports
    Opaque       not MessagePack: the column is pickled     any object

``nullable`` means that nil is allowed instead of the value; in a column's own values it always is.

Schemas are written into state files and into the metadata of checkpoints. They are compared by
`holdfast.state.types.evolution`; `holdfast.state.types.schema_of` derives them from type
information.
"""

from __future__ import annotations

import datetime
from enum import Enum
from typing import Any, Final, TypeAlias

import msgspec

#: the kinds of plain values, and how each is written
PLAIN: Final = {
    "boolean": "boolean",
    "byte": "integer",
    "short": "integer",
    "int": "integer",
    "long": "integer",
    "big int": "integer; beyond 64 bits a text in hexadecimal, such as -0x1f",
    "float": "float of 64 bits whose value fits into 32",
    "double": "float of 64 bits",
    "decimal": "text",
    "string": "text",
    "char": "text",
    "bytes": "binary",
    "date": "text, ISO 8601",
    "time": "text, ISO 8601",
    "timestamp": "with a zone the extension of MessagePack, in UTC; without one text, ISO 8601",
    "duration": "text, ISO 8601",
    "instant": "array: seconds since 1970, nanoseconds",
    "uuid": "text",
    "null": "nil",
}


class _Node(
    msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True, kw_only=True, gc=False
):
    nullable: bool = False


class Plain(_Node, frozen=True, tag="plain"):
    """A value without parts; its kind is one of `PLAIN`."""

    kind: str


class ListOf(_Node, frozen=True, tag="list"):
    """Any number of items of one type.

    Attributes:
        made: its Python type: ``list``, ``tuple``, ``set`` or ``frozenset``.
    """

    item: Schema
    made: str = "list"


class MapOf(_Node, frozen=True, tag="map"):
    """A map; its keys are never nil, and never records that are written as maps."""

    key: Schema
    value: Schema


class TupleOf(_Node, frozen=True, tag="tuple"):
    """A fixed number of items, each of its own type."""

    items: tuple[Schema, ...]


class Layout(Enum):
    """How the fields of a record are written."""

    #: a map from `Field.key` to the value; a field may be missing if it has a default
    MAP = "map"
    #: an array in the order of the fields; fields at the end may be missing if they have defaults
    ARRAY = "array"
    #: an array: the number of the row's kind, then the fields in order
    ROW = "row"


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """A field of a record.

    Attributes:
        key: the key under which it is written, if that is not its name.
        required: whether it has no default.
        default: a tuple with the default as it is written; empty if it is not known. It is recorded
            only for records that are written as arrays, since only these may need it.
    """

    name: str
    schema: Schema
    key: str = ""
    required: bool = True
    default: tuple[Any, ...] = ()

    @property
    def written(self) -> str:
        """Return the key under which it is written."""
        return self.key or self.name


class Record(_Node, frozen=True, tag="record"):
    """A class with fields, or a row.

    Attributes:
        name: the name of the class, for display.
        mark: a field and its value that are written first, to distinguish the options of a union.
        strict: whether unknown fields are an error; otherwise they are ignored.
    """

    name: str
    fields: tuple[Field, ...]
    layout: Layout = Layout.MAP
    mark: tuple[str, str | int] | None = None
    strict: bool = False


class Enumeration(_Node, frozen=True, tag="enum"):
    """One of these values."""

    name: str
    values: tuple[str | int | None, ...]


class OneOf(_Node, frozen=True, tag="union"):
    """A value of one of several types, distinguished by their MessagePack types or by a mark."""

    options: tuple[Schema, ...]


class Reference(_Node, frozen=True, tag="reference"):
    """A reference to a record that encloses this node.

    Attributes:
        up: how many records up; 1 is the nearest one.
    """

    up: int


class CustomSchema(_Node, frozen=True, tag="custom"):
    """Values of a custom serializer.

    Attributes:
        name: the name of the serializer's class.
        version: the version of the serializer that wrote it.
        reads: the versions that the serializer can read.
    """

    name: str
    version: int
    reads: tuple[int, ...] = ()


class Opaque(_Node, frozen=True, tag="pickled"):
    """Pickled values; the name is the name of their type, for display."""

    name: str


Schema: TypeAlias = (
    Plain
    | ListOf
    | MapOf
    | TupleOf
    | Record
    | Enumeration
    | OneOf
    | Reference
    | CustomSchema
    | Opaque
)


def is_written_as(option: Schema, value: Any) -> bool:
    """Return whether a value of a union was written as that option, which is not a reference."""
    if isinstance(option, Enumeration):
        return value in option.values
    if isinstance(option, Record) and option.mark:
        field, mark = option.mark
        if option.layout is Layout.MAP:
            return isinstance(value, dict) and value.get(field) == mark
        return isinstance(value, list) and value[0] == mark
    return type(value) in _written_types(option)


def _written_types(option: Schema) -> tuple[type, ...]:
    if isinstance(option, Plain):
        return _PLAIN_TYPES.get(option.kind, (str,))
    if isinstance(option, MapOf) or (isinstance(option, Record) and option.layout is Layout.MAP):
        return (dict,)
    return (list, tuple)


#: by kind: the types of its values in MessagePack; values of other kinds are texts
_PLAIN_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "boolean": (bool,),
    "byte": (int,),
    "short": (int,),
    "int": (int,),
    "long": (int,),
    "big int": (int, str),
    "float": (float, int),
    "double": (float, int),
    "bytes": (bytes,),
    "timestamp": (str, datetime.datetime),
    "instant": (list, tuple),
    "null": (type(None),),
}


def describe(schema: Schema | None) -> str:
    """Return a readable form of a schema, such as ``Order(id: string, items: list[long])``.

    ``| None`` is shown for fields of classes only, because elsewhere None is always allowed.
    """
    match schema:
        case None:
            return "no type"
        case Plain(kind=kind):
            return kind
        case ListOf(item=item, made=made):
            return f"{made}[{describe(item)}{', ...' if made == 'tuple' else ''}]"
        case MapOf(key=key, value=value):
            return f"map[{describe(key)}, {describe(value)}]"
        case TupleOf(items=items):
            return f"tuple[{', '.join(map(describe, items))}]"
        case Record(name=name, fields=fields, layout=layout):
            optional = layout is not Layout.ROW
            return f"{name}({', '.join(_describe_field(f, optional) for f in fields)})"
        case Enumeration(name=name, values=values):
            return f"{name}({', '.join(map(repr, values))})"
        case OneOf(options=options):
            return " | ".join(map(describe, options))
        case Reference(up=up):
            return "itself" if up == 1 else f"the record {up} levels up"
        case CustomSchema(name=name, version=version):
            return f"{name} version {version}"
        case Opaque(name=name):
            return f"pickled {name}"


def _describe_field(field: Field, optional: bool) -> str:
    none = " | None" if optional and field.schema.nullable else ""
    return f"{field.name}: {describe(field.schema)}{none}"


#: the deepest nesting of types; real types are far below it
_DEEPEST: Final = 64


def check_schema(schema: Schema | None, records: int = 0, depth: int = 0) -> None:
    """Check that a schema is one of a possible type; ``records`` records enclose it.

    Raises:
        ValueError: if a kind is unknown, a reference has no target, or it is nested too deep.
    """
    if isinstance(schema, Plain) and schema.kind not in PLAIN:
        message = f"unknown kind of plain values: {schema.kind!r}"
        raise ValueError(message)
    if isinstance(schema, Reference) and not 1 <= schema.up <= records:
        message = f"a type refers to the record {schema.up} levels up, of {records}"
        raise ValueError(message)
    if depth > _DEEPEST:
        message = f"types are nested deeper than {_DEEPEST}"
        raise ValueError(message)
    inner = records + isinstance(schema, Record)
    for part in _parts(schema):
        check_schema(part, inner, depth + 1)


def _parts(schema: Schema | None) -> tuple[Schema, ...]:
    match schema:
        case ListOf(item=item):
            return (item,)
        case MapOf(key=key, value=value):
            return key, value
        case TupleOf(items=items):
            return items
        case Record(fields=fields):
            return tuple(field.schema for field in fields)
        case OneOf(options=options):
            return options
    return ()
