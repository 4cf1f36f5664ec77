"""Saved values without the job's classes: from a column and its schema to plain Python values.

A record is a dict by the names of its fields, a member of an enum its value, a set a list, what a
serializer of the user's wrote its bytes. Fields that were left out because they have a default are
left out here, too. Nothing is unpickled unless the caller says how.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final, NoReturn

import msgspec

from holdfast.common.time import Instant
from holdfast.state.errors import PickledStateError
from holdfast.state.schema import (
    Custom,
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
    is_written_as,
)
from holdfast.state.serializers import Codec, Column, Loads, decode_untyped

__all__ = ["plain_values"]

_Read = Callable[[Any], Any]
_Around = tuple["_RecordReader", ...]

_decode: Final = msgspec.msgpack.Decoder(list[Any]).decode
#: by kind, the Python type of what MessagePack has no type for
_CONVERTED: Final[dict[str, type]] = {
    "decimal": Decimal,
    "date": datetime.date,
    "time": datetime.time,
    "timestamp": datetime.datetime,
    "duration": datetime.timedelta,
    "instant": Instant,
    "uuid": uuid.UUID,
    "float": float,
    "double": float,
}
#: kinds whose values MessagePack has as they are
_AS_WRITTEN: Final = ("boolean", "byte", "short", "int", "long", "string", "char", "bytes", "null")


def plain_values(schema: Schema | None, column: Column, loads: Loads | None = None) -> list[Any]:
    """Return the values of a column that was written under that schema.

    ``loads`` unpickles; without it raise a PickledStateError if they are pickled.
    """
    if column.codec is not Codec.TYPED or schema is None:
        return decode_untyped(column, loads or _refuse)
    values = _decode(column.data)
    if isinstance(schema, Plain) and schema.kind in _AS_WRITTEN:
        return values
    return list(map(_reader(schema, (), at_top=True), values))


def _refuse(data: bytes | memoryview) -> NoReturn:
    message = "pickled values cannot be read without the job's classes; declare a type"
    raise PickledStateError(message)


def _reader(schema: Schema, around: _Around, at_top: bool = False) -> _Read:
    read = _bare(schema, around)
    if not (schema.nullable or at_top):
        return read
    return lambda value: None if value is None else read(value)


def _bare(schema: Schema, around: _Around) -> _Read:
    match schema:
        case Plain(kind="big int"):
            return lambda value: int(value, 16) if isinstance(value, str) else value
        case Plain(kind=kind) if kind in _CONVERTED:
            return partial(_convert, _CONVERTED[kind])
        case ListOf(item=item):
            return _each(_reader(item, around))
        case MapOf(key=key, value=value):
            return _each_entry(_reader(key, around), _reader(value, around))
        case TupleOf(items=items):
            return _items([_reader(item, around) for item in items])
        case Record():
            return _RecordReader(schema, around)
        case OneOf(options=options):
            return _one_of([_option(option, around) for option in options])
        case Reference(up=up):
            return around[-up]
        case Custom():
            return lambda pair: pair[1]
        case Opaque():
            return _same
    return _same


class _RecordReader:
    """Makes a dict of a record."""

    def __init__(self, schema: Record, around: _Around) -> None:
        self.schema = schema
        inner = (*around, self)
        self._fields = [(f.name, f.written, _reader(f.schema, inner)) for f in schema.fields]

    def __call__(self, value: Any) -> dict[str, Any]:
        if self.schema.layout is Layout.MAP:
            fields = self._fields
            return {name: read(value[key]) for name, key, read in fields if key in value}
        head = 1 if self.schema.layout is Layout.ROW or self.schema.mark else 0
        pairs = zip(self._fields, value[head:], strict=False)
        return {name: read(item) for (name, _, read), item in pairs}


def _option(option: Schema, around: _Around) -> tuple[Schema, _Read]:
    schema = around[-option.up].schema if isinstance(option, Reference) else option
    return schema, _reader(option, around)


def _one_of(options: list[tuple[Schema, _Read]]) -> _Read:
    def read(value: Any) -> Any:
        found = (of(value) for option, of in options if is_written_as(option, value))
        return next(found, value)

    return read


def _convert(to: type, value: Any) -> Any:
    return msgspec.convert(value, to)


def _each(item: _Read) -> _Read:
    return lambda values: [item(value) for value in values]


def _each_entry(key: _Read, value: _Read) -> _Read:
    return lambda entries: {key(k): value(v) for k, v in entries.items()}


def _items(parts: list[_Read]) -> _Read:
    return lambda values: tuple([read(v) for read, v in zip(parts, values, strict=True)])


def _same(value: Any) -> Any:
    return value
