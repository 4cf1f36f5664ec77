"""Very many records into one window, which keeps an accumulator and nothing else.

All records have the same key and the same time. The memory of the workers is looked at all the
while; the figures are that after a quarter of the records, and the most of the last quarter.
"""

from __future__ import annotations

import time
from dataclasses import replace

from benchmarks.measure import WARM_UP, emit, measured
from benchmarks.memory import memory_now
from benchmarks.own.epochs import epoch_marks, holdfast_epochs
from benchmarks.own.jobs import Discard, environment, numbers
from benchmarks.program import parse_task
from holdfast.common import Time, WatermarkStrategy
from holdfast.datastream import AggregateFunction, DataStream
from holdfast.datastream.window import TumblingEventTimeWindows

__all__ = ["Total", "one_window"]


class Total(AggregateFunction):
    """How many numbers there are, and their sum."""

    def create_accumulator(self) -> tuple[int, int]:
        """None yet."""
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        """One more."""
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        """Both."""
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        """Those of two windows."""
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def one_window(stream: DataStream) -> DataStream:
    """The total of a stream of numbers, all of them in one window."""
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    timed = stream.assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda number, _: 0)
    )
    windows = timed.key_by(lambda number: 0).window(TumblingEventTimeWindows.of(Time.hours(1)))
    return windows.aggregate(Total())


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    env = environment(task)
    one_window(numbers(env, task.records)).add_sink(Discard())
    client = env.execute_async(task.workload)
    seen: list[tuple[int, float]] = []
    while not client.get_job_status().result().is_globally_terminal_state():
        read = sum(epoch["records"] for epoch in holdfast_epochs(client))
        seen.append((read, memory_now().workers))
        time.sleep(0.2)
    client.get_job_execution_result().result()
    early = next(mb for read, mb in seen if read >= task.records * WARM_UP)
    last = max(mb for read, mb in seen if read >= task.records * (1 - WARM_UP))
    measurement = measured(epoch_marks(holdfast_epochs(client)))
    emit(replace(measurement, figures={"workers_early_mb": early, "workers_last_mb": last}))


if __name__ == "__main__":
    main()
