"""What an epoch costs Spark when there is nothing to do: the floor under Holdfast's epochs.

The task's number is that of the micro-batches. Each runs, from ``foreachBatch``, two
``mapInArrow`` stages with a ``repartitionById`` shuffle between them, over two rows: the shape
of an epoch with one keyed level. What is measured is Spark's own figure of a whole micro-batch,
its write-ahead log and commit included.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.measure import Measurement, emit
from benchmarks.program import PARALLELISM, parse_task

SCHEMA = "target int, head binary, data binary"


def first_level(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Send one small block to each subtask."""
    for _ in batches:
        pass
    targets = list(range(PARALLELISM))
    yield block(targets)


def second_level(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the blocks and send one back."""
    for _ in batches:
        pass
    yield block([0])


def block(targets: list[int]) -> Any:
    """Return one row for each target."""
    return pa.RecordBatch.from_pydict(
        {
            "target": pa.array(targets, pa.int32()),
            "head": pa.array([b"head"] * len(targets), pa.binary()),
            "data": pa.array([b"data" * 25] * len(targets), pa.binary()),
        }
    )


def epoch(batch: DataFrame, _: int) -> None:
    """Run the two stages; the batch itself is only a tick."""
    rows = batch.sparkSession.range(0, PARALLELISM, 1, PARALLELISM)
    sent = rows.mapInArrow(first_level, SCHEMA).repartitionById(PARALLELISM, "target")
    sent.mapInArrow(second_level, SCHEMA).collect()


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{PARALLELISM}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(PARALLELISM))
        .config("spark.sql.streaming.numRecentProgressUpdates", "100000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = ticks.writeStream.foreachBatch(epoch).trigger(processingTime="0 seconds")
    query = writer.option("checkpointLocation", f"{task.directory}/checkpoint").start()
    while len(query.recentProgress) < task.records:
        if query.awaitTermination(1):
            raise SystemExit("the query ended by itself")
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in list(query.recentProgress)]
    query.stop()
    figures = {"epoch_seconds": median(seconds[len(seconds) // 2 :])}
    emit(Measurement(records=len(seconds), figures=figures))
    spark.stop()


if __name__ == "__main__":
    main()
