"""Plain values of state as Arrow columns.

    in a schema                     in Arrow
    boolean, byte, short, int, long bool, int8, int16, int32, int64
    float, double                   float32, float64
    string, char, uuid              string
    bytes, custom                   binary
    decimal                         decimal128(38, 18)
    big int                         string
    date, time                      date32, time64 in microseconds
    timestamp                       timestamp in microseconds, without zone; converted to UTC
    instant                         timestamp in microseconds, in UTC
    duration                        duration in microseconds
    list                            list
    map                             map
    tuple                           struct with fields f0, f1, and so on
    record                          struct
    enum                            string or int64, by its values
    union, a record inside itself   string, JSON

Values that were saved without a type, or pickled, determine the type. If they have several types,
or one that Arrow does not support, the column is a string with Python's ``repr``.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from holdfast.common._type_infos.base import same
from holdfast.common.time import Instant
from holdfast.common.types import Row
from holdfast.state.errors import StateTypeError
from holdfast.state.types import schema as nodes

Convert = Callable[[Any], Any]


class ArrowColumn(NamedTuple):
    """An Arrow type, and the conversion of plain values to it.

    ``convert`` is None if no conversion is needed; it is not called with None.
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
                "rows, which have the original values, or use text=True for undeclared types"
            )
            raise StateTypeError(message) from error


@dataclass(frozen=True)
class RowTypes:
    """The columns of rows, each with its type."""

    place: str
    columns: dict[str, ArrowColumn]

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema."""
        return pa.schema([(name, column.type) for name, column in self.columns.items()])

    def batch(self, values: Iterable[Sequence[Any]]) -> pa.RecordBatch:
        """Return a record batch; ``values`` are by column."""
        arrays = [
            column.array(part, f"{self.place}, column '{name}'")
            for (name, column), part in zip(self.columns.items(), values, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


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


def column_of(schema: nodes.Schema) -> ArrowColumn:
    """Return the column for plain values of a schema."""
    match schema:
        case nodes.Plain(kind=kind):
            return _PLAIN[kind]
        case nodes.ListOf(item=item):
            return list_column(column_of(item))
        case nodes.MapOf(key=key, value=value):
            return map_column(column_of(key), column_of(value))
        case nodes.TupleOf(items=items):
            return _tuple([column_of(item) for item in items])
        case nodes.Record(fields=fields) if not _refers_to_itself(schema):
            return _record({field.name: column_of(field.schema) for field in fields})
        case nodes.Enumeration(values=values):
            kinds = {type(value) for value in values if value is not None}
            same = {frozenset({int}): LONG, frozenset({str}): _PLAIN["string"]}
            return same.get(frozenset(kinds), TEXT)
        case nodes.CustomSchema():
            return _PLAIN["bytes"]
    return _JSON


def inferred_column(values: Iterable[Any]) -> ArrowColumn:
    """Return the column for values without a declared type."""
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
        return same
    return lambda value: None if value is None else convert(value)


def _refers_to_itself(schema: nodes.Schema, depth: int = 0) -> bool:
    """Return whether a record at this depth refers to itself or to an enclosing record."""
    match schema:
        case nodes.Reference(up=up):
            return up >= depth
        case nodes.Record(fields=fields):
            return any(_refers_to_itself(field.schema, depth + 1) for field in fields)
        case nodes.ListOf(item=item):
            return _refers_to_itself(item, depth)
        case nodes.MapOf(key=key, value=value):
            return _refers_to_itself(key, depth) or _refers_to_itself(value, depth)
        case nodes.TupleOf(items=items):
            return any(_refers_to_itself(item, depth) for item in items)
    options: Sequence[nodes.Schema] = getattr(schema, "options", ())
    return any(_refers_to_itself(option, depth) for option in options)
