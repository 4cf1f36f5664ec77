"""Queries about auctions that are over: 4 and 9.

In SQL they give a result with the first bid and correct it with every better one. Here an auction
waits for its end, which event time tells, and gives one result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.nexmark.events import Auction, Bid, Event
from benchmarks.nexmark.queries.api import (
    DataStream,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
)
from benchmarks.nexmark.queries.streams import AUCTION_TYPE, BID_TYPE, auctions, bids

__all__ = ["q4", "q9"]


class WinningBids(KeyedCoProcessFunction):
    """Each auction with its highest bid, when it has expired; none without a bid."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the state."""
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction", AUCTION_TYPE))
        self.best = runtime_context.get_state(ValueStateDescriptor("best", BID_TYPE))
        self.early = runtime_context.get_list_state(ListStateDescriptor("early", BID_TYPE))

    def process_element1(self, value: Event, ctx: Any) -> None:
        """An auction begins; there may be bids already."""
        self.auction.update(value)
        ctx.timer_service().register_event_time_timer(value[Auction.EXPIRES])
        valid = [bid for bid in self.early.get() if _is_valid(bid, value)]
        self.early.clear()
        if valid:
            self.best.update(min(valid, key=_rank))

    def process_element2(self, value: Event, ctx: Any) -> None:
        """Somebody bids."""
        auction = self.auction.value()
        if auction is None:
            self.early.add(value)
            ctx.timer_service().register_event_time_timer(value[Bid.TIME])
        elif _is_valid(value, auction):
            best = self.best.value()
            if best is None or _rank(value) < _rank(best):
                self.best.update(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[Event, Event]]:
        """An auction is over, or no auction will come any more for which a bid is valid."""
        auction = self.auction.value()
        if auction is None:
            self.early.update([bid for bid in self.early.get() if bid[Bid.TIME] > timestamp])
        elif auction[Auction.EXPIRES] <= timestamp:
            best = self.best.value()
            if best is not None:
                yield auction, best
            self.auction.clear()
            self.best.clear()


def _is_valid(bid: Event, auction: Event) -> bool:
    return auction[Auction.TIME] <= bid[Bid.TIME] <= auction[Auction.EXPIRES]  # type: ignore[no-any-return]


def _rank(bid: Event) -> tuple[int, Event]:
    """The highest first, then the earliest; the rest only so that it is always the same one."""
    return -bid[Bid.PRICE], bid


class RunningAverage(KeyedProcessFunction):
    """The average price of each category, whenever an auction is over."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the state."""
        totals = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.totals = runtime_context.get_state(ValueStateDescriptor("totals", totals))

    def process_element(self, value: tuple[int, int], ctx: Any) -> Iterator[tuple[int, int]]:
        """Add an auction to its category."""
        category, price = value
        count, total = self.totals.value() or (0, 0)
        count += 1
        total += price
        self.totals.update((count, total))
        yield category, total // count


def _winning_bids(events: DataStream) -> DataStream:
    both = auctions(events).key_by(lambda auction: auction[Auction.ID])
    return both.connect(bids(events).key_by(lambda bid: bid[Bid.AUCTION])).process(WinningBids())


def q4(events: DataStream, side_input: str) -> DataStream:
    """The average price that auctions of a category were won with: category, average."""
    prices = _winning_bids(events).map(lambda won: (won[0][Auction.CATEGORY], won[1][Bid.PRICE]))
    return prices.key_by(lambda price: price[0]).process(RunningAverage())


def q9(events: DataStream, side_input: str) -> DataStream:
    """All fields of an auction, and of the bid that won it."""
    return _winning_bids(events).map(lambda won: (*won[0][1:], *won[1][1:]))
