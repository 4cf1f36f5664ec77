"""The results of the queries, computed by DuckDB from the same files, all at once.

The SQL is that of nexmark-flink as far as DuckDB has it. Where it leaves open which of several
rows is the result (equal prices, equal times), the order is made complete, as the queries make it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.nexmark.data import COLUMNS, NUMBERS, side_input

__all__ = ["CHANGING", "SQL", "Reference", "final"]

Row = tuple[Any, ...]

#: Queries that give changes, and the places of the key in a row: only the last row of a key counts.
CHANGING: dict[str, tuple[int, ...]] = {
    "q4": (0,),
    "q17": (0, 1),
    "q18": (1, 2),
    "q19": (1, 7),
}

_VIEWS = """
CREATE VIEW person AS SELECT id, name, text AS email, card, city, state, time, extra
    FROM event WHERE kind = 0;
CREATE VIEW auction AS SELECT time, id, party AS seller, price AS initial, reserve, expires,
    category, name AS item, text AS description, extra FROM event WHERE kind = 1;
CREATE VIEW bid AS SELECT time, id AS auction, party AS bidder, price, name AS channel,
    text AS url, extra, arrival FROM event WHERE kind = 2;
CREATE VIEW winning AS SELECT * FROM (
    SELECT A.*, B.time AS bid_time, B.auction, B.bidder, B.price, B.channel, B.url,
        B.extra AS bid_extra, ROW_NUMBER() OVER (PARTITION BY A.id
            ORDER BY B.price DESC, B.time, B.bidder, B.channel, B.url, B.extra) AS place
    FROM auction A, bid B WHERE A.id = B.auction AND B.time BETWEEN A.time AND A.expires
) WHERE place = 1;
CREATE VIEW hop AS SELECT auction, (time // 2000 - back + 5) * 2000 AS ending, COUNT(*) AS num
    FROM bid, (SELECT UNNEST(RANGE(5)) AS back) GROUP BY ALL;
"""

SQL: dict[str, str] = {
    "q0": "SELECT auction, bidder, price, time, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price, time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')""",
    "q4": "SELECT category, (SUM(price) // COUNT(*))::BIGINT FROM winning GROUP BY category",
    "q5": """SELECT auction, num, ending FROM hop WHERE num =
        (SELECT MAX(num) FROM hop AS other WHERE other.ending = hop.ending)""",
    "q7": """SELECT auction, price, bidder, time, extra FROM bid JOIN (
        SELECT MAX(price) AS most, time // 10000 AS span FROM bid GROUP BY span
    ) ON price = most AND time // 10000 = span""",
    "q8": """SELECT DISTINCT P.id, P.name, P.time // 10000 * 10000 FROM person P
        JOIN auction A ON P.id = A.seller AND P.time // 10000 = A.time // 10000""",
    "q9": """SELECT time, id, seller, initial, reserve, expires, category, item, description, extra,
        bid_time, auction, bidder, price, channel, url, bid_extra FROM winning""",
    "q11": """SELECT bidder, COUNT(*), MIN(time), MAX(time) + 10000 FROM (
        SELECT bidder, time, SUM(is_new) OVER (PARTITION BY bidder ORDER BY time) AS session FROM (
            SELECT bidder, time, CASE WHEN time - LAG(time) OVER (PARTITION BY bidder ORDER BY time)
                <= 10000 THEN 0 ELSE 1 END AS is_new FROM bid
        )
    ) GROUP BY bidder, session""",
    "q12": """SELECT bidder, COUNT(*), arrival // 10000 * 10000, arrival // 10000 * 10000 + 10000
        FROM bid GROUP BY bidder, arrival // 10000""",
    "q13": """SELECT auction, bidder, price, time, value FROM bid
        JOIN side_input ON auction % 10000 = key""",
    "q17": """SELECT auction, strftime(make_timestamp(time * 1000), '%Y-%m-%d') AS day, COUNT(*),
        COUNT(*) FILTER (price < 10000), COUNT(*) FILTER (price >= 10000 AND price < 1000000),
        COUNT(*) FILTER (price >= 1000000), MIN(price), MAX(price),
        (SUM(price) // COUNT(*))::BIGINT, SUM(price)::BIGINT FROM bid GROUP BY auction, day""",
    "q18": """SELECT time, auction, bidder, price, channel, url, extra FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction
            ORDER BY time DESC, price DESC, channel DESC, url DESC, extra DESC) AS place FROM bid
    ) WHERE place = 1""",
    "q19": """SELECT time, auction, bidder, price, channel, url, extra, place FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY auction
            ORDER BY price DESC, time, bidder, channel, url, extra) AS place FROM bid
    ) WHERE place <= 10""",
    "q20": """SELECT auction, bidder, price, channel, url, B.extra, B.time, seller, initial,
        reserve, expires, category, item, description, A.extra, A.time
        FROM bid B JOIN auction A ON B.auction = A.id WHERE category = 10""",
}


class Reference:
    """The events of a data set in DuckDB.

    Args:
        directory: What `data.make` returned.
        arriving: For query 12: of each file so many events arrive in ten seconds of processing
            time, the first ones at 0. The files have to be in the order of time.
    """

    def __init__(self, directory: Path, arriving: int = 1) -> None:
        self._database = duckdb.connect()
        types = ["BIGINT"] * NUMBERS + ["VARCHAR"] * (len(COLUMNS) - NUMBERS)
        columns = dict(zip(COLUMNS, types, strict=True))
        self._database.execute(
            f"""CREATE TABLE event AS SELECT *, 10000 * ((row_number() OVER
            (PARTITION BY filename ORDER BY time) - 1) // {arriving}) AS arrival
            FROM read_csv('{directory}/events/*.csv', header = false, columns = {columns},
            filename = true)"""
        )
        self._database.execute(
            f"""CREATE TABLE side_input AS FROM read_csv('{side_input(directory)}',
            header = false, columns = {{'key': 'BIGINT', 'value': 'VARCHAR'}})"""
        )
        self._database.execute(_VIEWS)

    def __call__(self, query: str) -> list[Row]:
        """The rows of a query, sorted."""
        return sorted(self._database.execute(SQL[query]).fetchall())


def final(query: str, records: Iterable[Row]) -> list[Row]:
    """What a query's records say in the end, sorted: of changes the last of each key."""
    key = CHANGING.get(query)
    if key is None:
        return sorted(records)
    return sorted({tuple(record[place] for place in key): record for record in records}.values())
