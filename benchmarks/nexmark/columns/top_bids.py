"""Query 19: the ten highest bids of each auction. As by record, each change is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.nexmark.columns.row_lists import RowLists
from benchmarks.nexmark.columns.streams import bids, chosen
from holdfast.datastream import DataStream, KeyedBatchFunction
from holdfast.datastream.functions import RuntimeContext

__all__ = ["q19", "ranks"]

_PLACES = 10
_BID = ("time", "auction", "bidder", "price", "channel", "url", "extra")
#: The columns without the auction, which is the key.
_KEPT = ("time", "bidder", "price", "channel", "url", "extra")
_TEXTS = ("channel", "url", "extra")
_RANKED = chosen(_BID).append(pa.field("place", pa.int64()))
#: The rank of a place that is free.
_FREE = np.iinfo(np.int64).max


class TopBids(KeyedBatchFunction):
    """The ten highest bids of an auction; a change gives the places from there on.

    The state has the ten, the highest first.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the state."""
        self.top = RowLists(runtime_context, list(chosen(_KEPT)), "top")

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        """Put bids in their places, the next one of every auction at a time."""
        kept, owners = self.top.get(keys)
        rows = pa.record_batch(
            [pa.concat_arrays([kept[name], batch[name]]) for name in _KEPT], names=list(_KEPT)
        )
        ranking = Ranking(ranks(rows), len(keys.slots))
        ranking.begin(owners)
        order = keys.order
        given, places, auctions = ranking.add(len(owners) + order, keys.indices[order])
        self._keep(rows, keys, ranking)
        results = rows.take(pa.array(given)).append_column("place", pa.array(places + 1))
        return results.append_column("auction", keys.distinct.take(pa.array(auctions)))

    def _keep(self, rows: pa.RecordBatch, keys: Any, ranking: Ranking) -> None:
        """Store the bids of the auctions that have changed."""
        changed = np.flatnonzero(ranking.changed)
        if len(changed):
            taken = ranking.ranks[changed] < _FREE
            best = rows.take(pa.array(ranking.rows[changed][taken]))
            self.top.put(keys.take(keys.last_rows[changed]), best, np.nonzero(taken)[0])


class Ranking:
    """The best rows of several owners, as tables of ten columns.

    Attributes:
        rows, ranks: By owner, the best rows and their ranks, the best one first.
        changed: By owner, whether a row was added.
    """

    def __init__(self, rank: Any, owners: int) -> None:
        self._rank = rank
        self.rows = np.zeros((owners, _PLACES), np.int64)
        self.ranks = np.full((owners, _PLACES), _FREE)
        self.changed = np.zeros(owners, np.bool_)

    def begin(self, owners: Any) -> None:
        """Begin with rows in the order of their places, owner by owner."""
        numbers = np.arange(len(owners))
        counts = np.bincount(owners, minlength=len(self.rows))
        places = numbers - np.repeat(np.cumsum(counts) - counts, counts)
        self.rows[owners, places] = numbers
        self.ranks[owners, places] = self._rank[numbers]

    def add(self, rows: Any, owners: Any) -> tuple[Any, Any, Any]:
        """Add rows, which are sorted by owner; return rows, places and owners of all changes.

        A row that is not among the ten of its owner now will not be later either. So in a long
        list of one owner most rows are dropped before their turn.
        """
        nothing = np.zeros(0, np.int64)
        changes = [(nothing, nothing, nothing)]
        while len(rows):
            good = self._rank[rows] < self.ranks[owners, -1]
            rows, owners = rows[good], owners[good]
            first = np.ones(len(rows), np.bool_)
            first[1:] = owners[1:] != owners[:-1]
            changes.append(self._insert(rows[first], owners[first]))
            rows, owners = rows[~first], owners[~first]
        found, places, theirs = map(np.concatenate, zip(*changes, strict=True))
        return found, places, theirs

    def _insert(self, rows: Any, owners: Any) -> tuple[Any, Any, Any]:
        """Add one row to each of some owners; return what is at the places from there on."""
        old_rows, old_ranks, rank = self.rows[owners], self.ranks[owners], self._rank[rows]
        column = np.arange(_PLACES)
        place = (old_ranks < rank[:, None]).sum(axis=1)[:, None]
        # each place before it stays, each place behind it gets what was one before
        source = np.broadcast_to(column, old_rows.shape) - (column > place)
        new_rows = np.take_along_axis(old_rows, source, axis=1)
        new_ranks = np.take_along_axis(old_ranks, source, axis=1)
        every = np.arange(len(rows))
        new_rows[every, place[:, 0]] = rows
        new_ranks[every, place[:, 0]] = rank
        self.rows[owners], self.ranks[owners] = new_rows, new_ranks
        self.changed[owners] = True
        at, places = np.nonzero((column >= place) & (new_ranks < _FREE))
        return new_rows[at, places], places, owners[at]


def ranks(rows: pa.RecordBatch) -> Any:
    """The place of each row among all: by price, highest first, then by all else."""
    price, time, bidder = (rows[name].to_numpy() for name in ("price", "time", "bidder"))
    order = np.lexsort((bidder, time, -price))
    equal = np.ones(max(len(order) - 1, 0), np.bool_)
    for values in (price, time, bidder):
        ordered = values[order]
        equal &= ordered[1:] == ordered[:-1]
    # rows that are equal so far are few; their texts decide
    starts = np.flatnonzero(equal & ~np.concatenate(([False], equal[:-1])))
    ends = np.flatnonzero(equal & ~np.concatenate((equal[1:], [False]))) + 2
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        some = order[start:end]
        texts = rows.select(_TEXTS).take(pa.array(some)).to_pylist()
        by_text = sorted(range(len(some)), key=lambda at: tuple(texts[at].values()))
        order[start:end] = some[by_text]
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def q19(events: DataStream, side_input: str) -> DataStream:
    """The ten highest bids of each auction: all fields and the place."""
    keyed = bids(events, *_BID[1:]).key_by("auction")
    return keyed.process_batches(TopBids(), _RANKED)
