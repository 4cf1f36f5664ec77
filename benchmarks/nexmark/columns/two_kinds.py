"""Queries that bring events of two kinds together: 3, 4 and 8.

Of queries 3 and 8 only the choice of rows and columns is done in batches: few events are left, and
functions of records join them. In query 4 auctions and bids stay one stream, whose key, the
auction, is in the same column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark.columns.streams import of_kind
from benchmarks.nexmark.events import AUCTION, BID, PERSON
from benchmarks.nexmark.queries.two_kinds import LocalItems, new_sellers
from holdfast.common import Time
from holdfast.datastream import DataStream, KeyedBatchFunction
from holdfast.datastream.functions import RuntimeContext
from holdfast.datastream.state import ColumnStateDescriptor
from holdfast.datastream.window import TumblingEventTimeWindows

__all__ = ["q3", "q4", "q8"]

_CATEGORY = 10
_STATES = pa.array(["OR", "ID", "CA"])
_WINDOW = 10_000
_OFFERS = pa.schema([(name, pa.int64()) for name in ("kind", "time", "id", "party")])
_PEOPLE = pa.schema([(name, pa.int64()) for name in ("kind", "time", "id")]).append(
    pa.field("name", pa.string())
)
_PLACES = pa.schema([("id", pa.int64())] + [(name, pa.string()) for name in ("name", "city")])
_PLACES = _PLACES.append(pa.field("state", pa.string()))


def _local(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(
        pc.and_(of_kind(batch, PERSON), pc.is_in(batch["state"], value_set=_STATES))
    )


def _wanted(batch: pa.RecordBatch) -> pa.RecordBatch:
    wanted = pc.and_(of_kind(batch, AUCTION), pc.equal(batch["category"], _CATEGORY))
    return batch.filter(wanted.fill_null(False))


def q3(events: DataStream, side_input: str) -> DataStream:
    """Name, city, state and auction of those who sell in category 10 in three states."""
    local = events.map_batches(_local, _PLACES).map(
        lambda row: (PERSON, None, row.id, row.name, None, None, row.city, row.state)
    )
    wanted = events.map_batches(_wanted, _OFFERS).map(tuple)
    both = local.key_by(lambda person: person[2]).connect(wanted.key_by(lambda offer: offer[3]))
    return both.process(LocalItems())


def q8(events: DataStream, side_input: str) -> DataStream:
    """Id, name and window of people who came and sell in the same ten seconds."""
    people = events.map_batches(
        lambda batch: batch.filter(of_kind(batch, PERSON)), _PEOPLE, timestamp_column="time"
    )
    offers = events.map_batches(
        lambda batch: batch.filter(of_kind(batch, AUCTION)), _OFFERS, timestamp_column="time"
    )
    together = people.map(tuple).co_group(offers.map(tuple))
    keyed = together.where(lambda person: person[2]).equal_to(lambda offer: offer[3])
    return keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(_WINDOW))).apply(new_sellers)


_TRADES = ("kind", "time", "id", "price", "expires", "category")
_TRADE = pa.schema([(name, pa.int64()) for name in _TRADES])
_WON = pa.schema([("category", pa.int64()), ("price", pa.int64())])
_AVERAGES = pa.schema([("category", pa.int64()), ("average", pa.int64())])


class WinningPrices(KeyedBatchFunction):
    """The highest price of each auction, when it has expired; none without a bid.

    A bid may come before its auction. Its time and price then wait, until no auction will come
    any more for which the bid is valid.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the states."""

        def state(name: str, kind: pa.DataType) -> Any:
            return runtime_context.get_column_state(ColumnStateDescriptor(name, kind))

        self.begins = state("begins", pa.int64())
        self.expires = state("expires", pa.int64())
        self.category = state("category", pa.int64())
        self.best = state("best", pa.int64())
        self.early = state("early", pa.list_(pa.int64()))

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> None:
        """Add auctions first, then bids: which comes first in a batch does not matter."""
        kinds = batch["kind"].to_numpy()
        auctions = np.flatnonzero(kinds == AUCTION)
        if len(auctions):
            self._begin(batch.take(pa.array(auctions)), keys.take(auctions), ctx)
        bids = np.flatnonzero(kinds == BID)
        if len(bids):
            self._offer(batch.take(pa.array(bids)), keys.take(bids), ctx)

    def _begin(self, rows: pa.RecordBatch, keys: Any, ctx: Any) -> None:
        self.begins.put(keys, rows["time"])
        self.expires.put(keys, rows["expires"])
        self.category.put(keys, rows["category"])
        ctx.register_timers(keys, rows["expires"])
        waiting = self.early.get(keys)
        has_early = waiting.is_valid()
        if not pc.any(has_early).as_py():
            return
        some = keys.filter(has_early)
        begun = [rows[name].filter(has_early).to_pylist() for name in ("time", "expires")]
        prices = [
            max((price for time, price in _pairs(early) if begin <= time <= end), default=None)
            for early, begin, end in zip(waiting.filter(has_early).to_pylist(), *begun, strict=True)
        ]
        self.best.max(some, pa.array(prices, pa.int64()))
        self.early.clear(some)

    def _offer(self, rows: pa.RecordBatch, keys: Any, ctx: Any) -> None:
        times = rows["time"].to_numpy()
        begins = self.begins.get(keys)
        known = begins.is_valid().to_numpy(zero_copy_only=False)
        begin = begins.fill_null(0).to_numpy()
        end = self.expires.get(keys).fill_null(0).to_numpy()
        valid = known & (begin <= times) & (times <= end)
        self.best.max(keys.filter(valid), rows["price"].to_numpy()[valid])
        early = np.flatnonzero(~known & (times > ctx.current_watermark()))
        if len(early):
            self._wait(rows.take(pa.array(early)), keys.take(early), ctx)

    def _wait(self, rows: pa.RecordBatch, keys: Any, ctx: Any) -> None:
        waiting = [early or [] for early in self.early.get_distinct(keys).to_pylist()]
        offers = (keys.indices.tolist(), rows["time"].to_pylist(), rows["price"].to_pylist())
        for at, time, price in zip(*offers, strict=True):
            waiting[at] += (time, price)
        self.early.put_distinct(keys, pa.array(waiting, pa.list_(pa.int64())))
        ctx.register_timers(keys, rows["time"])

    def on_timers(self, keys: Any, timestamps: pa.Array, ctx: Any) -> Any:
        """Auctions are over, or bids need not wait any more."""
        ends = self.expires.get(keys)
        over = pc.less_equal(ends, timestamps).fill_null(False)
        waiting = keys.filter(pc.invert(over))
        if len(waiting):
            self._forget(waiting, ctx.current_watermark())
        ended = keys.filter(over)
        won = {
            "category": self.category.get_distinct(ended),
            "price": self.best.get_distinct(ended),
        }
        for state in (self.begins, self.expires, self.category, self.best):
            state.clear(ended)
        return pa.record_batch(won).filter(won["price"].is_valid())

    def _forget(self, keys: Any, watermark: int) -> None:
        kept = [
            [part for pair in _pairs(early or ()) if pair[0] > watermark for part in pair] or None
            for early in self.early.get_distinct(keys).to_pylist()
        ]
        self.early.put_distinct(keys, pa.array(kept, pa.list_(pa.int64())))


def _pairs(early: Any) -> Any:
    """Times and prices."""
    return zip(early[::2], early[1::2], strict=True)


class RunningAverage(KeyedBatchFunction):
    """The average price of each category, whenever an auction is over."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the states."""

        def state(name: str) -> Any:
            descriptor = ColumnStateDescriptor(name, pa.int64(), default=0)
            return runtime_context.get_column_state(descriptor)

        self.count, self.total = state("count"), state("total")

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        """Add auctions to their categories."""
        count = self.count.running_count(keys).to_numpy()
        total = self.total.running_add(keys, batch["price"]).to_numpy()
        return {"category": batch["category"], "average": total // count}


def q4(events: DataStream, side_input: str) -> DataStream:
    """The average price that auctions of a category were won with: category, average."""
    trades = events.map_batches(
        lambda batch: batch.filter(pc.not_equal(batch["kind"], PERSON)),
        _TRADE,
        timestamp_column="time",
    )
    won = trades.key_by("id").process_batches(WinningPrices(), _WON)
    return won.key_by("category").process_batches(RunningAverage(), _AVERAGES)
