"""Structured Streaming: rows of the same columns, appended to Parquet files.

The rows are made in SQL and need no state, so what is measured is Spark's writing alone.
"""

from __future__ import annotations

from benchmarks.measure import Measurement, emit, measured
from benchmarks.peers.pyspark_job import marks_until, records, session
from benchmarks.program import Task, parse_task

#: Records of a micro-batch: about a second of work, as between two checkpoints of Holdfast.
BATCH = 1_000_000


def run(task: Task) -> Measurement:
    """Run the query until it has written all rows."""
    stream = records(session(), min(BATCH, task.records // 4))
    rows = stream.selectExpr("user", "number AS count", "amount AS total")
    writer = rows.writeStream.format("parquet").option("path", f"{task.directory}/table")
    query = writer.option("checkpointLocation", f"{task.directory}/checkpoints").start()
    return measured(marks_until(task.records, query))


if __name__ == "__main__":
    emit(run(parse_task()))
