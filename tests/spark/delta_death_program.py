"""A driver that dies after Delta's commit; runs in the environment of scripts/spark_readers.py.

    python delta_death_program.py FOLDER

Started again, it goes on from its last checkpoint. Then it prints the numbers in each table, and
whether the commit after which it died was repeated, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from holdfast.common import Configuration, Types
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.spark.dataframe_writer import SparkWriters
from holdfast.spark.row_transactions import RowTransaction
from tests.spark.delta_sink_program import make_session

NUMBERS = 300
DIED = 9
NUMBER = Types.ROW_NAMED(["number"], [Types.LONG()])
TABLES = ("one", "two")


def watch(died: Path) -> list[str]:
    """Die after the third commit, once; return the names of those that are made from now on."""
    commit, names = SparkWriters._commit, []

    def watched(writers: SparkWriters, transaction: RowTransaction) -> None:
        commit(writers, transaction)
        names.append(f"{transaction.token} {transaction.number} {transaction.sink}")
        if len(names) == 3 and not died.exists():
            died.write_text(names[-1])
            os._exit(DIED)

    SparkWriters._commit = watched  # type: ignore[method-assign]
    return names


def make_job(folder: Path) -> StreamExecutionEnvironment:
    """A job that reads numbers slowly."""
    env = StreamExecutionEnvironment.get_execution_environment(Configuration({}))
    env.set_parallelism(1).enable_checkpointing(300)
    env.get_checkpoint_config().set_checkpoint_storage_dir(str(folder / "checkpoints"))

    def slowly(number: int) -> tuple[int]:
        time.sleep(0.01)
        return (number,)

    rows = env.from_collection(range(NUMBERS)).uid("in").map(slowly, NUMBER)
    for name in TABLES:
        rows.sink_to(DataFrameSink("delta", str(folder / name))).uid(name)
    return env


def main(folder: Path) -> None:
    """Run the job, and print what is in the tables."""
    session, died = make_session(folder), folder / "died"
    names = watch(died)
    make_job(folder).execute("numbers")
    found: dict[str, Any] = {
        name: sorted(
            row[0] for row in session.read.format("delta").load(str(folder / name)).collect()
        )
        for name in TABLES
    }
    print(json.dumps({**found, "repeated": died.exists() and died.read_text() in names}))
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
