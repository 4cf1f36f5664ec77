"""The rate with many keys in the state; the variant is their number, and perhaps the backend.

First every key gets one record, so that the state holds them all. Only what follows is measured:
the task's number of records, on keys drawn at random. A quick run, of few records, has fewer keys.
"""

from __future__ import annotations

from benchmarks.measure import WARM_UP, emit, measured
from benchmarks.own.epochs import epoch_marks, holdfast_epochs
from benchmarks.own.jobs import CountAndTotal, Discard, environment, records
from benchmarks.program import parse_task
from benchmarks.records import bootstrapped


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    keys = min(int(task.variant.split()[0]), 10 * task.records)
    env = environment(task)
    stream = records(env, keys + task.records, bootstrapped(keys))
    stream.key_by(lambda r: r[0]).process(CountAndTotal()).add_sink(Discard())
    client = env.execute_async(task.workload)
    client.get_job_execution_result().result()
    warm_up = keys + task.records * WARM_UP
    emit(measured(epoch_marks(holdfast_epochs(client)), warm_up=warm_up))


if __name__ == "__main__":
    main()
