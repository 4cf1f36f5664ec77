"""Structured Streaming: rows of the same columns, appended to Parquet files or to a Delta table.

The rows are made in SQL and need no state, so what is measured is Spark's writing alone. Delta has
a package for some versions of Spark only, so it runs on the newest of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.measure import Measurement, emit, measured
from benchmarks.peers.pyspark_job import marks_until, records, session
from benchmarks.program import Task, parse_task
from services.artifacts import fetched
from services.delta import NEWEST_DELTA

#: Records of a micro-batch: about a second of work, as between two checkpoints of Holdfast.
BATCH = 1_000_000


def run(task: Task) -> Measurement:
    """Run the query until it has written all rows."""
    form = task.variant or "parquet"
    spark = session(delta_settings() if form == "delta" else None)
    stream = records(spark, min(BATCH, task.records // 4))
    rows = stream.selectExpr("user", "number AS count", "amount AS total")
    writer = rows.writeStream.format(form).option("path", f"{task.directory}/table")
    query = writer.option("checkpointLocation", f"{task.directory}/checkpoints").start()
    return measured(marks_until(task.records, query))


def delta_settings() -> Mapping[str, str]:
    """Return what a session needs to write Delta tables.

    Raises:
        UnavailableError: when its package cannot be had.
    """
    jars = fetched("spark-delta", NEWEST_DELTA, transitive=False)
    return {
        "spark.jars": ",".join(str(jar) for jar in jars),
        # its default, 50 tasks to read the log of a table, is for a cluster
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


if __name__ == "__main__":
    emit(run(parse_task()))
