"""Kafka as a sink, under PyFlink's names.

Needs the package ``confluent-kafka``: ``pip install 'holdfast[kafka]'``.
"""

from __future__ import annotations

from holdfast.datastream.connectors._kafka_records import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaSinkContext,
    KafkaTopicSelector,
    ProducerRecord,
)
from holdfast.datastream.connectors._kafka_sink_builder import (
    FlinkKafkaProducer,
    KafkaSink,
    KafkaSinkBuilder,
    Semantic,
)
from holdfast.datastream.connectors.base import DeliveryGuarantee

__all__ = [
    "DeliveryGuarantee",
    "FlinkKafkaProducer",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSinkContext",
    "KafkaTopicSelector",
    "ProducerRecord",
    "Semantic",
]
