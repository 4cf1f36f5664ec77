"""The streams that queries in columns begin with."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark.events import BID
from benchmarks.nexmark.source import EVENTS
from holdfast.common import Duration, WatermarkStrategy
from holdfast.datastream import DataStream

__all__ = ["bid_rows", "bids", "chosen", "of_kind", "reordered", "watermarks"]

#: By column of a bid, that of the events.
_BIDS = {"time": "time", "auction": "id", "bidder": "party", "price": "price"}
_BIDS |= {"channel": "name", "url": "text", "extra": "extra"}


def watermarks() -> WatermarkStrategy:
    """Events come at most four seconds after their time, as in nexmark-flink."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(4))
    return strategy.with_timestamp_assigner("time")


def chosen(names: tuple[str, ...]) -> pa.Schema:
    """These columns of bids."""
    return pa.schema([(name, EVENTS.field(_BIDS[name]).type) for name in names])


def of_kind(batch: pa.RecordBatch, kind: int) -> pa.Array:
    """Which rows are of a kind."""
    return pc.equal(batch["kind"], kind)


def bid_rows(batch: pa.RecordBatch, names: tuple[str, ...], mask: Any = None) -> pa.RecordBatch:
    """These columns of the bids of a batch, or of the rows that the mask selects."""
    columns = batch.select([_BIDS[name] for name in names])
    rows = columns.filter(of_kind(batch, BID) if mask is None else mask)
    return pa.RecordBatch.from_arrays(rows.columns, names=list(names))


def bids(events: DataStream, *names: str) -> DataStream:
    """Only the bids, with their times and these columns."""
    wanted = ("time", *names)
    return events.map_batches(
        lambda batch: bid_rows(batch, wanted), chosen(wanted), timestamp_column="time"
    )


def reordered(stream: DataStream, schema: pa.Schema) -> DataStream:
    """The columns in the order of a schema."""
    return stream.map_batches(lambda batch: batch, schema)
