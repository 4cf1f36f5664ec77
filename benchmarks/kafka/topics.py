"""A broker for one program, with the records of the benchmarks in a topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.records import record
from services.kafka import KafkaBroker

__all__ = ["COUNTS", "PARTITIONS", "RECORDS", "Broker", "broker"]

RECORDS = "records"
COUNTS = "counts"
PARTITIONS = 4


class Broker(NamedTuple):
    """A running one."""

    address: str


@contextmanager
def broker(directory: str, count: int) -> Iterator[Broker]:
    """A broker that has so many records, as text, in one topic, and another topic for results."""
    server = KafkaBroker(Path(directory) / "kafka")
    server.start()
    try:
        _fill(server.address, count)
        yield Broker(server.address)
    finally:
        server.kill()


def _fill(address: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    new = [NewTopic(name, PARTITIONS, 1) for name in (RECORDS, COUNTS)]
    for made in admin.create_topics(new).values():
        made.result()
    settings = {"bootstrap.servers": address, "enable.idempotence": True}
    large = {"linger.ms": 50, "batch.size": 1_000_000, "queue.buffering.max.messages": 500_000}
    producer = Producer({**settings, **large})
    for number in range(count):
        user, amount, _ = record(number)
        while True:
            try:
                producer.produce(
                    RECORDS, f"{user},{amount},{number}", partition=number % PARTITIONS
                )
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
