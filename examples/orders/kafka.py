"""Topics of Kafka: of events, written by a shop and read by the job, and one for each output."""

from typing import Any

import msgspec

from examples.orders.events import OrderEvent
from examples.orders.files import decode_event, encode_event
from examples.orders.pipeline import Outputs
from examples.orders.reference import Row
from examples.orders.shop import PARTITIONS, Shop, deliveries
from holdfast.common import DeserializationSchema, SerializationSchema
from holdfast.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)

__all__ = ["attach_topics", "kafka_source", "produce", "read_topic"]

#: in seconds
_LONGEST = 60.0


class EventSchema(DeserializationSchema):
    """A message is an event as JSON."""

    def deserialize(self, message: bytes) -> OrderEvent:
        return decode_event(message.decode())


class JsonSchema(SerializationSchema):
    """A result as JSON."""

    def serialize(self, value: Any) -> bytes:
        return msgspec.json.encode(value)


def kafka_source(broker: str, topic: str, *, ends: bool) -> KafkaSource:
    """The events of a topic; with an end, those that are there when the job starts."""
    builder = (
        KafkaSource.builder()
        .set_bootstrap_servers(broker)
        .set_topics(topic)
        .set_group_id("orders")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(EventSchema())
    )
    if ends:
        builder.set_bounded(KafkaOffsetsInitializer.latest())
    return builder.build()


def attach_topics(outputs: Outputs, broker: str, topic: str) -> None:
    """Write every output but the batches to a topic of its own, each result exactly once."""
    streams = {name: stream for name, stream in outputs._asdict().items() if name != "orders"}
    _make_topics(broker, [f"{topic}-{name}" for name in streams], 1)
    for name, stream in streams.items():
        records = (
            KafkaRecordSerializationSchema.builder()
            .set_topic(f"{topic}-{name}")
            .set_value_serialization_schema(JsonSchema())
            .build()
        )
        sink = (
            KafkaSink.builder()
            .set_bootstrap_servers(broker)
            .set_record_serializer(records)
            .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .set_transactional_id_prefix(f"{topic}-{name}")
            .build()
        )
        stream.sink_to(sink).uid(f"{name}-kafka").name(f"{name} to Kafka")


def produce(shop: Shop, broker: str, topic: str) -> int:
    """Make a topic of all events of a shop; returns how many were delivered."""
    from confluent_kafka import Producer

    if shop.slices is None:
        raise ValueError("a shop without an end does not fit into a topic; give it slices")
    _make_topics(broker, [topic], PARTITIONS)
    # idempotence also keeps the order when a request is tried again, as on topics that are new
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    written = 0
    for number in range(shop.slices):
        for partition in range(PARTITIONS):
            for event in deliveries(shop, partition, number):
                producer.produce(topic, encode_event(event), event.order_id, partition)
                written += 1
        producer.poll(0)
    if producer.flush(_LONGEST):
        raise RuntimeError(f"{broker} does not take the events")
    return written


def read_topic(broker: str, topic: str) -> list[Row]:
    """All results in a topic of one partition, as one sees them who reads what is committed."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "bootstrap.servers": broker,
        "group.id": "orders-verification",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    place = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place, _LONGEST)
    consumer.assign([place])
    rows: list[Row] = []
    # NB: before the first message the position is a negative number that means "none".
    while max(0, consumer.position([place])[0].offset) < end:
        for message in consumer.consume(1000, 0.1):
            if message.error():
                raise RuntimeError(f"topic {topic} cannot be read: {message.error()}")
            rows.append(msgspec.json.decode(message.value() or b"null"))
    consumer.close()
    return rows


def _make_topics(broker: str, names: list[str], partitions: int) -> None:
    """Make those that are not there."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    settings: dict[str, Any] = {"bootstrap.servers": broker}
    admin = AdminClient(settings)
    existing = admin.list_topics(timeout=_LONGEST).topics
    new = [NewTopic(name, partitions, 1) for name in names if name not in existing]
    for made in admin.create_topics(new).values() if new else ():
        made.result(_LONGEST)
