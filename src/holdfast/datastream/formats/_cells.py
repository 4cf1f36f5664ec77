"""What an Arrow column accepts: a `Cell` per column type.

Arrow itself is generous: it cuts 1.5 to 1 for a column of whole numbers, takes numbers as times,
and drops a time zone. So the types of the values are looked at first. Values of the usual types go
to Arrow as they are, all at once. Others are converted one by one, if nothing is lost.
"""

from __future__ import annotations

import datetime
import math
import operator
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any, Final

import pyarrow as pa

from holdfast.common import Instant
from holdfast.common.types import NoSuchFieldError, Row

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LARGEST_SINGLE: Final = 3.4028234663852886e38
#: the number of microseconds that a value in this unit is a multiple of
_MICROS: Final = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 1}


class Misfit(Exception):
    """A value does not fit into a column. Each container adds its step to the path."""

    def __init__(self, value: Any, problem: str) -> None:
        super().__init__(problem)
        self.value = value
        self.problem = problem
        self.path = ""

    def inside(self, step: str) -> Misfit:
        """Prepend a step to the path of the value."""
        self.path = step + self.path
        return self


@dataclass(frozen=True)
class Cell:
    """What a column type accepts.

    Attributes:
        plain: the types of values that Arrow converts as it should.
        convert: returns a value that Arrow converts as it should, or raises a `Misfit`.
        check: raises a `Misfit` for a value of a plain type that Arrow would change.
    """

    plain: frozenset[type]
    convert: Callable[[Any], Any]
    check: Callable[[Any], object] | None = None

    def all_of(self, values: Sequence[Any], nullable: bool) -> Sequence[Any]:
        """Return the values of a column as Arrow takes them.

        Raises:
            Misfit: if one does not fit.
        """
        found = set(map(type, values))
        has_nulls = type(None) in found
        found.discard(type(None))
        if (has_nulls and not nullable) or not found <= self.plain:
            return [self.one_of(value, nullable) for value in values]
        if self.check is not None:
            for value in filter(_is_not_none, values) if has_nulls else values:
                self.check(value)
        return values

    def one_of(self, value: Any, nullable: bool) -> Any:
        """Return one value as Arrow takes it.

        Raises:
            Misfit: if it does not fit.
        """
        if value is None:
            if not nullable:
                problem = "is None, and the column cannot be null; declare the field as X | None"
                raise Misfit(value, problem)
            return None
        if type(value) not in self.plain:
            value = self.convert(value)
        if self.check is not None:
            self.check(value)
        return value


def cell_of(column: pa.DataType) -> Cell:
    """Return what a column type accepts.

    Raises:
        TypeError: for a type whose values are not checked.
    """
    for is_this, make in _KINDS:
        if is_this(column):
            return make(column)
    message = (
        f"columns of the type {column} are not supported; use numbers, texts, bytes, dates, times, "
        "decimals, lists, maps and structs of these"
    )
    raise TypeError(message)


def values_of(record: Any, names: Sequence[str]) -> Sequence[Any]:
    """Return the fields of a record in the order of the names.

    Raises:
        Misfit: if the record does not have them all.
    """
    if isinstance(record, tuple | list) and not hasattr(record, "_fields"):
        return _checked(record, names)
    if isinstance(record, Row) and record._index is None:
        return _checked(record._values, names)
    get = record.__getitem__ if isinstance(record, Row | Mapping) else partial(getattr, record)
    return [_field_of(record, get, name) for name in names]


def _checked(values: Sequence[Any], names: Sequence[str]) -> Sequence[Any]:
    if len(values) != len(names):
        wanted = ", ".join(names)
        raise Misfit(values, f"has {len(values)} values for {len(names)} columns: {wanted}")
    return values


def _field_of(record: Any, get: Callable[[str], Any], name: str) -> Any:
    try:
        return get(name)
    except (KeyError, AttributeError, NoSuchFieldError):
        problem = f"has no field '{name}'; add it, with None if there is no value"
        raise Misfit(record, problem).inside(f".{name}") from None


def _integers(column: pa.DataType) -> Cell:
    def convert(value: Any) -> int:
        value = value.value if isinstance(value, Enum) else value
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise _wrong(value, "use int(...) if its fraction may be cut off")
        return operator.index(value)

    return Cell(frozenset([int]), convert)


def _booleans(column: pa.DataType) -> Cell:
    def convert(value: Any) -> bool:
        if type(value).__name__ in ("bool", "bool_") and type(value).__module__ == "numpy":
            return bool(value)
        raise _wrong(value, "use bool(...)")

    return Cell(frozenset([bool]), convert)


def _floats(column: pa.DataType) -> Cell:
    def convert(value: Any) -> float:
        if isinstance(value, bool | Decimal | str | bytes) or not hasattr(value, "__float__"):
            raise _wrong(value, "use float(...)")
        return float(value)

    is_single = column.bit_width < 64
    return Cell(frozenset([float, int]), convert, _check_single if is_single else None)


def _check_single(value: float) -> None:
    if abs(value) > _LARGEST_SINGLE and math.isfinite(value):
        raise Misfit(value, "is too large for 32 bits; use a column of float64")


def _texts(column: pa.DataType) -> Cell:
    def convert(value: Any) -> str:
        value = value.value if isinstance(value, Enum) else value
        if not isinstance(value, str | uuid.UUID):
            raise _wrong(value, "use str(...)")
        return str(value)

    return Cell(frozenset([str]), convert)


def _bytes(column: pa.DataType) -> Cell:
    def convert(value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise _wrong(value, "encode it")
        return bytes(value)

    return Cell(frozenset([bytes]), convert)


def _dates(column: pa.DataType) -> Cell:
    def convert(value: Any) -> datetime.date:
        if isinstance(value, datetime.datetime) or not isinstance(value, datetime.date):
            raise _wrong(value, "use value.date() if its time may be cut off")
        return value

    return Cell(frozenset([datetime.date]), convert)


def _times(column: pa.DataType) -> Cell:
    def check(value: datetime.time) -> None:
        if value.tzinfo is not None:
            raise Misfit(value, "has a time zone, which would be lost; remove it first")
        _check_unit(value.microsecond, value, column.unit)

    def convert(value: Any) -> datetime.time:
        if not isinstance(value, datetime.time):
            raise _wrong(value, "use a datetime.time")
        return value

    return Cell(frozenset([datetime.time]), convert, check)


def _timestamps(column: pa.DataType) -> Cell:
    def check(value: datetime.datetime) -> None:
        if (value.tzinfo is None) is not (column.tz is None):
            raise _wrong_zone(value)
        _check_unit(value.microsecond, value, column.unit)

    def convert(value: Any) -> datetime.datetime:
        if isinstance(value, Instant):
            return _moment(value)
        if not isinstance(value, datetime.datetime):
            raise _wrong(value, "use a datetime.datetime")
        if getattr(value, "nanosecond", 0):
            raise Misfit(value, "has nanoseconds, which would be cut off; round it first")
        return value

    return Cell(frozenset([datetime.datetime]), convert, check)


def _durations(column: pa.DataType) -> Cell:
    def check(value: datetime.timedelta) -> None:
        _check_unit(value.microseconds, value, column.unit)

    def convert(value: Any) -> datetime.timedelta:
        if not isinstance(value, datetime.timedelta):
            raise _wrong(value, "use a datetime.timedelta")
        return value

    return Cell(frozenset([datetime.timedelta]), convert, check)


def _wrong_zone(value: datetime.datetime) -> Misfit:
    if value.tzinfo is None:
        problem = (
            "has no time zone, and the column has one; add it, as in value.replace(tzinfo=UTC), or "
            'use a schema with pa.timestamp("us")'
        )
        return Misfit(value, problem)
    problem = (
        "has a time zone, which would be lost; remove it, as in value.replace(tzinfo=None), or use "
        'a schema with pa.timestamp("us", tz="UTC")'
    )
    return Misfit(value, problem)


def _moment(value: Instant) -> datetime.datetime:
    micros, rest = divmod(value.nanos, 1000)
    if rest:
        raise Misfit(value, "has nanoseconds, which would be cut off; round it first")
    return _EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=micros)


def _check_unit(micros: int, value: Any, unit: str) -> None:
    if micros % _MICROS[unit]:
        problem = f"is more exact than the column, which counts in {unit}; round it first"
        raise Misfit(value, problem)


def _decimals(column: pa.DataType) -> Cell:
    def convert(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise _wrong(value, "use Decimal(...), rounded to the scale of the column")
        return Decimal(value)

    return Cell(frozenset([Decimal, int]), convert)


def _lists(column: pa.DataType) -> Cell:
    each, nullable = cell_of(column.value_type), column.value_field.nullable

    def convert(value: Any) -> list[Any]:
        if isinstance(value, str | bytes | Mapping | Row) or not hasattr(value, "__iter__"):
            raise _wrong(value, "use a list")
        return [_inside(f"[{at}]", each, item, nullable) for at, item in enumerate(value)]

    return Cell(frozenset(), convert)


def _maps(column: pa.DataType) -> Cell:
    key, item = cell_of(column.key_type), cell_of(column.item_type)
    nullable = column.item_field.nullable

    def convert(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, Mapping):
            raise _wrong(value, "use a dict")
        return [
            (_inside(".key", key, k, False), _inside(f"[{k!r}]", item, v, nullable))
            for k, v in value.items()
        ]

    return Cell(frozenset(), convert)


def _structs(column: pa.DataType) -> Cell:
    fields = [(field.name, cell_of(field.type), field.nullable) for field in column]
    names = [name for name, _, _ in fields]

    def convert(value: Any) -> dict[str, Any]:
        return {
            name: _inside(f".{name}", cell, each, nullable)
            for (name, cell, nullable), each in zip(fields, values_of(value, names), strict=True)
        }

    return Cell(frozenset(), convert)


def _dictionaries(column: pa.DataType) -> Cell:
    return cell_of(column.value_type)


def _inside(step: str, cell: Cell, value: Any, nullable: bool) -> Any:
    try:
        return cell.one_of(value, nullable)
    except Misfit as misfit:
        raise misfit.inside(step) from None


def _wrong(value: Any, remedy: str) -> Misfit:
    return Misfit(value, f"has the type {type(value).__name__}; {remedy}")


def _is_not_none(value: Any) -> bool:
    return value is not None


def _is_text(column: pa.DataType) -> bool:
    return bool(pa.types.is_string(column) or pa.types.is_large_string(column))


def _is_bytes(column: pa.DataType) -> bool:
    is_sized = pa.types.is_fixed_size_binary(column)
    return bool(is_sized or pa.types.is_binary(column) or pa.types.is_large_binary(column))


def _is_list(column: pa.DataType) -> bool:
    is_sized = pa.types.is_fixed_size_list(column)
    return bool(is_sized or pa.types.is_list(column) or pa.types.is_large_list(column))


_KINDS: Final[Sequence[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Cell]]]] = (
    (pa.types.is_integer, _integers),
    (pa.types.is_boolean, _booleans),
    (pa.types.is_floating, _floats),
    (_is_text, _texts),
    (_is_bytes, _bytes),
    (pa.types.is_date, _dates),
    (pa.types.is_time, _times),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_duration, _durations),
    (pa.types.is_decimal, _decimals),
    (_is_list, _lists),
    (pa.types.is_map, _maps),
    (pa.types.is_struct, _structs),
    (pa.types.is_dictionary, _dictionaries),
)
