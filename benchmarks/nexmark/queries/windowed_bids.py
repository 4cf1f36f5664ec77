"""Queries about bids in windows: 5, 7, 11 and 12."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.nexmark.events import Bid, Event
from benchmarks.nexmark.queries.api import (
    AggregateFunction,
    DataStream,
    EventTimeSessionWindows,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    Time,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from benchmarks.nexmark.queries.streams import bids

__all__ = ["Each", "Highest", "q5", "q7", "q11", "q12"]


class Count(AggregateFunction):
    """How many records there are."""

    def create_accumulator(self) -> int:
        """None yet."""
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        """One more."""
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        """The number."""
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        """Those of two windows."""
        return acc_a + acc_b


class Sum(Count):
    """What several counts come to."""

    def add(self, value: tuple[int, int], accumulator: int) -> int:
        """So many more."""
        return accumulator + value[1]


class Highest(AggregateFunction):
    """The rows with the highest number in front; there may be several."""

    def create_accumulator(self) -> tuple[Event, ...]:
        """None yet."""
        return ()

    def add(self, value: Event, accumulator: tuple[Event, ...]) -> tuple[Event, ...]:
        """Compare a row with those so far."""
        if not accumulator or value[0] > accumulator[0][0]:
            return (value,)
        return (*accumulator, value) if value[0] == accumulator[0][0] else accumulator

    def get_result(self, accumulator: tuple[Event, ...]) -> tuple[Event, ...]:
        """The rows."""
        return accumulator

    def merge(self, acc_a: tuple[Event, ...], acc_b: tuple[Event, ...]) -> tuple[Event, ...]:
        """Those of two windows."""
        for value in acc_b:
            acc_a = self.add(value, acc_a)
        return acc_a


class EachWithWindow(ProcessWindowFunction):
    """Key, count, start and end of each window."""

    def process(
        self, key: Any, context: Any, elements: Iterable[int]
    ) -> Iterator[tuple[Any, int, int, int]]:
        """Put them together."""
        window = context.window()
        for count in elements:
            yield key, count, window.start, window.end


class Each(ProcessWindowFunction):
    """The rows of an aggregate, one by one."""

    def process(
        self, key: Any, context: Any, elements: Iterable[tuple[Event, ...]]
    ) -> Iterator[Event]:
        """Take them apart."""
        for rows in elements:
            yield from rows


def q5(events: DataStream, side_input: str) -> DataStream:
    """The auctions with the most bids in ten seconds, every two: auction, number, end.

    Bids are counted once, in windows of two seconds; five such counts make one of ten seconds.
    """
    every, size = Time.seconds(2), Time.seconds(10)
    parts = (
        bids(events)
        .map(lambda bid: bid[Bid.AUCTION])
        .key_by(lambda auction: auction)
        .window(TumblingEventTimeWindows.of(every))
        .aggregate(Count(), EachWithWindow())
    )
    counts = (
        parts.map(lambda part: part[:2])
        .key_by(lambda part: part[0])
        .window(SlidingEventTimeWindows.of(size, every))
        .aggregate(Sum(), EachWithWindow())
    )
    hottest = (
        counts.map(lambda count: (count[1], count[0], count[3]))
        .key_by(lambda count: count[2])
        .window(TumblingEventTimeWindows.of(every))
        .aggregate(Highest(), Each())
    )
    return hottest.map(lambda count: (count[1], count[0], count[2]))


def q7(events: DataStream, side_input: str) -> DataStream:
    """The highest bids in every ten seconds: auction, price, bidder, time, extra.

    First the highest of each auction, in parallel, then the highest of these.
    """
    window = TumblingEventTimeWindows.of(Time.seconds(10))
    offers = bids(events).map(
        lambda bid: (
            bid[Bid.PRICE],
            bid[Bid.AUCTION],
            bid[Bid.BIDDER],
            bid[Bid.TIME],
            bid[Bid.EXTRA],
        )
    )
    of_auctions = offers.key_by(lambda offer: offer[1]).window(window).aggregate(Highest(), Each())
    of_all = of_auctions.key_by(lambda offer: 0).window(window).aggregate(Highest(), Each())
    return of_all.map(lambda offer: (offer[1], offer[0], *offer[2:]))


def q11(events: DataStream, side_input: str) -> DataStream:
    """The bids of each bidder's sessions: bidder, number, start, end."""
    bidders = bids(events).map(lambda bid: bid[Bid.BIDDER]).key_by(lambda bidder: bidder)
    sessions = bidders.window(EventTimeSessionWindows.with_gap(Time.seconds(10)))
    return sessions.aggregate(Count(), EachWithWindow())


def q12(events: DataStream, side_input: str) -> DataStream:
    """The bids of each bidder in ten seconds of processing time: bidder, number, start, end."""
    bidders = bids(events).map(lambda bid: bid[Bid.BIDDER]).key_by(lambda bidder: bidder)
    windows = bidders.window(TumblingProcessingTimeWindows.of(Time.seconds(10)))
    return windows.aggregate(Count(), EachWithWindow())
