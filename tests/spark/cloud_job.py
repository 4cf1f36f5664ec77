"""A keyed count on Spark, all of whose files are in one store: ``python -m tests.spark.cloud_job``.

    numbers ── count by key ── Parquet files in <store>/out

Checkpoints are in <store>/jobs. Started again, it goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast.common import Configuration, RestartStrategies
from holdfast.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.file_system import BucketAssigner, FileSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.formats.parquet import ParquetBulkWriters
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.filesystem import FileSystem, join

KEYS = 10
NUMBERS = 3000


@dataclasses.dataclass
class Count:
    """How often a key has occurred, with the number that was the last."""

    key: int
    number: int
    count: int


class Slowly(MapFunction):
    """Takes its time as long as there is a file, which is once in every few numbers looked for."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def map(self, value: int) -> int:
        if value % 10 == 0 and self._file.exists():
            time.sleep(0.5)
        return value


class Counts(KeyedProcessFunction):
    """Counts the numbers of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: int, ctx: Any) -> Any:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield Count(value % KEYS, value, count)


def main() -> None:
    """Run the job to its end, or until it is stopped with a savepoint."""
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("settings", type=json.loads)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--stop", action="store_true", help="with a savepoint")
    options = parser.parse_args()
    env = StreamExecutionEnvironment(
        Configuration(
            {
                "execution.checkpointing.dir": f"{options.store}/jobs",
                "execution.checkpointing.interval": "500 ms",
                "holdfast.epoch.max-records": "50",
                **options.settings,
            }
        )
    )
    env.set_parallelism(options.parallelism).set_buffer_timeout(50)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 100))
    numbers = env.from_source(NumberSequenceSource(0, NUMBERS - 1)).uid("numbers")
    counts = numbers.map(Slowly(options.folder / "slow")).key_by(lambda number: number % KEYS)
    builder = FileSink.for_bulk_format(
        f"{options.store}/out", ParquetBulkWriters.for_row_type(Count)
    ).with_bucket_assigner(BucketAssigner.field_bucket_assigner("key"))
    counts.process(Counts()).uid("counts").sink_to(builder.build()).uid("out")
    client = env.execute_async("counts")
    print("started", flush=True)
    if options.stop:
        while len(client.get_checkpoints()) < 2:
            time.sleep(0.1)
        path = client.stop_with_savepoint(False, f"{options.store}/savepoints").result()
        print(f"savepoint {path}", flush=True)
    client.get_job_execution_result().result()


def part_files(files: FileSystem, path: str) -> list[str]:
    """Return the part files below a directory that readers see."""
    found = []
    for status in files.list_directory(path):
        if status.name.startswith("."):
            continue
        below = join(path, status.name)
        found += part_files(files, below) if status.is_directory else [below]
    return found


def verify(files: FileSystem, path: str) -> None:
    """Check that each number is there once, and that the counts of each key are complete."""
    rows = []
    for part in part_files(files, path):
        with files.open_input(part) as source:
            rows += pq.ParquetFile(source).read().to_pylist()
    assert sorted(row["number"] for row in rows) == list(range(NUMBERS))
    for row in rows:
        assert row["key"] == row["number"] % KEYS
    each = list(range(1, NUMBERS // KEYS + 1))
    for key in range(KEYS):
        assert sorted(row["count"] for row in rows if row["key"] == key) == each


if __name__ == "__main__":
    main()
