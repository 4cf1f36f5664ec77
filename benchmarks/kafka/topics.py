"""A broker for one program, with the records of the benchmarks in a topic.

As a program of its own, ``python -m benchmarks.kafka.topics DIRECTORY COUNT``, it prints the
address of such a broker and keeps it until its input ends: for systems whose environment cannot
start one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.measure import PYTHON
from benchmarks.records import KEYS, draw, record

__all__ = ["COUNTS", "PARTITIONS", "RECORDS", "Broker", "broker", "keyed_broker"]

RECORDS = "records"
COUNTS = "counts"
PARTITIONS = 4
#: Consumers of a group that start together share the partitions from the beginning.
_TOGETHER = {"group.initial.rebalance.delay.ms": "3000"}


class Broker(NamedTuple):
    """A running one."""

    address: str


@contextmanager
def broker(directory: str, count: int, keyed: bool = False) -> Iterator[Broker]:
    """A broker that has so many records, as text, in one topic, and another topic for results.

    Args:
        directory: Where its files go.
        count: How many records.
        keyed: Whether the records have the user as their key, and a partition has all of a user.
    """
    # NB: needs packages that the environments of some peers do not have
    from services.kafka import KafkaBroker

    server = KafkaBroker(Path(directory) / "kafka", settings=_TOGETHER if keyed else {})
    server.start()
    try:
        _fill(server.address, count, keyed)
        yield Broker(server.address)
    finally:
        server.kill()


@contextmanager
def keyed_broker(directory: str, count: int) -> Iterator[Broker]:
    """The same with keys, started by the Python that has Holdfast, from any other one."""
    command = [os.environ.get(PYTHON, sys.executable), "-m", __spec__.name, directory, str(count)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        if not address:
            raise SystemExit("Error: the broker did not start; its message is above")
        yield Broker(address)
    finally:
        process.stdin.close()
        process.wait()


def _fill(address: str, count: int, keyed: bool) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    new = [NewTopic(name, PARTITIONS, 1) for name in (RECORDS, COUNTS)]
    for made in admin.create_topics(new).values():
        made.result()
    settings = {"bootstrap.servers": address, "enable.idempotence": True}
    large = {"linger.ms": 50, "batch.size": 1_000_000, "queue.buffering.max.messages": 500_000}
    producer = Producer({**settings, **large})
    for number in range(count):
        user, amount, _ = record(number)
        key = user if keyed else None
        partition = (draw(number, KEYS) if keyed else number) % PARTITIONS
        while True:
            try:
                producer.produce(RECORDS, f"{user},{amount},{number}", key, partition)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def main() -> None:
    """Start a broker; the arguments are its directory and the number of records."""
    with broker(sys.argv[1], int(sys.argv[2]), keyed=True) as running:
        print(running.address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
