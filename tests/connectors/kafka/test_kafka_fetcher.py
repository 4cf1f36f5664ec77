"""Ranges of offsets, read with a client that gives what it likes when it likes: no broker."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka import KafkaError, TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.datastream.connectors.kafka import consuming as _kafka_consuming
from holdfast.datastream.connectors.kafka import fetcher as _kafka_fetcher
from holdfast.datastream.connectors.kafka.client import KafkaConnectorError
from holdfast.datastream.connectors.kafka.fetcher import Fetcher
from holdfast.datastream.connectors.kafka.offsets import Split, divide

A, B, C = ("t", 0), ("t", 1), ("u", 0)


class Message:
    def __init__(self, split: Split, offset: int, error: KafkaError | None = None) -> None:
        self._split, self._offset, self._error = split, offset, error

    def topic(self) -> str:
        return self._split[0]

    def partition(self) -> int:
        return self._split[1]

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error


class Client:
    """Has some of the offsets of each partition; tells the end of one when it gets there, once."""

    def __init__(self, logs: dict[Split, list[int]], ends: dict[Split, int], seed: int) -> None:
        self._logs, self._ends = logs, ends
        self._at: dict[Split, int] = {}
        self._random = random.Random(seed)
        self.assignments = 0
        self._told: set[Split] = set()

    def assign(self, places: list[TopicPartition]) -> None:
        self.assignments += 1
        self._told.clear()
        self._at = {(place.topic, place.partition): place.offset for place in places}

    def consume(self, count: int, timeout: float) -> list[Message]:
        given: list[Message] = []
        while len(given) < count and self._random.random() < 0.9:
            split = self._random.choice(list(self._at))
            coming = [offset for offset in self._logs[split] if offset >= self._at[split]]
            if coming:
                run = coming[: self._random.randint(1, 5)][: count - len(given)]
                given += [Message(split, offset) for offset in run]
                self._at[split] = run[-1] + 1
            else:
                if split not in self._told:
                    end = KafkaError(KafkaError._PARTITION_EOF)
                    given.append(Message(split, self._ends[split], end))
                self._told.add(split)
        return given

    def pause(self, places: list[TopicPartition]) -> None:
        pass

    resume = pause


logs = st.fixed_dictionaries(
    {split: st.sets(st.integers(0, 20)).map(sorted) for split in (A, B, C)}
)


@settings(max_examples=60, deadline=None)
@given(logs, st.integers(), st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=8))
def test_each_range_has_its_records_whatever_comes_when(
    there: dict[Split, list[int]], seed: int, epochs: list[tuple[int, bool]]
) -> None:
    ends = dict.fromkeys(there, 21)
    client = Client(there, ends, seed)
    with (
        patch.object(_kafka_consuming, "new_consumer", lambda *_, **__: client),
        patch.object(_kafka_fetcher, "_MOST_KEPT", 3),
    ):
        fetcher = Fetcher({}, 60)
        positions = dict.fromkeys(there, 0)
        for quota, is_lost in epochs:
            ranges = divide({s: (at, ends[s]) for s, at in positions.items()}, quota)
            after = dict(positions)
            found: dict[Split, list[int]] = {split: [] for split in there}
            for split, messages, reached in fetcher.read(positions, ranges):
                found[split] += [message.offset() or 0 for message in messages]
                after[split] = reached
            for split, offsets in found.items():
                first, last = ranges.get(split, (0, 0))
                assert offsets == [n for n in there[split] if first <= n < last]
                assert after[split] == max(positions[split], last)
            if not is_lost:
                positions = after


def test_a_consumer_goes_on_where_it_is_and_is_sent_back_only_if_it_must() -> None:
    client = Client({A: list(range(100))}, {A: 100}, 1)
    with patch.object(_kafka_consuming, "new_consumer", lambda *_, **__: client):
        fetcher = Fetcher({}, 60)
        for first in (0, 30, 60, 60):
            list(fetcher.read({A: first}, {A: (first, first + 30)}))
    assert client.assignments == 2  # at the beginning, and when the last range was read again


def test_silence_is_told_after_a_while() -> None:
    class Silent(Client):
        def consume(self, count: int, timeout: float) -> list[Message]:
            return []

    silent: Any = Silent({A: []}, {A: 0}, 1)
    with patch.object(_kafka_consuming, "new_consumer", lambda *_, **__: silent):
        fetcher = Fetcher({"bootstrap.servers": "there:1"}, 0.0)
        with pytest.raises(
            KafkaConnectorError, match=r"Kafka at there:1 has not .* up to 7 and was read up to 2"
        ):
            list(fetcher.read({A: 2}, {A: (2, 7)}))
