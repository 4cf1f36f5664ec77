"""What a checkpoint writes when so many keys have changed since the last one.

In one process, without Spark: only bytes are counted. Each state is filled with as many keys as
stand behind ``keys``, then so many of them change, then a checkpoint is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Measurement, emit
from benchmarks.own.jobs import CountAndTotal, Discard, environment
from benchmarks.program import parse_task
from holdfast.testing import LocalExecutor

_CHANGES = (1_000, 10_000, 100_000)


def written(keys: int, changes: Sequence[int], directory: Path) -> list[int]:
    """The bytes of a checkpoint after each number of changes, in a state of so many keys."""
    task = parse_task()
    env = environment(task)
    env.set_parallelism(1).enable_checkpointing(3_600_000)
    env.get_checkpoint_config().set_checkpoint_storage_dir(str(directory))
    numbers = [*range(keys), *(n for count in changes for n in range(count))]
    stream = env.from_collection([(f"user-{n}", 1.0, n) for n in numbers])
    stream.key_by(lambda r: r[0]).process(CountAndTotal()).add_sink(Discard())
    with LocalExecutor(env) as run:
        run.epoch(keys, checkpoint=True)
        for count in changes:
            run.epoch(count, checkpoint=True)
        return [record.written or 0 for record in run.checkpoints[1 : len(changes) + 1]]


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    small, large = task.records // 5, task.records
    changes = [count for count in _CHANGES if count <= small]
    few = written(small, changes, Path(task.directory) / "small")
    many = written(large, changes, Path(task.directory) / "large")
    figures = {
        f"kb_{count}_of_{small}_keys": b / 1e3 for count, b in zip(changes, few, strict=True)
    }
    figures |= {
        f"kb_{count}_of_{large}_keys": b / 1e3 for count, b in zip(changes, many, strict=True)
    }
    figures |= {
        "large_to_small_state": many[0] / few[0],
        "ten_times_the_changes": many[1] / many[0] if len(many) > 1 else 0.0,
    }
    emit(Measurement(records=large, figures=figures))


if __name__ == "__main__":
    main()
