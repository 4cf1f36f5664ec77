"""From Kafka to a keyed count to Kafka, exactly once."""

from __future__ import annotations

import time

from benchmarks.kafka.topics import COUNTS, RECORDS, broker
from benchmarks.measure import emit, measured
from benchmarks.own.epochs import epoch_marks, holdfast_epochs
from benchmarks.own.jobs import CountAndTotal, environment
from benchmarks.program import Task, parse_task
from benchmarks.records import Record
from holdfast.common import SimpleStringSchema, WatermarkStrategy
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)


def parsed(line: str) -> Record:
    """A record of its text."""
    user, amount, number = line.split(",")
    return user, float(amount), int(number)


def build(task: Task, address: str) -> StreamExecutionEnvironment:
    """The job; it takes a checkpoint as often as every other system does."""
    env = environment(task)
    env.enable_checkpointing(task.checkpoint * 1000)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(address)
        .set_topics(RECORDS)
        .set_group_id("pipeline")
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    results = KafkaRecordSerializationSchema.builder().set_topic(COUNTS)
    results.set_value_serialization_schema(SimpleStringSchema())
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(address)
        .set_record_serializer(results.build())
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("pipeline")
        .build()
    )
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "Kafka")
    totals = lines.map(parsed).key_by(lambda r: r[0]).process(CountAndTotal())
    totals.map(lambda r: f"{r[0]},{r[1]},{r[2]}").sink_to(sink)
    return env


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    with broker(task.directory, task.records) as running:
        started = time.time()
        client = build(task, running.address).execute_async("kafka pipeline")
        client.get_job_execution_result().result()
        emit(measured(epoch_marks(holdfast_epochs(client)), started))


if __name__ == "__main__":
    main()
