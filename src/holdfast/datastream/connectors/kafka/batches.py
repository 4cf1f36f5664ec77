"""Converts messages of Kafka to batches, many of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.common.serialization import DeserializationSchema
from holdfast.datastream.columns.batch import Batch, BatchList, merged
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.connectors.base import SplitRecords
from holdfast.datastream.connectors.kafka.decoding import Aside, BadRecords, Decoder
from holdfast.datastream.connectors.kafka.offsets import Split
from holdfast.datastream.formats.columns import Columns
from holdfast.datastream.output_tag import OutputTag

if TYPE_CHECKING:
    from confluent_kafka import Message

    from holdfast.metrics import Counter


class SplitBatches(BatchList, SplitRecords):
    """Batches of one split, in place of records."""


class BatchDecoder(Decoder):
    """Decodes the messages of one reader to batches."""

    def __init__(
        self,
        schema: DeserializationSchema,
        bad: BadRecords | OutputTag,
        errors: Counter,
        kind: BatchTypeInfo,
    ) -> None:
        """Take the schema, and the type of the batches; see `Decoder`."""
        super().__init__(schema, bad, errors)
        self._columns = schema.columns_decoder(kind.schema) or _by_records(schema, kind.schema)

    def decode(self, split: Split, messages: Sequence[Message]) -> SplitBatches:
        """Return the messages of one partition as a batch, with their timestamps."""
        found: list[Batch] = []
        aside: list[Aside] = []
        values: list[Any] = [message.value() for message in messages]
        if None in values:
            pairs = zip(messages, values, strict=True)
            messages = [message for message, value in pairs if value is not None]
            values = [value for value in values if value is not None]
        if values:
            self._decode(split, messages, values, found, aside)
        return SplitBatches(split, [merged(found)] if found else [], aside)

    def _decode(
        self,
        split: Split,
        messages: Sequence[Message],
        values: list[bytes],
        found: list[Batch],
        aside: list[Aside],
    ) -> None:
        """Decode messages together; if one of them does not decode, each half by itself."""
        problem: Exception | None = None
        try:
            rows = self._columns(values)
            if rows.num_rows == len(values):
                stamps = [message.timestamp()[1] for message in messages]
                found.append(Batch(rows, pa.array(stamps, pa.int64())))
                return
        except Exception as error:
            problem = error
        if len(values) > 1:
            half = len(values) // 2
            self._decode(split, messages[:half], values[:half], found, aside)
            self._decode(split, messages[half:], values[half:], found, aside)
        elif problem is not None:
            aside += self._handled(split, messages[0], problem)


def _by_records(
    schema: DeserializationSchema, wanted: pa.Schema
) -> Callable[[list[bytes]], pa.RecordBatch]:
    columns = Columns(wanted)

    def decode(messages: list[bytes]) -> pa.RecordBatch:
        records = schema.deserialize_all(messages)
        return columns.batch([record for record in records if record is not None])

    return decode
