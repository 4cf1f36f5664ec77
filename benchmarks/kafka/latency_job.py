"""How long a record takes from Kafka through a job to a consumer of committed records, and where.

Records come at a modest rate. Each says when it was produced and, when it comes out, when it was
read. The rest of its way is found in what the job says of its epochs and checkpoints:

    poll         from its being produced to its being read: it waits for an epoch to begin
    epoch        from there to the end of the epoch
    checkpoint   from there to the completion of the next checkpoint, of this epoch or a later one
    commit       from there to the consumer
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Sequence
from statistics import median, quantiles
from typing import NamedTuple

from confluent_kafka import Consumer, Producer

from benchmarks.kafka.topics import COUNTS, PARTITIONS, RECORDS, broker
from benchmarks.measure import Measurement, emit
from benchmarks.own.epochs import holdfast_epochs
from benchmarks.own.jobs import environment
from benchmarks.program import Task, parse_task
from holdfast.common import SimpleStringSchema, WatermarkStrategy
from holdfast.common.job_client import JobClient
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)

#: records a second
RATE = 500
#: in milliseconds
CHECKPOINTS = 500
#: the share of the records that is not measured
WARM_UP = 0.3
#: in seconds, without anything new: something is wrong
PATIENCE = 60


class Way(NamedTuple):
    """When a record was where, as `time.time` counts."""

    produced: float
    read: float
    consumed: float


def build(task: Task, address: str) -> StreamExecutionEnvironment:
    """The job: it runs until it is cancelled."""
    env = environment(task)
    env.set_buffer_timeout(50).enable_checkpointing(CHECKPOINTS)
    source = KafkaSource.builder().set_bootstrap_servers(address).set_topics(RECORDS)
    source.set_group_id("latency").set_value_only_deserializer(SimpleStringSchema())
    schema = KafkaRecordSerializationSchema.builder().set_topic(COUNTS)
    schema.set_value_serialization_schema(SimpleStringSchema())
    sink = KafkaSink.builder().set_bootstrap_servers(address)
    sink.set_record_serializer(schema.build()).set_transactional_id_prefix("latency")
    sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    lines = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "Kafka")
    read = lines.map(lambda produced: f"{produced},{time.time()}")
    read.key_by(lambda line: line[-2:]).map(lambda line: line).sink_to(sink.build())
    return env


def produce(address: str, count: int) -> None:
    """Write records at the rate."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0})
    began = time.time()
    for number in range(count):
        time.sleep(max(0.0, began + number / RATE - time.time()))
        producer.produce(RECORDS, repr(time.time()), partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush()


def consume(address: str, count: int, client: JobClient, ends: dict[int, float]) -> list[Way]:
    """Read what was committed, and take note of when checkpoints were complete."""
    settings = {"bootstrap.servers": address, "group.id": "readers", "fetch.wait.max.ms": 10}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([COUNTS])
    ways: list[Way] = []
    last = time.monotonic()
    while len(ways) < count:
        for message in consumer.consume(1000, 0.05):
            produced, read = message.value().decode().split(",")
            ways.append(Way(float(produced), float(read), time.time()))
            last = time.monotonic()
        for each in client.get_checkpoints():
            if each.end_timestamp is not None and not each.failure:
                ends[each.id] = each.end_timestamp / 1000
        if time.monotonic() - last > PATIENCE:
            raise SystemExit(f"{len(ways)} of {count} records came, and then none for a minute")
    consumer.close()
    return ways


def parts(way: Way, epochs: Sequence[float], checkpoints: Sequence[float]) -> dict[str, float]:
    """How long each part of a way took; the ends of epochs and of checkpoints are sorted."""
    epoch = _next(epochs, way.read, way.consumed)
    checkpoint = _next(checkpoints, epoch, way.consumed)
    return {
        "poll": way.read - way.produced,
        "epoch": epoch - way.read,
        "checkpoint": checkpoint - epoch,
        "commit": way.consumed - checkpoint,
        "latency": way.consumed - way.produced,
    }


def _next(times: Sequence[float], after: float, otherwise: float) -> float:
    place = bisect_left(times, after)
    return min(times[place], otherwise) if place < len(times) else otherwise


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    with broker(task.directory, 0) as running:
        client = build(task, running.address).execute_async("kafka latency")
        producing = threading.Thread(target=produce, args=(running.address, task.records))
        producing.start()
        ends: dict[int, float] = {}
        ways = consume(running.address, task.records, client, ends)
        producing.join()
        epochs = sorted(e["started"] + e["seconds"] for e in holdfast_epochs(client))
        client.cancel().result()
    ways = sorted(ways)[round(len(ways) * WARM_UP) :]
    found = [parts(way, epochs, sorted(ends.values())) for way in ways]
    figures = {f"{name}_median": median(each[name] for each in found) for name in found[0]}
    figures["latency_p99"] = quantiles([each["latency"] for each in found], n=100)[98]
    emit(Measurement(records=task.records, figures=figures))


if __name__ == "__main__":
    main()
