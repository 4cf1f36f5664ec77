"""Messages of Kafka as batches, without a broker: JSON, Avro, and what does not decode."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import DeserializationSchema, Row, Types
from holdfast.datastream import BatchTypeInfo, OutputTag
from holdfast.datastream.columns.batch import BatchList, count_rows
from holdfast.datastream.connectors.base import SplitRecords
from holdfast.datastream.connectors.kafka import (
    BadRecords,
    KafkaRecordDeserializationSchema,
    KafkaSource,
)
from holdfast.datastream.connectors.kafka.batches import BatchDecoder, SplitBatches
from holdfast.datastream.formats.avro import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)
from holdfast.datastream.formats.columns import Columns
from holdfast.datastream.formats.csv import CsvRowDeserializationSchema
from holdfast.datastream.formats.json import JsonRowDeserializationSchema
from holdfast.errors import JobDefinitionError
from holdfast.metrics import MetricGroup

SPLIT = ("orders", 3)
SCHEMA = pa.schema([("id", pa.int64()), ("item name", pa.string()), ("price", pa.float64())])
ROW = Types.ROW_NAMED(SCHEMA.names, [Types.LONG(), Types.STRING(), Types.DOUBLE()])


@dataclass
class FakeMessage:
    """What a decoder asks a message of the client."""

    content: bytes | None
    number: int = 0

    def value(self) -> bytes | None:
        return self.content

    def offset(self) -> int:
        return self.number

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000 + self.number

    def key(self) -> bytes:
        return b"k"

    def topic(self) -> str:
        return SPLIT[0]

    def partition(self) -> int:
        return SPLIT[1]

    def headers(self) -> None:
        return None


class Decoding:
    """A decoder of a reader, and its metric of errors."""

    def __init__(
        self,
        form: DeserializationSchema,
        schema: Any = SCHEMA,
        bad: BadRecords | OutputTag = BadRecords.FAIL,
    ) -> None:
        self.errors = MetricGroup().counter("errors")
        form = pickle.loads(pickle.dumps(form))
        self._decoder = BatchDecoder(form, bad, self.errors, BatchTypeInfo(schema))

    def __call__(self, *values: Any) -> SplitBatches:
        encoded = [
            v if v is None or isinstance(v, bytes) else json.dumps(v).encode() for v in values
        ]
        messages: Any = [FakeMessage(value, at) for at, value in enumerate(encoded)]
        return self._decoder.decode(SPLIT, messages)


def rows(found: SplitBatches) -> list[dict[str, Any]]:
    return [row for batch in found for row in batch.rows.to_pylist()]


def stamps(found: SplitBatches) -> list[int]:
    return [stamp for batch in found for stamp in batch.timestamps.to_pylist()]  # type: ignore[union-attr]


def test_json_messages_are_one_batch_with_their_timestamps() -> None:
    found = Decoding(JsonRowDeserializationSchema())(
        {"id": 1, "item name": "hat", "price": 3, "more": [1]}, None, {"item name": None}
    )
    assert isinstance(found, SplitRecords)
    assert isinstance(found, BatchList)
    assert (found.split, len(found), count_rows(found)) == (SPLIT, 1, 2)
    assert found[0].rows.schema == SCHEMA
    assert rows(found) == [
        {"id": 1, "item name": "hat", "price": 3.0},
        {"id": None, "item name": None, "price": None},
    ]
    assert stamps(found) == [1000, 1002]


def test_no_messages_are_no_batch() -> None:
    assert Decoding(JsonRowDeserializationSchema())(None, None) == []


BROKEN = [
    b"",
    b"{",
    b'{"id": 1}{"id": 2}',
    b'{"id": 1,\n',
    b"[]",
    b"\xff",
    {"id": "one"},
    {"id": 1.5},
    {"id": 2**63},
    {"price": True},
]


@pytest.mark.parametrize("broken", BROKEN, ids=repr)
def test_a_message_that_does_not_decode_fails_the_job_with_its_place(broken: Any) -> None:
    decode = Decoding(JsonRowDeserializationSchema())
    expected = (
        "message at offset 2 of partition 3 of topic 'orders' does not decode with "
        "JsonRowDeserializationSchema"
    )
    with pytest.raises(ValueError, match=expected):
        decode({"id": 1}, {"id": 2}, broken, {"id": 3}, b"broken as well")


@pytest.mark.parametrize("broken", BROKEN, ids=repr)
def test_messages_that_do_not_decode_are_left_out_if_told_so(broken: Any) -> None:
    messages = [broken, {"id": 1}, broken, {"id": 3}, {"id": 4}, broken]
    skipping = Decoding(JsonRowDeserializationSchema(), bad=BadRecords.SKIP)
    found = skipping(*messages)
    assert [row["id"] for row in rows(found)] == [1, 3, 4]
    assert stamps(found) == [1001, 1003, 1004]
    assert len(found) == 1
    assert skipping.errors.get_count() == 3
    dead = OutputTag("dead", Types.PICKLED_BYTE_ARRAY())
    aside = Decoding(JsonRowDeserializationSchema(), bad=dead)(*messages).aside
    assert [(tag, letter.offset, stamp) for tag, letter, stamp in aside] == [
        (dead, 0, 1000),
        (dead, 2, 1002),
        (dead, 5, 1005),
    ]
    ignoring = JsonRowDeserializationSchema.builder().ignore_parse_errors().build()
    assert [row["id"] for row in rows(Decoding(ignoring)(*messages))] == [1, 3, 4]


def test_a_column_without_nulls() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    decode = Decoding(JsonRowDeserializationSchema(), schema)
    assert rows(decode({"id": 1})) == [{"id": 1}]
    with pytest.raises(
        ValueError, match=r"offset 1 .*field 'id' is declared int64; its value None"
    ):
        decode({"id": 1}, {})


def test_a_missing_field_can_be_an_error() -> None:
    form = JsonRowDeserializationSchema.builder().type_info(ROW).fail_on_missing_field().build()
    whole = {"id": None, "item name": "hat", "price": 1.5}
    assert rows(Decoding(form)(whole)) == [whole]
    with pytest.raises(ValueError, match="the JSON object has no field price"):
        Decoding(form)(whole, {"id": 1, "item name": "hat"})


VALUES = st.one_of(
    st.none(),
    st.integers(-(2**64), 2**64),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=3),
    st.sampled_from(["1", "1.5", True, [], {}]),
)
MESSAGES = st.lists(st.dictionaries(st.sampled_from([*SCHEMA.names, "more"]), VALUES), max_size=6)


@pytest.mark.parametrize("declared", [None, ROW], ids=["dicts", "rows"])
@settings(max_examples=40, deadline=None)
@given(messages=MESSAGES)
def test_rows_are_those_of_the_record_wise_format(declared: Any, messages: list[Any]) -> None:
    form = JsonRowDeserializationSchema(declared)
    expected, columns = [], Columns(SCHEMA)
    for message in messages:
        try:
            record = form.deserialize(json.dumps(message).encode())
            if isinstance(record, dict):
                record = {name: record.get(name) for name in SCHEMA.names}
            expected += columns.batch([record]).to_pylist()
        except (TypeError, ValueError):
            continue
    assert rows(Decoding(form, bad=BadRecords.SKIP)(*messages)) == expected


def test_a_declared_type_with_other_fields_is_checked() -> None:
    form = JsonRowDeserializationSchema.builder().type_info(ROW).build()
    decode = Decoding(form, pa.schema([("id", pa.int64())]))
    assert rows(decode({"id": "1", "price": 2})) == [{"id": 1}]
    with pytest.raises(ValueError, match="price is declared Double; got"):
        decode({"id": 1, "price": [1]})


def test_columns_that_are_not_plain_are_decoded_by_records() -> None:
    kind = Types.ROW_NAMED(["at", "tags"], [Types.SQL_TIMESTAMP(), Types.LIST(Types.STRING())])
    form = JsonRowDeserializationSchema.builder().type_info(kind).build()
    schema = pa.schema([("at", pa.timestamp("us")), ("tags", pa.list_(pa.string()))])
    found = rows(Decoding(form, schema)({"at": "2026-03-01T12:00:00", "tags": ["a"]}, {}))
    assert [(str(row["at"]), row["tags"]) for row in found] == [
        ("2026-03-01 12:00:00", ["a"]),
        ("None", None),
    ]


AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "item", "type": ["null", {"type": "record", "name": "Item", "fields": [
                {"name": "name", "type": "string"}]}]},
        ],
    }
)  # fmt: skip


def test_avro_messages_are_a_batch() -> None:
    encode = AvroRowSerializationSchema(avro_schema_string=AVRO).serialize
    messages = [encode(Row(id=1, item=Row(name="hat"))), encode(Row(id=2, item=None))]
    schema = pa.schema([("id", pa.int64()), ("item", pa.struct([("name", pa.string())]))])
    form = AvroRowDeserializationSchema(avro_schema_string=AVRO)
    expected = [{"id": 1, "item": {"name": "hat"}}, {"id": 2, "item": None}]
    assert rows(Decoding(form, schema)(*messages)) == expected
    skipping = Decoding(form, schema, BadRecords.SKIP)
    assert rows(skipping(messages[0], b"\x02", messages[1])) == expected
    assert skipping.errors.get_count() == 1


def test_any_format_of_records_gives_batches() -> None:
    form = CsvRowDeserializationSchema.Builder(ROW).build()
    found = Decoding(form)(b"1,hat,2.5", b"2,tie,3.5")
    assert rows(found) == [
        {"id": 1, "item name": "hat", "price": 2.5},
        {"id": 2, "item name": "tie", "price": 3.5},
    ]


class WholeMessages(KafkaRecordDeserializationSchema):
    def deserialize(self, record: Any) -> Any:
        return [record]


def test_whole_messages_are_no_batches() -> None:
    builder = KafkaSource.builder().set_bootstrap_servers("nowhere:1").set_topics("orders")
    builder.set_deserializer(WholeMessages()).as_batches(SCHEMA)
    with pytest.raises(JobDefinitionError, match="as_batches: only the values of messages"):
        builder.build()
