"""The sinks for Kafka and their builders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from holdfast.common import SerializationSchema
from holdfast.datastream.connectors.base import DeliveryGuarantee, Sink
from holdfast.datastream.connectors.kafka.records import (
    FixedPartition,
    KafkaRecordSerializationSchema,
)
from holdfast.datastream.connectors.kafka.sink import (
    DirectSinkFunction,
    TransactionalSinkFunction,
)

_SERVERS = "bootstrap.servers"
_TRANSACTIONAL_ID = "transactional.id"
#: the property for the topic of markers
_MARKERS = "holdfast.commits.topic"
_LONGEST_PREFIX = 6400


@dataclass(frozen=True)
class KafkaSink(Sink):
    """Writes records to topics of Kafka; use ``builder``.

    - ``DeliveryGuarantee.NONE``: records may be lost or duplicated after a failure.
    - ``DeliveryGuarantee.AT_LEAST_ONCE``: an epoch ends when the broker has its records. They are
      written again when an epoch is repeated.
    - ``DeliveryGuarantee.EXACTLY_ONCE``: records wait with the checkpoint and are written in a
      transaction when it is complete, so consumers that read committed records only see each once.

    Attributes:
        serializer: creates Kafka's records.
        properties: of the client, ``bootstrap.servers`` among them.
        transactional_id_prefix: the prefix of the transactional ids.
        markers_topic: the topic of markers.
        logs_failures: whether failed records are only logged; not with
            exactly-once.
    """

    serializer: KafkaRecordSerializationSchema
    properties: Mapping[str, str]
    guarantee: DeliveryGuarantee = DeliveryGuarantee.NONE
    transactional_id_prefix: str = ""
    markers_topic: str = "holdfast-commits"
    logs_failures: bool = False

    name = "Sink: Kafka"

    def create_function(self) -> DirectSinkFunction | TransactionalSinkFunction:
        if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            return TransactionalSinkFunction(self)
        return DirectSinkFunction(self)

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Start with Flink's defaults."""
        return KafkaSinkBuilder()


class KafkaSinkBuilder:
    """Builds a ``KafkaSink``; needs servers and a serializer."""

    def __init__(self) -> None:
        """Start with Flink's defaults."""
        self._properties: dict[str, str] = {}
        self._serializer: KafkaRecordSerializationSchema | None = None
        self._guarantee = DeliveryGuarantee.NONE
        self._prefix = ""

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Set the addresses of the brokers: ``host:port``, separated by commas."""
        return self.set_property(_SERVERS, bootstrap_servers)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Set the delivery guarantee; the default is none."""
        if not isinstance(delivery_guarantee, DeliveryGuarantee):
            message = (
                f"set_delivery_guarantee: expected a DeliveryGuarantee; got {delivery_guarantee!r}"
            )
            raise TypeError(message)
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Set the prefix of the sink's transactional ids; required for exactly-once.

        Sinks of one Kafka cluster must not share it: each would abort the other's transactions.
        Keep it when the job is started again, so that open transactions are found.
        """
        if not 0 < len(transactional_id_prefix.encode()) <= _LONGEST_PREFIX:
            message = (
                f"a transactional id prefix has 1 to {_LONGEST_PREFIX} bytes; "
                f"got {len(transactional_id_prefix.encode())}"
            )
            raise ValueError(message)
        self._prefix = transactional_id_prefix
        return self

    def set_record_serializer(
        self, record_serializer: KafkaRecordSerializationSchema
    ) -> KafkaSinkBuilder:
        """Set the schema that makes Kafka's records."""
        if not isinstance(record_serializer, KafkaRecordSerializationSchema):
            message = (
                "set_record_serializer: expected a KafkaRecordSerializationSchema; "
                f"got {record_serializer!r}"
            )
            raise TypeError(message)
        self._serializer = record_serializer
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """Set a property of the producer, under the name it has in librdkafka."""
        if key == _TRANSACTIONAL_ID:
            message = f"the sink makes {_TRANSACTIONAL_ID} itself: call set_transactional_id_prefix"
            raise ValueError(message)
        self._properties[key] = value
        return self

    def build(self) -> KafkaSink:
        """Return the sink.

        Raises:
            ValueError: when the servers, the serializer, or the prefix for exactly once is missing.
        """
        properties = dict(self._properties)
        markers = properties.pop(_MARKERS, KafkaSink.markers_topic)
        if not properties.get(_SERVERS):
            message = "a KafkaSink needs to know where Kafka is: call set_bootstrap_servers"
            raise ValueError(message)
        if self._serializer is None:
            message = "a KafkaSink needs to know what to write: call set_record_serializer"
            raise ValueError(message)
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE and not self._prefix:
            message = (
                "DeliveryGuarantee.EXACTLY_ONCE needs a prefix that no other sink has: call "
                "set_transactional_id_prefix"
            )
            raise ValueError(message)
        return KafkaSink(self._serializer, properties, self._guarantee, self._prefix, markers)


class Semantic(Enum):
    """The guarantees of a ``FlinkKafkaProducer``; see ``KafkaSink``."""

    EXACTLY_ONCE = DeliveryGuarantee.EXACTLY_ONCE
    AT_LEAST_ONCE = DeliveryGuarantee.AT_LEAST_ONCE
    NONE = DeliveryGuarantee.NONE


class FlinkKafkaProducer(Sink):
    """Writes all records of a subtask to one partition of a topic; older, for ``add_sink``.

    Args:
        topic: the name of the topic.
        serialization_schema: serializes the values; there are no keys.
        producer_config: properties of the client. For exactly-once, ``transactional.id`` is the
            prefix of the sink's transactional ids; see ``KafkaSinkBuilder``.
        kafka_producer_pool_size: ignored; a subtask needs one producer.
        semantic: the guarantee.

    Raises:
        ValueError: when the configuration lacks the servers, or settings for exactly-once.
    """

    name = "Sink: Kafka"

    def __init__(
        self,
        topic: str,
        serialization_schema: SerializationSchema,
        producer_config: Mapping[str, Any],
        kafka_producer_pool_size: int = 5,
        semantic: Semantic = Semantic.AT_LEAST_ONCE,
    ) -> None:
        """Check the configuration."""
        properties = {key: str(value) for key, value in producer_config.items()}
        prefix = properties.pop(_TRANSACTIONAL_ID, "")
        self._serializer = FixedPartition(topic, serialization_schema)
        builder = KafkaSinkBuilder().set_record_serializer(self._serializer)
        for key, value in properties.items():
            builder.set_property(key, value)
        if semantic is Semantic.EXACTLY_ONCE and not prefix:
            message = (
                f"Semantic.EXACTLY_ONCE needs a {_TRANSACTIONAL_ID} in producer_config that no "
                "other sink has"
            )
            raise ValueError(message)
        if prefix:
            builder.set_transactional_id_prefix(prefix)
        self._sink = builder.set_delivery_guarantee(semantic.value).build()

    def set_log_failures_only(self, log_failures_only: bool) -> FlinkKafkaProducer:
        """Log failed records and continue; not with exactly-once."""
        self._sink = replace(self._sink, logs_failures=log_failures_only)
        return self

    def set_flush_on_checkpoint(self, flush_on_checkpoint: bool) -> FlinkKafkaProducer:
        """Set whether an epoch waits for its records, as it does with at-least-once."""
        if self._sink.guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            kinds = {True: DeliveryGuarantee.AT_LEAST_ONCE, False: DeliveryGuarantee.NONE}
            self._sink = replace(self._sink, guarantee=kinds[flush_on_checkpoint])
        return self

    def set_write_timestamp_to_kafka(self, write_timestamp_to_kafka: bool) -> FlinkKafkaProducer:
        """Set whether Kafka's records have the event timestamps of the stream's records."""
        serializer = replace(self._serializer, writes_timestamps=write_timestamp_to_kafka)
        self._serializer = serializer
        self._sink = replace(self._sink, serializer=serializer)
        return self

    def ignore_failures_after_transaction_timeout(self) -> FlinkKafkaProducer:
        """Do nothing: records wait with the checkpoint, without a timeout."""
        return self

    def create_function(self) -> DirectSinkFunction | TransactionalSinkFunction:
        return self._sink.create_function()
