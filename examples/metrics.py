"""Counters, meters, distributions and gauges of a function, read in the program.

A function registers its metrics in ``open``. They are reported with every epoch; while the job runs
and afterwards, ``JobClient.get_accumulators`` gives counters and meters summed over the subtasks.
Prints the total of the odd numbers, and:

    parsed: 97
    broken: 3
    lines: 100
"""

from collections.abc import Iterator

from holdfast.datastream import FlatMapFunction, RuntimeContext, StreamExecutionEnvironment


class Parse(FlatMapFunction):
    """Turns text into numbers, and counts what it cannot read."""

    def open(self, runtime_context: RuntimeContext) -> None:
        metrics = runtime_context.get_metrics_group()
        self._parsed = metrics.counter("parsed")
        self._broken = metrics.counter("broken")
        self._lines = metrics.meter("lines")
        self._sizes = metrics.distribution("sizes")
        self._largest = 0
        metrics.gauge("largest", lambda: self._largest)

    def flat_map(self, value: str) -> Iterator[int]:
        self._lines.mark_event()
        try:
            number = int(value)
        except ValueError:
            self._broken.inc()
            return
        self._parsed.inc()
        self._sizes.update(number)
        self._largest = max(self._largest, number)
        yield number


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    lines = [str(n) if n % 40 else "?" for n in range(100)]
    (
        env.from_collection(lines)
        .flat_map(Parse())
        .set_parallelism(2)
        .key_by(lambda number: number % 2)
        .sum(0)
        .filter(lambda total: total == 2500)
        .print()
        .set_parallelism(1)
    )
    result = env.execute_async("metrics").get_job_execution_result().result()
    for name in ("parsed", "broken", "lines"):
        print(f"{name}: {result.get_accumulator_result(name)}")


if __name__ == "__main__":
    main()
