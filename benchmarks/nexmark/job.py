"""The queries on Holdfast, one after another in one session; the variant names them.

What is measured of each is the rate after its first quarter, as everywhere. Before them the session
is warmed up with the first one: the JVM compiles for half a minute what it runs. A query that fails
is told on the error output and left out.
"""

from __future__ import annotations

import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import Measurement, emit, measured
from benchmarks.nexmark.data import DataSet, make
from benchmarks.nexmark.places import ROOT
from benchmarks.nexmark.program import program
from benchmarks.nexmark.queries import QUERIES
from benchmarks.own.epochs import epoch_marks, holdfast_epochs
from benchmarks.own.jobs import Discard, environment
from benchmarks.program import PARALLELISM, Task, parse_task

#: how often the first query is run before it counts
_WARM_UPS = 2


def run(task: Task, query: str, data: Path, name: str = "") -> Measurement:
    """Run one query to its end."""
    started = time.time()
    directory = f"{task.directory}/{name or query}"
    env = environment(replace(task, directory=directory))
    env.enable_checkpointing(1000 * task.checkpoint)
    env.get_checkpoint_config().set_checkpoint_storage_dir(f"{directory}/checkpoints")
    program(env, query, data).add_sink(Discard())
    client = env.execute_async(query)
    client.get_job_execution_result().result()
    measurement = measured(epoch_marks(holdfast_epochs(client)), started)
    if measurement.records != task.records:
        raise RuntimeError(f"{query} read {measurement.records} of {task.records} events")
    return measurement


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    data = make(ROOT, DataSet(task.records, files=PARALLELISM))
    figures: dict[str, float] = {}
    for turn in range(_WARM_UPS):
        run(task, "q0", data, f"warm-up-{turn}")
    for query in task.variant.split(",") if task.variant else QUERIES:
        try:
            figures[query] = run(task, query, data).warm_rate
            print(f"{query}: {figures[query]:,.0f}/s", file=sys.stderr, flush=True)
        except Exception:
            traceback.print_exc()
    emit(Measurement(records=task.records, figures=figures))


if __name__ == "__main__":
    main()
