"""The Kafka source in batches, with a real broker: positions, event time, dead letters."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from holdfast.common import Time, Types, WatermarkStrategy
from holdfast.datastream import BatchTypeInfo, OutputTag, StreamExecutionEnvironment
from holdfast.datastream.columns.aggregates import count, sum_
from holdfast.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from holdfast.datastream.formats.json import JsonRowDeserializationSchema
from holdfast.datastream.window import TumblingEventTimeWindows
from holdfast.testing import LocalExecutor
from tests.kafka import Kafka

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64()), ("at", pa.int64())])
DEAD = OutputTag("dead", Types.PICKLED_BYTE_ARRAY())


@pytest.mark.parametrize("column", ["at", None], ids=["by a column", "of Kafka"])
def test_windows_over_a_topic(kafka: Kafka, column: str | None) -> None:
    """Each message counts once after a restart; time is that of a column, or of the messages."""
    topic = kafka.topic(2)
    times = [1000 * number for number in range(60)]
    for partition in range(2):
        orders = [{"user": f"u{n % 3}", "amount": n, "at": at} for n, at in enumerate(times)]
        kafka.produce(
            topic,
            [json.dumps(order) for order in orders],
            partition,
            timestamps=[t + 1 for t in times],
        )
    kafka.produce(topic, ["no JSON"], 0, timestamps=[60_000])
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(kafka.address)
        .set_topics(topic)
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(JsonRowDeserializationSchema())
        .set_bad_records(DEAD)
        .as_batches(SCHEMA)
        .build()
    )
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    if column is not None:
        strategy = strategy.with_timestamp_assigner(column)
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.enable_checkpointing(3_600_000)
    stream = env.from_source(source, strategy, "orders")
    assert stream.get_type() == BatchTypeInfo(SCHEMA)
    windows = stream.key_by("user").window_batches(
        TumblingEventTimeWindows.of(Time.seconds(30)), {"n": count(), "sum": sum_("amount")}
    )
    assert [node.kind for node in env._graph.pending()] == ["source", "window_batches"]
    letters = stream.get_side_output(DEAD).map(lambda letter: letter.offset)
    with LocalExecutor(windows.map(tuple).union(letters), quota=10, workers=2) as run:
        run.epoch(checkpoint=True)
        run.epoch()
        run.recover()
        run.run_to_end()
    found = [record for record in run.records if isinstance(record, tuple)]
    assert sorted(found) == sorted(
        (
            f"u{user}",
            30_000 * half,
            30_000 * (half + 1),
            20,
            2 * sum(range(30 * half + user, 30 * (half + 1), 3)),
        )
        for user in range(3)
        for half in range(2)
    )
    assert [record for record in run.records if record not in found] == [60]
