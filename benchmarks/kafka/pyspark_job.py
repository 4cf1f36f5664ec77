"""The same on PySpark: its own Kafka source and sink, and ``transformWithState``.

Its sink writes at least once: a batch that is run again is written again.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyspark
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.kafka.connector import connector_jars
from benchmarks.kafka.topics import COUNTS, RECORDS, broker
from benchmarks.measure import Mark, emit, measured
from benchmarks.peers.pyspark_job import BATCH, SETTINGS, marks_of
from benchmarks.program import PARALLELISM, Task, parse_task


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
            yield Row(value=f"{key[0]},{count},{total}")
        self.totals.update((count, total))


def run(task: Task, spark: SparkSession, address: str) -> list[Mark]:
    """Run micro-batches until all records are through."""
    batch = min(BATCH, task.records // 4)
    lines = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", RECORDS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch)
        .load()
        .selectExpr("split(CAST(value AS string), ',') AS part")
    )
    records = lines.selectExpr("part[0] AS user", "CAST(part[1] AS double) AS amount")
    counts = records.groupBy("user").transformWithState(
        CountAndTotal(), "value string", "Update", "None"
    )
    query = (
        counts.writeStream.format("kafka")
        .outputMode("update")
        .option("kafka.bootstrap.servers", address)
        .option("topic", COUNTS)
        .option("checkpointLocation", f"{task.directory}/checkpoint")
        .start()
    )
    marks: list[Mark] = []
    while not marks or marks[-1][1] < task.records:
        if query.awaitTermination(1):
            raise SystemExit("the query ended by itself")
        marks = marks_of(query, 1)
    query.stop()
    return marks


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = connector_jars(pyspark.__version__)
    builder = SparkSession.builder.master(f"local[{PARALLELISM}]")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    with broker(task.directory, task.records) as running:
        started = time.time()
        spark = builder.config("spark.jars", ",".join(map(str, jars))).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        emit(measured(run(task, spark, running.address), started))
        spark.stop()


if __name__ == "__main__":
    main()
