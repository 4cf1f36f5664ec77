"""How much processor time a job takes that has nothing to do.

The task's number is that of the seconds. The variant is the time between two checkpoints in
milliseconds; without one, there are no checkpoints. Figures are in percent of one core.
"""

from __future__ import annotations

import os
import time
from typing import Any

from benchmarks.engines.jobs import Stoppable, await_condition, checkpointed, stop, within
from benchmarks.engines.percentiles import check
from benchmarks.engines.rate_job import Metered
from benchmarks.measure import Measurement, emit, read_marks
from benchmarks.own.jobs import CountAndTotal, environment
from benchmarks.processes import usage_of
from benchmarks.program import Task, parse_task
from benchmarks.records import record
from holdfast.datastream import StreamExecutionEnvironment

#: What the JVM does in its first seconds is not the job's, in seconds.
_SETTLE = 15.0
_LOOK = 0.5


class Silent(Stoppable):
    """One record at the beginning, one at the end, and nothing in between."""

    def run(self, ctx: Any) -> None:
        """Wait until told to stop."""
        ctx.collect(record(0))
        while not self.stopped():
            time.sleep(_LOOK)
        ctx.collect(record(1))


def made(task: Task) -> StreamExecutionEnvironment:
    """Return the environment, with or without checkpoints."""
    return checkpointed(task, int(task.variant)) if task.variant else environment(task)


def run(task: Task) -> dict[str, float]:
    """Run the job, look at its processes twice, and return the figures."""
    env = made(task)
    stream = env.add_source(Silent(task.directory), "silent").key_by(lambda r: r[0])
    stream.process(CountAndTotal()).add_sink(Metered(task.directory))
    client = env.execute_async("idle")
    await_condition(client, lambda: any(e.read for e in client.get_epochs()), "an epoch read")
    time.sleep(min(_SETTLE, task.records))
    began, before = time.monotonic(), usage_of(os.getpid())
    time.sleep(task.records)
    seconds, after = time.monotonic() - began, usage_of(os.getpid())
    stop(task.directory)
    client.get_job_execution_result().result()
    check("the number of results", read_marks(task.directory)[-1][1], 2.0)
    figures = {
        f"{kind}_percent": 100 * (after[kind].cpu - before[kind].cpu) / seconds for kind in after
    }
    return figures | {"percent": sum(figures.values())}


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    emit(Measurement(records=task.records, figures=run(within(task, "run"))))


if __name__ == "__main__":
    main()
