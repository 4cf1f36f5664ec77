"""The queries: each takes the stream of events and the path of the side input.

`streams` has what they begin with, `api` the names that they are written with. `single_bids` has
queries 0, 1, 2 and 13, `two_kinds` 3, 8 and 20, `closed_auctions` 4 and 9, `windowed_bids` 5, 7, 11
and 12, `rankings` 17, 18 and 19.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.nexmark.queries.api import DataStream
from benchmarks.nexmark.queries.closed_auctions import q4, q9
from benchmarks.nexmark.queries.rankings import q17, q18, q19
from benchmarks.nexmark.queries.single_bids import q0, q1, q2, q13
from benchmarks.nexmark.queries.streams import watermarks
from benchmarks.nexmark.queries.two_kinds import q3, q8, q20
from benchmarks.nexmark.queries.windowed_bids import q5, q7, q11, q12

__all__ = ["QUERIES", "watermarks"]

QUERIES: dict[str, Callable[[DataStream, str], DataStream]] = {
    query.__name__: query
    for query in (q0, q1, q2, q3, q4, q5, q7, q8, q9, q11, q12, q13, q17, q18, q19, q20)
}
