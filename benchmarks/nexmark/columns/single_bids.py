"""Queries that look at each bid by itself: 0, 1, 2 and 13."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from benchmarks.nexmark.columns.streams import bid_rows, chosen
from benchmarks.nexmark.events import BID
from benchmarks.nexmark.generator import SIDE_INPUT
from holdfast.datastream import BatchFunction, DataStream
from holdfast.datastream.functions import RuntimeContext

__all__ = ["q0", "q1", "q2", "q13"]

_WHOLE = ("auction", "bidder", "price", "time", "extra")
_PRICE_AT = _WHOLE.index("price")
_EUROS = pa.scalar(Decimal("0.908"), pa.decimal128(3, 3))
_IN_EUROS = chosen(_WHOLE).set(_PRICE_AT, pa.field("price", pa.decimal128(23, 3)))
_TWO = ("auction", "price")
_ENRICHED = ("auction", "bidder", "price", "time")


def q0(events: DataStream, side_input: str) -> DataStream:
    """Pass the bids on: auction, bidder, price, time, extra."""
    return events.map_batches(lambda batch: bid_rows(batch, _WHOLE), chosen(_WHOLE))


def _in_euros(batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = bid_rows(batch, _WHOLE)
    price = pc.multiply(rows["price"].cast(pa.decimal128(19, 0)), _EUROS)
    return rows.set_column(_PRICE_AT, "price", price)


def q1(events: DataStream, side_input: str) -> DataStream:
    """The same with prices in euros, to a tenth of a cent."""
    return events.map_batches(_in_euros, _IN_EUROS)


def _every_123rd(batch: pa.RecordBatch) -> pa.RecordBatch:
    wanted = (batch["id"].to_numpy() % 123 == 0) & (batch["kind"].to_numpy() == BID)
    return bid_rows(batch, _TWO, pa.array(wanted))


def q2(events: DataStream, side_input: str) -> DataStream:
    """Auction and price of the bids for every 123rd auction."""
    return events.map_batches(_every_123rd, chosen(_TWO))


class Lookup(BatchFunction):
    """Puts a value beside each bid that a table has for its auction."""

    def __init__(self, path: str) -> None:
        self._path = path

    def open(self, runtime_context: RuntimeContext) -> None:
        """Read the table."""
        types = {"key": pa.int64(), "value": pa.string()}
        table = csv.read_csv(
            self._path,
            csv.ReadOptions(column_names=list(types), use_threads=False),
            convert_options=csv.ConvertOptions(column_types=types),
        ).combine_chunks()
        keys = table["key"].to_numpy()
        #: where the value of each key is
        self._places = np.zeros(SIDE_INPUT, np.int64)
        self._places[keys] = np.arange(len(keys))
        self._values = table["value"].combine_chunks()

    def map_batch(self, batch: pa.RecordBatch) -> Any:
        """Auction, bidder, price, time and the value."""
        rows = bid_rows(batch, _ENRICHED)
        places = self._places[rows["auction"].to_numpy() % SIDE_INPUT]
        return rows.append_column("value", self._values.take(pa.array(places)))


def q13(events: DataStream, side_input: str) -> DataStream:
    """Enrich the bids with a side input."""
    schema = chosen(_ENRICHED).append(pa.field("value", pa.string()))
    return events.map_batches(Lookup(side_input), schema)
