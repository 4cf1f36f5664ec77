"""How much memory a key takes, with a value state of a whole number; the task's number is the keys.

Every key gets one record. The memory of the workers is measured before the first of them, and again
after the last, when a checkpoint without changes was taken. So it is all that processes hold, with
what their allocators keep for themselves. The variant ``columns`` has its state in columns.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.engines.jobs import Stoppable, await_condition, checkpointed, stop, within
from benchmarks.engines.percentiles import check
from benchmarks.engines.rate_job import Metered
from benchmarks.measure import STEP, Measurement, emit, read_marks
from benchmarks.own.columns_job import COUNTS, WORDS, Tally, named
from benchmarks.own.columns_job import Count as Sum
from benchmarks.own.jobs import Count, Discard
from benchmarks.processes import WORKERS, usage_of
from benchmarks.program import PARALLELISM, Task, parse_task
from holdfast.common import Types
from holdfast.datastream import DataStream

#: Keys of a block. The source emits the numbers of blocks, which costs it next to nothing.
_BLOCK = 1000
#: Seconds that memory may take to settle: a few checkpoints.
_SETTLE = 5.0
_LOOK = 0.05
_BYTES_PER_MB = 1024 * 1024


class Phases(Stoppable):
    """A first block; when told to, all others; then nothing until it is stopped."""

    def __init__(self, directory: str, blocks: int) -> None:
        super().__init__(directory)
        self._directory = directory
        self._blocks = blocks

    def run(self, ctx: Any) -> None:
        """Hand out the numbers of blocks."""
        ctx.collect(0)
        while not os.path.exists(_go(self._directory)) and not self.stopped():
            time.sleep(_LOOK)
        for block in range(1, self._blocks):
            ctx.collect(block)
        while not self.stopped():
            time.sleep(_LOOK)


def _go(directory: str) -> str:
    return f"{directory}/go"


def by_record(blocks: DataStream, directory: str) -> None:
    """Count keys with a function of records."""
    keys = blocks.flat_map(lambda b: [f"user-{n}" for n in range(b * _BLOCK, (b + 1) * _BLOCK)])
    keys.key_by(lambda key: key).process(Count()).add_sink(Metered(directory))


def in_columns(blocks: DataStream, directory: str) -> None:
    """Count keys with a function of batches."""
    counted = blocks.map_batches(keys_of, WORDS).key_by("word").process_batches(Sum(), COUNTS)
    counted.map_batches(Tally(directory), WORDS).add_sink(Discard())


def keys_of(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return the keys of blocks."""
    numbers = np.add.outer(batch["value"].to_numpy() * _BLOCK, np.arange(_BLOCK)).ravel()
    return {"word": named("user-", pa.array(numbers).cast(pa.string()))}


JOBS: dict[str, Callable[[DataStream, str], None]] = {
    "": by_record,
    "columns": in_columns,
}


def arrived(directory: str) -> int:
    """Return how many results came so far; the last few of each sink are not told."""
    marks = read_marks(directory)
    return round(marks[-1][1]) if marks else 0


def run(task: Task) -> dict[str, float]:
    """Run the job, look at its workers twice, and return the figures."""
    env = checkpointed(task, 1000 * task.checkpoint)
    keys = task.records // _BLOCK * _BLOCK
    phases = env.add_source(Phases(task.directory, keys // _BLOCK), "phases", Types.LONG())
    JOBS[task.variant](phases, task.directory)
    client = env.execute_async("memory per key")
    await_condition(client, lambda: any(e.read for e in client.get_epochs()), "an epoch read")
    time.sleep(_SETTLE)
    before = usage_of(os.getpid())[WORKERS].mb
    open(_go(task.directory), "w").close()
    # the meters leave a mark for every thousand results only
    enough = keys - PARALLELISM * STEP
    await_condition(client, lambda: arrived(task.directory) >= enough, "all keys came", 900.0)
    time.sleep(_SETTLE)
    after = usage_of(os.getpid())[WORKERS].mb
    stop(task.directory)
    client.get_job_execution_result().result()
    check("the number of results", arrived(task.directory), keys)
    grown = (after - before) * _BYTES_PER_MB
    return {"bytes_per_key": grown / keys, "before_mb": before, "after_mb": after}


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    emit(Measurement(records=task.records, figures=run(within(task, "run"))))


if __name__ == "__main__":
    main()
