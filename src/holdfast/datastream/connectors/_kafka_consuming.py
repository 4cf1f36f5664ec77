"""What all who read with a consumer have in common: its connection, its events and its errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.datastream.connectors._kafka_client import (
    PATIENCE,
    KafkaConnectorError,
    library,
    new_consumer,
)
from holdfast.datastream.connectors._kafka_offsets import Split, describe

if TYPE_CHECKING:
    from confluent_kafka import Message, TopicPartition


class Fetched(NamedTuple):
    """Records of one partition.

    Attributes:
        reached: the offset to go on from after them.
    """

    split: Split
    messages: Sequence[Message]
    reached: int


class Client:
    """A consumer that is told what to read."""

    def __init__(self, properties: Mapping[str, str], patience: float) -> None:
        """Connect; ``patience``: how long to wait for a record that must be there, in seconds."""
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
        #: the last thing that the client complained about
        self._complaint = ""
        self._consumer = new_consumer(properties, error_cb=self._note)
        #: up to where each partition came
        self._came: dict[Split, int] = {}

    def commit(self, offsets: Mapping[Split, int]) -> None:
        """Tell the group how far it is, without waiting for an answer."""
        places = [self._place(split, offset) for split, offset in sorted(offsets.items())]
        self._consumer.commit(offsets=places, asynchronous=True)

    def close(self) -> None:
        """Let go of the connection, after what was committed has arrived."""
        self._consumer.close()

    def _ended(self, event: Message) -> Split | None:
        """The partition whose end an event tells; None if it is only a complaint.

        Raises:
            KafkaConnectorError: when it is an error that does not go away.
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
    """Runs of records of one partition; a batch is mostly one."""
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
    return message.offset() or 0
