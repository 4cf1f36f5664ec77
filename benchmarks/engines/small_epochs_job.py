"""Very many small epochs in a row, with a buffer timeout of 0: their time, and memory over them.

The task's number is that of the epochs. Memory is measured when a tenth of them is over, and at
the end.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from benchmarks.engines.jobs import Stoppable, await_condition, stop, within
from benchmarks.engines.percentiles import check
from benchmarks.engines.rate_job import Metered
from benchmarks.measure import Measurement, emit, read_marks
from benchmarks.own.jobs import CountAndTotal, environment
from benchmarks.processes import DRIVER, JVM, WORKERS, usage_of
from benchmarks.program import Task, parse_task
from benchmarks.records import record
from holdfast.common.job_client import JobClient

KEYS = 1000
#: The share of the epochs that is over when memory is first measured.
_EARLY = 0.1
_PAUSE = 0.05
_EMITTED = "emitted"


class Trickle(Stoppable):
    """Ten records, a pause, ten records, …; at the end it says how many there were."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._said = f"{directory}/{_EMITTED}"

    def run(self, ctx: Any) -> None:
        """Hand out records until told to stop."""
        index = 0
        while not self.stopped():
            for each in range(index, index + 10):
                ctx.collect(record(each, KEYS))
            index += 10
            time.sleep(_PAUSE)
        Path(self._said).write_text(str(index), "ascii")


def ended(client: JobClient) -> int:
    """Return how many epochs have ended."""
    epochs = client.get_epochs()
    return epochs[-1].epoch + 1 if epochs else 0


def reach(client: JobClient, epochs: int) -> tuple[float, dict[str, float], int]:
    """Wait for an epoch; returns the time, the memory by kind of process, and the epoch."""
    what = f"{epochs} epochs were over"
    await_condition(client, lambda: ended(client) >= epochs, what, patience=7200)
    now, number = time.time(), ended(client)
    return now, {kind: usage.mb for kind, usage in usage_of(os.getpid()).items()}, number


def run(task: Task) -> dict[str, float]:
    """Run the job for so many epochs and return its figures."""
    env = environment(task).set_buffer_timeout(0)
    stream = env.add_source(Trickle(task.directory), "trickle").key_by(lambda r: r[0])
    stream.process(CountAndTotal()).add_sink(Metered(task.directory))
    client = env.execute_async("small epochs")
    began, early, first = reach(client, max(1, round(task.records * _EARLY)))
    over, late, last = reach(client, task.records)
    stop(task.directory)
    client.get_job_execution_result().result()
    emitted = int((Path(task.directory) / _EMITTED).read_text("ascii"))
    check("the number of results", round(read_marks(task.directory)[-1][1]), emitted)
    kinds = {"driver": DRIVER, "jvm": JVM, "workers": WORKERS}
    figures = {"epoch_ms": 1000 * (over - began) / max(1, last - first), "epochs": float(last)}
    for name, kind in kinds.items():
        figures |= {f"{name}_early_mb": early[kind], f"{name}_last_mb": late[kind]}
        figures[f"{name}_growth"] = late[kind] / early[kind]
    return figures


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    emit(Measurement(records=task.records, figures=run(within(task, "run"))))


if __name__ == "__main__":
    main()
