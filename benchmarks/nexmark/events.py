"""What an event is: a plain tuple, whose first two fields are its kind and its time.

Plain tuples, because they are what costs least between processes. The classes here only name the
places of the fields: ``bid[Bid.PRICE]``. Times are milliseconds.
"""

from __future__ import annotations

from typing import Any

__all__ = ["AUCTION", "BID", "KIND", "PERSON", "TIME", "Auction", "Bid", "Event", "Person"]

Event = tuple[Any, ...]

#: the places of the fields that every event has
KIND, TIME = range(2)

#: the kinds
PERSON, AUCTION, BID = range(3)


class Person:
    """Somebody who sells and bids."""

    KIND, TIME, ID, NAME, EMAIL, CARD, CITY, STATE, EXTRA = range(9)


class Auction:
    """Something for sale, until it expires."""

    (KIND, TIME, ID, SELLER, INITIAL, RESERVE, EXPIRES, CATEGORY, ITEM, DESCRIPTION, EXTRA) = range(
        11
    )


class Bid:
    """A price that somebody offers in an auction."""

    KIND, TIME, AUCTION, BIDDER, PRICE, CHANNEL, URL, EXTRA = range(8)
