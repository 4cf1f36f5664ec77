"""Plain values of state as columns of Arrow.

    in a schema                     in Arrow
    boolean, byte, short, int, long bool, int8, int16, int32, int64
    float, double                   float32, float64
    string, char, uuid              string
    bytes, custom                   binary
    decimal                         decimal128(38, 18)
    big int                         string
    date, time                      date32, time64 in microseconds
    timestamp                       timestamp in microseconds, without zone; what has one, in UTC
    instant                         timestamp in microseconds, in UTC
    duration                        duration in microseconds
    list                            list
    map                             map
    tuple                           struct with fields f0, f1, and so on
    record                          struct
    enum                            string or int64, as its values are
    union, a record inside itself   string, JSON

What was saved without a type, or pickled, gets the type that its values have. If they have several,
or one that Arrow has no type for, the column is a string: what Python shows.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from holdfast.common.time import Instant
from holdfast.common.types import Row
from holdfast.state.errors import StateTypeError
from holdfast.state.schema import (
    Custom,
    Enumeration,
    ListOf,
    MapOf,
    Plain,
    Record,
    Reference,
    Schema,
    TupleOf,
)

__all__ = [
    "LONG",
    "TEXT",
    "ArrowColumn",
    "column_of",
    "inferred_column",
    "list_column",
    "map_column",
    "window_column",
]

Convert = Callable[[Any], Any]


class ArrowColumn(NamedTuple):
    """A type of Arrow's, and what makes a plain value one that Arrow takes for it.

    ``convert`` is None where they are the same; it is not called with None.
    """

    type: pa.DataType
    convert: Convert | None = None

    def array(self, values: Sequence[Any], place: str) -> pa.Array:
        """Return a column; ``place`` is for errors."""
        convert = self.convert
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        try:
            return pa.array(values, self.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            message = (
                f"{place}: a value does not fit Arrow's {self.type}: {error}; iterate over the "
                "rows, which have every value as it is, or ask for undeclared types as text"
            )
            raise StateTypeError(message) from error


_MICROSECONDS: Final = pa.timestamp("us")
_DECIMAL: Final = pa.decimal128(38, 18)
_LONGS: Final = range(-(1 << 63), 1 << 63)


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return repr(value)


def _without_zone(value: datetime.datetime) -> datetime.datetime:
    return value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)


def _microseconds(value: Instant) -> int:
    return value.seconds * 1_000_000 + value.nanos // 1000


LONG: Final = ArrowColumn(pa.int64())
TEXT: Final = ArrowColumn(pa.string(), repr)
_JSON: Final = ArrowColumn(pa.string(), _json)
_STRING: Final = ArrowColumn(pa.string(), str)
_TIMESTAMP: Final = ArrowColumn(_MICROSECONDS, _without_zone)
_INSTANT: Final = ArrowColumn(pa.timestamp("us", "UTC"), _microseconds)
#: a window of time: its start and its end
_WINDOW: Final = ArrowColumn(pa.struct([("start", pa.int64()), ("end", pa.int64())]))

_PLAIN: Final = {
    "boolean": ArrowColumn(pa.bool_()),
    "byte": ArrowColumn(pa.int8()),
    "short": ArrowColumn(pa.int16()),
    "int": ArrowColumn(pa.int32()),
    "long": LONG,
    "big int": _STRING,
    "float": ArrowColumn(pa.float32()),
    "double": ArrowColumn(pa.float64()),
    "decimal": ArrowColumn(_DECIMAL),
    "string": ArrowColumn(pa.string()),
    "char": ArrowColumn(pa.string()),
    "bytes": ArrowColumn(pa.binary()),
    "date": ArrowColumn(pa.date32()),
    "time": ArrowColumn(pa.time64("us")),
    "timestamp": _TIMESTAMP,
    "duration": ArrowColumn(pa.duration("us")),
    "instant": _INSTANT,
    "uuid": _STRING,
    "null": ArrowColumn(pa.string()),
}


def column_of(schema: Schema) -> ArrowColumn:
    """Return the column for plain values of a schema."""
    match schema:
        case Plain(kind=kind):
            return _PLAIN[kind]
        case ListOf(item=item):
            return list_column(column_of(item))
        case MapOf(key=key, value=value):
            return map_column(column_of(key), column_of(value))
        case TupleOf(items=items):
            return _tuple([column_of(item) for item in items])
        case Record(fields=fields) if not _refers_to_itself(schema):
            return _record({field.name: column_of(field.schema) for field in fields})
        case Enumeration(values=values):
            kinds = {type(value) for value in values if value is not None}
            same = {frozenset({int}): LONG, frozenset({str}): _PLAIN["string"]}
            return same.get(frozenset(kinds), TEXT)
        case Custom():
            return _PLAIN["bytes"]
    return _JSON


def inferred_column(values: Iterable[Any]) -> ArrowColumn:
    """Return the column for values whose type nobody has declared."""
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds == {int, float}:
        return ArrowColumn(pa.float64(), float)
    if len(kinds) != 1:
        return TEXT
    kind = kinds.pop()
    if kind in _INFERRED:
        column = _INFERRED[kind]
        return column if _all_fit(kind, present) else TEXT
    if kind is tuple:
        return _inferred_tuple(present)
    if kind in (list, set, frozenset):
        return list_column(inferred_column(chain.from_iterable(present)))
    if kind is dict:
        keys = inferred_column(chain.from_iterable(present))
        return map_column(keys, inferred_column(chain.from_iterable(map(dict.values, present))))
    return _inferred_row(present) if kind is Row else TEXT


def window_column(windows: Iterable[Any]) -> ArrowColumn:
    """Return the column for windows: of time, which have a start and an end, or others."""
    present = [window for window in windows if window is not None]
    if all(isinstance(window, dict) for window in present):
        return _WINDOW
    return inferred_column(present)


#: by the type of all values
_INFERRED: Final = {
    bool: _PLAIN["boolean"],
    int: LONG,
    float: _PLAIN["double"],
    str: _PLAIN["string"],
    bytes: _PLAIN["bytes"],
    Decimal: _PLAIN["decimal"],
    datetime.date: _PLAIN["date"],
    datetime.time: _PLAIN["time"],
    datetime.datetime: _TIMESTAMP,
    datetime.timedelta: _PLAIN["duration"],
    Instant: _INSTANT,
    uuid.UUID: _STRING,
}


def _all_fit(kind: type, values: list[Any]) -> bool:
    if kind is int:
        return all(value in _LONGS for value in (min(values), max(values)))
    if kind is str or kind is Decimal:
        try:
            pa.array(values, _INFERRED[kind].type)
        except (pa.ArrowException, ValueError):
            return False
    return True


def _inferred_tuple(values: list[tuple[Any, ...]]) -> ArrowColumn:
    lengths = {len(value) for value in values}
    if len(lengths) > 1 or 0 in lengths:
        return list_column(inferred_column(chain.from_iterable(values)))
    return _tuple([inferred_column(part) for part in zip(*values, strict=True)])


def _inferred_row(values: list[Row]) -> ArrowColumn:
    names = {tuple(getattr(value, "_fields", ())) for value in values}
    if len(names) > 1 or () in names:
        return TEXT
    parts = zip(*values, strict=True)
    columns = dict(zip(names.pop(), map(inferred_column, parts), strict=True))
    record = _record(columns)
    return ArrowColumn(record.type, _after(Row.as_dict, record.convert))


def _after(first: Convert, second: Convert | None) -> Convert:
    return first if second is None else lambda value: second(first(value))


def list_column(item: ArrowColumn) -> ArrowColumn:
    """Return the column of lists."""
    convert = item.convert
    if convert is None:
        return ArrowColumn(pa.list_(item.type), list)
    each = _optional(convert)
    return ArrowColumn(pa.list_(item.type), lambda values: [each(value) for value in values])


def map_column(key: ArrowColumn, value: ArrowColumn) -> ArrowColumn:
    """Return the column of maps."""
    of_key, of_value = _optional(key.convert), _optional(value.convert)
    return ArrowColumn(
        pa.map_(key.type, value.type),
        lambda entries: [(of_key(k), of_value(v)) for k, v in entries.items()],
    )


def _tuple(parts: list[ArrowColumn]) -> ArrowColumn:
    kind = pa.struct([(f"f{i}", part.type) for i, part in enumerate(parts)])
    if all(part.convert is None for part in parts):
        return ArrowColumn(kind)
    each = [_optional(part.convert) for part in parts]
    return ArrowColumn(
        kind, lambda value: tuple([of(item) for of, item in zip(each, value, strict=True)])
    )


def _record(fields: dict[str, ArrowColumn]) -> ArrowColumn:
    kind = pa.struct([(name, field.type) for name, field in fields.items()])
    if all(field.convert is None for field in fields.values()):
        return ArrowColumn(kind)
    each = {name: _optional(field.convert) for name, field in fields.items()}
    return ArrowColumn(kind, lambda value: {name: each[name](item) for name, item in value.items()})


def _optional(convert: Convert | None) -> Convert:
    if convert is None:
        return _same
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _refers_to_itself(schema: Schema, depth: int = 0) -> bool:
    """Whether a record, as deep in others as that, holds a reference to it or to one around it."""
    match schema:
        case Reference(up=up):
            return up >= depth
        case Record(fields=fields):
            return any(_refers_to_itself(field.schema, depth + 1) for field in fields)
        case ListOf(item=item):
            return _refers_to_itself(item, depth)
        case MapOf(key=key, value=value):
            return _refers_to_itself(key, depth) or _refers_to_itself(value, depth)
        case TupleOf(items=items):
            return any(_refers_to_itself(item, depth) for item in items)
    options: Sequence[Schema] = getattr(schema, "options", ())
    return any(_refers_to_itself(option, depth) for option in options)
