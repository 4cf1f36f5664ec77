"""Queries that bring events of two kinds together: 3, 8 and 20."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.nexmark.events import Auction, Bid, Event, Person
from benchmarks.nexmark.queries.api import (
    DataStream,
    KeyedCoProcessFunction,
    ListStateDescriptor,
    RuntimeContext,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
)
from benchmarks.nexmark.queries.streams import AUCTION_TYPE, BID_TYPE, auctions, bids, people

__all__ = ["LocalItems", "new_sellers", "q3", "q8", "q20"]

_CATEGORY = 10
_STATES = frozenset(("OR", "ID", "CA"))
_WINDOW = 10_000


class LocalItems(KeyedCoProcessFunction):
    """Sellers with their auctions, whichever comes first; both are kept for ever, as in SQL."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the state."""
        place = Types.TUPLE([Types.STRING(), Types.STRING(), Types.STRING()])
        self.seller = runtime_context.get_state(ValueStateDescriptor("seller", place))
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", Types.LONG()))

    def process_element1(self, value: Event, ctx: Any) -> Iterator[Event]:
        """Somebody comes; there may be auctions already."""
        seller = value[Person.NAME], value[Person.CITY], value[Person.STATE]
        self.seller.update(seller)
        for auction in self.waiting.get():
            yield (*seller, auction)
        self.waiting.clear()

    def process_element2(self, value: Event, ctx: Any) -> Iterator[Event]:
        """An auction begins."""
        seller = self.seller.value()
        if seller is None:
            self.waiting.add(value[Auction.ID])
        else:
            yield (*seller, value[Auction.ID])


def q3(events: DataStream, side_input: str) -> DataStream:
    """Name, city, state and auction of those who sell in category 10 in three states."""
    local = people(events).filter(lambda person: person[Person.STATE] in _STATES)
    wanted = auctions(events).filter(lambda auction: auction[Auction.CATEGORY] == _CATEGORY)
    both = local.key_by(lambda person: person[Person.ID]).connect(
        wanted.key_by(lambda auction: auction[Auction.SELLER])
    )
    return both.process(LocalItems())


def new_sellers(newcomers: list[Event], begun: list[Event]) -> list[Event]:
    """Those who came in a window in which they also sell."""
    if not begun:
        return []
    return [
        (person[Person.ID], person[Person.NAME], person[Person.TIME] // _WINDOW * _WINDOW)
        for person in newcomers
    ]


def q8(events: DataStream, side_input: str) -> DataStream:
    """Id, name and window of people who came and sell in the same ten seconds."""
    together = people(events).co_group(auctions(events))
    keyed = together.where(lambda person: person[Person.ID]).equal_to(
        lambda auction: auction[Auction.SELLER]
    )
    return keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(_WINDOW))).apply(new_sellers)


class ExpandBids(KeyedCoProcessFunction):
    """Bids with their auction, if it is in the wanted category.

    Bids wait for an auction that has not come. All auctions come here, so that bids for one of
    another category need not wait for ever.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the state."""
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction", AUCTION_TYPE))
        self.unwanted = runtime_context.get_state(ValueStateDescriptor("unwanted", Types.BOOLEAN()))
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", BID_TYPE))

    def process_element1(self, value: Event, ctx: Any) -> Iterator[Event]:
        """An auction begins; there may be bids already."""
        if value[Auction.CATEGORY] == _CATEGORY:
            self.auction.update(value)
            for bid in self.waiting.get():
                yield _expanded(bid, value)
        else:
            self.unwanted.update(True)
        self.waiting.clear()

    def process_element2(self, value: Event, ctx: Any) -> Iterator[Event]:
        """Somebody bids."""
        auction = self.auction.value()
        if auction is not None:
            yield _expanded(value, auction)
        elif not self.unwanted.value():
            self.waiting.add(value)


def _expanded(bid: Event, auction: Event) -> Event:
    """All fields of both; what they have in common once."""
    return (
        *bid[Bid.AUCTION :],
        bid[Bid.TIME],
        *auction[Auction.SELLER :],
        auction[Auction.TIME],
    )


def q20(events: DataStream, side_input: str) -> DataStream:
    """The bids of category 10 with all that is known of their auctions."""
    both = auctions(events).key_by(lambda auction: auction[Auction.ID])
    return both.connect(bids(events).key_by(lambda bid: bid[Bid.AUCTION])).process(ExpandBids())
