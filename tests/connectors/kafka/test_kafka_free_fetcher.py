"""What a fetcher that runs free does with what its client gives it, and when it gives nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka import KafkaError, TopicPartition

from holdfast.datastream.connectors.kafka import commits as _kafka_commits
from holdfast.datastream.connectors.kafka import consuming as _kafka_consuming
from holdfast.datastream.connectors.kafka import free_fetcher as _kafka_free_fetcher
from holdfast.datastream.connectors.kafka.client import KafkaConnectorError
from holdfast.datastream.connectors.kafka.free_fetcher import FreeFetcher
from holdfast.datastream.connectors.kafka.planner import SplitStart
from tests.connectors.kafka.test_kafka_fetcher import A, B, Message

END = KafkaError(KafkaError._PARTITION_EOF)


class Client:
    """Gives the batches of a test, and writes down what it is told to read."""

    def __init__(self) -> None:
        self.batches: list[list[Message]] = []
        self.assigned: dict[Any, int] = {}
        self.paused: set[Any] = set()
        #: offsets that were to be committed, commit by commit
        self.commits: list[dict[Any, int]] = []

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        self.commits.append({(place.topic, place.partition): place.offset for place in offsets})

    def consume(self, count: int, timeout: float) -> list[Message]:
        assert timeout == 0
        return self.batches.pop(0) if self.batches else []

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self.assigned |= {(place.topic, place.partition): place.offset for place in places}

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        for place in places:
            del self.assigned[place.topic, place.partition]

    def pause(self, places: list[TopicPartition]) -> None:
        self.paused |= {(place.topic, place.partition) for place in places}

    def resume(self, places: list[TopicPartition]) -> None:
        self.paused -= {(place.topic, place.partition) for place in places}

    def get_watermark_offsets(self, place: TopicPartition, cached: bool) -> tuple[int, int]:
        assert cached
        return 0, 100


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Iterator[Clock]:
    made = Clock()
    with (
        patch.object(_kafka_free_fetcher, "time", made),
        patch.object(_kafka_commits, "time", made),
    ):
        yield made


def fetcher(client: Any) -> FreeFetcher:
    with patch.object(_kafka_consuming, "new_consumer", lambda *_, **__: client):
        return FreeFetcher({"bootstrap.servers": "there:1"}, 60)


def given(fetcher: FreeFetcher, limit: int = 100) -> list[Any]:
    return [(split, [m.offset() for m in ms], at) for split, ms, at in fetcher.read(limit)]


def test_partitions_come_and_go_and_the_others_are_left_alone() -> None:
    client = Client()
    free = fetcher(client)
    free.follow({A: SplitStart(3, None)}, {A: 5})
    assert client.assigned == {A: 3}
    client.batches = [[Message(A, 3), Message(A, 4)]]
    assert given(free) == [(A, [3, 4], 5)]
    client.assigned[A] = -1
    free.follow({A: SplitStart(5, None), B: SplitStart(0, None)}, {A: 5, B: 0})
    assert client.assigned == {A: -1, B: 0}, "A goes on where it is"
    free.follow({B: SplitStart(0, None)}, {B: 0})
    assert client.assigned == {B: 0}


def test_nothing_beyond_the_stop_and_nothing_twice() -> None:
    client = Client()
    free = fetcher(client)
    free.follow({A: SplitStart(0, 3), B: SplitStart(7, 7)}, {A: 9, B: 9})
    assert client.assigned == {A: 0}
    client.batches = [[Message(A, 0), Message(A, 1)], [Message(A, 1)], [Message(A, 2, END)]]
    assert given(free, 1) == [(A, [0, 1], 2)]
    assert given(free, 1) == given(free, 1) == [], "had, and known"
    client.batches = [[Message(A, 2), Message(A, 3)]]
    assert given(free) == [(A, [2], 3)]
    assert client.assigned == {}
    client.batches = [[Message(A, 4)]]
    assert given(free) == []


def test_the_lag_is_what_the_client_knows_until_it_is_at_the_end() -> None:
    client = Client()
    free = fetcher(client)
    free.follow({A: SplitStart(40, None)}, {A: 120})
    assert free.lag() == 80
    client.batches = [[Message(A, 40), Message(A, 121, END)]]
    given(free)
    assert free.lag() == 0


def test_a_paused_partition_goes_on_when_it_may() -> None:
    client = Client()
    free = fetcher(client)
    free.follow({A: SplitStart(0, None), B: SplitStart(0, None)}, {})
    free.pause([A])
    assert client.paused == {A}
    free.pause([B])
    assert client.paused == {B}
    free.pause([])
    assert client.paused == set()


def test_silence_counts_only_if_something_must_come(clock: Clock) -> None:
    client = Client()
    free = fetcher(client)
    free.follow({A: SplitStart(5, None)}, {A: 5})
    for _ in range(200):
        clock.now += 0.9
        assert given(free) == []
    free.follow({A: SplitStart(5, None)}, {A: 7})
    clock.now += 0.9
    assert given(free) == []
    clock.now += 3600
    assert given(free) == [], "who did not read for an hour has to ask first"
    for _ in range(66):
        clock.now += 0.9
        assert given(free) == []
    clock.now += 0.9
    with pytest.raises(KafkaConnectorError, match=r"has not .* up to 7 and was read up to 5"):
        given(free)


def test_offsets_that_the_group_did_not_take_are_committed_again(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client()
    free = fetcher(client)
    away = KafkaError(KafkaError._WAIT_COORD)
    free.commits.ask({A: 5, B: 7})
    free.commits.answered(away, [TopicPartition(*A, 5), TopicPartition(*B, 7)])
    assert "could not be committed to Kafka" in caplog.text
    given(free)
    assert len(client.commits) == 1, "not at once"
    clock.now += 1
    given(free)
    assert client.commits[1:] == [{A: 5, B: 7}]
    free.commits.answered(away, [])
    assert free.commits.unfinished, "whatever partitions the error names"
    clock.now += 1
    given(free)
    assert client.commits[2:] == [{A: 5, B: 7}]
    free.commits.answered(None, [TopicPartition(*A, 5), TopicPartition(*B, 7)])
    assert not free.commits.unfinished


def test_there_is_one_request_at_a_time_so_that_no_older_offset_comes_last(clock: Clock) -> None:
    client = Client()
    free = fetcher(client)
    free.commits.ask({A: 5, B: 7})
    free.commits.ask({A: 6})
    free.commits.ask({A: 8})
    given(free)
    assert client.commits == [{A: 5, B: 7}]
    free.commits.answered(
        KafkaError(KafkaError._WAIT_COORD), [TopicPartition(*A, 5), TopicPartition(*B, 7)]
    )
    clock.now += 1
    given(free)
    assert client.commits[1:] == [{A: 8, B: 7}], "a newer offset replaces the older one"
