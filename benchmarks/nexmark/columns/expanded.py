"""Query 20: bids with all that is known of their auctions.

Auctions and bids stay one stream, whose key, the auction, is in the same column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark.columns.row_lists import RowLists
from benchmarks.nexmark.events import AUCTION, BID, PERSON
from benchmarks.nexmark.source import EVENTS
from holdfast.datastream import DataStream, KeyedBatchFunction
from holdfast.datastream.functions import RuntimeContext
from holdfast.datastream.state import ColumnStateDescriptor

__all__ = ["COLUMNS", "q20"]

#: The columns of the events that are read.
COLUMNS = (
    *("kind", "time", "id", "party", "price", "reserve", "expires", "category"),
    *("name", "text", "extra"),
)
_CATEGORY = 10
_BID = ("id", "party", "price", "name", "text", "extra", "time")
_AUCTION = ("party", "price", "reserve", "expires", "category", "name", "text", "extra", "time")


def _fields(names: tuple[str, ...], prefix: str) -> list[pa.Field]:
    return [pa.field(f"{prefix}_{name}", EVENTS.field(name).type) for name in names]


_EXPANDED = pa.schema(_fields(_BID, "bid") + _fields(_AUCTION, "auction"))


class ExpandBids(KeyedBatchFunction):
    """Bids with their auction, if it is in the wanted category.

    Bids wait for an auction that has not come. All auctions come here, so that bids for one of
    another category need not wait for ever.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the states."""

        def state(name: str, kind: pa.DataType) -> Any:
            return runtime_context.get_column_state(ColumnStateDescriptor(name, kind))

        self.wanted = state("wanted", pa.bool_())
        self.auction = {
            name: state(f"auction_{name}", EVENTS.field(name).type) for name in _AUCTION
        }
        fields = [EVENTS.field(name) for name in _BID]
        self.waiting = RowLists(runtime_context, fields, "waiting")

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Iterator[Any]:
        """Add auctions first, then bids: which comes first in a batch does not matter."""
        kinds = batch["kind"].to_numpy()
        auctions = np.flatnonzero(kinds == AUCTION)
        if len(auctions):
            yield self._begin(batch.take(pa.array(auctions)), keys.take(auctions))
        bids = np.flatnonzero(kinds == BID)
        rows, theirs = batch.select(_BID).take(pa.array(bids)), keys.take(bids)
        wanted = self.wanted.get(theirs)
        if wanted.null_count:
            early = wanted.is_null()
            self.waiting.add(theirs.filter(early), rows.filter(early))
        yield self._expanded(rows.filter(wanted), theirs.filter(wanted))

    def _begin(self, rows: pa.RecordBatch, keys: Any) -> Any:
        """Store auctions; return what has waited for them."""
        wanted = pc.equal(rows["category"], _CATEGORY)
        self.wanted.put(keys, wanted)
        chosen, ours = keys.filter(wanted), rows.filter(wanted)
        for name, state in self.auction.items():
            state.put(chosen, ours[name])
        bids, owners = self.waiting.get(chosen)
        self.waiting.clear(keys)
        return self._expanded(bids, chosen.take(owners)) if len(owners) else None

    def _expanded(self, bids: pa.RecordBatch, keys: Any) -> pa.RecordBatch:
        """All fields of bids and of their auctions."""
        at = pa.array(keys.indices)
        auctions = [state.get_distinct(keys).take(at) for state in self.auction.values()]
        return pa.RecordBatch.from_arrays([*bids.columns, *auctions], schema=_EXPANDED)


def q20(events: DataStream, side_input: str) -> DataStream:
    """The bids of category 10 with all that is known of their auctions."""
    trades = events.map_batches(
        lambda batch: batch.filter(pc.not_equal(batch["kind"], PERSON)),
        pa.schema([EVENTS.field(name) for name in COLUMNS]),
    )
    return trades.key_by("id").process_batches(ExpandBids(), _EXPANDED)
