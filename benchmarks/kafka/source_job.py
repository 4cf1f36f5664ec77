"""Reads a topic: Holdfast's source into nothing, or as many bare consumers."""

from __future__ import annotations

import subprocess
import sys
import time

from confluent_kafka import Consumer, TopicPartition

from benchmarks.kafka.topics import PARTITIONS, RECORDS, broker
from benchmarks.measure import Mark, Meter, emit, measured, read_marks
from benchmarks.own.epochs import epoch_marks, holdfast_epochs
from benchmarks.own.jobs import Discard, environment
from benchmarks.program import PARALLELISM, Task, parse_task
from holdfast.common import SimpleStringSchema, WatermarkStrategy
from holdfast.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource

_CONSUMER = "from benchmarks.kafka.source_job import consume; consume(*{arguments!r})"


def holdfast(task: Task, address: str) -> list[Mark]:
    """A job that reads the topic and throws its records away."""
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(address)
        .set_topics(RECORDS)
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    env = environment(task)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "Kafka")
    stream.add_sink(Discard())
    client = env.execute_async("kafka source")
    client.get_job_execution_result().result()
    return epoch_marks(holdfast_epochs(client))


def bare(task: Task, address: str) -> list[Mark]:
    """As many processes with a consumer each, which do nothing with what they get."""
    share = task.records // PARALLELISM
    processes = []
    for number in range(PARALLELISM):
        code = _CONSUMER.format(arguments=(address, number, share, task.directory))
        processes.append(subprocess.Popen([sys.executable, "-c", code]))
    if any(process.wait() for process in processes):
        raise SystemExit("a consumer failed")
    return read_marks(task.directory)


def consume(address: str, number: int, count: int, directory: str) -> None:
    """Read a share of the partitions, in batches, values as text.

    With the client's own settings it waits a second whenever its queue is full, which is most of
    the time; so it has those of the source.
    """
    settings = {"bootstrap.servers": address, "group.id": "bare", "fetch.queue.backoff.ms": 20}
    consumer = Consumer({**settings, "fetch.wait.max.ms": 100, "enable.auto.commit": False})
    mine = range(number, PARTITIONS, PARALLELISM)
    consumer.assign([TopicPartition(RECORDS, partition, 0) for partition in mine])
    meter, deadline = Meter(directory), time.monotonic() + 600
    while count > 0 and time.monotonic() < deadline:
        values = [(message.value() or b"").decode() for message in consumer.consume(4096, 1)]
        count -= len(values)
        meter.add(len(values))
    meter.close()
    consumer.close()


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    with broker(task.directory, task.records) as running:
        program = bare if task.variant == "bare" else holdfast
        started = time.time()
        emit(measured(program(task, running.address), started))


if __name__ == "__main__":
    main()
