"""How long a record takes through ``key_by`` and ``ValueState``, with a checkpoint every second.

The task's number is that of the seconds of each run. The runs, one after another in one session:

    sink       1,000 records/s; latency at a `SinkFunction`, in the worker
    collect    the same; latency where ``execute_and_collect`` hands the record to the program
    highest    as fast as it goes: the highest rate of the job
    half       at half of that; latency at the sink

A record carries the time at which it was due by the clock. A source that is held up makes its
records late, and that counts as latency.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from benchmarks.engines.arrivals import Arrivals
from benchmarks.engines.jobs import CountMade, checkpointed, within
from benchmarks.engines.percentiles import Seen, check, latency_figures, read_times
from benchmarks.measure import WARM_UP, Measurement, emit
from benchmarks.program import Task, parse_task
from benchmarks.records import draw, expected_total
from holdfast.datastream import DataStream, StreamExecutionEnvironment
from holdfast.datastream.functions import SourceFunction

KEYS = 10_000
#: Records per second.
RATE = 1000.0
CHECKPOINTS_MS = 1000
#: Seconds of a run that is not measured.
_WARM_UP_SECONDS = 3
#: Records of the run without a pace, per second of the others.
_UNPACED = 100_000
#: Above `RATE`, the source sleeps at least so long, and then emits all that is due.
_NAP = 0.001


class Paced(SourceFunction):
    """Records of a key and the time they were due: so many a second, or as fast as it goes."""

    def __init__(self, count: int, rate: float | None) -> None:
        self._count = count
        self._rate = rate
        self._running = True

    def run(self, ctx: Any) -> None:
        """Hand them out."""
        if self._rate is None:
            due = (time.time() for _ in range(self._count))
        else:
            due = self._due(self._rate)
        for index, made in enumerate(due):
            if not self._running:
                return
            ctx.collect((draw(index, KEYS), made))

    def _due(self, rate: float) -> Iterator[float]:
        """Yield the time of each record when it has come."""
        least = 0.0 if rate <= RATE else _NAP
        began = time.time()
        for index in range(self._count):
            due = began + index / rate
            wait = due - time.time()
            if wait > 0:
                time.sleep(max(wait, least))
            yield due

    def cancel(self) -> None:
        """Stop."""
        self._running = False


def counted(env: StreamExecutionEnvironment, count: int, rate: float | None) -> DataStream:
    """The job without its sink."""
    stream = env.add_source(Paced(count, rate), "paced")
    return stream.key_by(lambda r: r[0]).process(CountMade())


def at_sink(task: Task, count: int, rate: float | None) -> Seen:
    """Run the job into a sink that notes what arrives."""
    env = checkpointed(task, CHECKPOINTS_MS)
    counted(env, count, rate).add_sink(Arrivals(task.directory))
    env.execute(task.workload)
    return checked(read_times(task.directory), count)


def at_program(task: Task, count: int, rate: float) -> Seen:
    """Run the job, and note what it hands out to the program."""
    env = checkpointed(task, CHECKPOINTS_MS)
    made, arrived, total = [], [], 0
    with counted(env, count, rate).execute_and_collect(task.workload) as results:
        for at, number in results:
            arrived.append(time.time())
            made.append(at)
            total += number
    return checked(Seen(made, arrived, total), count)


def checked(seen: Seen, count: int) -> Seen:
    """Compare what arrived with what was to arrive."""
    check("the number of results", len(seen.made), count)
    check("the sum of all counts", seen.total, expected_total(count, KEYS))
    return seen


def highest_rate(seen: Seen) -> float:
    """Records per second after the first quarter, from being made to the last arrival."""
    first = round(len(seen.made) * WARM_UP)
    return (len(seen.made) - first) / (max(seen.arrived) - seen.made[first])


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    seconds, count = task.records, round(task.records * RATE)
    # the first job of a session starts the workers, and the JVM compiles what it runs
    at_sink(within(task, "warm-up"), round(_WARM_UP_SECONDS * RATE), RATE)
    figures = latency_figures(at_sink(within(task, "sink"), count, RATE))
    figures |= latency_figures(at_program(within(task, "collect"), count, RATE), "collect_")
    rate = highest_rate(at_sink(within(task, "highest"), seconds * _UNPACED, None))
    half = at_sink(within(task, "half"), round(seconds * rate / 2), rate / 2)
    figures |= {"highest_rate": rate} | latency_figures(half, "half_")
    emit(Measurement(records=count, figures=figures))


if __name__ == "__main__":
    main()
