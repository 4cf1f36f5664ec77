"""JSON, CSV and Avro: what goes in comes out, and what does not fit is said."""

from __future__ import annotations

import datetime
import json
import pickle
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common import Row, Types
from holdfast.datastream.formats.avro import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)
from holdfast.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from holdfast.datastream.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

ORDER = Types.ROW_NAMED(
    ["id", "total", "day", "paid", "lines"],
    [
        Types.LONG(),
        Types.BIG_DEC(),
        Types.SQL_DATE(),
        Types.BOOLEAN(),
        Types.LIST(Types.ROW_NAMED(["item", "count"], [Types.STRING(), Types.INT()])),
    ],
)
EXAMPLE = Row(
    id=7,
    total=Decimal("9.95"),
    day=datetime.date(2024, 2, 29),
    paid=True,
    lines=[Row(item="pen", count=2)],
)


def test_json_rows_have_the_declared_types() -> None:
    schema = JsonRowDeserializationSchema.builder().type_info(ORDER).build()
    text = (
        b'{"total": "9.95", "id": 7, "day": "2024-02-29", "paid": true, '
        b'"lines": [{"item": "pen", "count": 2}], "more": 1}'
    )
    assert pickle.loads(pickle.dumps(schema)).deserialize(text) == EXAMPLE
    written = JsonRowSerializationSchema.builder().with_type_info(ORDER).build().serialize(EXAMPLE)
    assert schema.deserialize(written) == EXAMPLE


def test_json_without_a_type_is_what_it_is() -> None:
    schema = JsonRowDeserializationSchema.builder().build()
    assert schema.deserialize(b'{"a": [1, null]}') == {"a": [1, None]}
    plain = JsonRowSerializationSchema.builder().build()
    assert json.loads(plain.serialize({"a": Row(b=1)})) == {"a": {"b": 1}}


@pytest.mark.parametrize("text", [b"{", b'{"id": "seven"}', b"3"], ids=["cut", "text", "number"])
def test_json_that_does_not_fit(text: bytes) -> None:
    builder = JsonRowDeserializationSchema.builder().type_info(ORDER)
    with pytest.raises((msgspec.MsgspecError, TypeError, ValueError, AttributeError)):
        builder.build().deserialize(text)
    assert builder.ignore_parse_errors().build().deserialize(text) is None


def test_json_with_a_field_missing() -> None:
    builder = JsonRowDeserializationSchema.builder().type_info(ORDER)
    assert builder.build().deserialize(b'{"id": 1}').total is None
    with pytest.raises(ValueError, match="has no field total, day, paid, lines"):
        builder.fail_on_missing_field().build().deserialize(b'{"id": 1}')


LINE = Types.ROW_NAMED(
    ["name", "count", "share", "on"],
    [Types.STRING(), Types.INT(), Types.DOUBLE(), Types.BOOLEAN()],
)


@given(
    st.builds(
        Row,
        name=st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1),
        count=st.none() | st.integers(-(2**31), 2**31 - 1),
        share=st.floats(allow_nan=False, allow_infinity=False),
        on=st.booleans(),
    )
)
def test_csv_comes_back_as_it_went(row: Row) -> None:
    there = CsvRowSerializationSchema.Builder(LINE).set_field_delimiter(";").build()
    back = CsvRowDeserializationSchema.Builder(LINE).set_field_delimiter(";").build()
    assert back.deserialize(there.serialize(row)) == row


def test_csv_that_does_not_fit() -> None:
    builder = CsvRowDeserializationSchema.Builder(LINE)
    with pytest.raises(ValueError, match="2 fields instead of 4"):
        builder.build().deserialize(b"a,1")
    with pytest.raises(msgspec.ValidationError):
        builder.build().deserialize(b"a,x,1.0,true")
    lenient = builder.set_ignore_parse_errors(True).set_null_literal("-").build()
    assert lenient.deserialize(b"a,1") is None
    assert lenient.deserialize(b"a,-,1.0,true") == Row(name="a", count=None, share=1.0, on=True)
    with pytest.raises(TypeError, match="CSV has rows"):
        CsvRowDeserializationSchema.Builder(Types.INT())


AVRO = json.dumps(
    {
        "type": "record",
        "name": "Node",
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "sizes", "type": {"type": "map", "values": "int"}},
            {"name": "next", "type": ["null", "Node"]},
        ],
    }
)


@pytest.mark.parametrize(
    "value",
    [
        Row(name="a", sizes={"x": 1}, next=None),
        Row(name="a", sizes={}, next=Row(name="b", sizes={"y": 2}, next=None)),
    ],
    ids=["flat", "nested"],
)
def test_avro_comes_back_as_it_went(value: Row) -> None:
    there: Any = AvroRowSerializationSchema(avro_schema_string=AVRO)
    back: Any = AvroRowDeserializationSchema(avro_schema_string=AVRO)
    there, back = pickle.loads(pickle.dumps((there, back)))
    assert back.deserialize(there.serialize(value)) == value


def test_avro_needs_a_schema() -> None:
    with pytest.raises(TypeError, match=r"needs avro_schema_string; .* 'com\.example\.A'"):
        AvroRowDeserializationSchema("com.example.A")
