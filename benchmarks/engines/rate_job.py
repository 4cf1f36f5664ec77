"""The rates of the keyed count, the word count and the branches, with every output counted.

Workload ``growth``: the keyed count with many keys, all of them in the state before what is
measured; the variant is their number. Workload ``memory``: the keyed count, and how much memory the
workers need meanwhile.

The resident engine works record by record, so its marks are those of the sinks. The epochs engine
leaves a mark at the end of each epoch: before that, nobody may rely on the output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.engines.jobs import checkpointed, is_resident, within
from benchmarks.engines.percentiles import check
from benchmarks.measure import WARM_UP, Mark, Measurement, Meter, emit, measured, read_marks
from benchmarks.own.epochs import epoch_marks, holdfast_epochs
from benchmarks.own.jobs import CountAndTotal, records
from benchmarks.own.throughput_job import JOBS
from benchmarks.processes import WORKERS, sampled
from benchmarks.program import Task, parse_task
from benchmarks.records import WORDS_PER_SENTENCE, bootstrapped
from holdfast.common.job_client import JobClient
from holdfast.datastream import RuntimeContext
from holdfast.datastream.functions import SinkFunction

#: How many results there are of a record of the workload: of a branch's, one of each but two of
#: the pairs, and half of one of the filter.
OUTPUTS = {"keyed_count": 1.0, "word_count": 1.0, "branches": 5.5, "stateless_map": 0.5}


class Metered(SinkFunction):
    """Counts what arrives and throws it away."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def open(self, context: RuntimeContext) -> None:
        """Open the meter."""
        self._meter = Meter(self._directory)

    def invoke(self, value: Any, context: Any) -> None:
        """Count a record."""
        self._meter.tick()

    def close(self) -> None:
        """Count the last ones."""
        self._meter.close()


def finished(client: JobClient, task: Task, count: int, name: str = "keyed_count") -> list[Mark]:
    """Wait for the end of a job, check the number of its results, and return its marks."""
    client.get_job_execution_result().result()
    arrived = read_marks(task.directory)
    check("the number of results", arrived[-1][1] if arrived else 0.0, count * OUTPUTS[name])
    if is_resident():
        return read_marks(task.directory, OUTPUTS[name])
    return epoch_marks(holdfast_epochs(client), JOBS[name][1])


def throughput(task: Task) -> Measurement:
    """Run one of the workloads that Holdfast shares with its peers."""
    count = task.records // (2 * WORDS_PER_SENTENCE) * 2 * WORDS_PER_SENTENCE
    env = checkpointed(task, 1000 * task.checkpoint)
    JOBS[task.workload][0](env, count, sink_in(task))
    client = env.execute_async(task.workload)
    return measured(finished(client, task, count, task.workload))


def growth(task: Task) -> Measurement:
    """Run the keyed count after every key had a record."""
    keys = min(int(task.variant), 10 * task.records)
    env = checkpointed(replace(task, variant=""), 1000 * task.checkpoint)
    stream = records(env, keys + task.records, bootstrapped(keys)).key_by(lambda r: r[0])
    stream.process(CountAndTotal()).add_sink(Metered(task.directory))
    marks = finished(env.execute_async("growth"), task, keys + task.records)
    return measured(marks, warm_up=keys + task.records * WARM_UP)


def memory(task: Task) -> Measurement:
    """Run the keyed count and look at the memory of its workers all the time."""
    with sampled(0.5) as samples:
        measurement = throughput(replace(task, workload="keyed_count"))
    marks = read_marks(task.directory)
    mb = samples.between(marks[0][0], marks[-1][0], WORKERS)
    if not mb:
        raise SystemExit("Error: the job was over before its memory was measured; run more records")
    figures = {"workers_mb": median(mb), "workers_peak_mb": max(mb)}
    return replace(measurement, figures=figures)


def sink_in(task: Task) -> Callable[[], SinkFunction]:
    """Return what makes the sinks of a job."""
    return lambda: Metered(task.directory)


def main() -> None:
    """Run the task on the command line."""
    task = within(parse_task(), "run")
    others = {"growth": growth, "memory": memory}
    emit(others.get(task.workload, throughput)(task))


if __name__ == "__main__":
    main()
