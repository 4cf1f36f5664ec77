"""The base of readers with a consumer: its connection, its events and its errors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.datastream.connectors.kafka.client import (
    PATIENCE,
    KafkaConnectorError,
    library,
    new_consumer,
)
from holdfast.datastream.connectors.kafka.commits import GroupCommits
from holdfast.datastream.connectors.kafka.offsets import Split, describe

if TYPE_CHECKING:
    from confluent_kafka import Message, TopicPartition


#: how long an answer to the last commit is waited for, in seconds
_LAST_COMMIT = 3.0


class Fetched(NamedTuple):
    """Records of one partition.

    Attributes:
        reached: the offset after them.
    """

    split: Split
    messages: Sequence[Message]
    reached: int


class SplitConsumer:
    """A consumer with assigned partitions.

    Attributes:
        commits: the offsets that it commits to its group.
    """

    def __init__(self, properties: Mapping[str, str], patience: float) -> None:
        """Connect; ``patience``: the timeout for a record that must exist, in seconds."""
        errors = library().KafkaError
        self._end_of_partition = errors._PARTITION_EOF
        self._gone = (errors._AUTO_OFFSET_RESET, errors.OFFSET_OUT_OF_RANGE)
        self._hopeless = (
            errors.UNKNOWN_TOPIC_OR_PART,
            errors.TOPIC_AUTHORIZATION_FAILED,
            errors._UNKNOWN_TOPIC,
            errors._UNKNOWN_PARTITION,
            errors._AUTHENTICATION,
        )
        self._servers = properties.get("bootstrap.servers", "")
        self._patience = patience
        #: the last warning of the client
        self._complaint = ""
        self.commits = GroupCommits(self._send_commit)
        self._consumer = new_consumer(
            properties, error_cb=self._note, on_commit=self.commits.answered
        )
        #: how far each partition was read
        self._came: dict[Split, int] = {}

    def _send_commit(self, offsets: Mapping[Split, int]) -> None:
        places = [self._place(split, offset) for split, offset in sorted(offsets.items())]
        self._consumer.commit(offsets=places, asynchronous=True)

    def close(self) -> None:
        """Close the connection after all commits have arrived, if the group answers soon."""
        if self.commits.unfinished:
            self._finish_commits()
        self._consumer.close()

    def _finish_commits(self) -> None:
        self._consumer.unassign()
        deadline = time.monotonic() + _LAST_COMMIT
        while self.commits.unfinished and time.monotonic() < deadline:
            self.commits.go_on()
            self._consumer.consume(1, 0.05)  # answers arrive while the client reads

    def _ended(self, event: Message) -> Split | None:
        """Return the partition whose end an event reports; None if it is only a warning.

        Raises:
            KafkaConnectorError: when it is a permanent error.
        """
        error, split = event.error(), (str(event.topic()), event.partition() or 0)
        assert error is not None
        if error.code() == self._end_of_partition:
            return split
        if error.code() in self._gone:
            raise self._lost(split)
        if error.fatal() or error.code() in self._hopeless:
            raise KafkaConnectorError(
                f"Kafka at {self._servers} does not let {describe(split)} be read: {error.str()}"
            )
        self._note(error)
        return None

    def _place(self, split: Split, offset: int | None = None) -> TopicPartition:
        place = library().TopicPartition
        made: TopicPartition = place(*split) if offset is None else place(*split, offset)
        return made

    def _note(self, error: Any) -> None:
        self._complaint = error.str()

    def _lost(self, split: Split) -> KafkaConnectorError:
        wanted = self._came.get(split)
        first, last = self._consumer.get_watermark_offsets(self._place(split), PATIENCE)
        return KafkaConnectorError(
            f"{describe(split)} has no offset {wanted} any more, where the job goes on: Kafka has "
            f"offsets {first} to {last}. Retention has deleted records, or the topic was made "
            "anew. To go on without them, set the property auto.offset.reset to earliest "
            "or latest"
        )

    def _silence(self, left: Mapping[Split, int]) -> KafkaConnectorError:
        split, end = next(iter(left.items()))
        reason = f"; the client says: {self._complaint}" if self._complaint else ""
        return KafkaConnectorError(
            f"Kafka at {self._servers} has not given a record for {self._patience:.0f} s, though "
            f"{describe(split)} has offsets up to {end} and was read up to {self._came[split]}"
            f"{reason}. See that its broker runs; the property default.api.timeout.ms says how "
            "long to wait"
        )


def by_split(batch: Sequence[Message]) -> Iterator[tuple[Split, Sequence[Message]]]:
    """Split a batch into runs of records of one partition; mostly there is one."""
    topics = [message.topic() for message in batch]
    numbers = [message.partition() for message in batch]
    if batch and topics.count(topics[0]) == numbers.count(numbers[0]) == len(batch):
        yield cast(Split, (topics[0], numbers[0])), batch
        return
    first = 0
    for split, run in groupby(zip(topics, numbers, strict=True)):
        count = sum(1 for _ in run)
        yield cast(Split, split), batch[first : first + count]
        first += count


def offset_of(message: Message) -> int:
    """Return the offset of a message."""
    return message.offset() or 0
