"""Kafka as a source and as a sink, under PyFlink's names.

Needs the package ``confluent-kafka``: ``pip install 'holdfast[kafka]'``.
"""

from __future__ import annotations

from holdfast.datastream.connectors.base import DeliveryGuarantee
from holdfast.datastream.connectors.kafka.client import KafkaConnectorError
from holdfast.datastream.connectors.kafka.decoding import (
    BadRecords,
    KafkaRecord,
    KafkaRecordDeserializationSchema,
)
from holdfast.datastream.connectors.kafka.flink_consumer import (
    FlinkKafkaConsumer,
    OffsetCommitMode,
)
from holdfast.datastream.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from holdfast.datastream.connectors.kafka.records import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaSinkContext,
    KafkaSinkError,
    KafkaTopicSelector,
    ProducerRecord,
)
from holdfast.datastream.connectors.kafka.sink_builder import (
    FlinkKafkaProducer,
    KafkaSink,
    KafkaSinkBuilder,
    Semantic,
)
from holdfast.datastream.connectors.kafka.source import KafkaSource, KafkaSourceBuilder

__all__ = [
    "BadRecords",
    "DeliveryGuarantee",
    "FlinkKafkaConsumer",
    "FlinkKafkaProducer",
    "KafkaConnectorError",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSinkContext",
    "KafkaSinkError",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
    "OffsetCommitMode",
    "ProducerRecord",
    "Semantic",
]
