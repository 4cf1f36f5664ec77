"""DataFrameSinks that write Delta tables; runs in the environment of scripts/spark_readers.py.

    python delta_sink_program.py FOLDER

One table is a path, and one has a name. The job fails once, is stopped with a savepoint, is started
from it, and fails once more. Prints the numbers in each table, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from holdfast.common import Configuration, RestartStrategies, Types
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.dataframe import DataFrameSink

NUMBERS = 1000
WAIT = 120.0
NUMBER = Types.ROW_NAMED(["number", "parity"], [Types.LONG(), Types.LONG()])


def make_job(folder: Path, savepoint: str | None) -> StreamExecutionEnvironment:
    """A job that reads numbers slowly, and fails at one of them, once."""
    settings = {} if savepoint is None else {"execution.state-recovery.path": savepoint}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(settings))
    env.set_parallelism(1).enable_checkpointing(300)
    place = "first" if savepoint is None else "second"
    env.get_checkpoint_config().set_checkpoint_storage_dir(str(folder / place))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 100))
    broken = folder / f"broken in the {place}"

    def fail_once(number: int) -> int:
        if number % 500 == 99 and not broken.exists():
            broken.touch()
            raise RuntimeError("once")
        # NB: the first job must not come to its end before it is stopped
        time.sleep(0.2 if place == "first" and number > 300 else 0.01)
        return number

    numbers = env.from_collection(range(NUMBERS)).uid("in").map(fail_once)
    rows = numbers.map(lambda number: (number, number % 2), NUMBER)
    sink = DataFrameSink("delta", str(folder / "table"), partition_by=["parity"])
    rows.sink_to(sink).uid("path")
    rows.sink_to(DataFrameSink("delta", table="numbers")).uid("table")
    return env


def count(session: SparkSession, table: Path) -> int:
    """The number of rows; 0 if there is no table yet."""
    if not list(table.glob("_delta_log/*.json")):
        return 0
    return session.read.format("delta").load(str(table)).count()


def make_session(folder: Path) -> SparkSession:
    """A session with Delta's package."""
    return (
        SparkSession.builder.master("local[4]")
        .config("spark.jars", os.environ["SPARK_READER_JARS"])
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )


def main(folder: Path) -> None:
    """Run the job, and print what is in the table."""
    session = make_session(folder)
    client = make_job(folder, None).execute_async("numbers")
    until = time.monotonic() + WAIT
    while count(session, folder / "table") < 100:
        assert time.monotonic() < until, "no rows came"
        time.sleep(0.1)
    savepoint = client.stop_with_savepoint(False, str(folder / "savepoints")).result(WAIT)
    client.get_job_execution_result().result(WAIT)
    # NB: the rows of the savepoint are in the table, and their files are gone
    make_job(folder, savepoint).execute("numbers")
    found: dict[str, list[Any]] = {
        "path": session.read.format("delta").load(str(folder / "table")).collect(),
        "table": session.table("numbers").collect(),
    }
    print(json.dumps({name: sorted(row[0] for row in rows) for name, rows in found.items()}))
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
