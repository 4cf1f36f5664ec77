"""Queries whose results change with every bid: 17 and 18. As by record, each change is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark.columns.streams import bid_rows, bids, chosen
from holdfast.datastream import DataStream, KeyedBatchFunction
from holdfast.datastream.functions import RuntimeContext
from holdfast.datastream.state import ColumnStateDescriptor

__all__ = ["q17", "q18"]

_DAY = 86_400_000
_LOW, _HIGH = 10_000, 1_000_000
_PRICES = chosen(("auction", "price")).append(pa.field("day", pa.int64()))
_STATISTICS = pa.schema(
    [("auction", pa.int64()), ("day", pa.string())]
    + [(name, pa.int64()) for name in ("total", "low", "middle", "high")]
    + [(name, pa.int64()) for name in ("least", "most", "average", "sum")]
)
_BID = ("time", "auction", "bidder", "price", "channel", "url", "extra")


def _prices(batch: pa.RecordBatch) -> Any:
    rows = bid_rows(batch, ("auction", "price", "time"))
    return rows.set_column(2, "day", pa.array(rows["time"].to_numpy() // _DAY))


class Statistics(KeyedBatchFunction):
    """Counts and prices of an auction on a day."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the states."""

        def state(name: str, default: int | None = 0) -> Any:
            descriptor = ColumnStateDescriptor(name, pa.int64(), default=default)
            return runtime_context.get_column_state(descriptor)

        self.count, self.low, self.middle = state("count"), state("low"), state("middle")
        self.sum, self.least, self.most = state("sum"), state("least", None), state("most", None)

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        """Add bids."""
        price = batch["price"].to_numpy()
        is_low = price < _LOW
        count = self.count.running_count(keys).to_numpy()
        low = self.low.running_add(keys, is_low.astype(np.int64)).to_numpy()
        is_middle = ~is_low & (price < _HIGH)
        middle = self.middle.running_add(keys, is_middle.astype(np.int64)).to_numpy()
        total = self.sum.running_add(keys, price).to_numpy()
        return {
            **{"auction": batch["auction"], "day": _dates(batch["day"])},
            **{"total": count, "low": low, "middle": middle, "high": count - low - middle},
            "least": self.least.running_min(keys, price),
            "most": self.most.running_max(keys, price),
            **{"average": total // count, "sum": total},
        }


def _dates(days: pa.Array) -> pa.Array:
    """Days since 1970 as texts; there are few different ones."""
    encoded = days.dictionary_encode()
    texts = encoded.dictionary.cast(pa.int32()).cast(pa.date32()).cast(pa.string())
    return texts.take(encoded.indices)


def q17(events: DataStream, side_input: str) -> DataStream:
    """Each auction by day: bids, those of three price ranges, least, most, average, total."""
    keyed = events.map_batches(_prices, _PRICES).key_by(["auction", "day"])
    return keyed.process_batches(Statistics(), _STATISTICS)


class LastBid(KeyedBatchFunction):
    """The last bid of a bidder for an auction: by time, then by all else, so that one of them wins.

    Times and prices decide nearly always. Texts are compared only where both are equal.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the states."""

        def state(name: str, kind: pa.DataType) -> Any:
            return runtime_context.get_column_state(ColumnStateDescriptor(name, kind))

        self.time = state("time", pa.int64())
        self.price = state("price", pa.int64())
        self.texts = state("texts", pa.string())

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        """Return the bids that are later than all before them."""
        texts = pc.binary_join_element_wise(batch["channel"], batch["url"], batch["extra"], "\0")
        order = keys.order
        times, prices = (batch[name].to_numpy()[order] for name in ("time", "price"))
        rank = _ranks(times, prices, texts, order)
        groups = keys.indices[order]
        # NB: ranks of later keys are higher, so that one accumulation is right for all keys
        best = np.maximum.accumulate(rank + groups * (len(rank) + 1))
        new = np.ones(len(rank), np.bool_)
        new[1:] = best[1:] > best[:-1]
        later = new & self._later(times, prices, texts, order, keys, groups)
        self._keep(keys, texts, order[later], times[later], prices[later])
        return batch.take(pa.array(np.sort(order[later])))

    def _later(self, times: Any, prices: Any, texts: Any, order: Any, keys: Any, at: Any) -> Any:
        """Which bids are later than the one in the state."""
        known = self.time.get_distinct(keys)
        then = known.fill_null(-1).to_numpy()[at]
        later = times > then
        same = np.flatnonzero(times == then)
        if len(same):
            price = self.price.get_distinct(keys).fill_null(-1).to_numpy()[at[same]]
            later[same] = prices[same] > price
            equal = same[prices[same] == price]
            if len(equal):
                stored = self.texts.get_distinct(keys).take(pa.array(at[equal])).to_pylist()
                ours = texts.take(pa.array(order[equal])).to_pylist()
                later[equal] = [one > other for one, other in zip(ours, stored, strict=True)]
        return later

    def _keep(self, keys: Any, texts: Any, rows: Any, times: Any, prices: Any) -> None:
        """Store the last of the later bids of each key."""
        changed = keys.take(rows)
        self.time.put(changed, times)
        self.price.put(changed, prices)
        self.texts.put(changed, texts.take(pa.array(rows)))


def _ranks(times: Any, prices: Any, texts: Any, order: Any) -> Any:
    """The place of each row among all by time, price and texts."""
    by_rank = np.lexsort((prices, times))
    ordered, priced = times[by_rank], prices[by_rank]
    same = (ordered[1:] == ordered[:-1]) & (priced[1:] == priced[:-1])
    for first in np.flatnonzero(same & ~np.concatenate(([False], same[:-1]))).tolist():
        end = first + 1
        while end <= len(same) and same[end - 1]:
            end += 1
        group = by_rank[first:end].tolist()
        by_rank[first:end] = sorted(group, key=lambda at: texts[int(order[at])].as_py())
    ranks = np.empty(len(by_rank), np.int64)
    ranks[by_rank] = np.arange(len(by_rank))
    return ranks


def q18(events: DataStream, side_input: str) -> DataStream:
    """The last bid of each bidder for each auction: all its fields."""
    keyed = bids(events, *_BID[1:]).key_by(["bidder", "auction"])
    return keyed.process_batches(LastBid(), chosen(_BID))
