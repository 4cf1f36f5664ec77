"""Reads records as they arrive, for readers that never read a record twice."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.datastream.connectors.kafka.consuming import (
    Fetched,
    SplitConsumer,
    by_split,
    offset_of,
)
from holdfast.datastream.connectors.kafka.offsets import Split
from holdfast.datastream.connectors.kafka.planner import SplitStart

if TYPE_CHECKING:
    from confluent_kafka import Message

_BATCH = 4096
#: maximum duration of a read in seconds, so that the subtask can do other work
_LONGEST_READ = 0.005
#: a reader that has not read for this long was busy; the silence is not the brokers' fault
_LONGEST_PAUSE = 1.0


class FreeFetcher(SplitConsumer):
    """A consumer that is assigned the partitions of a reader and reads them continuously."""

    def __init__(self, properties: Mapping[str, str], patience: float) -> None:
        """Connect; ``patience``: the timeout for a record that must exist, in seconds."""
        super().__init__(properties, patience)
        #: the stopping offsets, for partitions that have one
        self._stops: dict[Split, int] = {}
        #: the known ends of partitions
        self._ends: Mapping[Split, int] = {}
        #: partitions that are read to their end, as far as the client knows
        self._at_end: set[Split] = set()
        self._paused: frozenset[Hashable] = frozenset()
        self._heard = self._last_read = 0.0

    def follow(self, places: Mapping[Split, SplitStart], ends: Mapping[Split, int]) -> None:
        """Read these partitions from these offsets; continue those that are already read.

        ``ends``: the known ends.
        """
        wanted = {s: p for s, p in places.items() if p.stop is None or p.offset < p.stop}
        gone = self._came.keys() - wanted.keys()
        moved = {s for s, p in wanted.items() if s in self._came and self._came[s] != p.offset}
        self._leave(gone | moved)
        new = {s: p.offset for s, p in wanted.items() if s not in self._came}
        if new:
            self._came |= new
            self._paused -= new.keys()
            self._consumer.incremental_assign([self._place(s, at) for s, at in new.items()])
        self._stops = {s: p.stop for s, p in wanted.items() if p.stop is not None}
        if new or ends != self._ends:
            self._heard = time.monotonic()
        self._ends = dict(ends)

    def pause(self, splits: Collection[Hashable]) -> None:
        """Skip these partitions until the next call."""
        wanted = frozenset(splits)
        if wanted == self._paused:
            return
        mine = self._came.keys()
        self._consumer.resume([self._place(s) for s in mine & (self._paused - wanted)])
        self._consumer.pause([self._place(s) for s in mine & (wanted - self._paused)])
        self._paused = wanted

    def read(self, limit: int) -> Iterator[Fetched]:
        """Return the available records, in the order of each partition.

        Raises:
            KafkaConnectorError: when an offset does not exist any more, or no record arrives.
        """
        self.commits.go_on()
        started = time.monotonic()
        if started - self._last_read > _LONGEST_PAUSE:
            self._heard = started
        self._last_read = started
        while limit > 0 and self._came:
            asked = min(limit, _BATCH)
            batch = self._consumer.consume(asked, 0)
            if not batch:
                self._check_silence()
                return
            limit -= len(batch)
            yield from self._sorted_out(batch)
            self._heard = self._last_read = time.monotonic()
            if len(batch) < asked or self._last_read - started > _LONGEST_READ:
                return

    def lag(self) -> int:
        """Return the number of unread records, as far as the client knows."""
        return sum(max(self._end(split) - at, 0) for split, at in self._came.items())

    def _sorted_out(self, batch: Sequence[Message]) -> Iterator[Fetched]:
        events = [message for message in batch if message.error() is not None]
        if events:
            batch = [message for message in batch if message.error() is None]
        for split, messages in by_split(batch):
            yield from self._give(split, messages, offset_of(messages[-1]) + 1)
        for event in events:
            ended = self._ended(event)
            if ended is not None:
                # NB: the last offsets may not be records but, for example, transaction markers
                yield from self._give(ended, [], offset_of(event))
                if self._came.get(ended) == offset_of(event):
                    self._at_end.add(ended)

    def _give(self, split: Split, messages: Sequence[Message], reached: int) -> Iterator[Fetched]:
        """Return the new records up to the stopping offset."""
        at = self._came.get(split)
        if at is None or reached <= at:
            return
        stop = self._stops.get(split)
        if stop is not None and reached >= stop:
            messages = messages[: bisect_left(messages, stop, key=offset_of)]
            reached = stop
        self._came[split] = reached
        self._at_end.discard(split)
        yield Fetched(split, messages, reached)
        if reached == stop:
            self._leave({split})

    def _leave(self, splits: Collection[Split]) -> None:
        if splits:
            self._consumer.incremental_unassign([self._place(split) for split in splits])
        for split in splits:
            del self._came[split]
            self._at_end.discard(split)

    def _end(self, split: Split) -> int:
        if split in self._at_end:
            return 0
        _, last = self._consumer.get_watermark_offsets(self._place(split), cached=True)
        end = max(self._ends.get(split, 0), last)
        return min(end, self._stops.get(split, end))

    def _check_silence(self) -> None:
        """Check whether a record that must exist does not arrive."""
        if time.monotonic() - self._heard < self._patience:
            return
        missing = {
            split: min(end, self._stops.get(split, end))
            for split, end in self._ends.items()
            if split not in self._paused and end > self._came.get(split, end)
        }
        if missing:
            raise self._silence(missing)
        self._heard = time.monotonic()
