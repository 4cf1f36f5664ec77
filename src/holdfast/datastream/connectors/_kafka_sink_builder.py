"""The sinks for Kafka, as a program describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from holdfast.common import SerializationSchema
from holdfast.datastream.connectors._kafka_records import (
    FixedPartition,
    KafkaRecordSerializationSchema,
)
from holdfast.datastream.connectors._kafka_sink import (
    DirectSinkFunction,
    TransactionalSinkFunction,
)
from holdfast.datastream.connectors.base import DeliveryGuarantee, Sink

__all__ = ["FlinkKafkaProducer", "KafkaSink", "KafkaSinkBuilder", "Semantic"]

_SERVERS = "bootstrap.servers"
_TRANSACTIONAL_ID = "transactional.id"
#: set like a property of the client: the topic that says what was committed
_MARKERS = "holdfast.commits.topic"
_LONGEST_PREFIX = 6400


@dataclass(frozen=True)
class KafkaSink(Sink):
    """Writes records to topics of Kafka; use ``builder``.

    - ``DeliveryGuarantee.NONE``: records may be lost or doubled when something fails.
    - ``DeliveryGuarantee.AT_LEAST_ONCE``: an epoch ends when the broker has its records. They are
      written again when an epoch is run again.
    - ``DeliveryGuarantee.EXACTLY_ONCE``: records wait with the checkpoint and are written in a
      transaction when it is complete, so consumers that read committed records only see each once.

    Attributes:
        serializer: makes Kafka's records.
        properties: of the client, ``bootstrap.servers`` among them.
        transactional_id_prefix: what the transactional ids begin with.
        markers_topic: the topic that says what was committed.
        logs_failures: whether a record that could not be written is logged and lost; not with
            exactly once.
    """

    serializer: KafkaRecordSerializationSchema
    properties: Mapping[str, str]
    guarantee: DeliveryGuarantee = DeliveryGuarantee.NONE
    transactional_id_prefix: str = ""
    markers_topic: str = "holdfast-commits"
    logs_failures: bool = False

    name = "Sink: Kafka"

    def create_function(self) -> DirectSinkFunction | TransactionalSinkFunction:
        """The function that writes the records."""
        if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            return TransactionalSinkFunction(self)
        return DirectSinkFunction(self)

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Begin with Flink's defaults."""
        return KafkaSinkBuilder()


class KafkaSinkBuilder:
    """Builds a ``KafkaSink``; needs servers and a serializer."""

    def __init__(self) -> None:
        """Begin with Flink's defaults."""
        self._properties: dict[str, str] = {}
        self._serializer: KafkaRecordSerializationSchema | None = None
        self._guarantee = DeliveryGuarantee.NONE
        self._prefix = ""

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Where the brokers are: ``host:port``, several with commas between."""
        return self.set_property(_SERVERS, bootstrap_servers)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """What is promised when something fails; nothing unless told."""
        if not isinstance(delivery_guarantee, DeliveryGuarantee):
            msg = (
                f"set_delivery_guarantee: expected a DeliveryGuarantee; got {delivery_guarantee!r}"
            )
            raise TypeError(msg)
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """What the sink's transactional ids begin with; needed for exactly once.

        Sinks of one Kafka must not share it: each would put an end to the other's transactions.
        Keep it when the job is started again, so that what is left open is found.
        """
        if not 0 < len(transactional_id_prefix.encode()) <= _LONGEST_PREFIX:
            msg = (
                f"a transactional id prefix has 1 to {_LONGEST_PREFIX} bytes; "
                f"got {len(transactional_id_prefix.encode())}"
            )
            raise ValueError(msg)
        self._prefix = transactional_id_prefix
        return self

    def set_record_serializer(
        self, record_serializer: KafkaRecordSerializationSchema
    ) -> KafkaSinkBuilder:
        """What makes Kafka's records."""
        if not isinstance(record_serializer, KafkaRecordSerializationSchema):
            msg = (
                "set_record_serializer: expected a KafkaRecordSerializationSchema; "
                f"got {record_serializer!r}"
            )
            raise TypeError(msg)
        self._serializer = record_serializer
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """A property of the producer, under the name it has in librdkafka."""
        if key == _TRANSACTIONAL_ID:
            msg = f"the sink makes {_TRANSACTIONAL_ID} itself: call set_transactional_id_prefix"
            raise ValueError(msg)
        self._properties[key] = value
        return self

    def build(self) -> KafkaSink:
        """The sink.

        Raises:
            ValueError: when the servers, the serializer, or the prefix for exactly once is missing.
        """
        properties = dict(self._properties)
        markers = properties.pop(_MARKERS, KafkaSink.markers_topic)
        if not properties.get(_SERVERS):
            msg = "a KafkaSink needs to know where Kafka is: call set_bootstrap_servers"
            raise ValueError(msg)
        if self._serializer is None:
            msg = "a KafkaSink needs to know what to write: call set_record_serializer"
            raise ValueError(msg)
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE and not self._prefix:
            msg = (
                "DeliveryGuarantee.EXACTLY_ONCE needs a prefix that no other sink has: call "
                "set_transactional_id_prefix"
            )
            raise ValueError(msg)
        return KafkaSink(self._serializer, properties, self._guarantee, self._prefix, markers)


class Semantic(Enum):
    """The guarantees of a ``FlinkKafkaProducer``; see ``KafkaSink``."""

    EXACTLY_ONCE = DeliveryGuarantee.EXACTLY_ONCE
    AT_LEAST_ONCE = DeliveryGuarantee.AT_LEAST_ONCE
    NONE = DeliveryGuarantee.NONE


class FlinkKafkaProducer(Sink):
    """Writes all records of a subtask to one partition of a topic; the older way, for ``add_sink``.

    Args:
        topic: the name of the topic.
        serialization_schema: makes the values; there are no keys.
        producer_config: properties of the client. For exactly once ``transactional.id`` is what the
            sink's transactional ids begin with; see ``KafkaSinkBuilder``.
        kafka_producer_pool_size: of no account: a subtask needs one producer.
        semantic: the guarantee.

    Raises:
        ValueError: when the configuration lacks the servers, or what exactly once needs.
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
            msg = (
                f"Semantic.EXACTLY_ONCE needs a {_TRANSACTIONAL_ID} in producer_config that no "
                "other sink has"
            )
            raise ValueError(msg)
        if prefix:
            builder.set_transactional_id_prefix(prefix)
        self._sink = builder.set_delivery_guarantee(semantic.value).build()

    def set_log_failures_only(self, log_failures_only: bool) -> FlinkKafkaProducer:
        """Log a record that could not be written, and go on without it; not with exactly once."""
        self._sink = replace(self._sink, logs_failures=log_failures_only)
        return self

    def set_flush_on_checkpoint(self, flush_on_checkpoint: bool) -> FlinkKafkaProducer:
        """Whether an epoch waits for its records, as it does with at least once."""
        if self._sink.guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            kinds = {True: DeliveryGuarantee.AT_LEAST_ONCE, False: DeliveryGuarantee.NONE}
            self._sink = replace(self._sink, guarantee=kinds[flush_on_checkpoint])
        return self

    def set_write_timestamp_to_kafka(self, write_timestamp_to_kafka: bool) -> FlinkKafkaProducer:
        """Whether Kafka's records have the event timestamps of the stream's."""
        serializer = replace(self._serializer, writes_timestamps=write_timestamp_to_kafka)
        self._serializer = serializer
        self._sink = replace(self._sink, serializer=serializer)
        return self

    def ignore_failures_after_transaction_timeout(self) -> FlinkKafkaProducer:
        """Nothing: records wait with the checkpoint, where no timeout takes them away."""
        return self

    def create_function(self) -> DirectSinkFunction | TransactionalSinkFunction:
        """The function that writes the records."""
        return self._sink.create_function()
