"""The Kafka source, with a real broker: what it reads, where it begins and where it stops."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.common import SimpleStringSchema, WatermarkStrategy
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecord,
    KafkaRecordDeserializationSchema,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
)
from holdfast.testing import LocalExecutor, collect
from holdfast.torture.bounding import bounded
from holdfast.torture.comparing import Guarantee
from holdfast.torture.environment import environment_for
from holdfast.torture.order import Order, write_order
from holdfast.torture.reading import read_contents
from tests.kafka import Kafka, texts
from tests.torture.agents import agents_ended

pytestmark = pytest.mark.spark

LATEST = KafkaOffsetsInitializer.latest()


def builder(kafka: Kafka, *topics: str) -> KafkaSourceBuilder:
    made = KafkaSource.builder().set_bootstrap_servers(kafka.address)
    made.set_value_only_deserializer(SimpleStringSchema())
    return made.set_topics(*topics) if topics else made


def read(source: KafkaSourceBuilder, parallelism: int = 2, **options: Any) -> list[Any]:
    """All records of a source that stops."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    stream = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "Kafka")
    with LocalExecutor(stream, **options) as run:
        run.run_to_end()
        return run.records


def test_all_partitions_of_topics_are_read_each_in_its_order(kafka: Kafka) -> None:
    orders, payments = kafka.topic(3), kafka.topic(1)
    for partition in range(3):
        kafka.produce(orders, texts(f"o{partition}-", 50), partition)
    kafka.produce(payments, texts("p", 20))
    found = read(builder(kafka, orders, payments).set_bounded(LATEST), quota=30)
    for prefix, count in (("o0-", 50), ("o1-", 50), ("o2-", 50), ("p", 20)):
        assert [r for r in found if r.startswith(prefix)] == texts(prefix, count)
    assert len(found) == 170


def test_topics_by_pattern_and_partitions_by_name(kafka: Kafka) -> None:
    first, second, other = kafka.topic(prefix="pat-a"), kafka.topic(prefix="pat-b"), kafka.topic(2)
    kafka.produce(first, ["a"])
    kafka.produce(second, ["b"])
    kafka.produce(other, ["no"], 0)
    kafka.produce(other, ["yes"], 1)
    by_pattern = builder(kafka).set_topic_pattern("pat-[ab]-.*").set_bounded(LATEST)
    assert sorted(read(by_pattern)) == ["a", "b"]
    by_name = builder(kafka).set_partitions({KafkaTopicPartition(other, 1)}).set_bounded(LATEST)
    assert read(by_name) == ["yes"]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        pytest.param(lambda topic: KafkaOffsetsInitializer.earliest(), [0, 1, 2, 3], id="earliest"),
        pytest.param(lambda topic: KafkaOffsetsInitializer.latest(), [], id="latest"),
        pytest.param(lambda topic: KafkaOffsetsInitializer.timestamp(2000), [2, 3], id="timestamp"),
        pytest.param(lambda topic: KafkaOffsetsInitializer.timestamp(9000), [], id="future"),
        pytest.param(
            lambda topic: KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 3}),
            [3],
            id="offsets",
        ),
        pytest.param(
            lambda topic: KafkaOffsetsInitializer.committed_offsets(
                KafkaOffsetResetStrategy.EARLIEST
            ),
            [0, 1, 2, 3],
            id="not committed",
        ),
    ],
)
def test_where_it_begins(
    kafka: Kafka, start: Callable[[str], KafkaOffsetsInitializer], expected: list[int]
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, texts("", 4), timestamps=[1, 1000, 2000, 3000])
    source = builder(kafka, topic).set_group_id(f"group of {topic}").set_bounded(LATEST)
    assert read(source.set_starting_offsets(start(topic))) == [str(n) for n in expected]


def test_it_stops_at_given_offsets_and_goes_no_further(kafka: Kafka) -> None:
    topic = kafka.topic(2)
    kafka.produce(topic, texts("a", 10), 0)
    kafka.produce(topic, texts("b", 10), 1)
    stop = KafkaOffsetsInitializer.offsets(
        {KafkaTopicPartition(topic, 0): 3, KafkaTopicPartition(topic, 1): 0}
    )
    assert read(builder(kafka, topic).set_unbounded(stop)) == texts("a", 3)


class Everything(KafkaRecordDeserializationSchema):
    def deserialize(self, record: KafkaRecord) -> Iterable[Any]:
        yield record.key, record.value, record.timestamp, record.offset
        if record.value is None:
            yield "tombstone"


def test_a_record_deserializer_sees_the_whole_message(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["v", None], keys=["k", "l"], timestamps=[7, 8])
    source = KafkaSource.builder().set_bootstrap_servers(kafka.address).set_topics(topic)
    found = read(source.set_deserializer(Everything()).set_bounded(LATEST))
    assert found == [(b"k", b"v", 7, 0), (b"l", None, 8, 1), "tombstone"]


def test_a_message_without_a_value_is_left_out(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["a", None, "b"])
    assert read(builder(kafka, topic).set_bounded(LATEST)) == ["a", "b"]


# Under `holdfast torture`


def test_a_tortured_source_reads_the_same_in_every_run(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic(2)
    kafka.produce(topic, texts("a", 10), 0)
    kafka.produce(topic, texts("b", 3), 1)
    source = builder(kafka, topic).set_group_id("readers").build()
    order = Order(str(tmp_path / "run"), str(tmp_path), "run", "job.py")
    first = bounded(source, order, "source")
    few = bounded(source, msgspec.structs.replace(order, records=8), "few")
    kafka.produce(topic, ["later"], 1)
    for (made, counted), expected in (
        (first, [*texts("a", 10), *texts("b", 3)]),
        (bounded(source, order, "source"), [*texts("a", 10), *texts("b", 3)]),
        (few, [*texts("a", 10)[:4], *texts("b", 3)]),
    ):
        assert isinstance(made, KafkaSource)
        assert counted is None
        assert not made.commits_on_checkpoints
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
        stream = env.from_source(made, WatermarkStrategy.no_watermarks(), "Kafka")
        assert sorted(collect(stream)) == sorted(expected)


def test_a_tortured_sink_has_topics_of_its_own(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic(3)
    order = Order(str(tmp_path / "run"), str(tmp_path), "run", "job.py")
    write_order(order)
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    schema.set_value_serialization_schema(SimpleStringSchema())
    sink = KafkaSink.builder().set_bootstrap_servers(kafka.address)
    sink.set_record_serializer(schema.build())
    sink.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
    env = environment_for(order)().set_parallelism(2)
    env.from_collection(texts("x", 20)).sink_to(sink.build())
    with agents_ended(tmp_path / "run"):
        with LocalExecutor(env) as run:
            run.run_to_end()
        (found,) = read_contents(order).values()
    assert found.guarantee is Guarantee.AT_LEAST_ONCE
    assert sorted(found.records) == sorted(f"{topic}:  = {text}" for text in texts("x", 20))
    assert kafka.values(topic) == []
    (other,) = [name for name in kafka.admin.list_topics().topics if name.startswith(f"{topic}-")]
    assert len(kafka.ends(other)) == 3
