"""Queries whose results change with every bid: 17, 18 and 19.

What they give are the changes; the last one of a key is its result.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from benchmarks.nexmark.events import Bid, Event
from benchmarks.nexmark.queries.api import (
    DataStream,
    KeyedProcessFunction,
    ListStateDescriptor,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
)
from benchmarks.nexmark.queries.streams import BID_TYPE, bids

__all__ = ["q17", "q18", "q19", "rank"]

_DAY = 86_400_000
_LOW, _HIGH = 10_000, 1_000_000
_PLACES = 10


@lru_cache
def _date(day: int) -> str:
    return datetime.fromtimestamp(day * _DAY / 1000, UTC).date().isoformat()


class Statistics(KeyedProcessFunction):
    """Counts and prices of an auction on a day."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the state."""
        numbers = Types.TUPLE([Types.LONG()] * 7)
        self.so_far = runtime_context.get_state(ValueStateDescriptor("so_far", numbers))

    def process_element(self, value: tuple[int, int, int], ctx: Any) -> Iterator[Event]:
        """Add a bid."""
        auction, day, price = value
        so_far = self.so_far.value()
        if so_far is None:
            so_far = 0, 0, 0, 0, price, price, 0
        count, low, middle, high, least, most, total = so_far
        count += 1
        total += price
        if price < _LOW:
            low += 1
        elif price < _HIGH:
            middle += 1
        else:
            high += 1
        if price < least:
            least = price
        elif price > most:
            most = price
        self.so_far.update((count, low, middle, high, least, most, total))
        yield auction, _date(day), count, low, middle, high, least, most, total // count, total


def q17(events: DataStream, side_input: str) -> DataStream:
    """Each auction by day: bids, those of three price ranges, least, most, average, total."""
    prices = bids(events).map(lambda bid: (bid[Bid.AUCTION], bid[Bid.TIME] // _DAY, bid[Bid.PRICE]))
    return prices.key_by(lambda price: price[:2]).process(Statistics())


class LastBid(KeyedProcessFunction):
    """The last bid of a bidder for an auction."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the state."""
        self.last = runtime_context.get_state(ValueStateDescriptor("last", BID_TYPE))

    def process_element(self, value: Event, ctx: Any) -> Iterator[Event]:
        """Compare a bid with the last one: by time, then by all else, so that one of them wins."""
        last = self.last.value()
        if last is None or value > last:
            self.last.update(value)
            yield value[1:]


def q18(events: DataStream, side_input: str) -> DataStream:
    """The last bid of each bidder for each auction: all its fields."""
    keyed = bids(events).key_by(lambda bid: (bid[Bid.BIDDER], bid[Bid.AUCTION]))
    return keyed.process(LastBid())


class TopBids(KeyedProcessFunction):
    """The ten highest bids of an auction; a change gives the places from there on."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the state."""
        self.top = runtime_context.get_list_state(ListStateDescriptor("top", BID_TYPE))

    def process_element(self, value: Event, ctx: Any) -> Iterator[Event]:
        """Put a bid in its place, if it has one."""
        top = list(self.top.get())
        if len(top) == _PLACES:
            if value[Bid.PRICE] < top[-1][Bid.PRICE] or rank(value) > rank(top[-1]):
                return
            top.pop()
        insort(top, value, key=rank)
        self.top.update(top)
        for place in range(top.index(value), len(top)):
            yield (*top[place][1:], place + 1)


def rank(bid: Event) -> tuple[int, Event]:
    """The highest first; the rest only so that it is always the same one."""
    return -bid[Bid.PRICE], bid


def q19(events: DataStream, side_input: str) -> DataStream:
    """The ten highest bids of each auction: all fields and the place."""
    return bids(events).key_by(lambda bid: bid[Bid.AUCTION]).process(TopBids())
