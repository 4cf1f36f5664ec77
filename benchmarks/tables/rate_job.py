"""The rate of the keyed count with its output in a table; the variant names the kind of table.

Without one, the rows are thrown away: what the others are compared with.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from benchmarks.engines.jobs import checkpointed, within
from benchmarks.engines.percentiles import check
from benchmarks.measure import Measurement, emit, measured
from benchmarks.own.epochs import epoch_marks, holdfast_epochs
from benchmarks.own.jobs import CountAndTotal, Discard, records
from benchmarks.program import Task, parse_task
from benchmarks.tables.places import PLACES

SCHEMA = pa.schema([("user", pa.string()), ("count", pa.int64()), ("total", pa.float64())])


def run(task: Task) -> Measurement:
    """Run the job, and count what is in the table."""
    env = checkpointed(replace(task, variant=""), 1000 * task.checkpoint)
    totals = records(env, task.records).key_by(lambda r: r[0]).process(CountAndTotal())
    place = PLACES[task.variant](task.directory, SCHEMA) if task.variant else None
    if place is None:
        totals.add_sink(Discard())
    else:
        totals.sink_to(place.sink())
    client = env.execute_async(f"keyed count to {task.variant or 'nothing'}")
    client.get_job_execution_result().result()
    measurement = measured(epoch_marks(holdfast_epochs(client)))
    if place is None:
        return measurement
    check("the number of rows", place.rows(), task.records)
    figures = {"files": float(len(place.files())), "megabytes": place.megabytes()}
    return replace(measurement, figures=figures)


if __name__ == "__main__":
    emit(run(within(parse_task(), "run")))
