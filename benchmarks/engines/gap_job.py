"""How long results stop while a checkpoint with many changed keys is taken.

The task's number is that of the keys. Records go through the keys in their order, as fast as the
job takes them, so that a checkpoint has as many changed keys as records came since the last one, up
to all. A gap is the time between two results at one sink or, for all sinks together, a time in
which none of them got any. Only checkpoints count that began when every key was in the state.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.engines.jobs import checkpointed, within
from benchmarks.engines.percentiles import check, new_file
from benchmarks.measure import Mark, Measurement, Meter, emit, read_marks
from benchmarks.own.jobs import CountAndTotal, records
from benchmarks.program import Task, parse_task
from benchmarks.records import Record
from holdfast.common.job_client import JobClient
from holdfast.datastream import RuntimeContext
from holdfast.datastream.functions import SinkFunction

CHECKPOINTS_MS = 3000
#: How often each key has a record. Odd: the two halves that subtasks read begin at other keys.
TIMES = 15
#: A shorter time without results is no gap, in seconds.
_SHORTEST = 0.005
_SUFFIX = "gaps"

#: From when to when.
Span = tuple[float, float]


class Gaps(SinkFunction):
    """Counts results, and notes the times without any."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def open(self, context: RuntimeContext) -> None:
        """Begin to count."""
        self._meter = Meter(self._directory)
        self._gaps: list[Span] = []
        self._last = time.time()

    def invoke(self, value: Any, context: Any) -> None:
        """Take a result."""
        now = time.time()
        if now - self._last > _SHORTEST:
            self._gaps.append((self._last, now))
        self._last = now
        self._meter.tick()

    def close(self) -> None:
        """Write the notes."""
        self._meter.close()
        lines = "".join(f"{begin} {end}\n" for begin, end in self._gaps)
        new_file(self._directory, _SUFFIX).write_text(lines, "ascii")


def read_gaps(directory: str) -> list[list[Span]]:
    """Return the gaps of each sink."""
    return [
        [(float(a), float(b)) for a, b in map(str.split, path.read_text("ascii").splitlines())]
        for path in Path(directory).glob(f"*.{_SUFFIX}")
    ]


def common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """Return the times that are in both lists of gaps.

    >>> common([(1.0, 3.0), (5.0, 6.0)], [(2.0, 5.5)])
    [(2.0, 3.0), (5.0, 5.5)]
    """
    return [
        (max(a[0], b[0]), min(a[1], b[1]))
        for a in one
        for b in other
        if max(a[0], b[0]) < min(a[1], b[1])
    ]


def longest(gaps: Iterable[Span], during: Sequence[Span]) -> float:
    """Return the length of the longest gap that has something to do with one of some times.

    >>> longest([(0.0, 9.0), (10.0, 12.0), (12.0, 13.0)], [(11.0, 20.0)])
    2.0
    """
    return max(
        (end - begin for begin, end in gaps if any(begin < b and a < end for a, b in during)),
        default=0.0,
    )


def arrived_by(marks: Sequence[Mark], at: float) -> float:
    """Return how many results had arrived at a time."""
    return max((count for when, count in marks if when <= at), default=0.0)


def checkpoint_spans(client: JobClient) -> list[Span]:
    """Return when each completed checkpoint began and ended."""
    return [
        (each.trigger_timestamp / 1000, each.end_timestamp / 1000)
        for each in client.get_checkpoints()
        if each.end_timestamp is not None and not each.failure
    ]


def figures_of(
    gaps: Sequence[Sequence[Span]], marks: Sequence[Mark], spans: Sequence[Span], keys: int
) -> dict[str, float]:
    """Compare the gaps with the checkpoints that began when every key had had a record."""
    counts = [arrived_by(marks, begin) for begin, _ in spans]
    # NB: the last checkpoint is that of a job that has nothing left to do
    counted = [
        (span, min(float(keys), count - before))
        for span, (before, count) in zip(spans[1:-1], pairwise(counts[:-1]), strict=True)
        if before >= 2 * keys
    ]
    if not counted:
        raise SystemExit(f"Error: no checkpoint among {len(spans)} could be measured; run more")
    during = [span for span, _ in counted]
    together = list(gaps[0])
    for other in gaps[1:]:
        together = common(together, other)
    return {
        "gap": longest(together, during),
        "sink_gap": max(longest(each, during) for each in gaps),
        "changed_keys": median(changed for _, changed in counted),
        "checkpoint_seconds": median(end - begin for begin, end in during),
        "checkpoints": float(len(during)),
    }


def run(task: Task) -> dict[str, float]:
    """Run the job and return its figures."""
    keys = task.records
    count = keys * TIMES

    def record(index: int) -> Record:
        return f"user-{index % keys}", float(index % 1000), index

    env = checkpointed(task, CHECKPOINTS_MS)
    stream = records(env, count, record).key_by(lambda r: r[0])
    stream.process(CountAndTotal()).add_sink(Gaps(task.directory))
    client = env.execute_async("gap")
    client.get_job_execution_result().result()
    marks = read_marks(task.directory)
    check("the number of results", marks[-1][1] if marks else 0.0, count)
    return figures_of(read_gaps(task.directory), marks, checkpoint_spans(client), keys)


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    emit(Measurement(records=task.records, figures=run(within(task, "run"))))


if __name__ == "__main__":
    main()
