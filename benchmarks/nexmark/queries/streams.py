"""The streams that queries begin with, and the types of what they keep."""

from __future__ import annotations

from benchmarks.nexmark.events import AUCTION, BID, KIND, PERSON, TIME, Event
from benchmarks.nexmark.queries.api import (
    DataStream,
    Duration,
    TimestampAssigner,
    Types,
    WatermarkStrategy,
)

__all__ = ["AUCTION_TYPE", "BID_TYPE", "auctions", "bids", "people", "watermarks"]

_NUMBER, _TEXT = Types.LONG(), Types.STRING()

AUCTION_TYPE = Types.TUPLE([_NUMBER] * 8 + [_TEXT] * 3)
BID_TYPE = Types.TUPLE([_NUMBER] * 5 + [_TEXT] * 3)


class _EventTime(TimestampAssigner):
    """The time that an event has in it."""

    def extract_timestamp(self, value: Event, record_timestamp: int) -> int:
        """Return it."""
        return value[TIME]  # type: ignore[no-any-return]


def watermarks() -> WatermarkStrategy:
    """Events come at most four seconds after their time, as in nexmark-flink."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(4))
    return strategy.with_timestamp_assigner(_EventTime())


def people(events: DataStream) -> DataStream:
    """Only the people."""
    return events.filter(lambda event: event[KIND] == PERSON)


def auctions(events: DataStream) -> DataStream:
    """Only the auctions."""
    return events.filter(lambda event: event[KIND] == AUCTION)


def bids(events: DataStream) -> DataStream:
    """Only the bids."""
    return events.filter(lambda event: event[KIND] == BID)
