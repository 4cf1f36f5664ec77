"""The verifying job from Kafka to Kafka: its output topic says if anything was lost or doubled.

    topic of numbers ── sums by key (keyed state) ── topic of sums, exactly once

``verify`` knows nothing of the job: it recomputes everything from the numbers, and reads what a
consumer of committed records sees. As a program it runs the job on Spark, in a folder: ``python -m
tests.recovery.kafka_verifying FOLDER SERVERS NUMBERS SUMS``. Started again, it goes on.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from holdfast.common import Configuration, RestartStrategies, SimpleStringSchema, WatermarkStrategy
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from tests.kafka import Kafka
from tests.recovery.verifying import KEYS, Progress, Sums, holder


def make_job(
    folder: Path,
    servers: str,
    numbers: str,
    sums: str,
    epoch: int,
    spark: dict[str, str],
) -> StreamExecutionEnvironment:
    """The job; it ends with the numbers that are there when it starts first, unless it is held."""
    configuration = Configuration(
        {
            "holdfast.epoch.max-records": str(epoch),
            "execution.checkpointing.dir": str(folder / "checkpoints"),
            **spark,
        }
    )
    env = StreamExecutionEnvironment(configuration)
    env.set_parallelism(2).set_buffer_timeout(0).enable_checkpointing(300)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1_000, 0))
    source = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(numbers)
    source.set_group_id(f"{numbers}-readers").set_value_only_deserializer(SimpleStringSchema())
    source.set_starting_offsets(KafkaOffsetsInitializer.earliest())
    source.set_bounded(KafkaOffsetsInitializer.latest())
    read = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "numbers")
    counted = read.map(int).union(holder(env, folder)).map(Progress(folder / "progress"))
    results = counted.key_by(lambda number: number % KEYS).process(Sums()).map(json.dumps)
    schema = KafkaRecordSerializationSchema.builder().set_topic(sums)
    schema.set_value_serialization_schema(SimpleStringSchema())
    sink = KafkaSink.builder().set_bootstrap_servers(servers)
    sink.set_record_serializer(schema.build()).set_transactional_id_prefix(sums)
    results.sink_to(sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build())
    return env


def verify(kafka: Kafka, sums: str, numbers: int) -> None:
    """Compare what a finished job left behind with what must be there."""
    found = [json.loads(value) for value in kafka.values(sums)]
    assert Counter(number for number, _, _ in found) == Counter(range(numbers)), (
        "each number once in the output"
    )
    for key in range(KEYS):
        steps = sorted((count, total, n) for n, count, total in found if n % KEYS == key)
        running = 0
        for place, (count, total, number) in enumerate(steps, 1):
            running += number
            assert (count, total) == (place, running), f"each number once in the state of key {key}"


def main() -> None:
    """Run the job on Spark, to its end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name in ("servers", "numbers", "sums"):
        parser.add_argument(name)
    parser.add_argument("--epoch", type=int, default=10)
    parser.add_argument("--spark", action="append", default=[], type=lambda s: s.split("=", 1))
    given = vars(parser.parse_args())
    make_job(**{**given, "spark": dict(given["spark"])}).execute("kafka-verifying")


if __name__ == "__main__":
    main()
