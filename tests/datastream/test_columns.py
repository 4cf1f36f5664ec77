"""Records as Arrow columns: what a type becomes, what fits, and what is an error."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import pickle
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import pyarrow as pa
import pytest

from holdfast.common import Instant, Row, Types
from holdfast.common.typeinfo import LocalTimeTypeInfo, type_info_of
from holdfast.datastream import OutputTag, StreamExecutionEnvironment
from holdfast.datastream.formats.columns import Columns, RowError, arrow_type, schema_of
from holdfast.datastream.formats.row_check import RowCheck
from holdfast.testing import collect

UTC = datetime.UTC
NOON = datetime.datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    A = 1
    B = "b"


class Address(msgspec.Struct):
    city: str
    zip: str | None


class Pair(NamedTuple):
    left: int
    right: str


@dataclasses.dataclass
class Order:
    id: int
    price: Decimal
    note: str | None
    address: Address
    tags: list[str]
    counts: dict[str, int | None]
    pair: Pair
    color: Color
    level: Level
    key: uuid.UUID
    data: bytes
    paid: bool
    weight: float
    at: datetime.datetime
    day: datetime.date
    time: datetime.time
    cents: Annotated[Decimal, pa.decimal128(12, 2)]


ORDER = Order(
    id=1,
    price=Decimal("9.99"),
    note=None,
    address=Address("Bern", None),
    tags=["a", "b"],
    counts={"x": 1, "y": None},
    pair=Pair(1, "one"),
    color=Color.RED,
    level=Level.HIGH,
    key=uuid.UUID(int=7),
    data=b"\x00\xff",
    paid=True,
    weight=1.5,
    at=NOON,
    day=datetime.date(2026, 5, 1),
    time=datetime.time(1, 2, 3, 4),
    cents=Decimal("0.10"),
)


@dataclasses.dataclass
class Small:
    id: int
    name: str
    price: float | None


class SmallStruct(msgspec.Struct):
    id: int
    name: str
    price: float | None


class SmallTuple(NamedTuple):
    name: str
    id: int
    price: float | None


SMALL = Columns(schema_of(Small))


@dataclasses.dataclass
class Tree:
    children: list[Tree]


def rows(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in batch.to_pylist()]


def column(column_type: pa.DataType, nullable: bool = True) -> Columns:
    return Columns(pa.schema([pa.field("x", column_type, nullable=nullable)]))


def test_a_class_has_a_column_per_field_and_nulls_where_it_says_none() -> None:
    assert schema_of(Order) == pa.schema(
        [
            pa.field("id", pa.int64(), False),
            pa.field("price", pa.decimal128(38, 18), False),
            pa.field("note", pa.string(), True),
            pa.field(
                "address",
                pa.struct([pa.field("city", pa.string(), False), pa.field("zip", pa.string())]),
                False,
            ),
            pa.field("tags", pa.list_(pa.field("element", pa.string(), False)), False),
            pa.field("counts", pa.map_(pa.string(), pa.int64()), False),
            pa.field(
                "pair",
                pa.struct(
                    [pa.field("left", pa.int64(), False), pa.field("right", pa.string(), False)]
                ),
                False,
            ),
            pa.field("color", pa.string(), False),
            pa.field("level", pa.int64(), False),
            pa.field("key", pa.string(), False),
            pa.field("data", pa.binary(), False),
            pa.field("paid", pa.bool_(), False),
            pa.field("weight", pa.float64(), False),
            pa.field("at", pa.timestamp("us", tz="UTC"), False),
            pa.field("day", pa.date32(), False),
            pa.field("time", pa.time64("us"), False),
            pa.field("cents", pa.decimal128(12, 2), False),
        ]
    )


def test_every_column_of_a_type_can_be_null_in_type_information() -> None:
    inner = Types.ROW_NAMED(["a"], [Types.SHORT()])
    declared = Types.ROW_NAMED(
        ["row", "list", "bytes", "floats", "big", "at", "pair"],
        [
            inner,
            Types.LIST(Types.INT()),
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.PRIMITIVE_ARRAY(Types.FLOAT()),
            Types.BIG_INT(),
            Types.INSTANT(),
            Types.TUPLE([Types.BYTE(), Types.CHAR()]),
        ],
    )
    assert schema_of(declared) == pa.schema(
        [
            ("row", pa.struct([("a", pa.int16())])),
            ("list", pa.list_(pa.field("element", pa.int32()))),
            ("bytes", pa.binary()),
            ("floats", pa.list_(pa.field("element", pa.float32(), False))),
            ("big", pa.decimal128(38, 0)),
            ("at", pa.timestamp("us", tz="UTC")),
            ("pair", pa.struct([("f0", pa.int8()), ("f1", pa.string())])),
        ]
    )


def test_a_schema_and_type_information_of_a_class_are_taken() -> None:
    assert schema_of(SMALL.schema) is SMALL.schema
    assert schema_of(type_info_of(Small)) == SMALL.schema == schema_of(SmallStruct)
    local = LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.LOCAL_DATE_TIME)
    assert arrow_type(local) == pa.timestamp("us")
    assert arrow_type(tuple[int, ...]) == arrow_type(list[int])
    assert arrow_type(Annotated[int, "of pieces"]) == pa.int64()
    assert arrow_type(Literal["paid", "open"]) == pa.string()


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        (int, "columns need names"),
        (Types.LONG(), "columns need names"),
        (Types.ROW_NAMED(["a"], [Types.PICKLED_BYTE_ARRAY()]), "no column type for Pickled"),
        (dataclasses.make_dataclass("D", [("a", int | str)]), "no column type for int | str"),
        (dataclasses.make_dataclass("D", [("a", Mixed)]), "no column type for <enum 'Mixed'>"),
        (dataclasses.make_dataclass("D", [("a", set)]), "no column type for <class 'set'>"),
        (dataclasses.make_dataclass("D", [("a", Literal[1, "b"])]), "no column type for"),
        (Tree, "Tree contains itself, which a column cannot"),
    ],
)
def test_a_type_without_columns(declared: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem.replace("|", r"\|")):
        schema_of(declared)


def test_a_column_type_that_is_not_supported() -> None:
    with pytest.raises(TypeError, match="columns of the type null are not supported"):
        column(pa.null())


def test_all_types_of_a_record() -> None:
    (found,) = Columns(schema_of(Order)).batch([ORDER]).to_pylist()
    assert found == {
        **dataclasses.asdict(ORDER),
        "address": {"city": "Bern", "zip": None},
        "counts": [("x", 1), ("y", None)],
        "pair": {"left": 1, "right": "one"},
        "color": "red",
        "level": 2,
        "key": str(uuid.UUID(int=7)),
    }


@pytest.mark.parametrize(
    "record",
    [
        (1, "a", 0.5),
        [1, "a", 0.5],
        Row(1, "a", 0.5),
        Row(id=1, name="a", price=0.5),
        Row(price=0.5, name="a", id=1),
        {"id": 1, "name": "a", "price": 0.5, "more": 1},
        Small(1, "a", 0.5),
        SmallStruct(1, "a", 0.5),
        SmallTuple("a", 1, 0.5),
    ],
)
def test_every_kind_of_record(record: Any) -> None:
    assert rows(SMALL.batch([record, record])) == [(1, "a", 0.5)] * 2
    assert rows(SMALL.batch([record, (2, "b", None)])) == [(1, "a", 0.5), (2, "b", None)]


def test_no_records_are_an_empty_batch() -> None:
    assert SMALL.batch([]) == pa.RecordBatch.from_pylist([], SMALL.schema)
    batch, errors = SMALL.sort_out([("x", "y", "z")])
    assert (batch.num_rows, batch.schema, len(errors)) == (0, SMALL.schema, 1)


def test_rows_that_fit_and_an_error_for_each_that_does_not() -> None:
    records = [(1, "a", None), (2, 3, None), (3, "c", 1), (None, "d", 0.0), (5, "e")]
    batch, errors = SMALL.sort_out(records)
    assert rows(batch) == [(1, "a", None), (3, "c", 1.0)]
    assert [(error.field, error.value, error.record) for error in errors] == [
        ("name", 3, records[1]),
        ("id", None, records[3]),
        ("", None, records[4]),
    ]
    with pytest.raises(RowError, match="field 'name' is declared string; its value 3 has the type"):
        SMALL.batch(records)


def test_an_error_and_columns_can_be_sent() -> None:
    (error,) = SMALL.sort_out([(1.5, "a", None)])[1]
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.field, copy.value, copy.record) == (
        *(str(error), "id", 1.5, (1.5, "a", None)),
    )
    assert pickle.loads(pickle.dumps(SMALL)).schema == SMALL.schema


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"id": 1, "name": "a"}, "has no field 'price'; add it, with None if there is no value"),
        (Row(id=1, name="a"), "has no field 'price'"),
        (Pair(1, "a"), "has no field 'id'"),
        (7, "7 has no field 'id'"),
        ((1, "a"), "has 2 values for 3 columns: id, name, price"),
        (Row(1, "a"), "has 2 values for 3 columns"),
        ((None, "a", 1.0), "field 'id' is declared int64; its value None is None, and the column"),
        ((2**63, "a", 1.0), "9223372036854775808 does not fit"),
        ((True, "a", 1.0), "its value True has the type bool"),
        ((1.0, "a", 1.0), "use int..... if its fraction may be cut off"),
        ((1, b"a", 1.0), "has the type bytes; use str"),
        ((1, "\ud800", 1.0), "does not fit .*surrogates not allowed"),
        ((1, "a", Decimal(1)), "has the type Decimal; use float"),
        ((1, "a", 2**60 + 1), "does not fit"),
    ],
)
def test_a_record_that_does_not_fit(record: Any, problem: str) -> None:
    with pytest.raises(RowError, match=problem):
        SMALL.batch([(1, "a", 1.0), record])


@pytest.mark.parametrize(
    ("column_type", "value", "problem"),
    [
        (pa.int8(), 128, "too large"),
        (pa.uint8(), -1, "does not fit"),
        (pa.float32(), 1e39, "too large for 32 bits; use a column of float64"),
        (pa.bool_(), 1, "use bool"),
        (pa.binary(), "a", "encode it"),
        (pa.binary(2), b"abc", "length 2 was 3"),
        (pa.date32(), NOON, "use value.date.. if its time may be cut off"),
        (pa.date32(), 5, "has the type int"),
        (pa.time64("us"), datetime.time(1, tzinfo=UTC), "has a time zone, which would be lost"),
        (
            pa.time32("ms"),
            datetime.time(1, 0, 0, 1),
            "more exact than the column, which counts in ms",
        ),
        (pa.time64("us"), 1, "use a datetime.time"),
        (pa.timestamp("us"), NOON, "has a time zone, which would be lost; remove it"),
        (
            pa.timestamp("us", "UTC"),
            NOON.replace(tzinfo=None),
            "has no time zone, and the column has",
        ),
        (pa.timestamp("s", "UTC"), NOON, "more exact than the column, which counts in s"),
        (pa.timestamp("us"), 1, "use a datetime.datetime"),
        (pa.timestamp("us", "UTC"), Instant(1, 1), "has nanoseconds, which would be cut off"),
        (pa.timestamp("ns", "UTC"), NOON.replace(year=9000), "does not fit"),
        (pa.duration("s"), datetime.timedelta(microseconds=1), "counts in s; round it first"),
        (pa.duration("us"), 1, "use a datetime.timedelta"),
        (pa.decimal128(4, 2), Decimal("1.234"), "would cause data loss"),
        (pa.decimal128(4, 2), Decimal(100), "does not fit"),
        (pa.decimal128(4, 2), Decimal("NaN"), "does not fit"),
        (pa.decimal128(4, 2), 1.5, "use Decimal"),
        (pa.list_(pa.int64()), "12", "use a list"),
        (pa.list_(pa.int64()), [1, "b"], r"field 'x\[1\]' is declared .*its value 'b'"),
        (pa.map_(pa.string(), pa.int64()), [1], "use a dict"),
        (pa.map_(pa.string(), pa.int64()), {None: 1}, "field 'x.key' .* cannot be null"),
        (pa.map_(pa.string(), pa.int64()), {"a": "b"}, r"field 'x\['a'\]'"),
        (pa.struct([("a", pa.int64())]), {}, "field 'x.a' .*has no field 'a'"),
        (pa.struct([("a", pa.list_(pa.date32()))]), {"a": [1]}, r"field 'x.a\[0\]'"),
        (pa.struct([pa.field("a", pa.int64(), False)]), (None,), "field 'x.a' .* cannot be null"),
    ],
)
def test_nothing_is_cut_off_silently(column_type: pa.DataType, value: Any, problem: str) -> None:
    with pytest.raises(RowError, match=problem):
        column(column_type).batch([(value,)])
    batch, errors = column(column_type).sort_out([(None,), (value,)])
    assert (batch.to_pylist(), len(errors)) == ([{"x": None}], 1)


@pytest.mark.parametrize(
    ("column_type", "value", "stored"),
    [
        (pa.timestamp("us", "UTC"), Instant(1, 2000), None),
        (pa.timestamp("ms", "UTC"), NOON.replace(microsecond=5000), None),
        (pa.duration("us"), datetime.timedelta(1), datetime.timedelta(1)),
        (pa.dictionary(pa.int32(), pa.string()), "a", "a"),
        (pa.float32(), float("inf"), float("inf")),
        (pa.float64(), 1, 1.0),
        (pa.decimal128(4, 2), 1, Decimal("1.00")),
        (pa.large_string(), Color.BLUE, "blue"),
        (pa.binary(), bytearray(b"a"), b"a"),
        (pa.list_(pa.int64(), 2), (1, 2), [1, 2]),
        (pa.struct([("a", pa.int64())]), Row(a=1), {"a": 1}),
        (pa.struct([("a", pa.int64())]), None, None),
    ],
)
def test_what_fits_is_converted(column_type: pa.DataType, value: Any, stored: Any) -> None:
    (found,) = column(column_type).batch([(value,)]).column(0).to_pylist()
    expected = {
        Instant: datetime.datetime(1970, 1, 1, 0, 0, 1, 2, UTC),
        datetime.datetime: value,
    }.get(type(value), stored)
    assert found == expected


def test_a_zone_is_converted_not_lost() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=5))
    batch = column(pa.timestamp("us", "UTC")).batch([(NOON.astimezone(zone),)])
    assert batch.column(0).to_pylist() == [NOON]


def test_numbers_of_numpy_fit() -> None:
    numpy = pytest.importorskip("numpy")
    columns = Columns(pa.schema([("a", pa.int32()), ("b", pa.float32()), ("c", pa.bool_())]))
    record = (numpy.int64(1), numpy.float32(0.5), numpy.True_)
    assert rows(columns.batch([record])) == [(1, 0.5, True)]


def test_messages_are_one_short_line() -> None:
    with pytest.raises(RowError) as caught:
        SMALL.batch([("x" * 100_000 + "\n\x1b", "a", None)])
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


def test_records_that_do_not_fit_go_to_a_side_output(env: StreamExecutionEnvironment) -> None:
    misfits = OutputTag("misfits")
    checked = env.from_collection([(1, "a", 0.5), (2, 3, 0.5), (4, "d", None)]).process(
        RowCheck(Small, misfits)
    )
    assert collect(checked) == [(1, "a", 0.5), (4, "d", None)]
    ((record, reason),) = collect(checked.get_side_output(misfits))
    assert record == (2, 3, 0.5)
    assert reason.startswith("a record does not fit: field 'name' is declared string; its value 3")
