"""Event time of the Kafka source: a watermark and idleness for each partition; transactions."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from holdfast.common import Duration, SimpleStringSchema, WatermarkStrategy
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaSourceBuilder,
)
from holdfast.testing import LocalExecutor, ManualClock
from tests.kafka import LONGEST, Kafka

pytestmark = pytest.mark.spark


def builder(kafka: Kafka, topic: str) -> KafkaSourceBuilder:
    made = KafkaSource.builder().set_bootstrap_servers(kafka.address).set_topics(topic)
    return made.set_value_only_deserializer(SimpleStringSchema())


def started(
    source: KafkaSourceBuilder, strategy: WatermarkStrategy, parallelism: int = 1, **options: Any
) -> LocalExecutor:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    stream = env.from_source(source.build(), strategy, "Kafka").uid("kafka")
    return LocalExecutor(stream.map(str).uid("after"), **options)


def watermark(run: LocalExecutor, subtask: int = 0) -> int | None:
    return run._book.watermarks.get(("after", subtask))


def test_time_waits_for_the_slowest_partition(kafka: Kafka) -> None:
    topic = kafka.topic(2)
    kafka.produce(topic, ["a", "b"], 0, timestamps=[1000, 5000])
    # a generator for both together would be at 5000, and take these for late
    kafka.produce(topic, ["c", "d"], 1, timestamps=[1000, 2000])
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    with started(builder(kafka, topic), strategy, workers=2) as run:
        run.epoch()
        assert watermark(run) == 1999
        kafka.produce(topic, ["e"], 1, timestamps=[7000])
        run.epoch()
        assert watermark(run) == 4999


def test_a_partition_without_records_holds_time_up_until_it_is_idle(kafka: Kafka) -> None:
    topic, clock = kafka.topic(2), ManualClock()
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    source = builder(kafka, topic)
    with started(
        source, strategy.with_idleness(Duration.of_seconds(10)), clock=clock, workers=2
    ) as run:
        for stamp in (1000, 2000, 3000):
            kafka.produce(topic, ["x"], 0, timestamps=[stamp])
            run.epoch()
            clock.advance(4000)
        assert watermark(run) is None
        kafka.produce(topic, ["x"], 0, timestamps=[4000])
        run.epoch()
        assert watermark(run) == 3999
        kafka.produce(topic, ["y"], 1, timestamps=[3500])  # active again, and behind
        kafka.produce(topic, ["x"], 0, timestamps=[9000])
        run.epoch()
        assert watermark(run) == 3999


def test_a_subtask_without_partitions_holds_nobody_up(kafka: Kafka) -> None:
    topic = kafka.topic(1)
    kafka.produce(topic, ["a"], timestamps=[1000])
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(3)
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    stream = env.from_source(builder(kafka, topic).build(), strategy, "Kafka")
    after = stream.key_by(lambda value: value).map(str).uid("after")
    with LocalExecutor(after) as run:
        run.epoch()
        assert {watermark(run, subtask) for subtask in range(3)} == {999}


def test_only_what_was_committed_is_read_and_marks_of_transactions_hold_nothing_up(
    kafka: Kafka,
) -> None:
    topic = kafka.topic()
    producer = Producer({**kafka.settings(), "transactional.id": topic})
    producer.init_transactions(LONGEST)
    for number in range(6):
        producer.begin_transaction()
        for value in "xyz":
            producer.produce(topic, f"{number}{value}")
        # NB: an abort must not overtake the request that begins the transaction at the broker
        assert producer.flush(LONGEST) == 0
        if number % 2:
            producer.abort_transaction(LONGEST)
        else:
            producer.commit_transaction(LONGEST)
    expected = [f"{number}{value}" for number in (0, 2, 4) for value in "xyz"]
    source = builder(kafka, topic).set_bounded(KafkaOffsetsInitializer.latest())
    with started(source, WatermarkStrategy.no_watermarks(), quota=4) as run:
        run.run_to_end()
        assert run.records == expected
    producer.begin_transaction()
    producer.produce(topic, "open")
    producer.flush(LONGEST)
    with started(builder(kafka, topic), WatermarkStrategy.no_watermarks()) as run:
        run.epoch()
        run.epoch()
        assert run.records == expected
        producer.commit_transaction(LONGEST)
        run.run_until(lambda: run.records == [*expected, "open"])


def test_aligned_partitions_wait_for_the_slowest_and_not_for_one_that_has_ended(
    kafka: Kafka,
) -> None:
    topic = kafka.topic(2)
    kafka.produce(topic, ["fast"] * 6_000, 0, timestamps=range(1, 60_001, 10))
    kafka.produce(topic, ["slow"] * 3_000, 1, timestamps=range(1, 3_001))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment("group", 1000)
    source = builder(kafka, topic).set_bounded(KafkaOffsetsInitializer.latest())
    with started(source, strategy, workers=2) as run:
        run.epoch()
        assert run.records.count("fast") <= 1_024
        while run.records.count("slow") < 3_000:
            run.epoch()
        # 3,000 of the slow ones span 3,000 ms; the fast ones 10 ms each
        assert run.records.count("fast") <= 300 + 100 + 1_024
        run.run_to_end()
        assert (run.records.count("fast"), run.records.count("slow")) == (6_000, 3_000)
