"""Many small epochs of one keyed level: how long they take, and how much memory they leave.

The task's number is that of the epochs. A source hands out a few records whenever it is asked,
so every epoch has hardly anything to do and the next begins at once.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from benchmarks.measure import Measurement, emit
from benchmarks.memory import Memory, memory_now
from benchmarks.own.epochs import periods, run_epochs
from benchmarks.own.jobs import CountAndTotal, Discard, environment
from benchmarks.program import parse_task
from benchmarks.records import record
from holdfast.datastream.functions import SourceFunction

#: The epochs between two looks at the growth.
HUNDRED = 100

#: Keys of the little data.
KEYS = 1000


class Trickle(SourceFunction):
    """Ten records, a pause, ten records, … without end."""

    def __init__(self) -> None:
        self._running = True

    def run(self, ctx: Any) -> None:
        """Hand out records until told to stop."""
        index = 0
        while self._running:
            for i in range(index, index + 10):
                ctx.collect(record(i, KEYS))
            index += 10
            time.sleep(0.05)

    def cancel(self) -> None:
        """Stop."""
        self._running = False


class Watch:
    """Looks at the memory once at an early epoch, and at every hundredth and the last one."""

    def __init__(self, early: int, last: int) -> None:
        self._next = early
        self._last = last
        self.seen: list[Memory] = []

    def __call__(self, ended: int) -> None:
        """Look, if it is time."""
        if ended >= self._next:
            self.seen.append(memory_now())
            self._next = min(self._next + HUNDRED, max(self._last, ended + 1))


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    env = environment(task)
    env.set_buffer_timeout(0)
    stream = env.add_source(Trickle())
    stream.key_by(lambda r: r[0]).process(CountAndTotal()).add_sink(Discard())
    client = env.execute_async(task.workload)
    part = min(HUNDRED, task.records // 5)
    watch = Watch(part, task.records)
    epochs = run_epochs(client, task.records, watch)
    seconds = periods(epochs)
    figures = {
        "epoch_seconds": median(seconds[len(seconds) // 2 :]),
        "second_seconds": median(seconds[part : 2 * part]),
        "last_seconds": median(seconds[-part:]),
    }
    early, last = watch.seen[0], watch.seen[-1]
    figures |= {
        "driver_early_mb": early.driver,
        "driver_last_mb": last.driver,
        "workers_early_mb": early.workers,
        "workers_last_mb": last.workers,
    }
    emit(Measurement(records=len(epochs), figures=figures))


if __name__ == "__main__":
    main()
