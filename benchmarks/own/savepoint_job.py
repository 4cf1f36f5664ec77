"""How fast a savepoint is read as a DataFrame.

A savepoint with as many keys as there are records is made first, of a text and a number each. What
is measured is a query over all of its rows.
"""

from __future__ import annotations

import time

from pyspark.sql import SparkSession

from benchmarks.measure import Measurement, emit
from benchmarks.program import PARALLELISM, parse_task
from holdfast.common import Types
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.savepoint import KeyedState, Savepoint, SavepointWriter


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    spark = SparkSession.builder.master(f"local[{PARALLELISM}]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.range(task.records).selectExpr("concat('user-', id) as key", "id as value")
    state = KeyedState(ValueStateDescriptor("total", Types.LONG()), rows)
    started = time.perf_counter()
    path = SavepointWriter().with_operator("totals", state).write(f"{task.directory}/savepoint")
    written = time.perf_counter()
    frame = Savepoint.read(path).keyed_state("totals", "total").to_dataframe(spark)
    count, total = frame.selectExpr("count(key)", "sum(value)").first() or (0, 0)
    read = time.perf_counter()
    if (count, total) != (task.records, task.records * (task.records - 1) // 2):
        raise SystemExit(f"{count} rows with a total of {total} were read of {task.records}")
    figures = {
        "rows_written_per_second": task.records / (written - started),
        "rows_read_per_second": task.records / (read - written),
    }
    emit(Measurement(records=task.records, figures=figures))
    spark.stop()


if __name__ == "__main__":
    main()
