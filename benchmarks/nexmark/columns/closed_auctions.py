"""Query 9: auctions that are over, with the bids that won them.

Auctions and bids stay one stream, whose key, the auction, is in the same column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark.columns.row_lists import RowLists
from benchmarks.nexmark.columns.streams import bid_rows, chosen
from benchmarks.nexmark.columns.top_bids import ranks
from benchmarks.nexmark.events import AUCTION, BID, PERSON
from benchmarks.nexmark.source import EVENTS
from holdfast.datastream import DataStream, KeyedBatchFunction
from holdfast.datastream.functions import RuntimeContext
from holdfast.datastream.state import ColumnStateDescriptor

__all__ = ["COLUMNS", "q9"]

#: The columns of the events that are read.
COLUMNS = (
    *("kind", "time", "id", "party", "price", "reserve", "expires", "category"),
    *("name", "text", "extra"),
)
_AUCTION = COLUMNS[1:]
#: The columns of a bid, without its auction, which is the key.
_BID = chosen(("time", "bidder", "price", "channel", "url", "extra"))
_WON = pa.schema(
    [pa.field(f"auction_{name}", EVENTS.field(name).type) for name in _AUCTION]
    + [pa.field(f"bid_{name}", chosen((name,)).field(0).type) for name in ("time", "auction")]
    + [pa.field(f"bid_{field.name}", field.type) for field in list(_BID)[1:]]
)


class WinningBids(KeyedBatchFunction):
    """Each auction with its highest bid, when it has expired; none without a bid.

    A bid may come before its auction. It then waits, until no auction will come any more for which
    the bid is valid.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the states."""

        def states(name: str, fields: Any) -> Any:
            return {
                field.name: runtime_context.get_column_state(
                    ColumnStateDescriptor(f"{name}_{field.name}", field.type)
                )
                for field in fields
            }

        fields = [EVENTS.field(name) for name in _AUCTION if name != "id"]
        self.auction = states("auction", fields)
        self.best = states("best", _BID)
        self.early = RowLists(runtime_context, list(_BID), "early")

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> None:
        """Add auctions first, then bids: which comes first in a batch does not matter."""
        kinds = batch["kind"].to_numpy()
        auctions = np.flatnonzero(kinds == AUCTION)
        if len(auctions):
            self._begin(batch.take(pa.array(auctions)), keys.take(auctions), ctx)
        is_bid = kinds == BID
        rows, theirs = bid_rows(batch, tuple(_BID.names), pa.array(is_bid)), keys.filter(is_bid)
        unknown = self._offer(rows, theirs)
        early = unknown & (rows["time"].to_numpy() > ctx.current_watermark())
        if early.any():
            waiting = rows.filter(pa.array(early))
            self.early.add(theirs.filter(early), waiting)
            ctx.register_timers(theirs.filter(early), waiting["time"])

    def _begin(self, rows: pa.RecordBatch, keys: Any, ctx: Any) -> None:
        for name, state in self.auction.items():
            state.put(keys, rows[name])
        ctx.register_timers(keys, rows["expires"])
        waiting, owners = self.early.get(keys)
        if len(owners):
            one_each = keys.take(keys.last_rows)
            self._offer(waiting, one_each.take(owners))
            self.early.clear(keys)

    def _offer(self, rows: pa.RecordBatch, keys: Any) -> Any:
        """Compare bids with the best ones; return which of them have no auction yet."""
        times, begins = rows["time"].to_numpy(), self.auction["time"].get(keys)
        known = begins.is_valid().to_numpy(zero_copy_only=False)
        ends = self.auction["expires"].get(keys).fill_null(0).to_numpy()
        valid = known & (begins.fill_null(0).to_numpy() <= times) & (times <= ends)
        if valid.any():
            self._improve(rows.filter(pa.array(valid)), keys.filter(valid))
        return ~known

    def _improve(self, rows: pa.RecordBatch, keys: Any) -> None:
        """Store bids that are better than the best so far."""
        so_far = {name: state.get_distinct(keys) for name, state in self.best.items()}
        has_one = so_far["price"].is_valid()
        every = pa.record_batch(
            [pa.concat_arrays([so_far[name].filter(has_one), rows[name]]) for name in _BID.names],
            names=_BID.names,
        )
        before = np.flatnonzero(has_one.to_numpy(zero_copy_only=False))
        owners = np.concatenate((before, keys.indices))
        rank = ranks(every)
        best = np.full(len(keys.slots), len(rank))
        np.minimum.at(best, owners, rank)
        won = np.flatnonzero(rank == best[owners])
        better = won[won >= len(before)] - len(before)
        winners, theirs = rows.take(pa.array(better)), keys.take(better)
        for name, state in self.best.items():
            state.put(theirs, winners[name])

    def on_timers(self, keys: Any, timestamps: pa.Array, ctx: Any) -> Any:
        """Auctions are over, or bids need not wait any more."""
        over = pc.less_equal(self.auction["expires"].get(keys), timestamps).fill_null(False)
        others = keys.filter(pc.invert(over))
        if len(others):
            self._forget(others, ctx.current_watermark())
        ended = keys.filter(over)
        auction = {name: state.get_distinct(ended) for name, state in self.auction.items()}
        best = {name: state.get_distinct(ended) for name, state in self.best.items()}
        for state in (*self.auction.values(), *self.best.values()):
            state.clear(ended)
        auction["id"] = best["auction"] = ended.distinct
        won = {f"auction_{name}": values for name, values in auction.items()}
        won |= {f"bid_{name}": values for name, values in best.items()}
        return pa.record_batch(won).filter(best["price"].is_valid())

    def _forget(self, keys: Any, watermark: int) -> None:
        waiting, owners = self.early.get(keys)
        kept = waiting["time"].to_numpy() > watermark
        self.early.put(keys, waiting.filter(pa.array(kept)), owners[kept])


def q9(events: DataStream, side_input: str) -> DataStream:
    """All fields of an auction, and of the bid that won it."""
    trades = events.map_batches(
        lambda batch: batch.filter(pc.not_equal(batch["kind"], PERSON)),
        pa.schema([EVENTS.field(name) for name in COLUMNS]),
        timestamp_column="time",
    )
    return trades.key_by("id").process_batches(WinningBids(), _WON)
