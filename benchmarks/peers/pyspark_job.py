"""The workloads on PySpark's Structured Streaming, keyed state by ``transformWithState`` on rows.

The records are made in SQL, so their making costs no Python. The state store is RocksDB, which
``transformWithState`` demands, with changelog checkpoints; a group reads its state once, adds its
rows, and writes it once, which is what the interface invites to and the quickest it can do.
Micro-batches of 25,000 records take some four seconds each. Larger ones are somewhat quicker per
record, since more records share a key, but then state is committed and output released even less
often, and the other systems do that every second.

``branches`` is left out: three sinks are three queries here, which read the source three times.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.measure import Mark, emit, measured
from benchmarks.program import PARALLELISM, Task, parse_task
from benchmarks.records import KEYS, MULTIPLIER, PRIME, VOCABULARY, WORDS_PER_SENTENCE

BATCH = 25_000

STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": str(PARALLELISM),
    "spark.sql.streaming.stateStore.providerClass": STORE,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


class CountAndTotal(StatefulProcessor):
    """Count and total per user."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Get hold of the state."""
        self.totals = handle.getValueState("totals", "count bigint, total double")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Add a batch's records to their user, one output per record."""
        count, total = self.totals.get() or (0, 0.0)
        for row in rows:
            count += 1
            total += row.amount
            yield Row(user=key[0], count=count, total=total)
        self.totals.update((count, total))


class Count(StatefulProcessor):
    """Count per word."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Get hold of the state."""
        self.count = handle.getValueState("count", "count bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Count a batch's words, one output per word."""
        (count,) = self.count.get() or (0,)
        for _ in rows:
            count += 1
            yield Row(word=key[0], count=count)
        self.count.update((count,))


def drawn(index: str, choices: int) -> str:
    """Return `benchmarks.records.draw` as SQL."""
    x = f"({index} * {MULTIPLIER} % {PRIME})"
    return f"{x} * {x} % {PRIME} % {choices}"


def numbers(spark: SparkSession, per_batch: int) -> DataFrame:
    """Return the stream of 0, 1, 2, … in the column ``value``."""
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", per_batch)
    return reader.option("numPartitions", PARALLELISM).load()


def records(spark: SparkSession, batch: int) -> DataFrame:
    """Return the stream of records."""
    return numbers(spark, batch).selectExpr(
        f"concat('user-', {drawn('value', KEYS)}) AS user",
        "CAST(value % 1000 AS double) AS amount",
        "value AS number",
    )


def keyed_count(spark: SparkSession, batch: int) -> DataFrame:
    """Count and total per user, one output per record."""
    return (
        records(spark, batch)
        .groupBy("user")
        .transformWithState(
            CountAndTotal(), "user string, count bigint, total double", "Update", "None"
        )
    )


def word_count(spark: SparkSession, batch: int) -> DataFrame:
    """Count words; a record is a word."""
    first, last = f"value * {WORDS_PER_SENTENCE}", f"(value + 1) * {WORDS_PER_SENTENCE} - 1"
    words = f"transform(sequence({first}, {last}), i -> concat('word', {drawn('i', VOCABULARY)}))"
    sentences = numbers(spark, batch // WORDS_PER_SENTENCE).selectExpr(
        f"concat_ws(' ', {words}) AS sentence"
    )
    return (
        sentences.selectExpr("explode(split(sentence, ' ')) AS word")
        .groupBy("word")
        .transformWithState(Count(), "word string, count bigint", "Update", "None")
    )


def stateless_map(spark: SparkSession, batch: int) -> DataFrame:
    """Change each record with a Python function and keep every second one."""
    tax = udf(lambda amount: amount * 1.2, "double", useArrow=True)
    even = udf(lambda number: number % 2 == 0, "boolean", useArrow=True)
    stream = records(spark, batch)
    return stream.withColumn("amount", tax(stream.amount)).where(even(stream.number))


#: The workloads, and how many records stand in a row of their source.
QUERIES: dict[str, tuple[Callable[[SparkSession, int], DataFrame], int]] = {
    "keyed_count": (keyed_count, 1),
    "word_count": (word_count, WORDS_PER_SENTENCE),
    "stateless_map": (stateless_map, 1),
}


def marks_of(query: StreamingQuery, per_row: int) -> list[Mark]:
    """Return a mark for the end of each micro-batch so far, its commit included."""
    total = 0
    marks = []
    for progress in list(query.recentProgress):
        started = datetime.fromisoformat(progress["timestamp"])
        total += progress["numInputRows"] * per_row
        marks.append((started.timestamp() + progress["batchDuration"] / 1000, float(total)))
    return marks


def run(task: Task, spark: SparkSession) -> list[Mark]:
    """Run micro-batches until all records are through."""
    build, per_row = QUERIES[task.workload]
    # A small run has smaller batches, since it needs several.
    batch = min(BATCH, task.records // 4)
    writer = build(spark, batch).writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", f"{task.directory}/checkpoint").start()
    return marks_until(task.records, query, per_row)


def marks_until(records: int, query: StreamingQuery, per_row: int = 1) -> list[Mark]:
    """Wait until so many records are through, stop the query, and return its marks."""
    marks: list[Mark] = []
    while not marks or marks[-1][1] < records:
        if query.awaitTermination(1):
            raise SystemExit("the query ended by itself")
        marks = marks_of(query, per_row)
    query.stop()
    return marks


def session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a quiet session on this machine, with further settings."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{PARALLELISM}]")
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    spark = session()
    marks = run(task, spark)
    emit(measured(marks))
    spark.stop()


if __name__ == "__main__":
    main()
