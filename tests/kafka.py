"""A Kafka broker for tests, and what tests do with it: make topics, write to them, read them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from services.kafka import KafkaBroker

#: in seconds, for a machine that is slow and busy
LONGEST = 240


def wait_for(reached: Callable[[], bool]) -> None:
    """What is committed arrives soon, but not at once."""
    deadline = time.monotonic() + LONGEST
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def texts(prefix: str, count: int) -> list[str]:
    """So many different texts."""
    return [f"{prefix}{number}" for number in range(count)]


class Kafka:
    """A running broker.

    Attributes:
        broker: the server, to kill and start again.
        address: what clients call ``bootstrap.servers``.
    """

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self.address = broker.address
        self.admin = AdminClient(self.settings())
        # NB: without idempotence a request that is tried again comes after those that followed it;
        # the first ones to a new topic are, on a busy machine.
        settings = {**self.settings(), "enable.idempotence": "true", "linger.ms": "0"}
        self._producer = Producer(settings)

    def settings(self) -> dict[str, str]:
        """What every client is told; nothing is printed when the broker is away on purpose."""
        return {
            "bootstrap.servers": self.address,
            "reconnect.backoff.max.ms": "500",
            "log_level": "0",
        }

    def topic(self, partitions: int = 1, prefix: str = "topic", **settings: str) -> str:
        """The name of a new topic."""
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        self.create(name, partitions, **settings)
        return name

    def create(self, name: str, partitions: int = 1, **settings: str) -> None:
        """Make a topic of this name; settings with _ for the dots."""
        config = {key.replace("_", "."): value for key, value in settings.items()}
        new = NewTopic(name, partitions, 1, config=config)
        self.admin.create_topics([new])[name].result(LONGEST)

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have this many partitions."""
        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result(LONGEST)
        while len(self._producer.list_topics(topic, LONGEST).topics[topic].partitions) < total:
            pass  # the broker says so when it knows of them itself

    def delete(self, topic: str) -> None:
        """Remove a topic."""
        self.admin.delete_topics([topic])[topic].result(LONGEST)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Let the first records of a partition be gone, as retention does."""
        place = TopicPartition(topic, partition, offset)
        self.admin.delete_records([place])[place].result(LONGEST)

    def produce(
        self,
        topic: str,
        values: Iterable[str | bytes | None],
        partition: int = 0,
        keys: Iterable[str | bytes | None] | None = None,
        timestamps: Iterable[int] | None = None,
    ) -> None:
        """Write records, and wait until the broker has them."""
        refused: list[str] = []

        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                refused.append(f"{message.value()!r}: {error}")

        columns = zip(values, keys or _forever(None), timestamps or _forever(0), strict=False)
        for value, key, timestamp in columns:
            self._producer.produce(
                topic, value, key, partition, timestamp=timestamp, on_delivery=note
            )
            self._producer.poll(0)
        left = self._producer.flush(LONGEST)
        assert not left, f"the broker has not taken {left} records in {LONGEST} s"
        assert not refused, f"the broker has refused records: {refused[:3]}"

    def ends(self, topic: str) -> list[int]:
        """The offset after the last record that is committed, of each partition."""
        with self._reader() as consumer:
            return [
                consumer.get_watermark_offsets(place, LONGEST)[1]
                for place in self._places(consumer, topic)
            ]

    def records(self, topic: str) -> list[Message]:
        """What a read-committed consumer sees from the beginning to the end of now."""
        with self._reader() as consumer:
            places = self._places(consumer, topic)
            ends = [consumer.get_watermark_offsets(place, LONGEST)[1] for place in places]
            consumer.assign([TopicPartition(topic, p.partition, 0) for p in places])
            found: list[Message] = []
            while not _is_at(consumer, places, ends):
                found += [_checked(m) for m in consumer.consume(10_000, 0.1)]
            return found

    def values(self, topic: str) -> list[bytes]:
        """The values of those records."""
        return [value for record in self.records(topic) if (value := record.value()) is not None]

    def committed(self, group: str, topic: str, partitions: int = 1) -> list[int | None]:
        """What a consumer group has committed, of each partition."""
        with self._reader(group) as consumer:
            places = [TopicPartition(topic, number) for number in range(partitions)]
            found = consumer.committed(places, LONGEST)
            return [place.offset if place.offset >= 0 else None for place in found]

    @contextmanager
    def _reader(self, group: str = "tests") -> Iterator[Consumer]:
        settings = {
            **self.settings(),
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
        consumer = Consumer(settings)
        try:
            yield consumer
        finally:
            consumer.close()

    def _places(self, consumer: Consumer, topic: str) -> list[TopicPartition]:
        partitions = consumer.list_topics(topic, LONGEST).topics[topic].partitions
        return [TopicPartition(topic, number) for number in sorted(partitions)]


@contextmanager
def running(folder: Path) -> Iterator[Kafka]:
    """A broker whose files are in the folder.

    Raises:
        UnavailableError: when Kafka's classes cannot be had.
    """
    broker = KafkaBroker(folder)
    broker.start()
    try:
        yield Kafka(broker)
    finally:
        broker.kill()


def _is_at(consumer: Consumer, places: Sequence[TopicPartition], ends: Sequence[int]) -> bool:
    here = consumer.position(list(places))
    return all(max(place.offset, 0) >= end for place, end in zip(here, ends, strict=True))


def _checked(message: Message) -> Message:
    assert message.error() is None, message.error()
    return message


def _forever(value: Any) -> Iterator[Any]:
    while True:
        yield value
