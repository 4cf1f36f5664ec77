"""Reads ranges of offsets with one consumer, which reads on ahead between two epochs."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.datastream.connectors._kafka_client import (
    PATIENCE,
    KafkaConnectorError,
    library,
    new_consumer,
)
from holdfast.datastream.connectors._kafka_offsets import OffsetRange, Split, describe

if TYPE_CHECKING:
    from confluent_kafka import Message, TopicPartition

_BATCH = 4096
#: how long the client is asked for records at once, in seconds
_WAIT = 0.1
#: records that came for a later epoch; with so many, their partition is not read for a while
_MOST_KEPT = 100_000


class Fetched(NamedTuple):
    """Records of one partition.

    Attributes:
        reached: the offset to go on from after them.
    """

    split: Split
    messages: Sequence[Message]
    reached: int


class Fetcher:
    """A consumer, and what it has read beyond the ranges that were asked for."""

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
        #: up to where each partition was given out: where its reader stands
        self._given: dict[Split, int] = {}
        #: up to where it came; what lies between is kept for a later epoch
        self._came: dict[Split, int] = {}
        self._kept: dict[Split, list[Message]] = {}
        self._paused: set[Split] = set()

    def read(
        self, positions: Mapping[Split, int], ranges: Mapping[Split, OffsetRange]
    ) -> Iterator[Fetched]:
        """The records of ranges, in the order of each partition.

        ``positions`` are those of all partitions of the reader, whether there is something to read
        in them or not: the consumer fetches them ahead.

        Raises:
            KafkaConnectorError: when an offset is gone, or nothing comes for too long.
        """
        self._go_to(positions)
        left = {split: last for split, (_, last) in ranges.items()}
        for split in list(left):
            yield from self._take(split, self._kept.pop(split, []), left)
        self._resume()
        heard = time.monotonic()
        while left:
            missing = sum(last - self._came[split] for split, last in left.items())
            batch = self._consumer.consume(max(min(missing, _BATCH), 1), _WAIT)
            if batch:
                heard = time.monotonic()
            elif time.monotonic() - heard > self._patience:
                raise self._silence(left)
            events = [message for message in batch if message.error() is not None]
            if events:
                batch = [message for message in batch if message.error() is None]
            for split, messages in _by_split(batch):
                yield from self._take(split, messages, left)
            for event in events:
                yield from self._hear(event, left)

    def commit(self, offsets: Mapping[Split, int]) -> None:
        """Tell the group how far it is, without waiting for an answer."""
        places = [self._place(split, offset) for split, offset in sorted(offsets.items())]
        self._consumer.commit(offsets=places, asynchronous=True)

    def close(self) -> None:
        """Let go of the connection, after what was committed has arrived."""
        self._consumer.close()

    def _go_to(self, positions: Mapping[Split, int]) -> None:
        """Let the consumer stand where the reader stands: after an epoch elsewhere it does not."""
        if self._given == positions:
            return
        self._kept.clear()
        self._paused.clear()
        self._given, self._came = dict(positions), dict(positions)
        self._consumer.assign([self._place(split, at) for split, at in positions.items()])

    def _take(
        self, split: Split, messages: Sequence[Message], left: dict[Split, int]
    ) -> Iterator[Fetched]:
        """Give out what belongs to a range; keep the rest for a later one."""
        if not messages:
            return
        end = left.get(split, 0)
        last = _offset(messages[-1])
        if last >= end:
            count = bisect_left(messages, end, key=_offset)
            self._keep(split, messages[count:])
            messages = messages[:count]
        self._came[split] = max(self._came[split], last + 1)
        if split in left:
            yield self._give(split, messages, min(last + 1, end), left)

    def _give(
        self, split: Split, messages: Sequence[Message], reached: int, left: dict[Split, int]
    ) -> Fetched:
        self._given[split] = reached
        if reached >= left[split]:
            del left[split]
        return Fetched(split, messages, reached)

    def _hear(self, event: Message, left: dict[Split, int]) -> Iterator[Fetched]:
        """The end of a partition, or an error."""
        error, split = event.error(), (str(event.topic()), event.partition() or 0)
        assert error is not None
        if error.code() == self._end_of_partition:
            # NB: the last offsets of a range may be no records: marks of transactions, say
            if split in left and (event.offset() or 0) >= left[split]:
                self._came[split] = left[split]
                yield self._give(split, [], left[split], left)
        elif error.code() in self._gone:
            raise self._lost(split)
        elif error.fatal() or error.code() in self._hopeless:
            raise KafkaConnectorError(
                f"Kafka at {self._servers} does not let {describe(split)} be read: {error.str()}"
            )
        else:
            self._note(error)

    def _keep(self, split: Split, messages: Sequence[Message]) -> None:
        kept = self._kept.setdefault(split, [])
        kept += messages
        if len(kept) > _MOST_KEPT and split not in self._paused:
            self._consumer.pause([self._place(split)])
            self._paused.add(split)

    def _resume(self) -> None:
        ready = [split for split in self._paused if not self._kept.get(split)]
        if ready:
            self._consumer.resume([self._place(split) for split in ready])
            self._paused.difference_update(ready)

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


def _by_split(batch: Sequence[Message]) -> Iterator[tuple[Split, Sequence[Message]]]:
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


def _offset(message: Message) -> int:
    return message.offset() or 0
