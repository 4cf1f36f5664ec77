"""Kafka as a source and as a sink, under PyFlink's names.

Needs the package ``confluent-kafka``: ``pip install 'holdfast[kafka]'``.
"""

from __future__ import annotations

from holdfast.datastream.connectors._flink_kafka_consumer import (
    FlinkKafkaConsumer,
    OffsetCommitMode,
)
from holdfast.datastream.connectors._kafka_client import KafkaConnectorError
from holdfast.datastream.connectors._kafka_decoding import (
    BadRecords,
    KafkaRecord,
    KafkaRecordDeserializationSchema,
)
from holdfast.datastream.connectors._kafka_offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from holdfast.datastream.connectors._kafka_records import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaSinkContext,
    KafkaSinkError,
    KafkaTopicSelector,
    ProducerRecord,
)
from holdfast.datastream.connectors._kafka_sink_builder import (
    FlinkKafkaProducer,
    KafkaSink,
    KafkaSinkBuilder,
    Semantic,
)
from holdfast.datastream.connectors._kafka_source import KafkaSource, KafkaSourceBuilder
from holdfast.datastream.connectors.base import DeliveryGuarantee

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
