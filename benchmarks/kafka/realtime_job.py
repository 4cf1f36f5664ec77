"""The round trip on Spark's real-time mode, which has no state in Python: its JVM pipeline.

Kafka to Kafka without state, on the newest Spark that has a Kafka connector. The connector comes
from a Maven repository; if it cannot be had, the program ends with the reason. The task's number is
that of the seconds.
"""

from __future__ import annotations

import os
import sys

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.engines.percentiles import percentiles
from benchmarks.kafka.connector import connector_jars
from benchmarks.kafka.load import round_trips
from benchmarks.kafka.topics import COUNTS, PARTITIONS, RECORDS, broker
from benchmarks.measure import Measurement, emit
from benchmarks.peers.pyspark_job import SETTINGS
from benchmarks.program import Task, parse_task
from services.artifacts import UnavailableError

#: How long one of its batches lasts; checkpoints are taken between two of them.
_BATCH = "5 minutes"


def start(task: Task, spark: SparkSession, address: str) -> StreamingQuery:
    """Start the query: what was read, with a count of 0."""
    lines = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", RECORDS)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("split(CAST(value AS string), ',') AS part")
    )
    results = lines.selectExpr("concat(part[0], ',0,', part[1]) AS value")
    return (
        results.writeStream.format("kafka")
        .outputMode("update")
        .option("kafka.bootstrap.servers", address)
        .option("topic", COUNTS)
        .option("checkpointLocation", f"{task.directory}/checkpoint")
        .trigger(realTime=_BATCH)
        .start()
    )


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        jars = connector_jars(pyspark.__version__)
    except UnavailableError as error:
        raise SystemExit(f"Error: Spark's Kafka connector cannot be had: {error}") from error
    # a long-running task of its own reads each partition
    builder = SparkSession.builder.master(f"local[{PARTITIONS}]")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    with broker(task.directory, 0) as running:
        spark = builder.config("spark.jars", ",".join(map(str, jars))).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        query = start(task, spark, running.address)
        figures = percentiles(round_trips(running.address, task.records))
        if (failure := query.exception()) is not None:
            raise SystemExit(f"Error: the query failed: {failure}")
        query.stop()
        spark.stop()
    emit(Measurement(records=task.records, figures=figures))


if __name__ == "__main__":
    main()
