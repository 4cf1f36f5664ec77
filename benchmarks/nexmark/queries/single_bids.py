"""Queries that look at each bid by itself: 0, 1, 2 and 13."""

from __future__ import annotations

from decimal import Decimal

from benchmarks.nexmark.events import Bid, Event
from benchmarks.nexmark.generator import SIDE_INPUT
from benchmarks.nexmark.queries.api import DataStream, MapFunction, RuntimeContext
from benchmarks.nexmark.queries.streams import bids

__all__ = ["q0", "q1", "q2", "q13"]

_EUROS = Decimal("0.908")


def q0(events: DataStream, side_input: str) -> DataStream:
    """Pass the bids on: auction, bidder, price, time, extra."""
    return bids(events).map(
        lambda bid: (
            bid[Bid.AUCTION],
            bid[Bid.BIDDER],
            bid[Bid.PRICE],
            bid[Bid.TIME],
            bid[Bid.EXTRA],
        )
    )


def q1(events: DataStream, side_input: str) -> DataStream:
    """The same with prices in euros, to a tenth of a cent."""
    return bids(events).map(
        lambda bid: (
            bid[Bid.AUCTION],
            bid[Bid.BIDDER],
            _EUROS * bid[Bid.PRICE],
            bid[Bid.TIME],
            bid[Bid.EXTRA],
        )
    )


def q2(events: DataStream, side_input: str) -> DataStream:
    """Auction and price of the bids for every 123rd auction."""
    chosen = bids(events).filter(lambda bid: bid[Bid.AUCTION] % 123 == 0)
    return chosen.map(lambda bid: (bid[Bid.AUCTION], bid[Bid.PRICE]))


class Lookup(MapFunction):
    """Puts a value beside each bid that a table has for its auction.

    The table is small and does not change, so each subtask reads it when it begins. (In SQL it is
    joined as of the processing time, which makes no difference.)
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def open(self, runtime_context: RuntimeContext) -> None:
        """Read the table."""
        with open(self._path, encoding="utf-8") as file:
            rows = (line.rstrip("\n").split(",") for line in file)
            self._values = {int(key): value for key, value in rows}

    def map(self, value: Event) -> Event:
        """Auction, bidder, price, time and the value."""
        auction = value[Bid.AUCTION]
        return (
            auction,
            value[Bid.BIDDER],
            value[Bid.PRICE],
            value[Bid.TIME],
            self._values[auction % SIDE_INPUT],
        )


def q13(events: DataStream, side_input: str) -> DataStream:
    """Enrich the bids with a side input."""
    return bids(events).map(Lookup(side_input))
