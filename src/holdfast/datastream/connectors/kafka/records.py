"""Converts records of a stream to records of a topic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.common import SerializationSchema


class KafkaSinkError(RuntimeError):
    """Records could not be written to Kafka; the message has the topic, the cause and a remedy.

    Attributes:
        ends_producer: whether this producer cannot be used any more, for example because a newer
            one of the same transactional id has fenced it; another producer may succeed.
    """

    def __init__(self, message: str, ends_producer: bool = False) -> None:
        """Take the whole message."""
        super().__init__(message)
        self.ends_producer = ends_producer


class ProducerRecord(NamedTuple):
    """A record as it is written to Kafka.

    Attributes:
        value: None deletes the key from a compacted topic.
        partition: None to choose it by the key, or at random without a key.
        timestamp: in milliseconds; None for the time of writing.
    """

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class KafkaSinkContext(ABC):
    """What a schema may ask about its subtask."""

    @abstractmethod
    def get_parallel_instance_id(self) -> int:
        """Return the number of this subtask of the sink, from 0."""

    @abstractmethod
    def get_number_of_parallel_instances(self) -> int:
        """Return the parallelism of the sink."""

    @abstractmethod
    def get_partitions_for_topic(self, topic: str) -> list[int]:
        """Return the partitions of a topic, as of its first use."""


class KafkaTopicSelector(ABC):
    """Chooses the topic of a record."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """Return the topic."""


class KafkaRecordSerializationSchema(ABC):
    """Converts a record of the stream to one of a topic; called in the workers.

    ``builder`` combines simple schemas; a subclass may set everything a Kafka record has.
    """

    @abstractmethod
    def serialize(
        self, element: Any, context: KafkaSinkContext, timestamp: int | None
    ) -> ProducerRecord | None:
        """Return the record to write, or None to skip it.

        Args:
            element: the record of the stream.
            context: describes the subtask.
            timestamp: the event timestamp of the record, if it has one.
        """

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Build a schema from a topic, a schema for values, and optionally one for keys."""
        return KafkaRecordSerializationSchemaBuilder()


class KafkaRecordSerializationSchemaBuilder:
    """Builds a ``KafkaRecordSerializationSchema``; needs a topic and a schema of values."""

    def __init__(self) -> None:
        """Start empty."""
        self._topic: str | None = None
        self._select: Callable[[Any], str] | None = None
        self._key: SerializationSchema | None = None
        self._value: SerializationSchema | None = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Write every record to this topic."""
        self._topic, self._select = topic, None
        return self

    def set_topic_selector(
        self, topic_selector: Callable[[Any], str] | KafkaTopicSelector
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Call this for the topic of each record."""
        if isinstance(topic_selector, KafkaTopicSelector):
            topic_selector = topic_selector.apply
        if not callable(topic_selector):
            message = (
                "set_topic_selector: expected a KafkaTopicSelector or a function; "
                f"got {topic_selector!r}"
            )
            raise TypeError(message)
        self._topic, self._select = None, topic_selector
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Serialize the whole record as the key; by default there is none."""
        self._key = _schema("set_key_serialization_schema", key_serialization_schema)
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Serialize the whole record as the value."""
        self._value = _schema("set_value_serialization_schema", value_serialization_schema)
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        """Return the schema.

        Raises:
            ValueError: when the topic or the schema of values is missing.
        """
        if self._topic is None and self._select is None:
            message = "a Kafka record needs a topic: call set_topic or set_topic_selector"
            raise ValueError(message)
        if self._value is None:
            message = "a Kafka record needs a value: call set_value_serialization_schema"
            raise ValueError(message)
        return _BuiltSchema(self._topic or "", self._select, self._key, self._value)


@dataclass(frozen=True)
class _BuiltSchema(KafkaRecordSerializationSchema):
    topic: str
    select: Callable[[Any], str] | None
    key: SerializationSchema | None
    value: SerializationSchema

    def serialize(
        self, element: Any, context: KafkaSinkContext, timestamp: int | None
    ) -> ProducerRecord:
        topic = self.topic if self.select is None else self.select(element)
        key = None if self.key is None else self.key.serialize(element)
        return ProducerRecord(topic, self.value.serialize(element), key, None, timestamp)


@dataclass(frozen=True)
class FixedPartition(KafkaRecordSerializationSchema):
    """A schema that sends all records of a subtask to one partition, as in Flink's producer."""

    topic: str
    value: SerializationSchema
    writes_timestamps: bool = False

    def serialize(
        self, element: Any, context: KafkaSinkContext, timestamp: int | None
    ) -> ProducerRecord:
        """Use the partition with the number of the subtask."""
        partitions = context.get_partitions_for_topic(self.topic)
        partition = partitions[context.get_parallel_instance_id() % len(partitions)]
        stamp = timestamp if self.writes_timestamps else None
        return ProducerRecord(self.topic, self.value.serialize(element), None, partition, stamp)


def _schema(where: str, schema: Any) -> SerializationSchema:
    if not isinstance(schema, SerializationSchema):
        message = f"{where}: expected a SerializationSchema; got {schema!r}"
        raise TypeError(message)
    return schema
