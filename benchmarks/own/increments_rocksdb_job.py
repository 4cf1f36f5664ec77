"""What a checkpoint of state in RocksDB writes, and how long it takes: all keys, one percent.

In one process, without Spark. A checkpoint of all keys is the first one; then one percent of them
change, and the next is taken, several times.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.measure import Measurement, emit
from benchmarks.own.jobs import CountAndTotal, Discard, environment
from benchmarks.program import parse_task
from holdfast.testing import LocalExecutor

_ROUNDS = 5


def main() -> None:
    """Run the task on the command line."""
    task = replace(parse_task(), variant="rocksdb")
    keys, part = task.records, task.records // 100
    env = environment(task)
    env.set_parallelism(1).enable_checkpointing(3_600_000)
    env.get_checkpoint_config().set_checkpoint_storage_dir(str(Path(task.directory) / "saved"))
    numbers = [*range(keys), *(100 * n for _ in range(_ROUNDS) for n in range(part))]
    stream = env.from_collection([(f"user-{n}", 1.0, n) for n in numbers])
    stream.key_by(lambda r: r[0]).process(CountAndTotal()).add_sink(Discard())
    seconds = []
    with LocalExecutor(env) as run:
        for quota in [keys, *[part] * _ROUNDS]:
            started = time.perf_counter()
            run.epoch(quota, checkpoint=True)
            seconds.append(time.perf_counter() - started)
        written = [record.written or 0 for record in run.checkpoints[: _ROUNDS + 1]]
    figures = {
        "all_mb": written[0] / 1e6,
        "part_mb": median(written[1:]) / 1e6,
        "all_seconds": seconds[0],
        "part_seconds": median(seconds[1:]),
        "part_to_all_bytes": median(written[1:]) / written[0],
    }
    emit(Measurement(records=keys, figures=figures))


if __name__ == "__main__":
    main()
