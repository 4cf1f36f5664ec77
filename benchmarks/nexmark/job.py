"""The queries on Holdfast, one after another in one session, by record and in columns.

The figure ``q0`` is the rate of the better form; ``q0 by record`` and ``q0 in columns`` are those
of each. The variant names queries that are to run by record only. ``both`` in front of them asks
for both forms, as no variant does for all queries. Where both forms run, the one by record, which
takes several times as long, gets a quarter of the events: as many as Flink SQL.

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
from benchmarks.nexmark.columns import COLUMN_QUERIES
from benchmarks.nexmark.data import DataSet, make
from benchmarks.nexmark.places import ROOT
from benchmarks.nexmark.program import dropped, program
from benchmarks.nexmark.queries import QUERIES
from benchmarks.own.epochs import epoch_marks, holdfast_epochs
from benchmarks.own.jobs import Discard, environment
from benchmarks.program import PARALLELISM, Task, parse_task

#: how often the first query is run before it counts
_WARM_UPS = 2
#: of how many events those by record get one, beside queries in columns
_EVENTS_PER_RECORD = 4


def run(
    task: Task, query: str, data: Path, name: str = "", in_columns: bool = False
) -> Measurement:
    """Run one query to its end."""
    started = time.time()
    directory = f"{task.directory}/{name or query}{'-columns' * in_columns}"
    env = environment(replace(task, directory=directory))
    env.enable_checkpointing(1000 * task.checkpoint)
    env.get_checkpoint_config().set_checkpoint_storage_dir(f"{directory}/checkpoints")
    results = program(env, query, data, in_columns=in_columns)
    if in_columns:
        results = dropped(results, query)
    results.add_sink(Discard())
    client = env.execute_async(query)
    client.get_job_execution_result().result()
    measurement = measured(epoch_marks(holdfast_epochs(client)), started)
    if measurement.records != task.records:
        raise RuntimeError(f"{query} read {measurement.records} of {task.records} events")
    return measurement


def _rates(tasks: dict[bool, Task], query: str) -> dict[str, float]:
    """The rates of the forms of a query, those that failed left out, and the best one.

    Args:
        tasks: What to run, by whether it is in columns.
        query: Its name.
    """
    rates = {}
    for in_columns, task in tasks.items():
        if in_columns and query not in COLUMN_QUERIES:
            continue
        figure = f"{query} {'in columns' if in_columns else 'by record'}"
        data = make(ROOT, DataSet(task.records, files=PARALLELISM))
        try:
            rates[figure] = run(task, query, data, in_columns=in_columns).warm_rate
            print(f"{figure}: {rates[figure]:,.0f}/s", file=sys.stderr, flush=True)
        except Exception:
            traceback.print_exc()
    return {query: max(rates.values()), **rates} if rates else {}


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    tasks = {False: task}
    forms, _, chosen = task.variant.rpartition(" ")
    if forms or not chosen:
        tasks = {False: replace(task, records=task.records // _EVENTS_PER_RECORD), True: task}
    data = make(ROOT, DataSet(tasks[False].records, files=PARALLELISM))
    for turn in range(_WARM_UPS):
        run(tasks[False], "q0", data, f"warm-up-{turn}")
    figures: dict[str, float] = {}
    for query in chosen.split(",") if chosen else QUERIES:
        figures |= _rates(tasks, query)
    emit(Measurement(records=task.records, figures=figures))


if __name__ == "__main__":
    main()
