"""The queries in Flink SQL, as nexmark-flink has them, over the same files.

The views give the columns the names of the original. What is different: times are numbers in
the files, so the queries' times are ``TIMESTAMP_LTZ``; and query 13's table is read as a lookup in
the original, which needs a connector that Flink's Python package has not, so it is joined as the
bounded table that it is.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.nexmark.data import COLUMNS, NUMBERS, side_input

__all__ = ["INSERTS", "tables"]


def tables(directory: Path) -> list[str]:
    """The statements that declare the events and the side input."""
    columns = ", ".join(
        f"`{name}` {'BIGINT' if place < NUMBERS else 'VARCHAR'}"
        for place, name in enumerate(COLUMNS)
    )
    return [
        f"""CREATE TABLE events ({columns}, `dateTime` AS TO_TIMESTAMP_LTZ(`time`, 3),
        WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND) WITH (
        'connector' = 'filesystem', 'path' = '{directory}/events', 'format' = 'csv',
        'csv.null-literal' = '')""",
        f"""CREATE TABLE side_input (key BIGINT, `value` VARCHAR) WITH (
        'connector' = 'filesystem', 'path' = '{side_input(directory)}', 'format' = 'csv')""",
        """CREATE VIEW person AS SELECT id, name, `text` AS email, card AS creditCard, city,
        state, `dateTime`, extra FROM events WHERE kind = 0""",
        """CREATE VIEW auction AS SELECT id, name AS itemName, `text` AS description,
        price AS initialBid, reserve, `dateTime`, TO_TIMESTAMP_LTZ(expires, 3) AS expires,
        party AS seller, category, extra FROM events WHERE kind = 1""",
        """CREATE VIEW bid AS SELECT id AS auction, party AS bidder, price, name AS channel,
        `text` AS url, `dateTime`, extra FROM events WHERE kind = 2""",
    ]


def _insert(query: str, columns: str, select: str) -> tuple[str, str]:
    """The statements that make a sink and fill it."""
    sink = f"CREATE TABLE nexmark_{query} ({columns}) WITH ('connector' = 'blackhole')"
    return sink, f"INSERT INTO nexmark_{query} {select}"


_TIME = "TIMESTAMP_LTZ(3)"
_BID = f"auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` {_TIME}, extra VARCHAR"
_WHOLE_BID = f"""auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
    `dateTime` {_TIME}, extra VARCHAR"""
_SESSIONS = f"bidder BIGINT, bid_count BIGINT, starttime {_TIME}, endtime {_TIME}"

#: By query, the statement that makes its sink and the one that runs it.
INSERTS: dict[str, tuple[str, str]] = {
    "q0": _insert("q0", _BID, "SELECT auction, bidder, price, `dateTime`, extra FROM bid"),
    "q1": _insert(
        "q1",
        _BID.replace("price BIGINT", "price DECIMAL(23, 3)"),
        "SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra FROM bid",
    ),
    "q2": _insert(
        "q2",
        "auction BIGINT, price BIGINT",
        "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    ),
    "q3": _insert(
        "q3",
        "name VARCHAR, city VARCHAR, state VARCHAR, id BIGINT",
        """SELECT P.name, P.city, P.state, A.id
        FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
        WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')""",
    ),
    "q4": _insert(
        "q4",
        "id BIGINT, final BIGINT",
        """SELECT Q.category, AVG(Q.final) FROM (
            SELECT MAX(B.price) AS final, A.category FROM auction A, bid B
            WHERE A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires
            GROUP BY A.id, A.category
        ) Q GROUP BY Q.category""",
    ),
    "q5": _insert(
        "q5",
        "auction BIGINT, num BIGINT",
        """SELECT AuctionBids.auction, AuctionBids.num FROM (
            SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime
            FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`),
                INTERVAL '2' SECOND, INTERVAL '10' SECOND))
            GROUP BY auction, window_start, window_end
        ) AS AuctionBids JOIN (
            SELECT MAX(CountBids.num) AS maxn, CountBids.starttime, CountBids.endtime FROM (
                SELECT COUNT(*) AS num, window_start AS starttime, window_end AS endtime
                FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`),
                    INTERVAL '2' SECOND, INTERVAL '10' SECOND))
                GROUP BY auction, window_start, window_end
            ) AS CountBids GROUP BY CountBids.starttime, CountBids.endtime
        ) AS MaxBids ON AuctionBids.starttime = MaxBids.starttime
            AND AuctionBids.endtime = MaxBids.endtime AND AuctionBids.num >= MaxBids.maxn""",
    ),
    "q7": _insert(
        "q7",
        f"auction BIGINT, price BIGINT, bidder BIGINT, `dateTime` {_TIME}, extra VARCHAR",
        """SELECT B.auction, B.price, B.bidder, B.`dateTime`, B.extra FROM bid B JOIN (
            SELECT MAX(price) AS maxprice, window_end AS `dateTime`
            FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
            GROUP BY window_start, window_end
        ) B1 ON B.price = B1.maxprice
        WHERE B.`dateTime` BETWEEN B1.`dateTime` - INTERVAL '10' SECOND AND B1.`dateTime`""",
    ),
    "q8": _insert(
        "q8",
        f"id BIGINT, name VARCHAR, stime {_TIME}",
        """SELECT P.id, P.name, P.starttime FROM (
            SELECT id, name, window_start AS starttime, window_end AS endtime
            FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
            GROUP BY id, name, window_start, window_end
        ) P JOIN (
            SELECT seller, window_start AS starttime, window_end AS endtime
            FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
            GROUP BY seller, window_start, window_end
        ) A ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime""",
    ),
    "q9": _insert(
        "q9",
        f"""id BIGINT, itemName VARCHAR, description VARCHAR, initialBid BIGINT, reserve BIGINT,
        `dateTime` {_TIME}, expires {_TIME}, seller BIGINT, category BIGINT, extra VARCHAR,
        auction BIGINT, bidder BIGINT, price BIGINT, bid_dateTime {_TIME}, bid_extra VARCHAR""",
        """SELECT id, itemName, description, initialBid, reserve, `dateTime`, expires, seller,
            category, extra, auction, bidder, price, bid_dateTime, bid_extra FROM (
            SELECT A.*, B.auction, B.bidder, B.price, B.`dateTime` AS bid_dateTime,
                B.extra AS bid_extra, ROW_NUMBER() OVER
                    (PARTITION BY A.id ORDER BY B.price DESC, B.`dateTime` ASC) AS rownum
            FROM auction A, bid B
            WHERE A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires
        ) WHERE rownum <= 1""",
    ),
    "q11": _insert(
        "q11",
        _SESSIONS,
        """SELECT B.bidder, COUNT(*) AS bid_count,
            SESSION_START(B.`dateTime`, INTERVAL '10' SECOND) AS starttime,
            SESSION_END(B.`dateTime`, INTERVAL '10' SECOND) AS endtime
        FROM bid B GROUP BY B.bidder, SESSION(B.`dateTime`, INTERVAL '10' SECOND)""",
    ),
    "q12": _insert(
        "q12",
        _SESSIONS,
        """SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
        FROM TABLE(TUMBLE(TABLE timed_bid, DESCRIPTOR(p_time), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end""",
    ),
    "q13": _insert(
        "q13",
        f"auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` {_TIME}, `value` VARCHAR",
        """SELECT B.auction, B.bidder, B.price, B.`dateTime`, S.`value`
        FROM bid B JOIN side_input S ON MOD(B.auction, 10000) = S.key""",
    ),
    "q17": _insert(
        "q17",
        """auction BIGINT, `day` VARCHAR, total_bids BIGINT, rank1_bids BIGINT, rank2_bids BIGINT,
        rank3_bids BIGINT, min_price BIGINT, max_price BIGINT, avg_price BIGINT,
        sum_price BIGINT""",
        """SELECT auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`, COUNT(*) AS total_bids,
            COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
            COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
            COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids, MIN(price) AS min_price,
            MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price
        FROM bid GROUP BY auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')""",
    ),
    "q18": _insert(
        "q18",
        _WHOLE_BID,
        """SELECT auction, bidder, price, channel, url, `dateTime`, extra FROM (
            SELECT *, ROW_NUMBER() OVER
                (PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS rank_number FROM bid
        ) WHERE rank_number <= 1""",
    ),
    "q19": _insert(
        "q19",
        f"{_WHOLE_BID}, rank_number BIGINT",
        """SELECT * FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number
            FROM bid
        ) WHERE rank_number <= 10""",
    ),
    "q20": _insert(
        "q20",
        f"""auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
        bid_dateTime {_TIME}, bid_extra VARCHAR, itemName VARCHAR, description VARCHAR,
        initialBid BIGINT, reserve BIGINT, auction_dateTime {_TIME}, expires {_TIME},
        seller BIGINT, category BIGINT, auction_extra VARCHAR""",
        """SELECT auction, bidder, price, channel, url, B.`dateTime`, B.extra, itemName,
            description, initialBid, reserve, A.`dateTime`, expires, seller, category, A.extra
        FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id WHERE A.category = 10""",
    ),
}
