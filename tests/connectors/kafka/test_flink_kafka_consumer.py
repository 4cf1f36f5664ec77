"""``FlinkKafkaConsumer``: offsets in union list state, committed as the mode says."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Configuration, SimpleStringSchema
from holdfast.datastream import DataStream, StreamExecutionEnvironment
from holdfast.datastream.connectors.kafka import FlinkKafkaConsumer, OffsetCommitMode
from holdfast.datastream.connectors.kafka import flink_consumer as _flink_kafka_consumer
from holdfast.testing import LocalExecutor
from tests.kafka import Kafka, texts, wait_for

pytestmark = pytest.mark.spark

#: in seconds: the connector itself waits a minute for a broker that is silent
PATIENCE = 240


class UpTo(SimpleStringSchema):
    """Ends the stream before this record."""

    def __init__(self, last: str) -> None:
        super().__init__()
        self._last = last

    def is_end_of_stream(self, next_element: str) -> bool:
        return next_element == self._last


def consumer(kafka: Kafka, topic: str, group: str = "consumers", **more: str) -> FlinkKafkaConsumer:
    properties = {"bootstrap.servers": kafka.address, "group.id": group}
    properties |= {key.replace("_", "."): value for key, value in more.items()}
    with pytest.deprecated_call():
        return FlinkKafkaConsumer(topic, UpTo("end"), properties)


def stream_of(
    source: FlinkKafkaConsumer, parallelism: int = 1, settings: dict[str, str] | None = None
) -> DataStream:
    configuration = Configuration()
    for key, value in (settings or {}).items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism).enable_checkpointing(3_600_000)
    return env.add_source(source).uid("kafka")


def test_it_goes_on_from_its_offsets_with_another_parallelism(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic(3)
    for partition in range(3):
        kafka.produce(topic, texts(f"{partition}-", 20), partition)
    caplog.set_level(logging.INFO, "holdfast")
    with LocalExecutor(stream_of(consumer(kafka, topic).set_start_from_earliest())) as run:
        run.run_until(lambda: len(run.records) == 60, PATIENCE)
        point = run.savepoint(tmp_path, stop=True)
        first = run.records
    nothing = "Consumer subtask 0 has no restore state."
    assert [r.getMessage() for r in caplog.records if "restore" in r.getMessage()] == [nothing]
    caplog.clear()
    kafka.add_partitions(topic, 4)
    for partition in range(4):
        kafka.produce(topic, texts(f"later-{partition}-", 3), partition)
    restored = {"execution.state-recovery.path": point}
    again = stream_of(consumer(kafka, topic).set_start_from_latest(), 2, restored)
    with LocalExecutor(again) as run:
        run.run_until(lambda: len(run.records) == 12, PATIENCE)
    assert sorted(first) == sorted(t for p in range(3) for t in texts(f"{p}-", 20))
    assert sorted(run.records) == sorted(t for p in range(4) for t in texts(f"later-{p}-", 3))
    assert "restore state" not in caplog.text


def test_offsets_are_committed_with_checkpoints_and_a_crash_repeats_nothing(kafka: Kafka) -> None:
    topic, group = kafka.topic(), "consumers-on-checkpoints"
    kafka.produce(topic, texts("", 10))
    with LocalExecutor(stream_of(consumer(kafka, topic, group).set_start_from_earliest())) as run:
        run.run_until(lambda: len(run.records) == 10, PATIENCE)
        run.epoch(checkpoint=True)
        assert kafka.committed(group, topic) == [None]
        run.epoch()
        wait_for(lambda: kafka.committed(group, topic) == [10])
        kafka.produce(topic, ["10", "11", "end"])
        run.recover()
        run.run_to_end()
    assert run.records == texts("", 12)


def test_a_group_goes_on_where_it_was(kafka: Kafka) -> None:
    topic, group = kafka.topic(), "consumers-again"
    kafka.produce(topic, ["old"])
    with LocalExecutor(stream_of(consumer(kafka, topic, group).set_start_from_latest())) as run:
        run.epoch(checkpoint=True)
        run.epoch()
        wait_for(lambda: kafka.committed(group, topic) == [1])
    kafka.produce(topic, ["new", "end"])
    with LocalExecutor(stream_of(consumer(kafka, topic, group))) as run:
        run.run_to_end()
    assert run.records == ["new"]


def test_nothing_is_committed_when_that_is_switched_off(kafka: Kafka) -> None:
    topic, group = kafka.topic(), "consumers-off"
    kafka.produce(topic, ["a", "b", "end"])
    source = consumer(kafka, topic, group).set_start_from_timestamp(0)
    source.set_commit_offsets_on_checkpoints(False)
    with LocalExecutor(stream_of(source)) as run:
        run.run_until(lambda: len(run.records) == 2, PATIENCE)
        run.epoch(checkpoint=True)
        run.epoch()
        run.run_to_end()
    assert kafka.committed(group, topic) == [None]


def test_without_checkpoints_it_commits_now_and_then(kafka: Kafka) -> None:
    topic, group = kafka.topic(), "consumers-periodic"
    kafka.produce(topic, texts("", 5))
    source = consumer(kafka, topic, group, auto_commit_interval_ms="0").set_start_from_earliest()
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    with LocalExecutor(env.add_source(source)) as run:
        run.run_until(lambda: kafka.committed(group, topic) == [5], PATIENCE)


@pytest.mark.parametrize(
    ("automatic", "on_checkpoints", "checkpointing", "expected"),
    [
        (True, True, True, OffsetCommitMode.ON_CHECKPOINTS),
        (True, False, True, OffsetCommitMode.DISABLED),
        (True, True, False, OffsetCommitMode.KAFKA_PERIODIC),
        (False, True, False, OffsetCommitMode.DISABLED),
    ],
)
def test_the_commit_mode(
    automatic: bool, on_checkpoints: bool, checkpointing: bool, expected: OffsetCommitMode
) -> None:
    found = OffsetCommitMode.from_configuration(automatic, on_checkpoints, checkpointing)
    assert found is expected


def test_offsets_wait_for_no_more_than_a_number_of_checkpoints(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_flink_kafka_consumer, "MAX_NUM_PENDING_CHECKPOINTS", 2)
    topic = kafka.topic()
    kafka.produce(topic, ["end"])
    with LocalExecutor(stream_of(consumer(kafka, topic).set_start_from_latest())) as run:
        run.epoch()
        (thread,) = run._engine.sources._loops.values()
        function: Any = thread._loop._function
        pending = function._pending
        for checkpoint in range(5):
            pending[checkpoint - 10] = {}
        run.epoch(checkpoint=True)
        assert list(function._pending) == [-6, 1]
