"""Readers of Kafka that run free, with a real broker: they read on beyond their plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from holdfast.datastream.connectors.base import EpochPlanner, SourceReader
from holdfast.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSourceBuilder
from holdfast.datastream.connectors.kafka.client import KafkaConnectorError
from holdfast.datastream.connectors.kafka.planner import KafkaPlan
from holdfast.metrics import MetricGroup
from tests.connectors.kafka.test_kafka_source import builder
from tests.kafka import LONGEST, Kafka, texts, wait_for

pytestmark = pytest.mark.spark


class Free:
    """One reader of all partitions, driven as a subtask drives it."""

    def __init__(self, source: KafkaSourceBuilder, position: Any = None) -> None:
        built = source.build()
        self.planner: EpochPlanner = built.create_planner(position is not None)
        self.planner.run_free()
        self.reader: SourceReader = built.create_reader(0, 1)
        self.metrics = MetricGroup()
        self.reader.open(self.metrics)
        self.reader.run_free()
        if position is not None:
            self.reader.restore(position)
        self.records: list[Any] = []
        self.follow()

    def follow(self) -> KafkaPlan:
        plan: KafkaPlan = self.planner.plan()
        self.reader.follow(plan)
        return plan

    def read(self, limit: int = 10_000) -> int:
        """Take what is there now."""
        got = [record for batch in self.reader.read(limit) for record, _ in batch]
        self.records += got
        return len(got)

    def read_until(self, reached: Callable[[], bool]) -> None:
        def read_and_see() -> bool:
            self.read()
            return reached()

        wait_for(read_and_see)

    def offsets(self) -> dict[int, int]:
        places, _, _ = self.reader.position()
        return {split[1]: place[0] for split, place in places.items()}

    def lag(self) -> Any:
        return self.metrics.snapshot()["pendingRecords"]

    def close(self) -> None:
        self.reader.close()
        self.planner.close()


@contextmanager
def transaction(kafka: Kafka) -> Iterator[Producer]:
    producer = Producer({**kafka.settings(), "transactional.id": f"free-{time.monotonic_ns()}"})
    producer.init_transactions(LONGEST)
    producer.begin_transaction()
    yield producer
    producer.flush(LONGEST)


def test_it_reads_what_came_after_the_plan_and_knows_where_it_is(kafka: Kafka) -> None:
    topic = kafka.topic(2)
    kafka.produce(topic, texts("a", 10), 0)
    with closing(Free(builder(kafka, topic))) as free:
        free.read_until(lambda: len(free.records) == 10)
        kafka.produce(topic, texts("b", 10), 1)
        free.read_until(lambda: len(free.records) == 20)
        assert free.records == texts("a", 10) + texts("b", 10)
        assert free.offsets() == {0: 10, 1: 10}
        position = free.reader.position()
    kafka.produce(topic, texts("c", 5), 1)
    with closing(Free(builder(kafka, topic), position)) as again:
        again.read_until(lambda: len(again.records) == 5)
        assert again.records == texts("c", 5)


def test_a_limit_holds_and_nothing_is_lost_by_it(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, texts("", 50))
    with closing(Free(builder(kafka, topic))) as free:
        while len(free.records) < 50:
            assert free.read(limit=7) <= 7
            assert free.offsets() == {0: len(free.records)}
    assert free.records == texts("", 50)


def test_it_stops_where_it_is_to_stop_though_there_is_more(kafka: Kafka) -> None:
    topic = kafka.topic(2)
    kafka.produce(topic, texts("a", 10), 0)
    source = builder(kafka, topic).set_bounded(KafkaOffsetsInitializer.latest())
    with closing(Free(source)) as free:
        kafka.produce(topic, texts("later", 10), 0)
        kafka.produce(topic, texts("later", 10), 1)
        assert not free.reader.finished
        assert free.reader.splits == ((topic, 0),), "the other partition was empty"
        free.read_until(lambda: free.reader.finished)
        assert free.records == texts("a", 10)
        assert free.offsets() == {0: 10, 1: 0}
        assert not free.reader.splits


def test_the_marks_of_transactions_at_the_end_are_passed(kafka: Kafka) -> None:
    topic = kafka.topic()
    with transaction(kafka) as producer:
        producer.produce(topic, "committed")
    producer.commit_transaction(LONGEST)
    with transaction(kafka) as aborted:
        aborted.produce(topic, "aborted")
    aborted.abort_transaction(LONGEST)
    wait_for(lambda: kafka.ends(topic) == [4])
    source = builder(kafka, topic).set_bounded(KafkaOffsetsInitializer.latest())
    with closing(Free(source)) as free:
        free.read_until(lambda: free.reader.finished)
        assert free.records == ["committed"]
        assert free.offsets() == {0: 4}


def test_a_transaction_is_read_when_it_is_committed(kafka: Kafka) -> None:
    topic = kafka.topic()
    with closing(Free(builder(kafka, topic))) as free:
        with transaction(kafka) as producer:
            producer.produce(topic, "a")
        producer.commit_transaction(LONGEST)
        free.read_until(lambda: free.offsets() == {0: 2})
        assert free.records == ["a"]


def test_new_partitions_are_found_and_a_plan_asks_no_broker(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    source = builder(kafka, topic).set_property("partition.discovery.interval.ms", "1")
    with closing(Free(source)) as free:
        kafka.add_partitions(topic, 2)
        kafka.produce(topic, ["new"], 1)
        free.read_until(lambda: len(free.follow().ends) == 2)
        free.read_until(lambda: free.records == ["new"])
    with closing(Free(builder(kafka, topic))) as rare:
        before = rare.follow()
        kafka.produce(topic, ["more"], 1)
        with monkeypatch.context() as patch:
            patch.setattr(rare.planner, "_metadata", None)
            assert all(rare.follow() == before for _ in range(1000)), "from memory"


def test_the_lag_counts_what_came_since_the_plan(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, texts("", 20))
    with closing(Free(builder(kafka, topic))) as free:
        free.read_until(lambda: len(free.records) > 0)
        kafka.produce(topic, texts("more", 80))
        free.read_until(lambda: len(free.records) == 100)
        free.read_until(lambda: free.lag() == 0)
        kafka.produce(topic, texts("most", 50))
        wait_for(lambda: free.read(limit=1) == 1)
        wait_for(lambda: free.lag() == 49)


def test_a_partition_that_is_paused_waits_and_loses_nothing(kafka: Kafka) -> None:
    topic = kafka.topic(2)
    with closing(Free(builder(kafka, topic))) as free:
        kafka.produce(topic, texts("a", 5), 0)
        free.read_until(lambda: len(free.records) == 5)
        free.reader.pause([(topic, 0)])
        free.read()
        kafka.produce(topic, texts("paused", 5), 0)
        kafka.produce(topic, texts("b", 5), 1)
        free.read_until(lambda: len(free.records) == 10)
        assert free.records[5:] == texts("b", 5)
        free.reader.pause([])
        free.read_until(lambda: len(free.records) == 15)
        assert free.records[10:] == texts("paused", 5)


def test_an_offset_that_is_gone_is_told(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, texts("", 10))
    kafka.delete_before(topic, 0, 5)
    position: Any = ({(topic, 0): (2, None)}, {}, True)
    with (
        closing(Free(builder(kafka, topic), position)) as free,
        pytest.raises(KafkaConnectorError, match="has no offset 2 any more"),
    ):
        free.read_until(lambda: False)


def test_offsets_are_committed_when_a_checkpoint_is_complete(kafka: Kafka) -> None:
    topic, group = kafka.topic(), "free-readers"
    kafka.produce(topic, texts("", 10))
    with closing(Free(builder(kafka, topic).set_group_id(group))) as free:
        free.read_until(lambda: len(free.records) == 10)
        free.reader.snapshot_state(1)
        free.reader.notify_checkpoint_complete(1)
        wait_for(lambda: kafka.committed(group, topic) == [10])


def test_a_broker_goes_away_and_comes_back(
    kafka: Kafka, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["before"])
    source = builder(kafka, topic).set_property("partition.discovery.interval.ms", "1")
    asking: set[threading.Thread] = set()
    seconds: list[float] = []
    with closing(Free(source)) as free:
        planner: Any = free.planner
        look = planner._look_again

        def look_again() -> None:
            asking.add(threading.current_thread())
            look()

        monkeypatch.setattr(planner, "_look_again", look_again)
        free.read_until(lambda: free.records == ["before"])
        kafka.broker.kill()

        def noticed() -> bool:
            started = time.perf_counter()
            free.follow()
            seconds.append(time.perf_counter() - started)
            return "until Kafka answers again" in caplog.text

        free.read_until(noticed)
        assert asking, "somebody has asked"
        assert threading.current_thread() not in asking, "no plan waits for a broker"
        assert min(seconds) < 1
        kafka.broker.start()
        kafka.produce(topic, ["after"])
        free.read_until(lambda: free.records == ["before", "after"])


def test_records_that_are_there_and_do_not_come_are_told(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, texts("", 10))
    source = builder(kafka, topic).set_property("default.api.timeout.ms", "1000")
    with closing(Free(source)) as free:
        kafka.broker.kill()
        try:
            with pytest.raises(KafkaConnectorError, match="has not given a record for 1 s, though"):
                free.read_until(lambda: False)
        finally:
            kafka.broker.start()
