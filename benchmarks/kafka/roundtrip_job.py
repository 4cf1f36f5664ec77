"""From Kafka to a keyed count to Kafka: how long a record takes, from producer to consumer.

The task's number is that of the seconds. The variant is ``at-least-once``, or ``exactly-once`` with
a checkpoint every 100 ms. The consumer reads committed records only, in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.engines.jobs import await_condition, checkpointed
from benchmarks.engines.percentiles import percentiles
from benchmarks.kafka.load import round_trips
from benchmarks.kafka.topics import COUNTS, RECORDS, broker
from benchmarks.measure import Measurement, emit
from benchmarks.program import Task, parse_task
from holdfast.common import JobStatus, SimpleStringSchema, Types, WatermarkStrategy
from holdfast.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from holdfast.datastream.state import ValueStateDescriptor

#: Milliseconds between two checkpoints, by variant.
CHECKPOINTS_MS = {"at-least-once": 1000, "exactly-once": 100}
GUARANTEES = {
    "at-least-once": DeliveryGuarantee.AT_LEAST_ONCE,
    "exactly-once": DeliveryGuarantee.EXACTLY_ONCE,
}


class CountLines(KeyedProcessFunction):
    """Puts the count of its key into each line."""

    def open(self, context: RuntimeContext) -> None:
        """Get hold of the state."""
        self._count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Iterator[str]:
        """Count a line."""
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        key, _, produced = value.partition(",")
        yield f"{key},{count},{produced}"


def build(task: Task, address: str) -> StreamExecutionEnvironment:
    """The job: it runs until it is cancelled."""
    env = checkpointed(task, CHECKPOINTS_MS[task.variant])
    source = KafkaSource.builder().set_bootstrap_servers(address).set_topics(RECORDS)
    source.set_group_id("roundtrip").set_value_only_deserializer(SimpleStringSchema())
    schema = KafkaRecordSerializationSchema.builder().set_topic(COUNTS)
    schema.set_value_serialization_schema(SimpleStringSchema())
    sink = KafkaSink.builder().set_bootstrap_servers(address).set_record_serializer(schema.build())
    sink.set_delivery_guarantee(GUARANTEES[task.variant])
    if task.variant == "exactly-once":
        sink.set_transactional_id_prefix("roundtrip")
    lines = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "Kafka")
    counted = lines.key_by(lambda line: line.partition(",")[0]).process(CountLines())
    counted.sink_to(sink.build())
    return env


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    with broker(task.directory, 0) as running:
        client = build(task, running.address).execute_async("kafka round trip")
        await_condition(
            client, lambda: client.get_job_status().result() is JobStatus.RUNNING, "it ran"
        )
        figures = percentiles(round_trips(running.address, task.records))
        client.cancel().result()
    emit(Measurement(records=task.records, figures=figures))


if __name__ == "__main__":
    main()
