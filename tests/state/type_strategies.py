"""Random types, each with random values that have its shape already."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from io import BytesIO
from typing import Any, NamedTuple

import msgspec
from hypothesis import strategies as st

from holdfast.common import Instant, Row, Types
from holdfast.common.serializer import TypeSerializer
from holdfast.common.typeinfo import TypeInformation, type_info_of
from holdfast.state.types.schema import Schema
from holdfast.state.types.schema_of import schema_of


class Colour(Enum):
    RED = "red"
    GREEN = "green"


@dataclasses.dataclass(frozen=True)
class Place:
    street: str
    number: int | None = None


class Span(NamedTuple):
    start: int
    end: float = 0.0


class Event(msgspec.Struct, frozen=True):
    at: datetime.datetime
    places: list[Place] = []
    colour: Colour = Colour.RED


class TextSerializer(TypeSerializer[Any]):
    def serialize(self, element: Any, stream: BytesIO) -> None:
        stream.write(str(element).encode("utf-8", "surrogatepass"))

    def deserialize(self, stream: BytesIO) -> Any:
        return stream.read().decode("utf-8", "surrogatepass")


@dataclasses.dataclass(frozen=True)
class Typed:
    """A type, and a strategy for its values, None not among them."""

    type_info: TypeInformation
    values: st.SearchStrategy[Any]

    def __repr__(self) -> str:
        return repr(self.type_info)


_TEXT = st.text(max_size=5)
_LONG = st.integers(-(1 << 63), (1 << 63) - 1)
_DOUBLE = st.floats(allow_nan=False)
_PLACES = st.builds(Place, _TEXT, st.none() | _LONG)
_MOMENTS = st.datetimes(
    datetime.datetime(1, 1, 2),  # noqa: DTZ001
    datetime.datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=st.none() | st.just(datetime.UTC),
)


def _whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


SIMPLE = [
    Typed(Types.BOOLEAN(), st.booleans()),
    Typed(Types.BYTE(), _whole(8)),
    Typed(Types.SHORT(), _whole(16)),
    Typed(Types.INT(), _whole(32)),
    Typed(Types.LONG(), _LONG),
    Typed(Types.BIG_INT(), st.integers()),
    Typed(Types.FLOAT(), st.floats(width=32, allow_nan=False)),
    Typed(Types.DOUBLE(), _DOUBLE),
    Typed(Types.BIG_DEC(), st.decimals(allow_nan=False)),
    Typed(Types.STRING(), _TEXT),
    Typed(Types.CHAR(), st.text(min_size=1, max_size=1)),
    Typed(Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=9)),
    Typed(Types.SQL_DATE(), st.dates()),
    Typed(Types.SQL_TIME(), st.times()),
    Typed(Types.SQL_TIMESTAMP(), _MOMENTS),
    Typed(Types.INSTANT(), st.builds(Instant, _LONG, st.integers(0, 10**9 - 1))),
    Typed(type_info_of(Colour), st.sampled_from(Colour)),
    Typed(type_info_of(Place), _PLACES),
    Typed(type_info_of(Span), st.builds(Span, _LONG, _DOUBLE)),
    Typed(
        type_info_of(Event),
        st.builds(Event, _MOMENTS, st.lists(_PLACES, max_size=2), st.sampled_from(Colour)),
    ),
    Typed(type_info_of(TextSerializer()), _TEXT),
    Typed(Types.PICKLED_BYTE_ARRAY(), st.frozensets(st.integers(), max_size=3)),
]
_HASHABLE = [t for t in SIMPLE if not isinstance(t.type_info, type(type_info_of(Event)))]


def _optional(typed: Typed) -> st.SearchStrategy[Any]:
    return st.none() | typed.values


def _tuple(parts: list[Typed]) -> Typed:
    values = st.tuples(*map(_optional, parts))
    return Typed(Types.TUPLE([p.type_info for p in parts]), values)


def _row(parts: list[Typed]) -> Typed:
    names = [f"n{i}" for i in range(len(parts))]
    make: Callable[..., Any] = lambda *values: Row(**dict(zip(names, values, strict=True)))  # noqa: E731
    values = st.builds(make, *map(_optional, parts))
    return Typed(Types.ROW_NAMED(names, [p.type_info for p in parts]), values)


def _list(part: Typed) -> Typed:
    return Typed(Types.LIST(part.type_info), st.lists(_optional(part), max_size=3))


def _map(key: Typed, value: Typed) -> Typed:
    values = st.dictionaries(key.values, _optional(value), max_size=3)
    return Typed(Types.MAP(key.type_info, value.type_info), values)


def _containers(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    parts = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        parts.map(_tuple),
        parts.map(_row),
        inner.map(_list),
        st.builds(_map, st.sampled_from(_HASHABLE), inner),
    )


#: types, each with a strategy for its values
TYPES: st.SearchStrategy[Typed] = st.recursive(st.sampled_from(SIMPLE), _containers, max_leaves=5)
SCHEMAS: st.SearchStrategy[Schema | None] = TYPES.map(lambda typed: schema_of(typed.type_info))


def exactly(a: Any, b: Any) -> bool:
    """Equal in value and in type, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(exactly, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(exactly(a[key], b[key]) for key in a)
    if isinstance(a, Decimal):
        return a.as_tuple() == b.as_tuple()
    return bool(a == b)
