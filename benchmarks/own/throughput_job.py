"""The workloads that Holdfast shares with its peers."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.measure import emit, measured
from benchmarks.own.epochs import epoch_marks, holdfast_epochs
from benchmarks.own.jobs import (
    Count,
    CountAndTotal,
    Discard,
    Largest,
    environment,
    numbers,
    records,
)
from benchmarks.program import parse_task
from benchmarks.records import WORDS_PER_SENTENCE, sentence
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.functions import SinkFunction

#: Makes a sink of a job.
MakeSink = Callable[[], SinkFunction]


def keyed_count(env: StreamExecutionEnvironment, count: int, sink: MakeSink = Discard) -> None:
    """Count and total per user, one output per record."""
    totals = records(env, count).key_by(lambda r: r[0]).process(CountAndTotal())
    totals.add_sink(sink())


def word_count(env: StreamExecutionEnvironment, count: int, sink: MakeSink = Discard) -> None:
    """Count words; a record is a word."""
    words = numbers(env, count // WORDS_PER_SENTENCE).map(sentence).flat_map(str.split)
    words.key_by(lambda word: word).process(Count()).add_sink(sink())


def stateless_map(env: StreamExecutionEnvironment, count: int, sink: MakeSink = Discard) -> None:
    """Change each record and keep every second one."""
    taxed = records(env, count).map(lambda r: (r[0], r[1] * 1.2, r[2]))
    taxed.filter(lambda r: r[2] % 2 == 0).add_sink(sink())


def branches(env: StreamExecutionEnvironment, count: int, sink: MakeSink = Discard) -> None:
    """Five branches, three sinks: see `benchmarks.workloads`."""
    stream = records(env, count)
    taxed = stream.map(lambda r: (r[0], r[1] * 1.2, r[2]))
    even = stream.filter(lambda r: r[2] % 2 == 0)
    pair = stream.flat_map(lambda r: (r[0], str(r[2])))
    totals = stream.key_by(lambda r: r[0]).process(CountAndTotal())
    peaks = stream.key_by(lambda r: r[2] % 1000).process(Largest())
    taxed.union(even).add_sink(sink())
    totals.union(peaks).add_sink(sink())
    pair.add_sink(sink())


#: The workloads, and how many of their records stand in one that the source reads.
JOBS: dict[str, tuple[Callable[..., None], int]] = {
    "keyed_count": (keyed_count, 1),
    "word_count": (word_count, WORDS_PER_SENTENCE),
    "stateless_map": (stateless_map, 1),
    "branches": (branches, 1),
}


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    build, per_record = JOBS[task.workload.removesuffix("_rocksdb")]
    env = environment(task)
    build(env, task.records)
    client = env.execute_async(task.workload)
    client.get_job_execution_result().result()
    emit(measured(epoch_marks(holdfast_epochs(client), per_record)))


if __name__ == "__main__":
    main()
