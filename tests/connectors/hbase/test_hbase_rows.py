"""Rows become the bytes that HBase's own classes would write, or an error that says why not."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common import Instant, Row, TypeInformation, Types
from holdfast.datastream.connectors.hbase import (
    HBaseOptions,
    HBaseTableSchema,
    HBaseUpsertSinkFunction,
    HBaseWriteOptions,
)
from holdfast.datastream.connectors.hbase.bytes import coding_of
from holdfast.datastream.connectors.hbase.rows import RowCoder
from holdfast.errors import JobDefinitionError

SCHEMA = (
    HBaseTableSchema()
    .set_row_key("id", str)
    .add_column("info", "amount", float)
    .add_column("info", "items", Types.INT())
    .add_column("state", "paid", bool)
)
ROW = ("o-1", (1.5, 3), (True,))
CELLS = {
    b"info:amount": b"\x3f\xf8\x00\x00\x00\x00\x00\x00",
    b"info:items": b"\x00\x00\x00\x03",
    b"state:paid": b"\xff",
}

#: Printed by Java: org.apache.hadoop.hbase.util.Bytes.toBytes, and for big integers
#: java.math.BigInteger.toByteArray. Only those of timestamp, date and time are worked out here: the
#: milliseconds since 1970, or since midnight, as Bytes.toBytes would write a long.
OF_JAVA = [
    (Types.LONG(), -2, "fffffffffffffffe"),
    (Types.INT(), 258, "00000102"),
    (Types.SHORT(), -3, "fffd"),
    (Types.FLOAT(), 1.5, "3fc00000"),
    (Types.DOUBLE(), -0.1, "bfb999999999999a"),
    (Types.BOOLEAN(), True, "ff"),
    (Types.BOOLEAN(), False, "00"),
    (Types.STRING(), "hé€", "68c3a9e282ac"),
    (Types.BIG_DEC(), Decimal("123.45"), "000000023039"),
    (Types.BIG_DEC(), Decimal("-0.001"), "00000003ff"),
    (Types.BIG_DEC(), Decimal("1E+3"), "fffffffd01"),
    (Types.BIG_DEC(), Decimal("0"), "0000000000"),
    (Types.BIG_DEC(), Decimal("-128"), "0000000080"),
    (Types.BIG_DEC(), Decimal("128"), "000000000080"),
    (Types.BIG_INT(), 0, "00"),
    (Types.BIG_INT(), 127, "7f"),
    (Types.BIG_INT(), 128, "0080"),
    (Types.BIG_INT(), -128, "80"),
    (Types.BIG_INT(), -129, "ff7f"),
    (Types.BIG_INT(), 1 << 64, "010000000000000000"),
    (
        Types.SQL_TIMESTAMP(),
        datetime.datetime.fromisoformat("1970-01-01T00:00:01.005"),
        "00000000000003ed",
    ),
    (Types.SQL_DATE(), datetime.date(1969, 12, 31), "fffffffffad9a400"),
    (Types.SQL_TIME(), datetime.time(0, 0, 2), "00000000000007d0"),
]


@pytest.mark.parametrize(("type_info", "value", "expected"), OF_JAVA)
def test_values_have_the_bytes_that_java_gives_them(
    type_info: TypeInformation, value: Any, expected: str
) -> None:
    coding = coding_of(type_info)
    assert coding is not None
    assert coding.encode(value).hex() == expected
    assert coding.decode(bytes.fromhex(expected)) == value


_MILLIS = st.datetimes().map(
    lambda value: value.replace(microsecond=value.microsecond // 1000 * 1000)
)
_VALUES: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.STRING(), st.text()),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary()),
    (Types.BYTE(), st.integers(-128, 127)),
    (Types.LONG(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (Types.DOUBLE(), st.floats(allow_nan=False)),
    (Types.BIG_INT(), st.integers()),
    (Types.BIG_DEC(), st.decimals(allow_nan=False, allow_infinity=False)),
    (Types.SQL_TIMESTAMP(), _MILLIS),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), _MILLIS.map(datetime.datetime.time)),
    (Types.INSTANT(), st.integers(0, 1 << 40).map(Instant.of_epoch_milli)),
]


@given(st.data())
def test_what_is_written_is_read_again(data: st.DataObject) -> None:
    type_info, values = data.draw(st.sampled_from(_VALUES))
    value = data.draw(values)
    coding = coding_of(type_info)
    assert coding is not None
    read = coding.decode(coding.encode(value))
    # NB: 1.0 and 1.00 are equal and differ in their scale; -0 has no place in Java's decimals.
    assert read == value
    if isinstance(value, Decimal) and value:
        assert read.as_tuple() == value.as_tuple()


@pytest.mark.parametrize(
    "row",
    [
        ROW,
        Row(*ROW),
        Row(id="o-1", info=Row(amount=1.5, items=3), state=Row(paid=True)),
        Row(state=Row(True), id="o-1", info=Row(items=3, amount=1.5)),
        {"id": "o-1", "info": {"items": 3, "amount": 1.5}, "state": {"paid": True}},
    ],
    ids=["tuple", "row", "named", "other order", "dict"],
)
def test_a_row_may_come_in_several_shapes(row: Any) -> None:
    coder = RowCoder(SCHEMA)
    assert coder.key_of(row) == b"o-1"
    assert coder.cells_of(row) == CELLS


def test_the_row_key_stands_where_it_was_declared() -> None:
    schema = HBaseTableSchema().add_column("f", "q", str).set_row_key("id", int)
    coder = RowCoder(schema)
    assert coder.key_of((("x",), 1)) == bytes(7) + b"\x01"
    assert coder.row_of(bytes(7) + b"\x01", {b"f:q": b"x"}) == Row(f=Row(q="x"), id=1)
    assert schema.get_row_type_info().coerce((("x",), 1)) == Row(f=Row(q="x"), id=1)


def test_what_has_no_cell_is_none_and_the_other_way_round() -> None:
    coder = RowCoder(SCHEMA)
    cells = coder.cells_of(("o-1", (None, 3), None))
    assert cells == {b"info:amount": None, b"info:items": b"\x00\x00\x00\x03", b"state:paid": None}
    found = coder.row_of(b"o-1", {b"info:items": b"\x00\x00\x00\x03"})
    assert found == Row(id="o-1", info=Row(amount=None, items=3), state=Row(paid=None))


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        ((None, (1.5, 3), (True,)), ValueError, "row key 'id' of an HBase table is None in (None,"),
        (("", (1.5, 3), (True,)), ValueError, "row key 'id' of an HBase table has 0 bytes"),
        (("x" * 40_000, (1.5, 3), (True,)), ValueError, "HBase takes 1 to 32767"),
        ((7, (1.5, 3), (True,)), TypeError, "row key 'id' of an HBase table: value is declared"),
        (("a", ("x", 3), (True,)), TypeError, "column info:amount of an HBase table: value is"),
        (("a", (1.5, 1 << 40), (True,)), ValueError, "column info:items of an HBase table"),
        (("a", (1.5,), (True,)), TypeError, "family 'info' for an HBase table has the fields"),
        (("a", Row(x=1), (True,)), TypeError, "family 'info' for an HBase table has the fields"),
        (("a", {"x": 1}, (True,)), TypeError, "family 'info' for an HBase table has the fields"),
        ("a", TypeError, "has the fields ['id', 'info', 'state']; got 'a'"),
    ],
    ids=[
        "no key",
        "empty key",
        "long key",
        "key",
        "type",
        "range",
        "width",
        "names",
        "name",
        "no row",
    ],
)
def test_a_row_that_does_not_fit_is_refused(row: Any, error: type[Exception], message: str) -> None:
    coder = RowCoder(SCHEMA)
    with pytest.raises(error, match=re.escape(message)):
        coder.key_of(row), coder.cells_of(row)


def test_cells_of_another_type_are_refused() -> None:
    message = r"column info:items of an HBase table holds b'12', which is not of the declared type"
    with pytest.raises(ValueError, match=message):
        RowCoder(SCHEMA).row_of(b"o-1", {b"info:items": b"12"})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: HBaseTableSchema().add_column("f", "q", str), "has no row key"),
        (lambda: HBaseTableSchema().set_row_key("id", str), "has no columns"),
        (lambda: HBaseTableSchema().set_row_key("a", str).set_row_key("b", str), "two row keys"),
        (lambda: SCHEMA.add_column("info", "amount", int), "has two columns info:amount"),
        (lambda: HBaseTableSchema().add_column("f:", "q", int), "has a column 'f::q'"),
        (lambda: HBaseTableSchema().add_column("f", "q", list[int]), "which has no bytes in HBase"),
        (
            lambda: HBaseTableSchema().set_row_key("f", str).add_column("f", "q", str),
            "calls both its row key and a family 'f'",
        ),
    ],
    ids=["no key", "no columns", "two keys", "twice", "colon", "type", "name"],
)
def test_a_schema_that_lacks_something_is_refused_before_the_job_runs(
    build: Any, message: str
) -> None:
    with pytest.raises(JobDefinitionError, match=message):
        HBaseUpsertSinkFunction(HBaseOptions("orders"), build())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: HBaseOptions.builder().build(), "need a table"),
        (lambda: HBaseOptions.builder().set_transport("udp"), "buffered or framed; got 'udp'"),
        (lambda: HBaseOptions.builder().set_timeout(0), "more than 0 ms"),
        (lambda: HBaseWriteOptions.builder().set_buffer_flush_max_rows(-1), "at least 0; got -1"),
    ],
    ids=["table", "transport", "timeout", "rows"],
)
def test_options_that_make_no_sense_are_refused(build: Any, message: str) -> None:
    with pytest.raises(JobDefinitionError, match=message):
        build()


def test_what_is_missing_without_the_extra_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "happybase", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'holdfast\[hbase\]'"):
        HBaseUpsertSinkFunction(HBaseOptions("orders"), SCHEMA)
