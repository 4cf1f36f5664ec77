"""What is run beside the peers, with how much of it, and what is expected of the ratios."""

from __future__ import annotations

from benchmarks.rounds.suite import RESIDENT, Row, Side, Work
from benchmarks.workloads import NEXMARK, NEXMARK_QUERIES, Program

__all__ = ["ROWS", "WORKS"]

OURS = "holdfast"
_M = 1_000_000


def _own(module: str, variant: str = "", name: str = OURS, share: float = 1.0) -> Side:
    return Side(name, Program(name, module, variant=variant, share=share), RESIDENT)


def _peer(
    name: str, module: str, variant: str = "", share: float = 1.0, environment: str = ""
) -> Side:
    return Side(name, Program(name, module, environment or name, variant, share))


_RATE = "benchmarks.engines.rate_job"
_COLUMNS = "benchmarks.own.columns_job"
_MEMORY = "benchmarks.own.key_memory_job"
_WORDS = "benchmarks.words"
_KAFKA = "benchmarks.kafka"
_NEXMARK = "benchmarks.nexmark"
_, _FLINK_SQL, _NEXMARK_PYFLINK = NEXMARK
#: The queries that run in one process, so that those of Holdfast and Flink SQL alternate often.
_GROUPS = {
    "nexmark-bids": ("q0", "q1", "q2", "q13"),
    "nexmark-joins": ("q3", "q4", "q8", "q9", "q20"),
    "nexmark-windows": ("q5", "q7", "q11", "q12"),
    "nexmark-changes": ("q17", "q18", "q19"),
}
#: There is no window join in PyFlink.
_IN_PYFLINK = tuple(query for query in NEXMARK_QUERIES if query != "q8")

WORKS = {
    each.name: each
    for each in (
        Work(
            "word-count",
            "pathway",
            (
                _own(f"{_WORDS}.job", "no-checkpoints", share=4.0),
                _peer("pathway", f"{_WORDS}.pathway_job"),
            ),
            _M,
            10 * _M,
            "words",
        ),
        Work(
            "word-count-persistent",
            "pathway",
            (
                _own(f"{_WORDS}.job", share=4.0),
                _peer("pathway", f"{_WORDS}.pathway_job", "persistence"),
            ),
            _M,
            10 * _M,
            "words",
        ),
        Work(
            "stateless_map",
            "bytewax",
            (_own(_RATE), _peer("bytewax", "benchmarks.peers.bytewax_job")),
            2 * _M,
            20 * _M,
        ),
        Work(
            "kafka-count",
            "quix",
            (
                _own(f"{_KAFKA}.count_job"),
                _own(f"{_KAFKA}.count_job", "rocksdb", "holdfast-rocksdb"),
                _peer("quix", f"{_KAFKA}.quix_job", share=0.1),
            ),
            _M,
            4 * _M,
        ),
        Work(
            "keyed_count",
            "pyflink",
            (_own(_RATE), _peer("pyflink", "benchmarks.peers.pyflink_job", "thread", share=0.04)),
            3 * _M,
            10 * _M,
        ),
        Work(
            "keyed_count_columns",
            "columns",
            (
                _own(_COLUMNS, name="columns"),
                _own(_COLUMNS, "records", "by-record", share=0.25),
            ),
            4 * _M,
            40 * _M,
        ),
        Work(
            "growth",
            "growth",
            (_own(_RATE, f"{5 * _M}", "keys-5m"), _own(_RATE, "100000", "keys-100k")),
            400_000,
            8 * _M,
            timeout=1200.0,
        ),
        Work(
            "growth_columns",
            "growth",
            (_own(_COLUMNS, f"{5 * _M}", "keys-5m"), _own(_COLUMNS, "100000", "keys-100k")),
            2 * _M,
            30 * _M,
            timeout=1200.0,
        ),
        *(
            Work(
                name,
                "nexmark",
                (
                    _own(f"{_NEXMARK}.job", f"both {','.join(queries)}"),
                    _peer(
                        *(_FLINK_SQL, f"{_NEXMARK}.flink_sql_job", ",".join(queries), 0.25),
                        environment="pyflink",
                    ),
                ),
                2 * _M,
                8 * _M,
                "events",
            )
            for name, queries in _GROUPS.items()
        ),
        Work(
            "nexmark-by-record",
            "nexmark-pyflink",
            (
                _own(f"{_NEXMARK}.job", ",".join(_IN_PYFLINK)),
                _peer(
                    *(_NEXMARK_PYFLINK, f"{_NEXMARK}.pyflink_job", ",".join(_IN_PYFLINK), 0.04),
                    environment="pyflink",
                ),
            ),
            400_000,
            4 * _M,
            "events",
            timeout=1800.0,
        ),
        Work("key-memory", "key-memory", (_own(_MEMORY),), 500_000, 5 * _M, "keys"),
        Work(
            "key-memory-columns", "key-memory", (_own(_MEMORY, "columns"),), 500_000, 5 * _M, "keys"
        ),
    )
}


def _rate(work: str, text: str, by: str, bar: float, of: str = OURS) -> Row:
    return Row(work, text, ("warm_rate",), "/s", of, by, times_at_least=bar)


def _query(work: str, query: str, by: str, bar: float) -> Row:
    return Row(work, f"query {query[1:]}", (query,), "/s", OURS, by, times_at_least=bar)


def _memory(work: str, text: str, bar: float) -> Row:
    return Row(work, text, ("bytes_per_key",), "bytes", OURS, "", at_most=bar)


ROWS = (
    _rate("word-count", "word count in columns", "pathway", 1.0),
    _rate("word-count-persistent", "word count in columns, persistent", "pathway", 1.0),
    _rate("stateless_map", "stateless map", "bytewax", 1.3),
    _rate("kafka-count", "keyed count from Kafka", "quix", 5.0),
    _rate("kafka-count", "keyed count from Kafka, RocksDB", "quix", 5.0, "holdfast-rocksdb"),
    _rate("keyed_count", "keyed count", "pyflink", 45.0),
    Row(
        "keyed_count_columns",
        "keyed count in columns",
        ("warm_rate",),
        "/s",
        "columns",
        "by-record",
        at_least=2e6,
        times_at_least=4.0,
    ),
    _rate("growth", "5,000,000 keys to 100,000", "keys-100k", 0.6, "keys-5m"),
    _rate("growth_columns", "5,000,000 keys to 100,000, columns", "keys-100k", 0.5, "keys-5m"),
    *(
        _query(work, query, _FLINK_SQL, 1.0)
        for query in NEXMARK_QUERIES
        for work, queries in _GROUPS.items()
        if query in queries
    ),
    Row(
        *(next(iter(_GROUPS)), "geometric mean", NEXMARK_QUERIES, "/s", OURS, _FLINK_SQL),
        times_at_least=1.5,
        more=tuple(_GROUPS)[1:],
    ),
    *(_query("nexmark-by-record", query, _NEXMARK_PYFLINK, 25.0) for query in _IN_PYFLINK),
    _memory("key-memory", "memory of a key, by record", 150.0),
    _memory("key-memory-columns", "memory of a key, columns", 40.0),
)
