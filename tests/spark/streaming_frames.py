"""A program for test_going_back: counts the rows of three streaming DataFrames.

Usage: streaming_frames.py FOLDER. Once three checkpoints are complete, and one of them has rows of
every frame, the driver kills itself. ``main`` can also end the job: it is cancelled when every
frame has got on. Each record is a line of ``FOLDER/out``: the frame, the row's number, and how many
of its key were counted by then.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from holdfast.common import Configuration
from holdfast.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.spark.session import get_session

KEYS, FILES, ROWS_PER_FILE, MORE = 5, 20, 10, 30
JOB = "frames"


class Count(KeyedProcessFunction):
    """A running count per key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield *value, count


def write_files(folder: Path, first: int = 0) -> None:
    """Files of consecutive numbers, from a file on; the file source reads them by their times."""
    folder.mkdir(exist_ok=True)
    for part in range(first, first + FILES):
        numbers = range(part * ROWS_PER_FILE, (part + 1) * ROWS_PER_FILE)
        path = folder / f"{part:03}.json"
        path.write_text("".join(f'{{"value": {number}}}\n' for number in numbers))
        os.utime(path, (1_000_000 + part, 1_000_000 + part))


def frames(folder: Path) -> dict[str, DataFrame]:
    session = get_session(JOB)
    return {
        "files": session.readStream.schema("value long")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder / "files")),
        "rate": session.readStream.format("rate")
        .option("rowsPerSecond", 20)
        .option("numPartitions", 1)
        .load(),
        "micro": session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 10)
        .option("numPartitions", 1)
        .load(),
    }


def newest_checkpoint(folder: Path) -> int:
    """Return the number of the newest complete checkpoint; each one replaces the one before."""
    return max((int(path.parent.name[4:]) for path in folder.glob("chk-*/_metadata")), default=0)


def main(folder: Path, kill: bool) -> None:
    """Run the job until it is time to end it, one way or the other."""
    env = StreamExecutionEnvironment(Configuration())
    env.set_parallelism(1).set_buffer_timeout(0).enable_checkpointing(10)
    env.get_checkpoint_config().set_checkpoint_storage_dir(str(folder / "checkpoints"))
    first, *others = [
        env.from_dataframe(frame).map(lambda row, name=name: (name, row["value"]))
        for name, frame in frames(folder).items()
    ]
    counts = first.union(*others).key_by(lambda record: (record[0], record[1] % KEYS))
    records = counts.process(Count()).execute_and_collect(JOB)
    seen: Counter[str] = Counter()
    #: a checkpoint of this number, or a later one, has rows of every frame
    covering: int | None = None
    with (folder / "out").open("a") as out:
        for name, value, count in records:
            out.write(f"{name} {value} {count}\n")
            out.flush()
            seen[name] += 1
            if len(seen) < 3 or min(seen.values()) < (ROWS_PER_FILE if kill else MORE):
                continue
            if not kill:
                break
            newest = newest_checkpoint(folder / "checkpoints" / JOB)
            if covering is None:  # the next one may have begun before
                covering = max(3, newest + 2)
            if newest >= covering:
                os.kill(os.getpid(), signal.SIGKILL)
    records.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), kill=True)
