"""Saved values are read without the classes that they were made of."""

from __future__ import annotations

import dataclasses
import datetime
import uuid
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common import Instant, Row, Types
from holdfast.common.typeinfo import type_info_of
from holdfast.state.errors import PickledStateError
from holdfast.state.types.plain_values import plain_values
from holdfast.state.types.serializers import Codec, Serializer
from tests.state.type_strategies import TYPES, TextSerializer, Typed, exactly


def plain(value: Any, declared: Any) -> Any:
    serializer = Serializer(type_info_of(declared))
    column = serializer.encode(serializer.shape([value]))
    return plain_values(serializer.schema, column)[0]


class Colour(Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: float | None = None


class Leaf(msgspec.Struct, tag="leaf"):
    value: Decimal


class Node(msgspec.Struct, tag="node", rename="upper"):
    parts: list[Node | Leaf | Colour | int] = []
    at: Point | None = None


@dataclasses.dataclass
class Everything:
    id: uuid.UUID
    took: datetime.timedelta
    tree: Node
    tags: frozenset[str]
    days: dict[datetime.date, tuple[int, ...]]
    kind: Colour | int
    next: Everything | None = None


_ID = uuid.UUID(int=7)
_DAY = datetime.date(2024, 2, 29)
_TREE = Node([Node([3, Colour.RED]), Leaf(Decimal("1.50"))], Point(1))


def test_a_class_with_everything() -> None:
    took = datetime.timedelta(days=1, microseconds=5)
    inner = Everything(_ID, took, Node(), frozenset(), {}, 9)
    value = Everything(_ID, took, _TREE, frozenset({"a"}), {_DAY: (1, 2)}, Colour.RED, inner)
    nothing = {"parts": [], "at": None}
    assert plain(value, Everything) == {
        "id": _ID,
        "took": took,
        "tree": {
            "parts": [
                {"parts": [3, "red"], "at": None},
                {"value": Decimal("1.50")},
            ],
            "at": {"x": 1, "y": None},
        },
        "tags": ["a"],
        "days": {_DAY: [1, 2]},
        "kind": "red",
        "next": {
            "id": _ID,
            "took": took,
            "tree": nothing,
            "tags": [],
            "days": {},
            "kind": 9,
            "next": None,
        },
    }


@pytest.mark.parametrize(
    ("value", "declared", "expected"),
    [
        (None, Types.BIG_INT(), None),
        (1 << 90, Types.BIG_INT(), 1 << 90),
        (7, Types.DOUBLE(), 7.0),
        (Instant(1, 2), Types.INSTANT(), Instant(1, 2)),
        (Row(a=1, b=[None]), Types.ROW_NAMED(["a", "b"], [int, list[str]]), {"a": 1, "b": [None]}),
        (("x", _DAY), tuple[str, datetime.date], ("x", _DAY)),
        ("hello", TextSerializer(), b"hello"),
        ((1, "a"), None, (1, "a")),
        ([1, "a"], None, [1, "a"]),
    ],
    ids=repr,
)
def test_other_types(value: Any, declared: Any, expected: Any) -> None:
    assert exactly(plain(value, declared), expected)


def test_pickles_stay_closed() -> None:
    with pytest.raises(PickledStateError, match="cannot be read without the job's classes"):
        plain({1, 2}, None)


@given(st.data(), TYPES)
def test_every_type_can_be_read(data: st.DataObject, typed: Typed) -> None:
    serializer = Serializer(typed.type_info)
    values = data.draw(st.lists(typed.values, max_size=3))
    column = serializer.encode(values)
    if column.codec is not Codec.PICKLE:
        assert len(plain_values(serializer.schema, column)) == len(values)
