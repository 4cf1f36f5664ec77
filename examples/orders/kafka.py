"""Events in a topic of Kafka: written by a shop, read by the job."""

from typing import Any

from examples.orders.events import OrderEvent
from examples.orders.files import decode_event, encode_event
from examples.orders.shop import PARTITIONS, Shop, deliveries
from holdfast.common import DeserializationSchema
from holdfast.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource

__all__ = ["kafka_source", "produce"]


class EventSchema(DeserializationSchema):
    """A message is an event as JSON."""

    def deserialize(self, message: bytes) -> OrderEvent:
        return decode_event(message.decode())


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


def produce(shop: Shop, broker: str, topic: str) -> int:
    """Make a topic of all events of a shop; returns how many were delivered."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    if shop.slices is None:
        raise ValueError("a shop without an end does not fit into a topic; give it slices")
    settings: dict[str, Any] = {"bootstrap.servers": broker}
    made = AdminClient(settings).create_topics([NewTopic(topic, PARTITIONS, 1)])
    made[topic].result(60)
    producer = Producer(settings)
    written = 0
    for number in range(shop.slices):
        for partition in range(PARTITIONS):
            for event in deliveries(shop, partition, number):
                producer.produce(topic, encode_event(event), event.order_id, partition)
                written += 1
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError(f"{broker} does not take the events")
    return written
