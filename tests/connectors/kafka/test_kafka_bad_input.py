"""What goes wrong with Kafka is said in a clear message, or dealt with as configured."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from holdfast.common import SimpleStringSchema, Types, WatermarkStrategy
from holdfast.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from holdfast.datastream.connectors.kafka import (
    BadRecords,
    KafkaConnectorError,
    KafkaOffsetsInitializer,
    KafkaRecord,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
)
from holdfast.datastream.connectors.kafka import planner as _kafka_planner
from holdfast.errors import JobDefinitionError, UserFunctionError
from holdfast.testing import LocalExecutor
from tests.kafka import Kafka

pytestmark = pytest.mark.spark

LATEST = KafkaOffsetsInitializer.latest()


def builder(kafka: Kafka, *topics: str) -> KafkaSourceBuilder:
    made = KafkaSource.builder().set_bootstrap_servers(kafka.address)
    made.set_value_only_deserializer(SimpleStringSchema())
    return made.set_topics(*topics) if topics else made


def stream_of(source: KafkaSourceBuilder, strategy: Any = None) -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    env.enable_checkpointing(3_600_000)
    return env.from_source(source.build(), strategy, "orders").uid("kafka")


def test_a_message_that_does_not_decode_fails_the_job_with_its_place(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["good", b"\xff bad"])
    expected = (
        rf"message at offset 1 of partition 0 of topic '{topic}' does not decode with "
        r"SimpleStringSchema: UnicodeDecodeError: .*its value is b'\\xff bad'. set_bad_records"
    )
    with LocalExecutor(stream_of(builder(kafka, topic))) as run:
        with pytest.raises(UserFunctionError, match=expected) as caught:
            run.epoch()
        assert caught.value.operator == "Source: orders"


def test_messages_that_do_not_decode_are_skipped_and_counted_if_told_so(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["a", b"\xff", "b", b"\xfe", "c"])
    source = builder(kafka, topic).set_bad_records(BadRecords.SKIP)
    with LocalExecutor(stream_of(source)) as run:
        run.epoch()
        assert run.records == ["a", "b", "c"]
        assert run.metrics["kafka", 0]["numRecordsInErrors"] == 2


def test_messages_that_do_not_decode_go_to_a_side_output_if_told_so(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["1", b"\xff", "2"], keys=["k", "l", "m"], timestamps=[1, 2, 3])
    dead = OutputTag("dead", Types.PICKLED_BYTE_ARRAY())
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda value, stamp: int(value)  # would fail on a dead letter
    )
    stream = stream_of(builder(kafka, topic).set_bad_records(dead), strategy)
    letters = stream.get_side_output(dead).map(lambda letter: letter)
    with LocalExecutor(letters.union(stream)) as run:
        run.epoch()
    letter = next(record for record in run.records if isinstance(record, KafkaRecord))
    assert letter[:-1] == (topic, 0, 1, 2, b"l", b"\xff", ())
    assert letter.error is not None
    assert letter.error.startswith("UnicodeDecodeError: ")
    assert sorted(record for record in run.records if record is not letter) == ["1", "2"]


def test_a_topic_or_partition_that_does_not_exist(kafka: Kafka) -> None:
    topic = kafka.topic()
    with (
        LocalExecutor(stream_of(builder(kafka, topic, "nowhere"))) as run,
        pytest.raises(
            KafkaConnectorError, match=f"no topic 'nowhere'; .*Topics there are: .*{topic}"
        ),
    ):
        run.epoch()
    fifth = builder(kafka).set_partitions({KafkaTopicPartition(topic, 5)})
    with (
        LocalExecutor(stream_of(fifth)) as run,
        pytest.raises(KafkaConnectorError, match=r"no partition 5 of topic .* has 1 partitions"),
    ):
        run.epoch()


def test_an_offset_that_is_gone(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [str(number) for number in range(10)])
    with LocalExecutor(stream_of(builder(kafka, topic)), quota=2) as run:
        run.epoch(checkpoint=True)
        kafka.delete_before(topic, 0, 7)
        run.recover()
        expected = (
            rf"partition 0 of topic '{topic}' has no offset 2 any more, .* offsets 7 to 10.*"
            "auto.offset.reset"
        )
        with pytest.raises(KafkaConnectorError, match=expected):
            run.epoch()
    source = builder(kafka, topic).set_property("auto.offset.reset", "earliest")
    source.set_starting_offsets(KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 2}))
    with LocalExecutor(stream_of(source.set_bounded(LATEST))) as run:
        run.run_to_end()
        assert run.records == ["7", "8", "9"]


def test_a_group_without_offsets_and_a_source_without_a_group(kafka: Kafka) -> None:
    topic = kafka.topic()
    source = builder(kafka, topic)
    source.set_starting_offsets(KafkaOffsetsInitializer.committed_offsets())
    with (
        LocalExecutor(stream_of(source)) as run,
        pytest.raises(KafkaConnectorError, match=r"has no group; set_group_id\(...\)"),
    ):
        run.epoch()
    with (
        LocalExecutor(stream_of(source.set_group_id("nobody"))) as run,
        pytest.raises(KafkaConnectorError, match="no committed offset for it; give an offset"),
    ):
        run.epoch()


def test_a_broker_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kafka_planner, "PATIENCE", 0.5)
    source = KafkaSource.builder().set_bootstrap_servers("127.0.0.1:1").set_topics("t")
    source.set_value_only_deserializer(SimpleStringSchema())
    with (
        LocalExecutor(stream_of(source)) as run,
        pytest.raises(KafkaConnectorError, match=r"Kafka at 127.0.0.1:1 does not answer: "),
    ):
        run.epoch()


def test_a_broker_goes_away_and_comes_back(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["before"])
    with LocalExecutor(stream_of(builder(kafka, topic))) as run:
        run.epoch()
        kafka.broker.kill()
        run.epoch()  # nothing new, but the job lives on
        run.epoch(checkpoint=True)
        assert caplog.text.count("nothing new is read until Kafka answers again") == 1
        kafka.broker.start()
        kafka.produce(topic, ["after"])
        run.run_until(lambda: run.records == ["before", "after"])
        assert caplog.text.count("Kafka answers again") >= 1


def test_a_broker_goes_away_in_the_middle_of_an_epoch(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [f"{number:0999}" for number in range(20_000)])
    source = builder(kafka, topic).set_property("default.api.timeout.ms", "1000")
    # so that the client cannot have it all at once
    source.set_property("queued.min.messages", "1").set_property("fetch.message.max.bytes", "2000")
    source.set_property("queued.max.messages.kbytes", "1")
    stream = stream_of(source).map(_EndsTheBroker(kafka))
    with LocalExecutor(stream) as run:
        with pytest.raises(KafkaConnectorError, match="has not given a record for 1 s, though"):
            run.epoch()
        kafka.broker.start()
        run.epoch()
        assert run.records == [f"{number:0999}" for number in range(20_000)]


class _EndsTheBroker:
    """At its first record, and only once."""

    def __init__(self, kafka: Kafka) -> None:
        _brokers.append(kafka)

    def __call__(self, value: str) -> str:
        if _brokers:
            _brokers.pop().broker.kill()
        return value


_brokers: list[Kafka] = []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (KafkaSource.builder(), "where brokers are; call set_bootstrap_servers"),
        (KafkaSource.builder().set_bootstrap_servers("x"), "what to read; call set_topics"),
        (
            KafkaSource.builder().set_bootstrap_servers("x").set_topics("t"),
            "how messages decode; call set_value_only_deserializer",
        ),
    ],
    ids=["servers", "topics", "deserializer"],
)
def test_what_is_missing_is_said_at_once(source: KafkaSourceBuilder, expected: str) -> None:
    with pytest.raises(JobDefinitionError, match=expected):
        source.build()


def test_topics_and_a_pattern_at_once() -> None:
    with pytest.raises(JobDefinitionError, match="reads topics, a pattern or partitions"):
        KafkaSource.builder().set_topics("a").set_topic_pattern("b")


def test_a_property_that_the_client_does_not_know(kafka: Kafka) -> None:
    source = builder(kafka, kafka.topic()).set_property("no.such.thing", "1")
    with pytest.raises(JobDefinitionError, match=r'does not take .*"no\.such\.thing"'):
        LocalExecutor(stream_of(source))


def test_the_package_for_kafka_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(JobDefinitionError, match=r"pip install 'holdfast\[kafka\]'"):
        KafkaSource.builder().build()
