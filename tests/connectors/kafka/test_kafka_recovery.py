"""The Kafka source through crashes, rescaling and new partitions, and what its group is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Configuration, SimpleStringSchema, WatermarkStrategy
from holdfast.datastream import DataStream, StreamExecutionEnvironment
from holdfast.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaSourceBuilder,
)
from holdfast.datastream.connectors.kafka import reader as _kafka_reader
from holdfast.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    MapFunction,
)
from holdfast.testing import LocalExecutor
from holdfast.testing.worker import Worker
from tests.kafka import Kafka, texts, wait_for

pytestmark = pytest.mark.spark


def builder(kafka: Kafka, topic: str, group: str | None = None) -> KafkaSourceBuilder:
    made = KafkaSource.builder().set_bootstrap_servers(kafka.address).set_topics(topic)
    made.set_value_only_deserializer(SimpleStringSchema())
    return made if group is None else made.set_group_id(group)


def stream_of(
    source: KafkaSourceBuilder, parallelism: int = 1, settings: dict[str, str] | None = None
) -> DataStream:
    configuration = Configuration()
    for key, value in (settings or {}).items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism).set_max_parallelism(12)
    if "execution.checkpointing.interval" not in (settings or {}):
        env.enable_checkpointing(3_600_000)
    made = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "Kafka")
    return made.uid("kafka")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_that_is_run_again_reads_the_same_though_the_topic_has_grown(
    kafka: Kafka, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, written = kafka.topic(3), []
    run_once = Worker.run

    def grow_and_run(*arguments: Any) -> Any:
        for partition in range(3):
            written.append(f"{partition}: {len(written)}")
            kafka.produce(topic, written[-1:], partition)
        return run_once(*arguments)

    monkeypatch.setattr(Worker, "run", grow_and_run)
    stream = stream_of(builder(kafka, topic), 2).key_by(lambda text: text[0]).map(str)
    with LocalExecutor(stream, workers=workers, quota=4) as run:
        for number in range(6):
            run.epoch(rerun=True, kill=[(0, 1)] if number % 2 else [])
        monkeypatch.undo()
        while run.epoch().read:
            pass
    assert sorted(run.records) == sorted(written)


def test_after_a_crash_nothing_is_missing_and_nothing_comes_twice_in_the_state(
    kafka: Kafka,
) -> None:
    topic = kafka.topic(2)
    for partition in range(2):
        kafka.produce(topic, texts(f"{partition}-", 10), partition)
    source = builder(kafka, topic).set_bounded(KafkaOffsetsInitializer.latest())
    stream = stream_of(source, 2).key_by(len).reduce(lambda a, b: a + "," + b)
    with LocalExecutor(stream, quota=3, workers=2) as run:
        run.epoch(checkpoint=True)
        run.epoch()
        kafka.produce(topic, ["later"])  # beyond the end of a source that stops
        run.recover()
        run.run_to_end()
    final = run.records[-1].split(",")
    assert sorted(final) == sorted(texts("0-", 10) + texts("1-", 10))


def test_the_group_hears_of_offsets_when_a_checkpoint_is_complete_and_not_before(
    kafka: Kafka,
) -> None:
    topic, group = kafka.topic(2), "group-on-checkpoints"
    kafka.produce(topic, texts("", 10), 0)
    with LocalExecutor(stream_of(builder(kafka, topic, group)), quota=4) as run:
        run.epoch()
        run.epoch(checkpoint=True)
        assert kafka.committed(group, topic, 2) == [None, None]
        run.epoch()
        wait_for(lambda: kafka.committed(group, topic, 2) == [8, 0])
        assert run.metrics["kafka", 0]["pendingRecords"] == 0
    source = builder(kafka, topic, group).set_bounded(KafkaOffsetsInitializer.latest())
    source.set_starting_offsets(KafkaOffsetsInitializer.committed_offsets())
    with LocalExecutor(stream_of(source)) as run:
        run.run_to_end()
        assert run.records == ["8", "9"]
    assert kafka.committed(group, topic, 2) == [10, 0]


class CannotBeSavedAtFirst(MapFunction, CheckpointedFunction):
    def map(self, value: str) -> str:
        return value

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        pass

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        if context.get_checkpoint_id() == 1:
            raise OSError("no space left")


def test_nothing_is_committed_for_a_checkpoint_that_is_aborted(kafka: Kafka) -> None:
    topic, group = kafka.topic(), "group-aborted"
    kafka.produce(topic, texts("", 10))
    settings = {
        "execution.checkpointing.interval": "1 h",
        "execution.checkpointing.tolerable-failed-checkpoints": "5",
    }
    stream = stream_of(builder(kafka, topic, group), settings=settings)
    with LocalExecutor(stream.map(CannotBeSavedAtFirst()), quota=3) as run:
        run.epoch(checkpoint=True)
        run.epoch()
        run.epoch()
        assert [record.status.name for record in run.checkpoints] == ["FAILED"]
        assert kafka.committed(group, topic) == [None]
        run.epoch(checkpoint=True)
        run.epoch()
        wait_for(lambda: kafka.committed(group, topic) == [10])


def test_offsets_wait_for_no_more_than_a_number_of_checkpoints(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_kafka_reader, "MAX_NUM_PENDING_CHECKPOINTS", 3)
    reader = builder(kafka, "none", "group").build().create_reader(0, 1)
    reader.restore(({("t", 0): (5, None)}, {}, True))
    for checkpoint in range(1, 6):
        reader.snapshot_state(checkpoint)
    assert list(reader.position()[1]) == [3, 4, 5]
    reader.notify_checkpoint_aborted(4)
    assert list(reader.position()[1]) == [3, 5]


def test_without_checkpoints_the_group_hears_of_offsets_now_and_then_if_asked(
    kafka: Kafka,
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, texts("", 10))
    for group, wanted in (("group-periodic", "true"), ("group-silent", "false")):
        source = builder(kafka, topic, group).set_property("enable.auto.commit", wanted)
        source.set_property("auto.commit.interval.ms", "0")
        source.set_bounded(KafkaOffsetsInitializer.latest())
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        stream = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "Kafka")
        with LocalExecutor(stream) as run:
            run.run_to_end()
    assert kafka.committed("group-periodic", topic) == [10]
    assert kafka.committed("group-silent", topic) == [None]


def test_partitions_that_are_added_while_the_job_runs_are_found(kafka: Kafka) -> None:
    topic = kafka.topic(1)
    source = builder(kafka, topic).set_starting_offsets(KafkaOffsetsInitializer.latest())
    source.set_property("partition.discovery.interval.ms", "1")
    with LocalExecutor(stream_of(source, 2)) as run:
        run.epoch()
        kafka.add_partitions(topic, 3)
        kafka.produce(topic, ["new"], 2)
        run.run_until(lambda: run.records == ["new"])


def test_rescaling_from_one_to_three_to_two_with_partitions_added_in_between(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.topic(6)
    written = [0] * 8
    found: list[str] = []
    point: str | None = None
    for parallelism, partitions in ((1, 6), (3, 7), (2, 8)):
        if partitions > 6:
            kafka.add_partitions(topic, partitions)
        for partition in range(partitions):
            count = 5 + partition
            values = [f"{partition}:{written[partition] + n}" for n in range(count)]
            kafka.produce(topic, values, partition)
            written[partition] += count
        settings = {"execution.checkpointing.interval": "1 h"}
        if point is not None:
            settings["execution.state-recovery.path"] = point
        with LocalExecutor(stream_of(builder(kafka, topic), parallelism, settings)) as run:
            run.epoch(10)
            if partitions == 8:
                left = sum(written) - len(found)
                run.run_until(lambda: len(run.records) == left)  # noqa: B023
                assert _readers_with_partitions(run) == parallelism
            point = run.savepoint(tmp_path, stop=True)
            found += run.records
    assert sorted(found) == sorted(f"{p}:{n}" for p in range(8) for n in range(written[p]))
    for partition in range(8):
        own = [record for record in found if record.startswith(f"{partition}:")]
        assert own == [f"{partition}:{n}" for n in range(written[partition])]


def _readers_with_partitions(run: LocalExecutor) -> int:
    subtasks = [kept for worker in run._engine.workers for kept in worker._kept.values()]
    return sum(bool(source.splits) for kept in subtasks for source in kept._sources)


def test_a_group_that_has_committed_nothing_is_told_apart(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["a"])
    start = KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.LATEST)
    source = builder(kafka, topic, "group-new").set_starting_offsets(start)
    with LocalExecutor(stream_of(source.set_bounded(KafkaOffsetsInitializer.latest()))) as run:
        run.run_to_end()
        assert run.records == []
