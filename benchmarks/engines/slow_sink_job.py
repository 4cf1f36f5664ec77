"""Memory of a job whose sink takes a second per record, while its source is as fast as it can.

The task's number is that of the seconds. What waits between the source and the sink must be bounded
by bytes: memory is measured once a second, and compared with that of the first quarter.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.engines.jobs import await_condition, within
from benchmarks.engines.percentiles import check, new_file
from benchmarks.measure import Measurement, emit
from benchmarks.own.jobs import CountAndTotal, environment
from benchmarks.processes import DRIVER, JVM, WORKERS, sampled
from benchmarks.program import Task, parse_task
from benchmarks.records import record
from holdfast.common.job_client import JobClient
from holdfast.datastream import RuntimeContext
from holdfast.datastream.functions import SinkFunction, SourceFunction

#: Seconds that the sink takes for a record.
SLOW = 1.0
#: The share of the time after which memory must not grow.
_EARLY = 0.25
#: Keys are few: state must not be what grows.
_KEYS = 100
#: How long a job may take to end when it is cancelled, in seconds.
_PATIENCE = 20.0
_SUFFIX = "taken"


class Endless(SourceFunction):
    """Records without end, as fast as they are taken."""

    def __init__(self) -> None:
        self._running = True

    def run(self, ctx: Any) -> None:
        """Hand them out."""
        index = 0
        while self._running:
            ctx.collect(record(index, _KEYS))
            index += 1

    def cancel(self) -> None:
        """Stop."""
        self._running = False


class Slow(SinkFunction):
    """Takes a second for each record, and writes down what it took."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def open(self, context: RuntimeContext) -> None:
        """Begin a file."""
        self._file = new_file(self._directory, _SUFFIX).open("w", buffering=1, encoding="ascii")

    def invoke(self, value: tuple[str, int, float], context: Any) -> None:
        """Take one."""
        time.sleep(SLOW)
        self._file.write(f"{value[0]} {value[1]}\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def taken(directory: str) -> list[tuple[str, int]]:
    """Return what the sinks took."""
    return [
        (line.split()[0], int(line.split()[1]))
        for path in Path(directory).glob(f"*.{_SUFFIX}")
        for line in path.read_text("ascii").splitlines()
        if len(line.split()) == 2
    ]


def gapless(results: list[tuple[str, int]]) -> bool:
    """Whether the counts of each key are 1, 2, 3, …: nothing was lost, nothing came twice.

    >>> gapless([("a", 1), ("b", 1), ("a", 2)]), gapless([("a", 1), ("a", 3)])
    (True, False)
    """
    seen: dict[str, set[int]] = {}
    for user, count in results:
        seen.setdefault(user, set()).add(count)
    whole = all(counts == set(range(1, len(counts) + 1)) for counts in seen.values())
    return whole and sum(map(len, seen.values())) == len(results)


def run(task: Task) -> dict[str, float]:
    """Run the job for so many seconds and return its figures."""
    env = environment(task)
    stream = env.add_source(Endless(), "endless").key_by(lambda r: r[0])
    stream.process(CountAndTotal()).add_sink(Slow(task.directory))
    client = env.execute_async("slow sink")
    await_condition(client, lambda: taken(task.directory), "the sink took a record")
    with sampled(1.0) as samples:
        time.sleep(task.records)
    status = client.get_job_status().result()
    results = taken(task.directory)
    check("the status of the job", status.name, "RUNNING")
    check("that the counts have no gaps", gapless(results), True)
    return {"taken": float(len(results)), "cancel_seconds": cancel(client)} | growth(samples.mb)


def cancel(client: JobClient) -> float:
    """Cancel the job; returns how long it took, or the patience if it has not ended by then."""
    began = time.monotonic()
    with suppress(TimeoutError):
        client.cancel().result(_PATIENCE)
    return time.monotonic() - began


def growth(samples: dict[str, list[float]]) -> dict[str, float]:
    """Return the memory of the first quarter and the most after it, by kind of process.

    >>> growth({"workers": [1.0, 2.0, 2.0, 3.0]})
    {'workers_early_mb': 1.0, 'workers_most_mb': 3.0, 'workers_growth': 3.0}
    """
    figures: dict[str, float] = {}
    for kind in (WORKERS, DRIVER, JVM):
        mb = samples.get(kind, [])
        early = max(1, round(len(mb) * _EARLY))
        if len(mb) > early:
            first, most = max(mb[:early]), max(mb[early:])
            figures |= {f"{kind}_early_mb": first, f"{kind}_most_mb": most}
            figures[f"{kind}_growth"] = most / first
    return figures


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    emit(Measurement(records=task.records, figures=run(within(task, "run"))))
    # NB: without waiting for threads of a job that may still not have ended
    os._exit(0)


if __name__ == "__main__":
    main()
