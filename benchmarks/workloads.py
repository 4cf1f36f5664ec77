"""What is run, on which systems, with how many records, and what is expected of Holdfast.

`keyed_count`
    Records of a user, an amount and a number; by user, of whom there are 100,000, a ``ValueState``
    of count and total; one output per record.
`word_count`
    Sentences of eight words, split; by word, of which there are 10,000, a count; one output per
    word. A record is a word.
`branches`
    One stream of records in five branches: change the amount; keep every second record; two
    strings for each; count and total by user; the largest amount by a thousand groups. Three
    sinks: one for the first two, one for the third, one for the last two.
`stateless_map`
    Change the amount, keep every second record.
`keyed_count_columns`, `word_count_columns`
    Holdfast alone. The same with functions of batches and state in columns, against functions that
    are called record by record.
`growth`
    Holdfast alone. Does the rate hold with fifty times the keys? Every key is there before the
    measurement begins.
`keyed_count_rocksdb`
    The keyed count with state in RocksDB, beside Flink SQL on RocksDB.
`growth_rocksdb`
    Holdfast alone, state in RocksDB: a million keys, and twenty million, with the same memory.
`increments_rocksdb`
    Holdfast alone, state in RocksDB. What a checkpoint writes, and how long it takes, when one
    percent of the keys have changed, against all of them.
`small_epochs`
    Holdfast alone. Do epochs stay as quick, and memory as small, over a thousand of them?
`epoch_floor`
    Holdfast alone. An epoch with hardly any data, against the least that Spark asks for such a
    job: the same stages with nothing in them.

`checkpoint_price`
    Holdfast alone. The keyed count with a checkpoint every second, against none.
`recovery`
    Holdfast alone. How long a job is away after a failure, with little and with much state.
`orders`
    The order system of ``examples/orders`` as fast as it goes, from files to files; on PyFlink,
    what can be written of it there, with threads and with processes. A record is an event. What
    came out is compared with a batch computation, or there is no figure. Holdfast also at half of
    its rate: how long an event waits for its output.
`increments`
    Holdfast alone. What a checkpoint writes, by changed keys and by keys in the state.
`savepoint_frame`
    Holdfast alone. A savepoint as a DataFrame: rows per second, made and read.
`one_window`
    Holdfast alone. Does memory stay as small while ten million records go into one window?
`rest_cost`
    Holdfast alone. The keyed count while twenty clients look at it over HTTP, every other five
    seconds, against the five seconds before and after; with the standard error of that.
`half_open`
    The same with a stranger that tries to hold 2,000 connections open, half a request sent on each.
`first_result`
    How long a user waits for the first line of ``examples/word_count.py``, on each engine, beside
    bare PySpark in turns.
`kafka_source`
    A topic of four partitions, read into nothing, beside bare consumers of ``confluent-kafka`` in
    as many processes. Each has a broker of its own.
`kafka_pipeline`
    From Kafka to the keyed count to Kafka, exactly once, beside PySpark's own Kafka source and
    sink, which is at least once, with ``transformWithState``.
`kafka_latency`
    Holdfast alone. How long a record takes from Kafka through a job to a consumer of committed
    records, at 500 records a second with a checkpoint every half second, and where it waits.
`tables`
    The keyed count with its output appended to Parquet files, to a Delta table and to an Iceberg
    table, against a sink that throws it away; and Structured Streaming writing as many rows of the
    same columns to Parquet files and to a Delta table.
`tables_freshness`
    Holdfast alone. How long it takes until a reader of the table sees a record, at 1,000 records a
    second with a checkpoint every second.
`nexmark`
    The auction benchmark of streaming systems: sixteen queries, one after another in one process
    of each system, over the same files; see `benchmarks.nexmark`. A figure is the rate of a query.
    Holdfast runs them by record and, where there is such a form, in columns; the better one counts
    beside Flink SQL, that by record beside PyFlink.

Slow systems get fewer records, a share of what the fast ones get, so that the comparison ends
within minutes; each still runs for many times its warm-up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "BARS",
    "NEXMARK",
    "NEXMARK_QUERIES",
    "PROGRAMS",
    "SIDE_BY_SIDE",
    "WORKLOADS",
    "Bar",
    "Program",
    "Workload",
]


@dataclass(frozen=True)
class Program:
    """A program that runs workloads: one row of the table each."""

    name: str
    module: str
    #: The peer whose virtual environment it runs in; None is Holdfast's own.
    environment: str | None = None
    variant: str = ""
    #: The share of a workload's records that it gets.
    share: float = 1.0


PROGRAMS = {
    each.name: each
    for each in (
        Program("holdfast", "benchmarks.own.throughput_job", share=10.0),
        Program("pyflink-thread", "benchmarks.peers.pyflink_job", "pyflink", "thread", 0.4),
        Program("pyflink-plain", "benchmarks.peers.pyflink_job", "pyflink", "plain", 0.2),
        Program("pyflink-process", "benchmarks.peers.pyflink_job", "pyflink", "process", 0.1),
        Program("pyspark", "benchmarks.peers.pyspark_job", "pyspark", share=0.2),
        Program("bytewax", "benchmarks.peers.bytewax_job", "bytewax"),
        Program("keys-100k", "benchmarks.own.growth_job", variant="100000"),
        Program("keys-5m", "benchmarks.own.growth_job", variant="5000000"),
        Program("columns", "benchmarks.own.columns_job", share=4.0),
        Program("by-record", "benchmarks.own.columns_job", variant="records"),
        Program("holdfast-rocksdb", "benchmarks.own.throughput_job", variant="rocksdb", share=10.0),
        Program("flink-sql-rocksdb", "benchmarks.peers.flink_sql_job", "pyflink", share=5.0),
        Program("keys-1m-rocksdb", "benchmarks.own.growth_job", variant="1000000 rocksdb"),
        Program("keys-20m-rocksdb", "benchmarks.own.growth_job", variant="20000000 rocksdb"),
        Program("increments-rocksdb", "benchmarks.own.increments_rocksdb_job"),
        Program("small-epochs", "benchmarks.own.epochs_job"),
        Program("spark-floor", "benchmarks.own.floor_job"),
        Program("checkpoints-none", "benchmarks.own.checkpoint_job", variant="0"),
        Program("checkpoints-1s", "benchmarks.own.checkpoint_job", variant="1000"),
        Program("recovery-100k", "benchmarks.own.recovery_job", variant="100000"),
        Program("recovery-1m", "benchmarks.own.recovery_job", variant="1000000"),
        Program("recovery-5m", "benchmarks.own.recovery_job", variant="5000000"),
        Program("increments", "benchmarks.own.increments_job"),
        Program("savepoint-frame", "benchmarks.own.savepoint_job"),
        Program("orders", "benchmarks.orders.job"),
        Program("orders-pyflink", "benchmarks.orders.pyflink_job", "pyflink", "thread", 0.04),
        Program("orders-processes", "benchmarks.orders.pyflink_job", "pyflink", "process", 0.01),
        Program("one-window", "benchmarks.own.window_job"),
        Program("rest-cost", "benchmarks.own.rest_job"),
        Program("half-open", "benchmarks.own.rest_job", variant="half-open"),
        Program("first-result", "benchmarks.own.first_result_job"),
        Program("kafka-source", "benchmarks.kafka.source_job"),
        Program("kafka-bare", "benchmarks.kafka.source_job", variant="bare"),
        Program("kafka-pipeline", "benchmarks.kafka.pipeline_job"),
        Program("kafka-pyspark", "benchmarks.kafka.pyspark_job", "pyspark-kafka", share=0.1),
        Program("kafka-latency", "benchmarks.kafka.latency_job"),
        Program("rows-dropped", "benchmarks.tables.rate_job"),
        *(
            Program(f"rows-{kind}", "benchmarks.tables.rate_job", variant=kind)
            for kind in ("parquet", "delta", "iceberg")
        ),
        Program("rows-pyspark", "benchmarks.tables.spark_job"),
        Program(
            "rows-pyspark-delta", "benchmarks.tables.spark_job", "pyspark-delta", variant="delta"
        ),
        *(
            Program(f"fresh-{kind}", "benchmarks.tables.freshness_job", variant=kind)
            for kind in ("parquet", "delta", "iceberg")
        ),
        Program("nexmark-holdfast", "benchmarks.nexmark.job"),
        Program("nexmark-flink-sql", "benchmarks.nexmark.flink_sql_job", "pyflink", share=0.25),
        Program("nexmark-pyflink", "benchmarks.nexmark.pyflink_job", "pyflink", share=0.02),
    )
}

SIDE_BY_SIDE = (
    "holdfast",
    "pyflink-plain",
    "pyflink-thread",
    "pyflink-process",
    "pyspark",
    "bytewax",
)


#: The programs of NEXMark, Holdfast's first, and its queries.
NEXMARK = ("nexmark-holdfast", "nexmark-flink-sql", "nexmark-pyflink")
NEXMARK_QUERIES = (
    *("q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8", "q9"),
    *("q11", "q12", "q13", "q17", "q18", "q19", "q20"),
)


@dataclass(frozen=True)
class Workload:
    """The same work for several programs."""

    name: str
    records: int
    #: What ``--quick`` runs: enough to see that it works, too little for a figure.
    quick: int
    programs: tuple[str, ...] = SIDE_BY_SIDE
    #: What ``records`` counts.
    unit: str = "records"
    #: A program that runs longer than this many seconds is stopped.
    timeout: float = 600.0
    #: Whether the figures of its programs are rates of the same things, to be compared one by one.
    figures_are_rates: bool = False


WORKLOADS = {
    each.name: each
    for each in (
        Workload("keyed_count", 1_000_000, 100_000),
        Workload("word_count", 1_000_000, 100_000),
        Workload(
            "branches",
            400_000,
            50_000,
            programs=("holdfast", "pyflink-plain", "pyflink-thread", "pyflink-process", "bytewax"),
        ),
        Workload("stateless_map", 2_000_000, 200_000),
        *(
            Workload(name, 10_000_000, 200_000, programs=("columns", "by-record"))
            for name in ("keyed_count_columns", "word_count_columns")
        ),
        Workload("growth", 8_000_000, 50_000, programs=("keys-100k", "keys-5m"), timeout=1200.0),
        Workload(
            "keyed_count_rocksdb",
            1_000_000,
            100_000,
            programs=("holdfast-rocksdb", "flink-sql-rocksdb"),
        ),
        Workload(
            "growth_rocksdb",
            2_000_000,
            50_000,
            programs=("keys-1m-rocksdb", "keys-20m-rocksdb"),
            timeout=2400.0,
        ),
        Workload(
            "increments_rocksdb", 1_000_000, 50_000, programs=("increments-rocksdb",), unit="keys"
        ),
        Workload(
            "small_epochs", 1000, 50, programs=("small-epochs",), unit="epochs", timeout=1800.0
        ),
        Workload("epoch_floor", 100, 20, programs=("spark-floor", "small-epochs"), unit="epochs"),
        Workload(
            "checkpoint_price",
            10_000_000,
            100_000,
            programs=("checkpoints-none", "checkpoints-1s"),
        ),
        Workload(
            "recovery",
            5_000_000,
            50_000,
            programs=("recovery-100k", "recovery-1m", "recovery-5m"),
            unit="keys at most",
        ),
        Workload(
            "orders",
            1_000_000,
            100_000,
            programs=("orders", "orders-pyflink", "orders-processes"),
            unit="events",
        ),
        Workload("increments", 1_000_000, 50_000, programs=("increments",), unit="keys"),
        Workload("savepoint_frame", 5_000_000, 50_000, programs=("savepoint-frame",), unit="keys"),
        Workload("one_window", 10_000_000, 2_000_000, programs=("one-window",)),
        Workload("rest_cost", 80_000_000, 1_000_000, programs=("rest-cost",), timeout=900.0),
        Workload("half_open", 80_000_000, 1_000_000, programs=("half-open",), timeout=900.0),
        Workload("first_result", 6, 1, programs=("first-result",), unit="rounds", timeout=1200.0),
        Workload("kafka_source", 8_000_000, 200_000, programs=("kafka-source", "kafka-bare")),
        Workload(
            "kafka_pipeline", 2_000_000, 100_000, programs=("kafka-pipeline", "kafka-pyspark")
        ),
        Workload("kafka_latency", 20_000, 3_000, programs=("kafka-latency",)),
        Workload(
            "tables",
            10_000_000,
            200_000,
            programs=(
                *("rows-dropped", "rows-parquet", "rows-delta", "rows-iceberg"),
                *("rows-pyspark", "rows-pyspark-delta"),
            ),
        ),
        Workload(
            "tables_freshness",
            60_000,
            10_000,
            programs=("fresh-parquet", "fresh-delta", "fresh-iceberg"),
        ),
        Workload(
            "nexmark",
            8_000_000,
            400_000,
            programs=NEXMARK,
            unit="events",
            timeout=1200.0,
            figures_are_rates=True,
        ),
    )
}


@dataclass(frozen=True)
class Bar:
    """An expectation: a figure of one program, divided by one of another, and its limit."""

    workload: str
    text: str
    program: str
    figure: str
    #: At least this, or at most that.
    at_least: float | None = None
    at_most: float | None = None
    #: The program to divide by, and its figure unless it is the same one.
    by: str | None = None
    by_figure: str = field(default="")


BARS = (
    Bar(
        "keyed_count", "times PySpark transformWithState", "holdfast", "warm_rate", 40, by="pyspark"
    ),
    Bar(
        "keyed_count",
        "times PyFlink, thread mode, the same program",
        "holdfast",
        "warm_rate",
        40,
        by="pyflink-plain",
    ),
    Bar(
        "keyed_count",
        "times PyFlink, thread mode, types declared and tuned",
        "holdfast",
        "warm_rate",
        40,
        by="pyflink-thread",
    ),
    Bar("keyed_count", "times Bytewax, two processes", "holdfast", "warm_rate", 2.5, by="bytewax"),
    Bar(
        "stateless_map", "times Bytewax, two processes", "holdfast", "warm_rate", 1.3, by="bytewax"
    ),
    Bar(
        "keyed_count_columns",
        "columns to record by record",
        "columns",
        "warm_rate",
        4.0,
        by="by-record",
    ),
    Bar("growth", "rate with 5 m keys to 100 k keys", "keys-5m", "warm_rate", 0.5, by="keys-100k"),
    Bar(
        "keyed_count_rocksdb",
        "to Flink SQL on RocksDB",
        "holdfast-rocksdb",
        "warm_rate",
        1.0,
        by="flink-sql-rocksdb",
    ),
    Bar(
        "growth_rocksdb",
        "rate with 20 m keys to 1 m keys",
        "keys-20m-rocksdb",
        "warm_rate",
        0.5,
        by="keys-1m-rocksdb",
    ),
    Bar(
        "increments_rocksdb",
        "bytes of a checkpoint of one percent to one of all",
        "increments-rocksdb",
        "part_to_all_bytes",
        at_most=0.05,
    ),
    Bar(
        "small_epochs",
        "last hundred epochs to second hundred",
        "small-epochs",
        "last_seconds",
        at_most=1.2,
        by="small-epochs",
        by_figure="second_seconds",
    ),
    Bar(
        "small_epochs",
        "memory of the driver, last epoch to hundredth",
        "small-epochs",
        "driver_last_mb",
        at_most=1.2,
        by="small-epochs",
        by_figure="driver_early_mb",
    ),
    Bar(
        "small_epochs",
        "memory of the workers, last epoch to hundredth",
        "small-epochs",
        "workers_last_mb",
        at_most=1.2,
        by="small-epochs",
        by_figure="workers_early_mb",
    ),
    Bar(
        "epoch_floor",
        "an epoch to Spark's floor",
        "small-epochs",
        "epoch_seconds",
        at_most=2.0,
        by="spark-floor",
    ),
    Bar(
        "checkpoint_price",
        "rate with a checkpoint every second to none",
        "checkpoints-1s",
        "warm_rate",
        0.85,
        by="checkpoints-none",
    ),
    Bar(
        "orders",
        "times PyFlink, thread mode, at saturation",
        "orders",
        "warm_rate",
        20,
        by="orders-pyflink",
    ),
    Bar(
        "increments",
        "a checkpoint of as many changes, state five times as large",
        "increments",
        "large_to_small_state",
        at_most=1.5,
    ),
    Bar(
        "one_window",
        "memory of the workers, last quarter to the end of the first",
        "one-window",
        "workers_last_mb",
        at_most=1.2,
        by="one-window",
        by_figure="workers_early_mb",
    ),
    Bar(
        "rest_cost",
        "rate with twenty clients to none",
        "rest-cost",
        "watched_to_alone",
        0.97,
    ),
    Bar(
        "half_open",
        "rate with 2,000 half-open connections tried to none",
        "half-open",
        "watched_to_alone",
        0.95,
    ),
    Bar("first_result", "--local, in seconds", "first-result", "local", at_most=2.0),
    Bar(
        "first_result",
        "'starting Spark ...', in seconds",
        "first-result",
        "starting_spark",
        at_most=1.0,
    ),
    Bar("first_result", "to bare PySpark", "first-result", "resident_to_bare", at_most=1.3),
    Bar(
        "kafka_source",
        "to bare consumers in as many processes",
        "kafka-source",
        "warm_rate",
        0.6,
        by="kafka-bare",
    ),
    Bar(
        "kafka_pipeline",
        "times PySpark's Kafka source and sink with transformWithState",
        "kafka-pipeline",
        "warm_rate",
        20,
        by="kafka-pyspark",
    ),
    *(
        Bar(
            "tables",
            f"rate to {kind} to that of rows that are dropped",
            f"rows-{kind}",
            "warm_rate",
            0.6,
            by="rows-dropped",
        )
        for kind in ("parquet", "delta", "iceberg")
    ),
    *(
        Bar(
            "tables_freshness",
            f"{kind}: median in milliseconds",
            f"fresh-{kind}",
            "p50",
            at_most=1200,
        )
        for kind in ("parquet", "delta", "iceberg")
    ),
    *(
        Bar(
            *("nexmark", f"{query}: times PyFlink DataStream", ours, f"{query} by record", 25),
            by=pyflink,
            by_figure=query,
        )
        for ours, _, pyflink in [NEXMARK]
        for query in NEXMARK_QUERIES
        if query != "q8"  # not feasible there
    ),
    *(
        Bar("nexmark", f"{query}: to Flink SQL (an aim)", ours, query, 1.0, by=sql)
        for ours, sql, _ in [NEXMARK]
        for query in NEXMARK_QUERIES
    ),
)
