"""Queries about bids in windows: 5, 7, 11 and 12.

Queries 5 and 7 look for the highest of all keys. Of each batch only its own highest rows can be
among them, so these are chosen first, and functions of records compare the few that are left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark.columns.streams import bid_rows, bids, chosen, reordered
from benchmarks.nexmark.queries.windowed_bids import Each, Highest
from holdfast.common import Time
from holdfast.datastream import DataStream
from holdfast.datastream.columns.aggregates import count
from holdfast.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)

__all__ = ["q5", "q7", "q11", "q12"]

_WINDOW = 10_000
_OFFERS = ("price", "auction", "bidder", "time", "extra")
_COUNTS = pa.schema([("num", pa.int64()), ("auction", pa.int64()), ("window_end", pa.int64())])
_HOTTEST = _COUNTS.append(pa.field("at", pa.int64()))
_BIDDERS = pa.schema(
    [(name, pa.int64()) for name in ("bidder", "count", "window_start", "window_end")]
)


def _highest(rows: pa.RecordBatch, windows: np.ndarray, column: str) -> pa.RecordBatch:
    """The rows with the highest value of their window."""
    values = rows[column].to_numpy()
    distinct, places = np.unique(windows, return_inverse=True)
    most = np.full(len(distinct), np.iinfo(np.int64).min)
    np.maximum.at(most, places, values)
    return rows.filter(pa.array(values == most[places]))


def _hottest(batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = _highest(batch, batch["window_end"].to_numpy(), "num")
    return rows.append_column("at", pc.subtract(rows["window_end"], 1))


def q5(events: DataStream, side_input: str) -> DataStream:
    """The auctions with the most bids in ten seconds, every two: auction, number, end."""
    every, size = Time.seconds(2), Time.seconds(10)
    counts = (
        bids(events, "auction")
        .key_by("auction")
        .window_batches(SlidingEventTimeWindows.of(size, every), {"num": count()})
    )
    hottest = (
        counts.map_batches(_hottest, _HOTTEST, timestamp_column="at")
        .map(lambda row: (row.num, row.auction, row.window_end))
        .key_by(lambda row: row[2])
        .window(TumblingEventTimeWindows.of(every))
        .aggregate(Highest(), Each())
    )
    return hottest.map(lambda row: (row[1], row[0], row[2]))


def _best_offers(batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = bid_rows(batch, _OFFERS)
    return _highest(rows, rows["time"].to_numpy() // _WINDOW, "price")


def q7(events: DataStream, side_input: str) -> DataStream:
    """The highest bids in every ten seconds: auction, price, bidder, time, extra."""
    offers = events.map_batches(_best_offers, chosen(_OFFERS), timestamp_column="time")
    best = (
        offers.map(tuple)
        .key_by(lambda offer: 0)
        .window(TumblingEventTimeWindows.of(Time.milliseconds(_WINDOW)))
        .aggregate(Highest(), Each())
    )
    return best.map(lambda offer: (offer[1], offer[0], *offer[2:]))


def _counted(events: DataStream, windows: Any) -> DataStream:
    """The bids of each bidder in windows: bidder, number, start, end."""
    bidders = bids(events, "bidder").key_by("bidder")
    return reordered(bidders.window_batches(windows, {"count": count()}), _BIDDERS)


def q11(events: DataStream, side_input: str) -> DataStream:
    """The bids of each bidder's sessions: bidder, number, start, end."""
    return _counted(events, EventTimeSessionWindows.with_gap(Time.seconds(10)))


def q12(events: DataStream, side_input: str) -> DataStream:
    """The bids of each bidder in ten seconds of processing time: bidder, number, start, end."""
    return _counted(events, TumblingProcessingTimeWindows.of(Time.seconds(10)))
