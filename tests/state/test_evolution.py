"""Old state under new types: what is read, as what, and what is refused with which words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from io import BytesIO
from typing import Any, Literal, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common import Row, Types
from holdfast.common.serializer import TypeSerializer
from holdfast.common.typeinfo import TypeInformation, type_info_of
from holdfast.state.errors import StateMigrationError
from holdfast.state.types.evolution import same_bytes, upgrade
from holdfast.state.types.schema import Schema, describe
from holdfast.state.types.schema_of import schema_of
from holdfast.state.types.serializers import Codec, Serializer, Unreadable
from tests.state.type_strategies import TYPES, Typed, exactly


def read(value: Any, old: Any, new: Any) -> Any:
    """A value that was written under one type, as it is read under another."""
    writer, reader = Serializer(type_info_of(old)), Serializer(type_info_of(new))
    saved = msgspec.msgpack.decode(msgspec.msgpack.encode(writer.schema), type=Schema | None)
    column = writer.encode(writer.shape([value, None]))
    first, none = reader.reading(saved).decode(column)
    assert none is None
    return first


@given(st.data(), TYPES)
def test_values_of_any_type_come_back(data: st.DataObject, typed: Typed) -> None:
    values = data.draw(st.lists(st.none() | typed.values, max_size=4))
    serializer = Serializer(typed.type_info)
    column = serializer.encode(serializer.shape(values))
    assert exactly(serializer.reading(serializer.schema).decode(column), values)
    if typed.type_info.msgpack_type() is None:
        assert column.codec is not Codec.TYPED


@given(TYPES)
def test_schemas_are_data(typed: Typed) -> None:
    schema = schema_of(typed.type_info)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(schema), type=Schema) == schema
    assert msgspec.json.decode(msgspec.json.encode(schema), type=Schema) == schema
    assert upgrade(schema, schema) is None
    assert describe(schema)


# Records.


class Level(Enum):
    LOW = 1
    HIGH = 2


class LevelAndMore(Enum):
    BOTTOM = 1
    HIGH = 2
    TOP = 3


@dataclasses.dataclass
class Order:
    id: str
    amount: int
    gone: list[float] = dataclasses.field(default_factory=list)
    level: Level = Level.LOW


@dataclasses.dataclass
class WiderOrder:
    level: LevelAndMore
    amount: float
    id: str | None
    items: list[str] = dataclasses.field(default_factory=list)


class Step(NamedTuple):
    x: int
    y: int


class NamedStep(NamedTuple):
    name: str = "none"
    y: float = 0.0
    x: float = 0.0
    tags: tuple[str, ...] = ()


class Shape(msgspec.Struct):
    x: int
    y: int = 5


class StrictShape(msgspec.Struct, forbid_unknown_fields=True):
    x: int


class ShapeArray(msgspec.Struct, array_like=True, tag="shape"):
    y: int = 0
    x: int = 0
    made: list[int] = msgspec.field(default_factory=lambda: [7])


@pytest.mark.parametrize(
    ("value", "old", "new", "expected"),
    [
        (
            Order("o", 3, [1.5], Level.HIGH),
            Order,
            WiderOrder,
            WiderOrder(LevelAndMore.HIGH, 3.0, "o"),
        ),
        (
            [(Order("o", 3), 1)],
            list[tuple[Order, int]],
            list[tuple[WiderOrder, float]],
            [(WiderOrder(LevelAndMore.BOTTOM, 3.0, "o"), 1.0)],
        ),
        (
            {"a": Order("o", 3)},
            dict[str, Order],
            dict[str, WiderOrder],
            {"a": WiderOrder(LevelAndMore.BOTTOM, 3.0, "o")},
        ),
        (Step(1, 2), Step, NamedStep, NamedStep("none", 2.0, 1.0)),
        (Step(1, 2), Step, ShapeArray, ShapeArray(2, 1, [7])),
        (Step(1, 2), Step, Shape, Shape(1, 2)),
        (Shape(1, 2), Shape, StrictShape, StrictShape(1)),
        (ShapeArray(1, 2, [3]), ShapeArray, Step, Step(2, 1)),
        (
            Row(x=1, y=None),
            Types.ROW_NAMED(["x", "y"], [int, int]),
            Types.ROW_NAMED(["z", "y", "x"], [str, float, float]),
            Row(z=None, y=None, x=1.0),
        ),
        (Step(1, 2), Step, Types.ROW_NAMED(["y", "x"], [int, int]), Row(y=2, x=1)),
    ],
    ids=lambda x: None,
)
def test_records_go_by_the_names_of_their_fields(
    value: Any, old: Any, new: Any, expected: Any
) -> None:
    assert exactly(read(value, old, new), expected)


def test_a_kind_of_row_stays() -> None:
    from holdfast.common import RowKind

    row = Row(x=1)
    row.set_row_kind(RowKind.DELETE)
    of = Types.ROW_NAMED
    assert (
        read(row, of(["x"], [int]), of(["x", "y"], [float, int])).get_row_kind() is RowKind.DELETE
    )


@dataclasses.dataclass
class Tree:
    value: int
    left: Tree | None = None
    others: list[Tree] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class DatedTree:
    value: float
    date: str = "today"
    left: DatedTree | None = None
    others: list[DatedTree] = dataclasses.field(default_factory=list)


def test_records_inside_themselves() -> None:
    tree = Tree(1, Tree(2), [Tree(3, Tree(4)), Tree(5)])
    expected = DatedTree(
        1.0,
        "today",
        DatedTree(2.0),
        [DatedTree(3.0, left=DatedTree(4.0)), DatedTree(5.0)],
    )
    assert read(tree, Tree, DatedTree) == expected
    assert describe(schema_of(type_info_of(Tree))) == (
        "Tree(value: long, left: itself | None, others: list[itself])"
    )


class Click(msgspec.Struct, tag="click"):
    at: int


class Key(msgspec.Struct, tag="key"):
    code: str


class Event(msgspec.Struct):
    what: Click | Key | int


class StampedClick(msgspec.Struct, tag="click"):
    at: float
    by: str = "?"


class AnyEvent(msgspec.Struct):
    what: StampedClick | Key | int | str


def test_options_of_unions() -> None:
    assert read(Event(Click(3)), Event, AnyEvent) == AnyEvent(StampedClick(3.0, "?"))
    assert read(Event(Key("x")), Event, AnyEvent) == AnyEvent(Key("x"))
    assert read(Event(7), Event, AnyEvent) == AnyEvent(7)


# What is plain.


@pytest.mark.parametrize(
    ("value", "old", "new", "expected"),
    [
        (7, Types.BYTE(), Types.SHORT(), 7),
        (7, Types.INT(), Types.LONG(), 7),
        (7, Types.LONG(), Types.BIG_INT(), 7),
        (7, Types.LONG(), Types.DOUBLE(), 7.0),
        (7, Types.SHORT(), Types.FLOAT(), 7.0),
        (7, Types.LONG(), Types.BIG_DEC(), Decimal(7)),
        (-(1 << 70), Types.BIG_INT(), Types.BIG_DEC(), Decimal(-(1 << 70))),
        (0.5, Types.FLOAT(), Types.DOUBLE(), 0.5),
        ("x", Types.CHAR(), Types.STRING(), "x"),
        ([1], Types.BASIC_ARRAY(int), Types.LIST(float), [1.0]),
        ([1], Types.PRIMITIVE_ARRAY(int), Types.LIST(int), [1]),
        (7, None, Types.DOUBLE(), 7.0),
        ((1, [2]), Types.PICKLED_BYTE_ARRAY(), Types.TUPLE([float, list[int]]), (1.0, [2])),
    ],
    ids=repr,
)
def test_wider_types(value: Any, old: Any, new: Any, expected: Any) -> None:
    assert exactly(read(value, old, new), expected)


@dataclasses.dataclass
class Sets:
    a: set[int]
    b: list[int]
    c: frozenset[int]


@dataclasses.dataclass
class OtherSets:
    a: list[float]
    b: tuple[int, ...]
    c: set[int]


def test_collections() -> None:
    assert read(Sets({1}, [2], frozenset({3})), Sets, OtherSets) == OtherSets([1.0], (2,), {3})


def test_a_number_that_would_lose_digits_is_refused() -> None:
    exact, inexact = 1 << 53, (1 << 53) + 1
    assert read(exact, int, float) == float(exact)
    with pytest.raises(StateMigrationError, match="the saved number 9007199254740993 is not exac"):
        read(inexact, int, float)
    with pytest.raises(StateMigrationError, match="16777217 is not exactly a float"):
        read((1 << 24) + 1, Types.INT(), Types.FLOAT())


# What is refused.


@dataclasses.dataclass
class NewField:
    id: str
    amount: int
    city: str


@dataclasses.dataclass
class OtherField:
    amount: str


class Low(Enum):
    LOW = 1


@dataclasses.dataclass
class LowOnly:
    level: Low


@dataclasses.dataclass
class Maybe:
    x: int | None = None


class MadeInTheMiddle(msgspec.Struct, array_like=True):
    x: int
    made: list[int] = msgspec.field(default_factory=lambda: [7])
    y: int = 0


@dataclasses.dataclass
class Letter:
    kind: Literal["a", "b"]


@dataclasses.dataclass
class FirstLetter:
    kind: Literal["a"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (int, str, "long cannot be read as string"),
        (Types.LONG(), Types.INT(), "long cannot be read as int"),
        (float, int, "double cannot be read as long"),
        (Types.BIG_INT(), float, "big int cannot be read as double"),
        (bool, int, "boolean cannot be read as long"),
        (tuple[int, int], tuple[int, int, int], "it was a tuple of 2 and is one of 3 now; use"),
        (tuple[int, str], tuple[int, int], "[1]: string cannot be read as long"),
        (list[tuple[int, str]], list[tuple[int, int]], "[][1]: string cannot be read as long"),
        (dict[str, int], dict[int, int], "'s key: string cannot be read as long"),
        (list[int], tuple[int], "list[long] cannot be read as tuple[long]"),
        (Order, NewField, "city: it is new and has no default; give it one"),
        (dict[str, Order], dict[str, OtherField], "[].amount: long cannot be read as string"),
        (Order, LowOnly, "level: Low no longer has the value 2, which may have been saved; keep"),
        (Maybe, Shape, "x: it may be None in saved values, and long allows no None; declare"),
        (Shape, MadeInTheMiddle, "made: it is new and its default is made by a function; put it"),
        (OtherSets, Sets, "a: list[double] cannot be read as set[long]"),
        (Letter, FirstLetter, "kind: Literal no longer has the value 'b'"),
        (AnyEvent, Event, "what: Click(at: long) | Key(code: string) | long has no option that"),
        (int, None, "it was written under a type and now has no type; declare a type, or rename"),
        (int, object, "it was written under a type and now has a type that is pickled"),
    ],
    ids=repr,
)
def test_what_cannot_be_read(old: Any, new: Any, problem: str) -> None:
    reader = Serializer(type_info_of(new))
    with pytest.raises(StateMigrationError) as refused:
        reader.reading(schema_of(type_info_of(old)))
    assert str(refused.value).startswith(problem)


def test_keys_must_be_written_as_before() -> None:
    def alike(old: Any, new: Any) -> bool:
        return same_bytes(schema_of(type_info_of(old)), schema_of(type_info_of(new)))

    assert alike(Types.INT(), Types.LONG())
    assert alike(tuple[int, str], tuple[int, str])
    assert alike(None, int)
    assert not alike(int, float)
    assert not alike(int, str)
    assert not alike(Step, NamedStep)


# Serializers of the user's.


class Point(NamedTuple):
    x: float
    y: float


class PointSerializer(TypeSerializer[Point]):
    """Wrote whole numbers first, then the size of the text as well."""

    version = 2

    def serialize(self, element: Point, stream: BytesIO) -> None:
        stream.write(f"{element.x} {element.y}".encode())

    def deserialize(self, stream: BytesIO) -> Point:
        x, y = stream.read().split()
        return Point(float(x), float(y))

    def reader(self, version: int) -> Callable[[BytesIO], Point] | None:
        return self._read_first if version == 0 else super().reader(version)

    def _read_first(self, stream: BytesIO) -> Point:
        return Point(*map(float, stream.read()))


def first_version(version: int) -> TypeInformation:
    class First(PointSerializer):
        def serialize(self, element: Point, stream: BytesIO) -> None:
            stream.write(bytes([int(element.x), int(element.y)]))

    First.version = version
    First.__qualname__ = PointSerializer.__qualname__
    return type_info_of(First())


def test_a_serializer_reads_what_an_older_version_wrote() -> None:
    point = Point(1.0, 2.0)
    assert exactly(read(point, PointSerializer(), PointSerializer()), point)
    assert exactly(read(point, first_version(0), PointSerializer()), point)
    inside = Types.TUPLE([first_version(0), int])
    assert read((point, 1), inside, Types.TUPLE([PointSerializer(), float])) == (point, 1.0)
    with pytest.raises(StateMigrationError, match="version 2 does not read version 1; return a fu"):
        read(point, first_version(1), PointSerializer())


# Values that their type would not read back.


@dataclasses.dataclass
class Loose:
    number: int
    parts: list[str] = dataclasses.field(default_factory=list)


def test_a_field_that_holds_something_else_is_not_written() -> None:
    serializer = Serializer(type_info_of(list[Loose]))
    good, bad = [Loose(1)], [Loose(1), Loose(2, ["a", 3])]  # type: ignore[list-item]
    with pytest.raises(Unreadable, match=r"Expected `str`, got `int` - at `value\[1\].parts\[1\]`"):
        serializer.encode([good, bad])
    assert serializer.misfit([good, bad, good])[0] == 1  # type: ignore[index]


# A model: dataclasses of random fields, changed at random.

_FIELD_TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers(-(1 << 40), 1 << 40)),
    (float, st.floats(allow_nan=False)),
    (str, st.text(max_size=3)),
    (list[int], st.lists(st.integers(0, 9), max_size=2)),
]
_NAMES = ["a", "b", "c", "d"]


@given(st.data())
def test_evolution_of_a_class(data: st.DataObject) -> None:
    old = data.draw(st.dictionaries(st.sampled_from(_NAMES), st.sampled_from(_FIELD_TYPES)))
    new = data.draw(st.dictionaries(st.sampled_from(_NAMES), st.sampled_from(_FIELD_TYPES)))
    values = {name: data.draw(strategy) for name, (_, strategy) in old.items()}
    defaults = {name: data.draw(strategy) for name, (_, strategy) in new.items()}
    with_default = {name for name in new if data.draw(st.booleans())}

    def expected(name: str) -> Any:
        if name not in old:
            return defaults[name] if name in with_default else _REFUSED
        before, after = old[name][0], new[name][0]
        if before == after:
            return values[name]
        return float(values[name]) if (before, after) == (int, float) else _REFUSED

    fields = {name: expected(name) for name in new}
    cls = dataclasses.make_dataclass(
        "New",
        [
            (name, of, _default(defaults[name]) if name in with_default else dataclasses.field())
            for name, (of, _) in new.items()
        ],
        kw_only=True,
    )
    before = dataclasses.make_dataclass("Old", [(name, of) for name, (of, _) in old.items()])
    if _REFUSED in fields.values():
        with pytest.raises(StateMigrationError):
            read([before(**values)], list[before], list[cls])  # type: ignore[valid-type]
    else:
        assert exactly(
            read([before(**values)], list[before], list[cls]),  # type: ignore[valid-type]
            [cls(**fields)],
        )


_REFUSED = object()


def _default(value: Any) -> Any:
    return dataclasses.field(default_factory=lambda: value)


class Formula(msgspec.Struct):
    left: Formula | int | str
    name: str = ""


class WeighedFormula(msgspec.Struct):
    left: WeighedFormula | int | str
    weight: float = 1.0


def test_options_that_are_the_record_itself() -> None:
    formula = Formula(Formula(Formula("x"), "inner"))
    expected = WeighedFormula(WeighedFormula(WeighedFormula("x")))
    assert read(formula, Formula, WeighedFormula) == expected


class First(msgspec.Struct, tag="first"):
    x: int


class Second(msgspec.Struct, tag="second"):
    x: int


class OneWay(msgspec.Struct):
    what: First | Second
    parts: list[First | Second | None] = []


class OtherWay(msgspec.Struct):
    what: Second | First
    parts: list[Second | First | None]
    more: int = 1


class OnlySecond(msgspec.Struct):
    what: Second | int


def test_options_go_by_their_marks() -> None:
    value = OneWay(First(1), [Second(2), First(3), None])
    assert read(value, OneWay, OtherWay) == OtherWay(First(1), [Second(2), First(3), None])
    with pytest.raises(
        StateMigrationError, match=r"what: .* has no option that can read First\(x: long\)"
    ):
        read(value, OneWay, OnlySecond)
