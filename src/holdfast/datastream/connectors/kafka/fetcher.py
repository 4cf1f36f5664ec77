"""Reads ranges of offsets with one consumer, which reads ahead between two epochs."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.datastream.connectors.kafka.consuming import (
    Fetched,
    SplitConsumer,
    by_split,
    offset_of,
)
from holdfast.datastream.connectors.kafka.offsets import OffsetRange, Split

if TYPE_CHECKING:
    from confluent_kafka import Message

_BATCH = 4096
#: timeout of one call for records, in seconds
_WAIT = 0.1
#: the number of records for a later epoch at which their partition is paused
_MOST_KEPT = 100_000


class Fetcher(SplitConsumer):
    """A consumer, and the records that it has read beyond the requested ranges."""

    def __init__(self, properties: Mapping[str, str], patience: float) -> None:
        """Connect; ``patience``: the timeout for a record that must exist, in seconds."""
        super().__init__(properties, patience)
        #: how far each partition was returned: the position of its reader
        self._given: dict[Split, int] = {}
        #: records beyond that, for a later epoch
        self._kept: dict[Split, list[Message]] = {}
        self._paused: set[Split] = set()
        #: the last end that the client has reported; it does so once, perhaps before a range
        #: that goes so far is asked for
        self._ends: dict[Split, int] = {}

    def read(
        self, positions: Mapping[Split, int], ranges: Mapping[Split, OffsetRange]
    ) -> Iterator[Fetched]:
        """Return the records of ranges, in the order of each partition.

        ``positions`` are those of all partitions of the reader, whether there is something to read
        in them or not: the consumer fetches them ahead.

        Raises:
            KafkaConnectorError: when an offset does not exist any more, or no record arrives.
        """
        self.commits.go_on()
        self._go_to(positions)
        left = {split: last for split, (_, last) in ranges.items()}
        for split in list(left):
            yield from self._take(split, self._kept.pop(split, []), left)
            yield from self._reach_end(split, left)
        self._resume()
        heard = time.monotonic()
        while left:
            missing = sum(last - self._came[split] for split, last in left.items())
            batch = self._consumer.consume(max(min(missing, _BATCH), 1), _WAIT)
            if batch:
                heard = time.monotonic()
            elif time.monotonic() - heard > self._patience:
                raise self._silence(left)
            yield from self._sorted_out(batch, left)
        if self.commits.unfinished:
            # NB: answers arrive while the client reads; records that come along are kept
            yield from self._sorted_out(self._consumer.consume(_BATCH, 0), left)

    def _sorted_out(self, batch: Sequence[Message], left: dict[Split, int]) -> Iterator[Fetched]:
        events = [message for message in batch if message.error() is not None]
        if events:
            batch = [message for message in batch if message.error() is None]
        for split, messages in by_split(batch):
            yield from self._take(split, messages, left)
        for event in events:
            yield from self._hear(event, left)

    def _go_to(self, positions: Mapping[Split, int]) -> None:
        """Move the consumer to the reader's position, which differs after an epoch elsewhere."""
        if self._given == positions:
            return
        self._kept.clear()
        self._paused.clear()
        self._ends.clear()
        self._given, self._came = dict(positions), dict(positions)
        self._consumer.assign([self._place(split, at) for split, at in positions.items()])

    def _take(
        self, split: Split, messages: Sequence[Message], left: dict[Split, int]
    ) -> Iterator[Fetched]:
        """Return the records of a range; keep the rest for a later one."""
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
        """Return the end of a partition, or an error."""
        split = self._ended(event)
        if split is not None:
            self._ends[split] = offset_of(event)
            yield from self._reach_end(split, left)

    def _reach_end(self, split: Split, left: dict[Split, int]) -> Iterator[Fetched]:
        """Return the rest of a range if there is no record in it.

        The last offsets of a range may not be records but, for example, transaction markers.
        """
        if split in left and self._ends.get(split, 0) >= left[split]:
            self._came[split] = max(self._came[split], left[split])
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
