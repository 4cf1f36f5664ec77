import datetime
import math
import pickle
import struct
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common import Instant, Row, RowKind, Types, type_info_of
from holdfast.common.typeinfo import (
    BasicTypeInfo,
    DateTypeInfo,
    LocalTimeTypeInfo,
    PythonTypeInfo,
    RowTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)

utc = datetime.UTC
INT64 = st.integers(-(2**63), 2**63 - 1)


@dataclass
class Reading:
    sensor: str
    value: float = 0.0


@dataclass
class Calibrated(Reading):
    offset: float = 0.0


@dataclass
class Doubling:
    value: int

    def __post_init__(self):
        self.value *= 2


@dataclass
class Holder:
    anything: Any = None


@dataclass
class Nested:
    readings: list[Reading]
    inner: "Nested | None" = None
    cache: dict[str, int] = field(default_factory=dict, init=False)


class Point(NamedTuple):
    x: int
    y: int


class Event(msgspec.Struct):
    key: str


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Mode(Flag):
    READ = 1
    WRITE = 2


class Text(str):
    pass


# Pairs of a type and a strategy for values that already have its shape.
LEAVES = [
    (Types.STRING(), st.text()),
    (Types.BYTE(), st.integers(-128, 127)),
    (Types.SHORT(), st.integers(-(2**15), 2**15 - 1)),
    (Types.INT(), st.integers(-(2**31), 2**31 - 1)),
    (Types.LONG(), INT64),
    (Types.BIG_INT(), st.integers()),
    (Types.BOOLEAN(), st.booleans()),
    (Types.FLOAT(), st.floats(width=32, allow_nan=False)),
    (Types.DOUBLE(), st.floats(allow_nan=False)),
    (Types.CHAR(), st.characters(codec="utf-8")),
    (Types.BIG_DEC(), st.decimals(allow_nan=False, allow_infinity=False)),
    (Types.INSTANT(), st.builds(Instant, INT64, st.integers(0, 10**9 - 1))),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), st.times()),
    (Types.SQL_TIMESTAMP(), st.datetimes()),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary()),
    (Types.PRIMITIVE_ARRAY(Types.INT()), st.lists(st.integers(-5, 5))),
    (Types.BASIC_ARRAY(Types.STRING()), st.lists(st.text() | st.none())),
    (type_info_of(Reading), st.builds(Reading, st.text(), st.floats(allow_nan=False))),
    (type_info_of(Point), st.builds(Point, INT64, INT64)),
    (type_info_of(Event), st.builds(Event, st.text())),
    (type_info_of(Color), st.sampled_from(Color)),
]
KEYS = [Types.STRING(), Types.LONG(), Types.BIG_INT(), Types.CHAR()]


def _tuples(parts):
    return Types.TUPLE([t for t, _ in parts]), st.tuples(*(v | st.none() for _, v in parts))


def _rows(parts):
    names = [f"n{i}" for i in range(len(parts))]

    def make(kind, fields):
        row = Row.of_kind(kind, *fields)
        row.set_field_names(names)
        return row

    fields = st.tuples(*(v | st.none() for _, v in parts))
    return (
        Types.ROW_NAMED(names, [t for t, _ in parts]),
        st.builds(make, st.sampled_from(RowKind), fields),
    )


def _maps(key, value):
    return Types.MAP(key[0], value[0]), st.dictionaries(key[1], value[1] | st.none(), max_size=3)


def _containers(inner):
    keys = st.sampled_from([pair for pair in LEAVES if pair[0] in KEYS])
    return st.one_of(
        st.lists(inner, max_size=3).map(_tuples),
        st.lists(inner, max_size=3).map(_rows),
        inner.map(lambda p: (Types.LIST(p[0]), st.lists(p[1] | st.none(), max_size=3))),
        inner.map(lambda p: (Types.OBJECT_ARRAY(p[0]), st.lists(p[1], max_size=3))),
        st.tuples(keys, inner).map(lambda p: _maps(*p)),
    )


@st.composite
def typed_values(draw):
    type_info, strategy = draw(st.recursive(st.sampled_from(LEAVES), _containers, max_leaves=6))
    return type_info, draw(strategy)


@given(typed_values())
def test_a_value_in_shape_stays_as_it_is(typed):
    type_info, value = typed
    assert type_info.coerce(value) == value
    assert type_info.coercer()(value) is value


@given(typed_values())
def test_msgpack_round_trip(typed):
    type_info, value = typed
    encode, decode = type_info.to_msgpack(), type_info.from_msgpack()
    wire = msgspec.msgpack.encode(encode(value) if encode else value)
    back = msgspec.msgpack.decode(wire, type=type_info.msgpack_type())
    back = decode(back) if decode else back
    assert back == value
    assert type_info.coercer()(back) is back  # every type inside is the same as well


@given(typed_values())
def test_types_are_values(typed):
    type_info, value = typed
    twin = pickle.loads(pickle.dumps(type_info))
    assert twin == type_info
    assert hash(twin) == hash(type_info)
    assert repr(twin) == repr(type_info)
    assert twin.coercer()(value) == value


loose = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=4,
)


def outcome(function, value):
    try:
        return function(value)
    except (TypeError, ValueError) as error:
        return error


@given(typed_values(), loose)
def test_a_value_that_is_not_doubtful_stays_itself(typed, value):
    type_info, fitting = typed
    doubtful = type_info.doubtful()
    for each in (fitting, value):
        if not doubtful([each]):
            assert type_info.coercer()(each) is each


@given(typed_values(), loose)
def test_coercer_does_what_coerce_does_and_twice_is_once(typed, value):
    type_info, _ = typed
    coercer = type_info.coercer()
    expected = outcome(type_info.coerce, value)
    assert repr(outcome(coercer, value)) == repr(expected)
    if not isinstance(expected, Exception):
        assert repr(type_info.coerce(expected)) == repr(expected)


@pytest.mark.parametrize("type_info", [t for t, _ in LEAVES])
def test_none_fits_every_type(type_info):
    assert type_info.coerce(None) is None
    assert type_info.coercer()(None) is None
    assert Types.TUPLE([type_info]).coercer()((None,)) == (None,)
    assert type_info.from_internal_type(type_info.to_internal_type(None)) is None


@pytest.mark.parametrize(
    ("type_info", "given", "expected"),
    [
        (Types.DOUBLE(), 1, 1.0),
        (Types.DOUBLE(), Decimal("1.5"), 1.5),
        (Types.DOUBLE(), np.float32(0.5), 0.5),
        (Types.FLOAT(), 0.1, struct.unpack("f", struct.pack("f", 0.1))[0]),
        (Types.FLOAT(), math.inf, math.inf),
        (Types.LONG(), True, 1),
        (Types.LONG(), np.int64(5), 5),
        (Types.BOOLEAN(), 1, True),
        (Types.BOOLEAN(), np.bool_(False), False),
        (Types.STRING(), Text("a"), "a"),
        (Types.BIG_INT(), 2**100, 2**100),
        (Types.BIG_DEC(), 5, Decimal(5)),
        (Types.BIG_DEC(), 0.1, Decimal("0.1")),
        (Types.SQL_DATE(), datetime.datetime(2024, 5, 6, 7, tzinfo=utc), datetime.date(2024, 5, 6)),
        (Types.TUPLE([Types.STRING(), Types.DOUBLE()]), ["a", 1], ("a", 1.0)),
        (Types.TUPLE([Types.LONG(), Types.LONG()]), Row(1, 2), (1, 2)),
        (Types.TUPLE([Types.LONG(), Types.LONG()]), Point(1, 2), (1, 2)),
        (Types.LIST(Types.LONG()), (1, 2), [1, 2]),
        (Types.LIST(Types.DOUBLE()), np.array([1, 2]), [1.0, 2.0]),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), bytearray(b"ab"), b"ab"),
        (Types.MAP(Types.STRING(), Types.DOUBLE()), {"a": 1}, {"a": 1.0}),
        (Types.TUPLE([Types.TUPLE([Types.DOUBLE()])]), [[1]], ((1.0,),)),
    ],
)
def test_coerce_converts(type_info, given, expected):
    for result in (type_info.coerce(given), type_info.coercer()(given)):
        assert result == expected
        assert type(result) is type(expected)


PERSON = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])


@pytest.mark.parametrize(
    "given",
    [
        ("Alice", 11),
        ["Alice", 11],
        Row("Alice", 11),
        Row(name="Alice", age=11),
        Row(age=11, name="Alice"),
        {"name": "Alice", "age": 11, "other": 1},
    ],
)
def test_rows_from_everything(given):
    for row in (PERSON.coerce(given), PERSON.coercer()(given)):
        assert row == Row(name="Alice", age=11)
        assert row._fields == ["name", "age"]


def test_rows_from_objects():
    row = Types.ROW_NAMED(["sensor", "value"], [str, float]).coerce(Reading("s", 1))
    assert row == Row(sensor="s", value=1.0)
    assert Types.ROW_NAMED(["key"], [str]).coerce(Event("k")) == Row(key="k")
    with pytest.raises(TypeError, match="it has no age"):
        Types.ROW_NAMED(["sensor", "age"], [str, int]).coerce(Reading("s", 1))


def test_a_row_without_names_gets_those_of_flink():
    type_info = Types.ROW([Types.STRING(), Types.INT()])
    assert type_info.get_field_names() == ["f0", "f1"]
    assert type_info.coerce(("a", 1)) == Row(f0="a", f1=1)
    assert type_info.coerce(Row(x="a", y=1)).f1 == 1
    assert type_info.get_field_index("f1") == -1
    assert PERSON.get_field_index("age") == 1


def test_a_dict_may_leave_fields_out():
    assert PERSON.coerce({"name": "Alice"}) == Row(name="Alice", age=None)


def test_row_kind_is_kept():
    deleted = Row.of_kind(RowKind.DELETE, "Alice", 11)
    assert PERSON.coerce(deleted).get_row_kind() is RowKind.DELETE
    assert PERSON.coercer()(deleted).get_row_kind() is RowKind.DELETE


def test_coercer_does_not_share_values_with_the_row_given():
    given = Row("Alice", 11)
    shaped = PERSON.coercer()(given)
    shaped.set_field_names(["a", "b"])
    shaped[0] = "Bob"
    assert given == Row("Alice", 11)


NESTED = Types.ROW_NAMED(["who", "tags"], [PERSON, Types.MAP(str, Types.LIST(int))])


@pytest.mark.parametrize(
    ("type_info", "value", "error", "message"),
    [
        (Types.STRING(), 5, TypeError, r"^value is declared String; got int: 5$"),
        (Types.LONG(), 1.0, TypeError, r"value is declared Long; got float: 1.0"),
        (Types.LONG(), "1", TypeError, r"value is declared Long; got str: '1'"),
        (Types.DOUBLE(), "1", TypeError, r"value is declared Double; got str: '1'"),
        (Types.BOOLEAN(), 2, TypeError, r"value is declared Boolean; got int: 2"),
        (Types.BIG_DEC(), "1", TypeError, r"value is declared BigDecimal; got str"),
        (Types.BIG_DEC(), True, TypeError, r"value is declared BigDecimal; got bool"),
        (Types.INSTANT(), 5, TypeError, r"value is declared Instant; got int: 5"),
        (Types.SQL_DATE(), "now", TypeError, r"value is declared DateTypeInfo; got str"),
        (
            Types.SQL_TIMESTAMP(),
            datetime.date(2024, 1, 1),
            TypeError,
            r"value is declared TimestampTypeInfo; got date",
        ),
        (Types.BYTE(), 128, ValueError, r"declared Byte; got 128; its range is -128 to 127; "),
        (Types.SHORT(), 2**15, ValueError, r"Short; got 32768; its range .* Types.LONG\(\)"),
        (Types.INT(), 2**31, ValueError, r"declared Integer; got 2147483648; its range is"),
        (Types.LONG(), -(2**63) - 1, ValueError, r"declare Types.BIG_INT\(\)$"),
        (Types.FLOAT(), 1e300, ValueError, r"too large for 32 bits; declare Types.DOUBLE\(\)"),
        (Types.DOUBLE(), 10**400, ValueError, r"declared Double; got 1000.*; it is too large"),
        (Types.CHAR(), "ab", ValueError, r"declared Char; got 'ab'; a Char is one character"),
        (Types.TUPLE([str, int]), ("a", "b"), TypeError, r"^value\[1\] is declared Long; got str"),
        (Types.TUPLE([str]), ("a", "b"), TypeError, r"expected 1 fields, got 2"),
        (Types.TUPLE([str]), "a", TypeError, r"declared TupleTypeInfo\(String\); got str: 'a'"),
        (Types.LIST(int), [1, 2, None, "x"], TypeError, r"^value\[3\] is declared Long"),
        (Types.LIST(int), "abc", TypeError, r"declared ListTypeInfo<Long>; got str"),
        (Types.LIST(int), {1: 2}, TypeError, r"declared ListTypeInfo<Long>; got dict"),
        (Types.MAP(str, int), {"a": "b"}, TypeError, r"^value\['a'\] is declared Long; got str"),
        (Types.MAP(str, int), {1: 1}, TypeError, r"^value's key 1 is declared String; got int"),
        (Types.MAP(str, int), {None: 1}, TypeError, r"a key must not be None"),
        (Types.MAP(str, int), [1], TypeError, r"declared MapTypeInfo<String, Long>; got list"),
        (Types.PRIMITIVE_ARRAY(Types.INT()), [1, None], TypeError, r"^value\[1\] .* holds no None"),
        (
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            [1],
            TypeError,
            r"an array of bytes is a Python byte",
        ),
        (PERSON, ("Alice", "x"), TypeError, r"^value.age is declared Integer; got str: 'x'"),
        (PERSON, ("Alice",), TypeError, r"expected 2 fields, got 1"),
        (PERSON, Row(name="Alice"), TypeError, r"it has no age"),
        (PERSON, 5, TypeError, r"declared RowTypeInfo\(name: String, age: Integer\); got int"),
        (
            NESTED,
            (("Alice", 11), {"t": [1, "x"]}),
            TypeError,
            r"^value\.tags\['t'\]\[1\] is declared Long; got str: 'x'$",
        ),
        (type_info_of(Reading), Event("k"), TypeError, r"PythonTypeInfo<Reading>; got Event"),
        (type_info_of(Reading), Calibrated("s"), TypeError, r"would be restored as Reading"),
    ],
)
def test_what_does_not_fit_is_reported(type_info, value, error, message):
    for coerce in (type_info.coerce, type_info.coercer()):
        with pytest.raises(error, match=message):
            coerce(value)


def test_nothing_is_checked_of_what_is_pickled():
    pickled = Types.PICKLED_BYTE_ARRAY()
    thing = object()
    assert pickled.coercer() is None
    assert pickled.coerce(thing) is thing
    assert pickled.msgpack_type() is None
    assert Types.TUPLE([pickled, int]).coercer()((thing, 1)) == (thing, 1)


def test_a_container_of_what_is_pickled_is_pickled():
    pickled = Types.PICKLED_BYTE_ARRAY()
    for type_info in (
        Types.LIST(pickled),
        Types.MAP(str, pickled),
        Types.MAP(pickled, str),
        Types.TUPLE([int, pickled]),
        Types.ROW([pickled]),
    ):
        assert type_info.msgpack_type() is None


def test_msgpack_types():
    assert Types.LONG().msgpack_type() is int
    assert Types.STRING().msgpack_type() is str
    assert Types.BIG_DEC().msgpack_type() is Decimal
    assert Types.SQL_DATE().msgpack_type() is datetime.date
    assert Types.TUPLE([str, int]).msgpack_type() == tuple[str | None, int | None]
    assert Types.LIST(int).msgpack_type() == list[int | None]
    assert Types.MAP(str, int).msgpack_type() == dict[str, int | None]
    assert Types.PRIMITIVE_ARRAY(Types.INT()).msgpack_type() == list[int]
    assert Types.TUPLE([str, int]).to_msgpack() is None
    assert Types.TUPLE([str, int]).from_msgpack() is None


@pytest.mark.parametrize(
    ("cls", "msgpack"),
    [
        (Reading, True),
        (Nested, True),
        (Point, True),
        (Event, True),
        (Color, True),
        (Level, True),
        (Doubling, False),
        (Holder, False),
        (Mode, False),
    ],
)
def test_classes_that_msgpack_holds_without_loss(cls, msgpack):
    assert type_info_of(cls).msgpack_type() is (cls if msgpack else None)


def test_a_pickled_class_takes_subclasses():
    class Special(Holder):
        pass

    assert type(type_info_of(Holder).coercer()(Special())) is Special


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        (Types.INT(), Types.INT()),
        (int, Types.LONG()),
        (str, Types.STRING()),
        (float, Types.DOUBLE()),
        (bool, Types.BOOLEAN()),
        (bytes, Types.PRIMITIVE_ARRAY(Types.BYTE())),
        (Decimal, Types.BIG_DEC()),
        (Instant, Types.INSTANT()),
        (datetime.date, Types.SQL_DATE()),
        (datetime.time, Types.SQL_TIME()),
        (datetime.datetime, Types.SQL_TIMESTAMP()),
        (Any, Types.PICKLED_BYTE_ARRAY()),
        (object, Types.PICKLED_BYTE_ARRAY()),
        (tuple[int, str], Types.TUPLE([Types.LONG(), Types.STRING()])),
        (tuple[()], Types.TUPLE([])),
        (list[list[int]], Types.LIST(Types.LIST(Types.LONG()))),
        (dict[str, float], Types.MAP(Types.STRING(), Types.DOUBLE())),
        (int | None, Types.LONG()),
        (Annotated[int, "x"], Types.LONG()),
        (Reading, PythonTypeInfo(Reading)),
        (Point, PythonTypeInfo(Point)),
        (Event, PythonTypeInfo(Event)),
        (Color, PythonTypeInfo(Color)),
        (list[Reading], Types.LIST(PythonTypeInfo(Reading))),
    ],
)
def test_type_info_of(given, expected):
    assert type_info_of(given) == expected


@pytest.mark.parametrize(
    "given",
    [list, tuple, dict, 5, "int", int | str, tuple[int, ...], set[int], complex, Row, [int]],
)
def test_type_info_of_refuses(given):
    with pytest.raises(TypeError, match=r"a type is a TypeInformation, a Python type .*; got "):
        type_info_of(given)


def test_type_info_of_says_how_to_declare_a_list():
    with pytest.raises(
        TypeError, match=r"got <class 'list'>; add the types of its items, as in list\[int\]"
    ):
        type_info_of(list)


@pytest.mark.parametrize(
    ("type_info", "text"),
    [
        (Types.INT(), "Integer"),
        (Types.LIST(Types.LONG()), "ListTypeInfo<Long>"),
        (Types.MAP(str, int), "MapTypeInfo<String, Long>"),
        (Types.TUPLE([str, int]), "TupleTypeInfo(String, Long)"),
        (Types.ROW([str, int]), "RowTypeInfo(String, Long)"),
        (PERSON, "RowTypeInfo(name: String, age: Integer)"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), "PrimitiveArrayTypeInfo<Byte>"),
        (Types.BASIC_ARRAY(Types.INT()), "BasicArrayTypeInfo<Integer>"),
        (Types.OBJECT_ARRAY(Types.INT()), "ObjectArrayTypeInfo<Integer>"),
        (Types.PICKLED_BYTE_ARRAY(), "PickledByteArrayTypeInfo"),
        (Types.SQL_TIME(), "TimeTypeInfo"),
        (LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.LOCAL_DATE), "LocalTimeTypeInfo<LOCAL_DATE>"),
        (type_info_of(Reading), "PythonTypeInfo<Reading>"),
    ],
)
def test_text(type_info, text):
    assert str(type_info) == repr(type_info) == text


def test_types_differ():
    assert Types.INT() != Types.LONG()
    assert Types.LIST(int) != Types.OBJECT_ARRAY(int)
    assert Types.ROW_NAMED(["a"], [int]) != Types.ROW_NAMED(["b"], [int])
    assert RowTypeInfo([Types.STRING(), Types.INT()], ["name", "age"]) == PERSON


def test_types_are_immutable():
    for type_info in (Types.INT(), PERSON, Types.LIST(int)):
        with pytest.raises(AttributeError, match="cannot assign to field"):
            type_info._basic_type = None
    PERSON.get_field_types().clear()
    assert len(PERSON.get_field_types()) == 2


def test_declarations_are_checked():
    with pytest.raises(TypeError, match=r"a primitive array .* got String; use Types.OBJECT"):
        Types.PRIMITIVE_ARRAY(Types.STRING())
    with pytest.raises(TypeError, match=r"a basic array can hold .* got ListTypeInfo<Long>"):
        Types.BASIC_ARRAY(Types.LIST(int))
    with pytest.raises(ValueError, match=r"got 1 names \['a'\] and 2 types"):
        Types.ROW_NAMED(["a"], [int, str])
    with pytest.raises(ValueError, match="must differ from each other"):
        Types.ROW_NAMED(["a", "a"], [int, str])
    with pytest.raises(TypeError, match="field types must be a list of types; got Long"):
        Types.TUPLE(Types.LONG())


@pytest.mark.parametrize(
    ("which", "value"),
    [
        ("LOCAL_DATE", datetime.date(2024, 1, 2)),
        ("LOCAL_TIME", datetime.time(1, 2)),
        ("LOCAL_DATE_TIME", datetime.datetime(2024, 1, 2, tzinfo=utc)),
    ],
)
def test_local_times(which, value):
    type_info = LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType[which])
    assert type_info.coercer()(value) is value
    assert type_info.msgpack_type() is type(value)


@given(st.dates())
def test_internal_dates(value):
    assert DateTypeInfo().from_internal_type(DateTypeInfo().to_internal_type(value)) == value


def test_internal_date_is_days():
    assert DateTypeInfo().to_internal_type(datetime.date(1970, 1, 2)) == 1


@given(st.times())
def test_internal_times(value):
    assert TimeTypeInfo().from_internal_type(TimeTypeInfo().to_internal_type(value)) == value


def test_internal_time_with_zone():
    zone = datetime.timezone(datetime.timedelta(hours=1))
    assert TimeTypeInfo().to_internal_type(datetime.time(1, 0, tzinfo=zone)) == 0


def test_internal_timestamp():
    type_info = TimestampTypeInfo()
    assert type_info.to_internal_type(datetime.datetime(1970, 1, 1, 0, 0, 1, 5, utc)) == 1_000_005
    naive = datetime.datetime(2024, 5, 6, 7, 8, 9, 10)  # noqa: DTZ001
    assert type_info.from_internal_type(type_info.to_internal_type(naive)) == naive


def test_internal_instant():
    type_info = Types.INSTANT()
    assert type_info.need_conversion()
    assert type_info.to_internal_type(Instant(1, 0)) == 1_000_000
    assert type_info.from_internal_type(1_000_000) == Instant(1, 0)


def test_internal_rows_and_tuples():
    type_info = Types.ROW_NAMED(["a", "b"], [Types.SQL_DATE(), Types.TUPLE([int])])
    row = Row.of_kind(RowKind.DELETE, a=datetime.date(1970, 1, 3), b=(5,))
    assert type_info.to_internal_type(row) == (3, 2, (5,))
    assert type_info.from_internal_type((3, 2, (5,))) == row
    assert type_info.to_internal_type({"a": datetime.date(1970, 1, 3), "b": [5]}) == (0, 2, (5,))
    with pytest.raises(ValueError, match="Unexpected tuple 5 with RowTypeInfo"):
        type_info.to_internal_type(5)
    with pytest.raises(ValueError, match="Unexpected tuple 5 with TupleTypeInfo"):
        Types.TUPLE([int]).to_internal_type(5)


def test_the_base_lets_everything_through():
    plain = TypeInformation()
    assert plain.coercer()(5) == 5
    assert plain.to_internal_type(5) == plain.from_internal_type(5) == 5
    assert not plain.need_conversion()


def test_basic_type_infos_have_their_names():
    for name in ("STRING", "BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "CHAR"):
        assert getattr(BasicTypeInfo, f"{name}_TYPE_INFO")() == getattr(Types, name)()
