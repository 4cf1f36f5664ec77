"""Kafka as a source, under PyFlink's names; needs ``holdfast[kafka]``."""

from __future__ import annotations

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
from holdfast.datastream.connectors._kafka_source import KafkaSource, KafkaSourceBuilder

__all__ = [
    "BadRecords",
    "KafkaConnectorError",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
]
