"""The queries in columns: each takes the stream of events in batches and the side input's path.

`streams` has what they begin with. `single_bids` has queries 0, 1, 2 and 13, `windowed_bids` 5, 7,
11 and 12, `changing` 17 and 18, `top_bids` 19, `two_kinds` 3, 4 and 8, `expanded` 20,
`closed_auctions` 9.

Where few rows are left, functions of records go on, those of `benchmarks.nexmark.queries`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.nexmark.columns import (
    changing,
    closed_auctions,
    expanded,
    single_bids,
    top_bids,
    two_kinds,
    windowed_bids,
)
from holdfast.datastream import DataStream

__all__ = ["COLUMN_QUERIES", "ColumnQuery"]


@dataclass(frozen=True)
class ColumnQuery:
    """A query in columns.

    Attributes:
        build: Makes its results of the events and the path of the side input.
        columns: The columns of the events that it reads.
        gives_batches: Whether its results are batches; else they are tuples.
    """

    build: Callable[[DataStream, str], DataStream]
    columns: tuple[str, ...]
    gives_batches: bool = True


_BID = ("kind", "time", "id", "party", "price")

COLUMN_QUERIES = {
    "q0": ColumnQuery(single_bids.q0, (*_BID, "extra")),
    "q1": ColumnQuery(single_bids.q1, (*_BID, "extra")),
    "q2": ColumnQuery(single_bids.q2, ("kind", "time", "id", "price")),
    "q3": ColumnQuery(
        two_kinds.q3, ("kind", "time", "id", "party", "category", "name", "city", "state"), False
    ),
    "q4": ColumnQuery(two_kinds.q4, ("kind", "time", "id", "price", "expires", "category")),
    "q5": ColumnQuery(windowed_bids.q5, ("kind", "time", "id"), False),
    "q7": ColumnQuery(windowed_bids.q7, (*_BID, "extra"), False),
    "q8": ColumnQuery(two_kinds.q8, ("kind", "time", "id", "party", "name"), False),
    "q9": ColumnQuery(closed_auctions.q9, closed_auctions.COLUMNS),
    "q11": ColumnQuery(windowed_bids.q11, ("kind", "time", "party")),
    "q12": ColumnQuery(windowed_bids.q12, ("kind", "time", "party")),
    "q13": ColumnQuery(single_bids.q13, _BID),
    "q17": ColumnQuery(changing.q17, ("kind", "time", "id", "price")),
    "q18": ColumnQuery(changing.q18, (*_BID, "name", "text", "extra")),
    "q19": ColumnQuery(top_bids.q19, (*_BID, "name", "text", "extra")),
    "q20": ColumnQuery(expanded.q20, expanded.COLUMNS),
}
