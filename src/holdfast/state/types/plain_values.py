"""Reading saved values without the job's classes: from a column and its schema to plain values.

A record becomes a dict by field name, a member of an enum its value, a set a list, and an object
with a custom serializer its bytes. Fields that were omitted because they have a default are omitted
here, too. Nothing is unpickled unless the caller passes a function for it.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final, NoReturn

import msgspec

from holdfast.common._type_infos.base import same
from holdfast.common.time import Instant
from holdfast.state.errors import PickledStateError
from holdfast.state.types import schema as nodes
from holdfast.state.types.serializers import Codec, EncodedColumn, Loads, decode_untyped

_Read = Callable[[Any], Any]
_Around = tuple["_RecordReader", ...]

_decode: Final = msgspec.msgpack.Decoder(list[Any]).decode
#: by kind: the Python type of values for which MessagePack has no type
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
#: kinds whose values need no conversion from MessagePack
_AS_WRITTEN: Final = ("boolean", "byte", "short", "int", "long", "string", "char", "bytes", "null")


def plain_values(
    schema: nodes.Schema | None, column: EncodedColumn, loads: Loads | None = None
) -> list[Any]:
    """Return the values of a column that was written under ``schema``.

    ``loads`` unpickles values. Without it, pickled values raise a PickledStateError.
    """
    if column.codec is not Codec.TYPED or schema is None:
        return decode_untyped(column, loads or _refuse)
    values = _decode(column.data)
    if isinstance(schema, nodes.Plain) and schema.kind in _AS_WRITTEN:
        return values
    return list(map(_reader(schema, (), at_top=True), values))


def _refuse(data: bytes | memoryview) -> NoReturn:
    message = "pickled values cannot be read without the job's classes; declare a type"
    raise PickledStateError(message)


def _reader(schema: nodes.Schema, around: _Around, at_top: bool = False) -> _Read:
    read = _bare(schema, around)
    if not (schema.nullable or at_top):
        return read
    return lambda value: None if value is None else read(value)


def _bare(schema: nodes.Schema, around: _Around) -> _Read:
    match schema:
        case nodes.Plain(kind="big int"):
            return lambda value: int(value, 16) if isinstance(value, str) else value
        case nodes.Plain(kind=kind) if kind in _CONVERTED:
            return partial(msgspec.convert, type=_CONVERTED[kind])
        case nodes.ListOf(item=item):
            return _each(_reader(item, around))
        case nodes.MapOf(key=key, value=value):
            return _each_entry(_reader(key, around), _reader(value, around))
        case nodes.TupleOf(items=items):
            return _items([_reader(item, around) for item in items])
        case nodes.Record():
            return _RecordReader(schema, around)
        case nodes.OneOf(options=options):
            return _one_of([_option(option, around) for option in options])
        case nodes.Reference(up=up):
            return around[-up]
        case nodes.CustomSchema():
            return lambda pair: pair[1]
        case nodes.Opaque():
            return same
    return same


class _RecordReader:
    """Converts a record to a dict."""

    def __init__(self, schema: nodes.Record, around: _Around) -> None:
        self.schema = schema
        inner = (*around, self)
        self._fields = [(f.name, f.written, _reader(f.schema, inner)) for f in schema.fields]

    def __call__(self, value: Any) -> dict[str, Any]:
        if self.schema.layout is nodes.Layout.MAP:
            fields = self._fields
            return {name: read(value[key]) for name, key, read in fields if key in value}
        head = 1 if self.schema.layout is nodes.Layout.ROW or self.schema.mark else 0
        pairs = zip(self._fields, value[head:], strict=False)
        return {name: read(item) for (name, _, read), item in pairs}


def _option(option: nodes.Schema, around: _Around) -> tuple[nodes.Schema, _Read]:
    schema = around[-option.up].schema if isinstance(option, nodes.Reference) else option
    return schema, _reader(option, around)


def _one_of(options: list[tuple[nodes.Schema, _Read]]) -> _Read:
    def read(value: Any) -> Any:
        found = (of(value) for option, of in options if nodes.is_written_as(option, value))
        return next(found, value)

    return read


def _each(item: _Read) -> _Read:
    return lambda values: [item(value) for value in values]


def _each_entry(key: _Read, value: _Read) -> _Read:
    return lambda entries: {key(k): value(v) for k, v in entries.items()}


def _items(parts: list[_Read]) -> _Read:
    return lambda values: tuple([read(v) for read, v in zip(parts, values, strict=True)])
