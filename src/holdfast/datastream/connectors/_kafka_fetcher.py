"""Reads ranges of offsets with one consumer, which reads on ahead between two epochs."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.datastream.connectors._kafka_consuming import Client, Fetched, by_split, offset_of
from holdfast.datastream.connectors._kafka_offsets import OffsetRange, Split

if TYPE_CHECKING:
    from confluent_kafka import Message

_BATCH = 4096
#: how long the client is asked for records at once, in seconds
_WAIT = 0.1
#: records that came for a later epoch; with so many, their partition is not read for a while
_MOST_KEPT = 100_000


class Fetcher(Client):
    """A consumer, and what it has read beyond the ranges that were asked for."""

    def __init__(self, properties: Mapping[str, str], patience: float) -> None:
        """Connect; ``patience``: how long to wait for a record that must be there, in seconds."""
        super().__init__(properties, patience)
        #: up to where each partition was given out: where its reader stands
        self._given: dict[Split, int] = {}
        #: what came beyond that, for a later epoch
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
            for split, messages in by_split(batch):
                yield from self._take(split, messages, left)
            for event in events:
                yield from self._hear(event, left)

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
        last = offset_of(messages[-1])
        if last >= end:
            count = bisect_left(messages, end, key=offset_of)
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
        split = self._ended(event)
        # NB: the last offsets of a range may be no records: marks of transactions, say
        if split in left and (event.offset() or 0) >= left[split]:
            self._came[split] = left[split]
            yield self._give(split, [], left[split], left)

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
