"""Writing plain values under a schema: the inverse of `holdfast.state.types.plain_values`.

The bytes are the same as for objects of the job's own classes. A record may be given as a dict, or
as an object with the fields as attributes. A tuple may also be a dict with f0, f1 and so on, and a
map may be a list of pairs, as in Arrow.
"""

from __future__ import annotations

import datetime
import struct
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import msgspec

from holdfast.common.time import Instant
from holdfast.state.types import schema as nodes
from holdfast.state.types.serializers import Codec, EncodedColumn, Serializer

_Write = Callable[[Any], Any]
_Around = tuple["_RecordWriter", ...]

_encode: Final = msgspec.msgpack.Encoder().encode
_UNTYPED: Final = Serializer()
_FLOAT: Final = struct.Struct("<f")
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_BITS: Final = {"byte": 8, "short": 16, "int": 32, "long": 64}
_MISSING: Final = object()


class PlainValueError(ValueError):
    """A value does not fit the schema."""


def write_plain(schema: nodes.Schema | None, values: list[Any]) -> EncodedColumn:
    """Return the column of plain values of a schema; without a schema, of any values.

    Raises:
        PlainValueError: if one does not fit.
    """
    if schema is None or isinstance(schema, nodes.Opaque):
        return _UNTYPED.encode(values)
    write = _writer(schema, (), at_top=True)
    return EncodedColumn(Codec.TYPED, _encode([write(value) for value in values]))


def _writer(schema: nodes.Schema, around: _Around, at_top: bool = False) -> _Write:
    write = _bare(schema, around)
    if schema.nullable or at_top:
        return lambda value: None if value is None else write(value)
    return write


def _bare(schema: nodes.Schema, around: _Around) -> _Write:
    match schema:
        case nodes.Plain(kind=kind):
            return _plain(kind)
        case nodes.ListOf(item=item):
            return _list(schema, _writer(item, around))
        case nodes.MapOf(key=key, value=value):
            return _map(schema, _writer(key, around), _writer(value, around))
        case nodes.TupleOf(items=items):
            return _tuple(schema, [_writer(item, around) for item in items])
        case nodes.Record():
            return _RecordWriter(schema, around)
        case nodes.Enumeration():
            return _enumeration(schema)
        case nodes.OneOf(options=options):
            return _one_of(schema, [_writer(option, around) for option in options])
        case nodes.Reference(up=up):
            return around[-up]
        case nodes.CustomSchema(version=version):
            convert = _plain("bytes")
            return lambda value: (version, convert(value))
    raise _misfit(schema, None)


def _misfit(schema: nodes.Schema | str, value: Any) -> PlainValueError:
    expected = schema if isinstance(schema, str) else nodes.describe(schema)
    return PlainValueError(f"expected {expected}; got {value!r}, which is {type(value).__name__}")


def _plain(kind: str) -> _Write:
    convert = _CONVERT[kind]

    def write(value: Any) -> Any:
        try:
            written = convert(value)
        except (TypeError, ValueError, OverflowError, ArithmeticError):
            written = _MISSING
        if written is _MISSING:
            raise _misfit(kind, value)
        return written

    return write


def _only(*types: type) -> _Write:
    return lambda value: value if isinstance(value, types) else _MISSING


def _whole(bits: int) -> _Write:
    allowed = range(-(1 << (bits - 1)), 1 << (bits - 1))
    return lambda value: value if type(value) is int and value in allowed else _MISSING


def _big_int(value: Any) -> Any:
    number = int(value)
    if isinstance(value, float | bool):
        return _MISSING
    return number if number in range(-(1 << 63), 1 << 63) else hex(number)


def _float(value: Any) -> Any:
    return _MISSING if isinstance(value, str | bool) else _FLOAT.unpack(_FLOAT.pack(value))[0]


def _double(value: Any) -> Any:
    return _MISSING if isinstance(value, str | bool) else float(value)


def _decimal(value: Any) -> Any:
    return Decimal(value) if isinstance(value, Decimal | int | str) else _MISSING


def _date(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return _MISSING
    return value if isinstance(value, datetime.date) else _MISSING


def _instant(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        seconds, micros = divmod((zoned - _EPOCH) // _MICROSECOND, 1_000_000)
        return Instant(seconds, micros * 1000)
    return value if isinstance(value, Instant) else _MISSING


def _uuid(value: Any) -> Any:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(value)


_CONVERT: Final[dict[str, _Write]] = {
    "boolean": _only(bool),
    **{kind: _whole(bits) for kind, bits in _BITS.items()},
    "big int": _big_int,
    "float": _float,
    "double": _double,
    "decimal": _decimal,
    "string": _only(str),
    "char": lambda value: value if isinstance(value, str) and len(value) == 1 else _MISSING,
    "bytes": _only(bytes, bytearray),
    "date": _date,
    "time": _only(datetime.time),
    "timestamp": _only(datetime.datetime),
    "duration": _only(datetime.timedelta),
    "instant": _instant,
    "uuid": _uuid,
    "null": lambda value: None if value is None else _MISSING,
}


def _list(schema: nodes.Schema, item: _Write) -> _Write:
    def write(values: Any) -> list[Any]:
        if not isinstance(values, list | tuple | set | frozenset):
            raise _misfit(schema, values)
        return [item(value) for value in values]

    return write


def _map(schema: nodes.Schema, key: _Write, value: _Write) -> _Write:
    def write(entries: Any) -> dict[Any, Any]:
        if not isinstance(entries, Mapping | list):
            raise _misfit(schema, entries)
        pairs = entries.items() if isinstance(entries, Mapping) else entries
        return {_hashable(key(k)): value(v) for k, v in pairs}

    return write


def _hashable(key: Any) -> Any:
    return tuple(map(_hashable, key)) if isinstance(key, list | tuple) else key


def _tuple(schema: nodes.Schema, parts: list[_Write]) -> _Write:
    names = [f"f{i}" for i in range(len(parts))]

    def write(values: Any) -> tuple[Any, ...]:
        if isinstance(values, Mapping) and list(values) == names:
            values = tuple(values.values())
        if not isinstance(values, list | tuple) or len(values) != len(parts):
            raise _misfit(schema, values)
        return tuple([part(value) for part, value in zip(parts, values, strict=True)])

    return write


def _enumeration(schema: nodes.Enumeration) -> _Write:
    def write(value: Any) -> Any:
        plain = value.value if isinstance(value, Enum) else value
        if plain not in schema.values:
            raise _misfit(schema, value)
        return plain

    return write


def _one_of(schema: nodes.Schema, options: list[_Write]) -> _Write:
    def write(value: Any) -> Any:
        for option in options:
            try:
                return option(value)
            except PlainValueError:
                continue
        raise _misfit(schema, value)

    return write


class _RecordWriter:
    """Writes a record in its layout."""

    def __init__(self, schema: nodes.Record, around: _Around) -> None:
        self._schema = schema
        inner = (*around, self)
        self._fields = [(field, _writer(field.schema, inner)) for field in schema.fields]
        self._names = {field.name for field in schema.fields}

    def __call__(self, value: Any) -> Any:
        schema = self._schema
        given = self._given(value)
        fields = [self._field(field, write, given) for field, write in self._fields]
        if schema.layout is nodes.Layout.MAP:
            pairs = zip(schema.fields, fields, strict=True)
            mark = dict([schema.mark]) if schema.mark else {}
            return mark | {f.written: item for f, item in pairs if item is not _MISSING}
        head = [0] if schema.layout is nodes.Layout.ROW else [schema.mark[1]] if schema.mark else []
        return [*head, *self._array(fields)]

    def _given(self, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            found = {name: getattr(value, name, _MISSING) for name in self._names}
            if all(part is _MISSING for part in found.values()) and found:
                raise _misfit(self._schema, value)
            return found
        unknown = sorted(value.keys() - self._names)
        if unknown:
            message = f"{nodes.describe(self._schema)} has no field {', '.join(map(repr, unknown))}"
            raise PlainValueError(message)
        return value

    def _field(self, field: nodes.Field, write: _Write, given: Mapping[str, Any]) -> Any:
        value = given.get(field.name, _MISSING)
        if value is None and not field.required and not field.schema.nullable:
            value = _MISSING  # Arrow has None for an omitted field
        if value is not _MISSING:
            try:
                return write(value)
            except PlainValueError as error:
                raise PlainValueError(f"field {field.name!r}: {error}") from None
        if field.required:
            message = f"field {field.name!r} of {nodes.describe(self._schema)} is missing"
            raise PlainValueError(message)
        return _MISSING

    def _array(self, fields: list[Any]) -> list[Any]:
        """Return the fields in order; fields at the end may be omitted."""
        while fields and fields[-1] is _MISSING:
            fields.pop()
        written = []
        for field, value in zip(self._schema.fields, fields, strict=False):
            if value is _MISSING and not field.default:
                message = f"field {field.name!r} is missing, and its default is not known"
                raise PlainValueError(message)
            written.append(field.default[0] if value is _MISSING else value)
        return written
