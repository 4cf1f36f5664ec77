"""Converts messages of Kafka to records, and handles those that cannot be decoded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.common.serialization import DeserializationSchema
from holdfast.datastream.connectors.base import SplitRecords
from holdfast.datastream.connectors.kafka.offsets import Split, describe
from holdfast.datastream.output_tag import OutputTag

if TYPE_CHECKING:
    from confluent_kafka import Message

    from holdfast.metrics import Counter

_SHOWN = 100
#: a record for a side output, with its timestamp
Aside = tuple[OutputTag, Any, int | None]


class KafkaRecord(NamedTuple):
    """A message of Kafka.

    Attributes:
        timestamp: in milliseconds; None if the topic has none.
        headers: names and values, in their order.
        error: why it could not be decoded, in a dead letter.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    error: str | None = None


class KafkaRecordDeserializationSchema(ABC):
    """Converts messages of Kafka, with key, headers and offset, to records; picklable.

    Called in the workers, once per message.
    """

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> Iterable[Any]:
        """Return the records in a message: none, one or several; may be a generator."""

    @staticmethod
    def value_only(schema: DeserializationSchema) -> KafkaRecordDeserializationSchema:
        """Return a schema for the value alone; messages without a value are skipped."""
        return _ValueOnly(schema)


class _ValueOnly(KafkaRecordDeserializationSchema):
    def __init__(self, schema: DeserializationSchema) -> None:
        self._schema = schema

    def deserialize(self, record: KafkaRecord) -> Iterable[Any]:
        found = None if record.value is None else self._schema.deserialize(record.value)
        return () if found is None else (found,)


class BadRecords(Enum):
    """What to do with a message that cannot be decoded; a dead letter needs an ``OutputTag``."""

    FAIL = "fail"
    SKIP = "skip"


class Decoder:
    """Decodes the messages of one reader."""

    def __init__(
        self,
        schema: DeserializationSchema | KafkaRecordDeserializationSchema,
        bad: BadRecords | OutputTag,
        errors: Counter,
    ) -> None:
        """Take the schema; ``errors`` counts messages that cannot be decoded."""
        self._schema = schema
        self._bad = bad
        self._errors = errors

    def decode(self, split: Split, messages: Sequence[Message]) -> SplitRecords:
        """Return the records of messages of one partition, each with its timestamp.

        Raises:
            ValueError: for a message that cannot be decoded, if that fails the job.
        """
        try:
            if isinstance(self._schema, DeserializationSchema):
                return SplitRecords(split, self._values(self._schema, messages))
            return SplitRecords(split, [p for m in messages for p in self._records(m)])
        except Exception:
            return self._one_by_one(split, messages)

    def _values(
        self, schema: DeserializationSchema, messages: Sequence[Message]
    ) -> list[tuple[Any, int | None]]:
        """Decode all at once: a call per message would cost as much as Kafka itself."""
        values: list[Any] = [message.value() for message in messages]
        stamps: list[int | None] = [message.timestamp()[1] for message in messages]
        if None in values:
            stamps = [s for s, value in zip(stamps, values, strict=True) if value is not None]
            values = [value for value in values if value is not None]
        pairs = zip(schema.deserialize_all(values), stamps, strict=True)
        return [(record, stamp) for record, stamp in pairs if record is not None]

    def _records(self, message: Message) -> list[tuple[Any, int | None]]:
        record = as_record(message)
        if isinstance(self._schema, DeserializationSchema):
            found = None if record.value is None else self._schema.deserialize(record.value)
            return [] if found is None else [(found, record.timestamp)]
        return [(each, record.timestamp) for each in self._schema.deserialize(record) or ()]

    def _one_by_one(self, split: Split, messages: Sequence[Message]) -> SplitRecords:
        records: list[Any] = []
        aside: list[Aside] = []
        for message in messages:
            try:
                records += self._records(message)
            except Exception as error:
                aside += self._handled(split, message, error)
        return SplitRecords(split, records, aside)

    def _handled(self, split: Split, message: Message, error: Exception) -> list[Aside]:
        """Return the dead letter of a message that cannot be decoded, if there is to be one."""
        if self._bad is BadRecords.FAIL:
            raise self._undecodable(split, message, error) from error
        self._errors.inc()
        if not isinstance(self._bad, OutputTag):
            return []
        letter = as_record(message)._replace(error=f"{type(error).__name__}: {error}")
        return [(self._bad, letter, letter.timestamp)]

    def _undecodable(self, split: Split, message: Message, error: Exception) -> ValueError:
        value = message.value()
        shown = repr(value[:_SHOWN]) + ("…" if len(value) > _SHOWN else "") if value else "nothing"
        return ValueError(
            f"the message at offset {message.offset()} of {describe(split)} does not decode with "
            f"{type(self._schema).__name__}: {type(error).__name__}: {error}; its value is "
            f"{shown}. set_bad_records(...) of the source's builder lets such messages be skipped, "
            "or go to a side output"
        )


def as_record(message: Message) -> KafkaRecord:
    """Return a message as a `KafkaRecord`."""
    kind, timestamp = message.timestamp()
    headers: Any = message.headers() or ()
    return KafkaRecord(
        str(message.topic()),
        message.partition() or 0,
        message.offset() or 0,
        timestamp if kind else None,
        message.key(),
        message.value(),
        tuple(headers),
    )
