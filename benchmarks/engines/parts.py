"""What is run on both engines, with how much of it, and what is expected of the figures."""

from __future__ import annotations

from benchmarks.rounds.suite import EPOCHS, RESIDENT, Row, Side, Work
from benchmarks.workloads import NEXMARK_QUERIES, Program

__all__ = ["ENGINES", "PARTS", "RATES", "ROWS", "WORKS"]

ENGINES = (RESIDENT, EPOCHS)

#: Records per second of the curves of latency by rate.
RATES = (1_000, 5_000, 20_000, 50_000, 100_000, 200_000)

_SECONDS = "seconds"


def _own(module: str, variant: str = "", engines: tuple[str, ...] = ENGINES) -> tuple[Side, ...]:
    return tuple(Side(name, Program(name, module, variant=variant), name) for name in engines)


def _peer(name: str, module: str, variant: str = "", share: float = 1.0) -> Side:
    environment = "pyflink" if name == "pyflink" else "pyspark-kafka"
    return Side(name, Program(name, module, environment, variant, share))


def _growth(name: str, keys: int) -> Side:
    return Side(name, Program(name, "benchmarks.engines.rate_job", variant=str(keys)), RESIDENT)


_JOBS = "benchmarks.engines"
_RATES = _own(f"{_JOBS}.rate_job")
_PYFLINK_RATE = _peer("pyflink", "benchmarks.peers.pyflink_job", "thread", share=0.04)
_SPARK = _peer("spark-real-time", "benchmarks.kafka.realtime_job")
_M = 1_000_000

WORKS = {
    each.name: each
    for each in (
        Work(
            "latency",
            "latency",
            (
                *_own(f"{_JOBS}.latency_job"),
                _peer("pyflink", "benchmarks.peers.pyflink_latency_job"),
            ),
            size=5,
            full=30,
            unit=_SECONDS,
        ),
        Work(
            "latency-rates",
            "latency-rates",
            _own(f"{_JOBS}.latency_rates_job"),
            size=2,
            full=10,
            unit=_SECONDS,
        ),
        Work("keyed_count", "throughput", (*_RATES, _PYFLINK_RATE), 3 * _M, 10 * _M),
        Work("word_count", "throughput", _RATES, 3 * _M, 10 * _M),
        Work("branches", "throughput", _RATES, _M, 4 * _M),
        Work(
            "orders",
            "throughput",
            _own("benchmarks.orders.job", "rate"),
            200_000,
            _M,
            "events",
        ),
        Work(
            "nexmark",
            "nexmark",
            _own("benchmarks.nexmark.job", ",".join(NEXMARK_QUERIES)),  # by record
            400_000,
            8 * _M,
            "events",
            timeout=1800.0,
        ),
        Work(
            "growth",
            "growth",
            (_growth("keys-5m", 5 * _M), _growth("keys-100k", 100_000)),
            400_000,
            8 * _M,
            timeout=1200.0,
        ),
        Work("memory", "memory", _RATES, 3 * _M, 10 * _M),
        Work("gap", "gap", _own(f"{_JOBS}.gap_job"), 200_000, _M, "keys"),
        Work(
            "small-epochs",
            "small-epochs",
            # an epoch of the other engine is a Spark job: a hundredth of them take as long
            (
                *_own(f"{_JOBS}.small_epochs_job", engines=(RESIDENT,)),
                Side(EPOCHS, Program(EPOCHS, f"{_JOBS}.small_epochs_job", share=0.01), EPOCHS),
            ),
            5_000,
            100_000,
            "epochs",
            timeout=3600.0,
        ),
        Work(
            "restart",
            "restart",
            _own(f"{_JOBS}.restart_job", engines=(RESIDENT,)),
            100_000,
            100_000,
            "keys",
        ),
        Work("idle", "idle", _own(f"{_JOBS}.idle_job"), 10, 30, _SECONDS),
        Work("idle-checkpoints", "idle", _own(f"{_JOBS}.idle_job", "1000"), 10, 30, _SECONDS),
        Work(
            "slow-sink",
            "slow-sink",
            _own(f"{_JOBS}.slow_sink_job", engines=(RESIDENT,)),
            60,
            600,
            _SECONDS,
        ),
        Work(
            "kafka-at-least-once",
            "kafka",
            (*_own("benchmarks.kafka.roundtrip_job", "at-least-once"), _SPARK),
            5,
            40,
            _SECONDS,
        ),
        Work(
            "kafka-exactly-once",
            "kafka",
            _own("benchmarks.kafka.roundtrip_job", "exactly-once"),
            5,
            40,
            _SECONDS,
        ),
    )
}

PARTS = tuple(dict.fromkeys(work.part for work in WORKS.values()))

#: A memory that stays below this is called flat.
_FLAT = 1.1

ROWS = (
    Row("latency", "p50 at 1,000/s", ("p50",), "ms", at_most=10, times_at_most=1 / 30),
    Row("latency", "p99 at 1,000/s", ("p99",), "ms", at_most=50, times_at_most=1 / 30),
    Row("latency", "maximum at 1,000/s", ("max",), "ms"),
    Row("latency", "p50, collected", ("collect_p50",), "ms"),
    Row("latency", "p99, collected", ("collect_p99",), "ms"),
    Row("latency", "maximum, collected", ("collect_max",), "ms"),
    Row("latency", "highest rate", ("highest_rate",), "/s"),
    Row("latency", "p50 at half of it", ("half_p50",), "ms"),
    Row("latency", "p99 at half of it", ("half_p99",), "ms", at_most=250),
    Row("latency", "maximum at half of it", ("half_max",), "ms"),
    Row("latency", "p50 at 1,000/s", ("p50",), "ms", by="pyflink", times_at_most=1),
    Row("latency", "p99 at 1,000/s", ("p99",), "ms", by="pyflink", times_at_most=1),
    *(
        Row("latency-rates", f"{percentile} at {rate:,}/s", (f"at_{rate}_{percentile}",), "ms")
        for rate in RATES
        for percentile in ("p50", "p99")
    ),
    Row("keyed_count", "keyed count", ("warm_rate",), "/s", times_at_least=1.3),
    Row("keyed_count", "keyed count", ("warm_rate",), "/s", by="pyflink", times_at_least=40),
    Row("word_count", "word count", ("warm_rate",), "/s", times_at_least=1),
    Row("branches", "branches", ("warm_rate",), "/s", times_at_least=1),
    Row("orders", "orders", ("warm_rate",), "/s", times_at_least=1),
    *(Row("nexmark", query, (query,), "/s") for query in NEXMARK_QUERIES),
    Row("nexmark", "geometric mean", NEXMARK_QUERIES, "/s", times_at_least=1.2),
    Row(
        "growth",
        "5,000,000 keys to 100,000",
        ("warm_rate",),
        "/s",
        of="keys-5m",
        by="keys-100k",
        times_at_least=0.5,
    ),
    Row("memory", "workers, median", ("workers_mb",), "MB", times_at_most=0.7),
    Row("memory", "workers, most", ("workers_peak_mb",), "MB"),
    Row("gap", "longest gap between two results", ("gap",), "s", at_most=0.3),
    Row("gap", "longest gap at one sink", ("sink_gap",), "s", at_most=0.3),
    Row("gap", "changed keys in a checkpoint", ("changed_keys",), "keys"),
    Row("gap", "from trigger to completion", ("checkpoint_seconds",), "s"),
    Row("small-epochs", "an epoch", ("epoch_ms",), "ms", at_most=5),
    *(
        Row("small-epochs", f"{kind}, last to a tenth", (f"{kind}_growth",), "×", at_most=_FLAT)
        for kind in ("driver", "workers")
    ),
    Row("small-epochs", "JVM, last to a tenth", ("jvm_growth",), "×"),
    Row("restart", "kill to first result", ("restart_seconds",), "s", by="", at_most=3),
    *(
        Row("restart", f"of it: {part.replace('_', ' ')}", (part,), "s", by="")
        for part in ("ended", "slots", "load", "first_result")
    ),
    Row("idle", "no checkpoints: all processes", ("percent",), "%", at_most=2),
    *(
        Row("idle", f"of it: {kind}", (f"{kind}_percent",), "%")
        for kind in ("driver", "jvm", "workers")
    ),
    Row("idle-checkpoints", "one a second: all processes", ("percent",), "%"),
    Row(
        "slow-sink",
        "workers, most to first quarter",
        ("workers_growth",),
        "×",
        by="",
        at_most=_FLAT,
    ),
    Row(
        "slow-sink", "driver, most to first quarter", ("driver_growth",), "×", by="", at_most=_FLAT
    ),
    Row("slow-sink", "workers, most", ("workers_most_mb",), "MB", by=""),
    # less than the patience of the program, after which the job has not ended
    Row("slow-sink", "from cancel to the end", ("cancel_seconds",), "s", by="", at_most=15),
    Row("kafka-at-least-once", "at least once, p50", ("p50",), "ms", at_most=15),
    Row("kafka-at-least-once", "at least once, p99", ("p99",), "ms", at_most=84),
    Row("kafka-at-least-once", "beside Spark, p50", ("p50",), "ms", by="spark-real-time"),
    Row("kafka-at-least-once", "beside Spark, p99", ("p99",), "ms", by="spark-real-time"),
    Row("kafka-exactly-once", "exactly once, p50", ("p50",), "ms", at_most=150),
    Row("kafka-exactly-once", "exactly once, p99", ("p99",), "ms", at_most=300),
)
