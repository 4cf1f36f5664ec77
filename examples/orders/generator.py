"""A source of a shop's events, at their rate, with its position in the state of the job."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from examples.orders.shop import PARTITIONS, Shop, deliveries
from holdfast.datastream.connectors.base import Source, SourceReader

__all__ = ["GeneratorSource"]

#: how many times its rate a shop delivers, until a reader has caught up
_CATCHING_UP = 2

#: the next slice of a partition, and how many of its events were read
_Place = tuple[int, int]


class GeneratorSource(Source):
    """The events of a shop; the subtasks share its partitions.

    An event can be read when its time has come, at the shop's rate from the first read on. What
    was not read meanwhile, while the job was down, say, can then be read at twice the rate.
    """

    def __init__(self, shop: Shop) -> None:
        self.shop = shop

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        partitions = range(subtask, PARTITIONS, parallelism)
        return _Reader(self.shop, dict.fromkeys(partitions, (0, 0)))

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        started = min((began for began, _ in positions if began is not None), default=None)
        places = {part: place for _, read in positions for part, place in read.items()}
        return [
            (started, {part: places[part] for part in range(subtask, PARTITIONS, parallelism)})
            for subtask in range(parallelism)
        ]


class _Reader(SourceReader):
    """Reads its partitions slice by slice, so that none is ahead of another in event time."""

    def __init__(self, shop: Shop, places: dict[int, _Place]) -> None:
        self._shop = shop
        self._places = places
        #: when the shop was opened
        self._started: float | None = None
        #: when this reader read first, and which slice
        self._joined: tuple[float, int] | None = None

    def restore(self, position: Any) -> None:
        self._started, places = position
        self._places = dict(places)

    def position(self) -> Any:
        return self._started, dict(self._places)

    @property
    def finished(self) -> bool:
        end = self._shop.slices
        return all(end is not None and number >= end for number, _ in self._places.values())

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        end = self._readable()
        while limit > 0 and self._places:
            partition = min(self._places, key=lambda part: (self._places[part][0], part))
            number, done = self._places[partition]
            if end is not None and number >= end:
                return
            events = deliveries(self._shop, partition, number)
            batch = events[done : done + limit]
            done += len(batch)
            limit -= len(batch)
            self._places[partition] = (number, done) if done < len(events) else (number + 1, 0)
            yield batch

    def _readable(self) -> int | None:
        """The first slice that cannot be read yet; None if there is none."""
        if self._shop.rate is None:
            return self._shop.slices
        now = time.time()
        if self._started is None:
            self._started = now
        if self._joined is None:
            self._joined = now, min((number for number, _ in self._places.values()), default=0)
        joined, first = self._joined
        pace = self._shop.rate / self._shop.events_per_slice
        come = int(min((now - self._started) * pace, first + (now - joined) * pace * _CATCHING_UP))
        return come if self._shop.slices is None else min(come, self._shop.slices)
