from __future__ import annotations

import dataclasses
import math
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common import Row
from holdfast.common.typeinfo import Types, type_info_of
from holdfast.state.errors import StateMigrationError
from holdfast.state.types.serializers import Codec, EncodedColumn, Serializer

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(alphabet=st.characters(exclude_categories=())),
    st.binary(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.integers()), inner),
    ),
)


class Pair(NamedTuple):
    a: int
    b: str


class Text(str):
    pass


@dataclasses.dataclass
class Order:
    id: str
    items: list[int]


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return all(map(same, a, b)) and all(map(same, a.values(), b.values()))
    return bool(a == b)


@given(st.one_of(st.lists(VALUES), st.lists(st.tuples(SCALARS, SCALARS)), st.lists(SCALARS)))
def test_values_without_a_type_come_back_the_same(values: list[Any]) -> None:
    serializer = Serializer()
    assert same(serializer.decode(serializer.encode(values)), values)


@pytest.mark.parametrize(
    ("values", "codec"),
    [
        (["a", "b"], Codec.PLAIN),
        ([1, 2.5, None, True, b"x", "y"], Codec.PLAIN),
        ([(1, 2.5), ("a",)], Codec.TUPLES),
        ([[1], []], Codec.PLAIN),
        ([{"a": 1}, {}], Codec.PLAIN),
        ([], Codec.PLAIN),
        ([1 << 64], Codec.PICKLE),
        (["\ud800"], Codec.PICKLE),
        ([(1, (2,))], Codec.PICKLE),
        ([Pair(1, "x")], Codec.PICKLE),
        ([Text("x")], Codec.PICKLE),
        ([{1: 2}], Codec.PICKLE),
        ([1, (2,)], Codec.PICKLE),
        ([Decimal(1)], Codec.PICKLE),
    ],
)
def test_only_what_loses_nothing_is_not_pickled(values: list[Any], codec: Codec) -> None:
    serializer = Serializer()
    column = serializer.encode(values)
    assert column.codec is codec
    assert same(serializer.decode(column), values)


def test_nan_comes_back() -> None:
    serializer = Serializer()
    assert math.isnan(serializer.decode(serializer.encode([float("nan")]))[0])


@pytest.mark.parametrize(
    ("declared", "values"),
    [
        (Types.TUPLE([Types.LONG(), Types.DOUBLE()]), [(1, 2.5), (-1, 0.0), None]),
        (Types.LIST(Types.STRING()), [["a"], []]),
        (Types.BIG_INT(), [1, 1 << 100, None]),
        (Types.BIG_DEC(), [Decimal("1.50")]),
        (Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()]), [Row(a=1, b="x")]),
        (type_info_of(Order), [Order("o1", [1, 2])]),
        (type_info_of(Pair), [Pair(1, "x")]),
    ],
    ids=repr,
)
def test_declared_values_are_written_under_their_type(declared: Any, values: list[Any]) -> None:
    serializer = Serializer(declared)
    column = serializer.encode(serializer.shape(values))
    assert column.codec is Codec.TYPED
    assert same(serializer.decode(column), values)


def test_what_messagepack_cannot_hold_is_pickled_under_a_type_too() -> None:
    serializer = Serializer(Types.STRING())
    column = serializer.encode(["\ud800"])
    assert column.codec is Codec.PICKLE
    assert serializer.decode(column) == ["\ud800"]


def test_shape_returns_the_same_list_if_nothing_changes() -> None:
    serializer = Serializer(Types.DOUBLE())
    values = [1.0, 2.0]
    assert serializer.shape(values) is values
    assert list(map(type, serializer.shape([1, 2.0]))) == [float, float]


def test_classes_of_the_main_program_are_pickled_by_value() -> None:
    class Local:
        def __init__(self, x: int) -> None:
            self.x = x

    serializer = Serializer()
    assert serializer.decode(serializer.encode([Local(3)]))[0].x == 3


def test_typed_values_need_a_type() -> None:
    column = Serializer(Types.LONG()).encode([1])
    with pytest.raises(StateMigrationError, match="cannot be read without one"):
        Serializer().decode(column)


def test_another_type_that_does_not_fit() -> None:
    column = Serializer(Types.LONG()).encode([1])
    with pytest.raises(StateMigrationError, match="Expected `str"):
        Serializer(Types.STRING()).decode(column)


def test_a_type_for_what_had_none() -> None:
    column = Serializer().encode([1, 2])
    assert Serializer(Types.LONG()).decode(column) == [1, 2]
    with pytest.raises(StateMigrationError, match="value is declared String; got int"):
        Serializer(Types.STRING()).decode(column)


def test_a_pickled_class_that_is_gone() -> None:
    column = EncodedColumn(Codec.PICKLE, b"\x80\x05cno_such_module\nGone\n.")
    with pytest.raises(StateMigrationError, match="ModuleNotFoundError: No module named"):
        Serializer().decode(column)
