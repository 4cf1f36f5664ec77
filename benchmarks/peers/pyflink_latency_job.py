"""The job of `benchmarks.engines.latency_job` on PyFlink, tuned for low latency, 1,000 records/s.

Thread mode with parallelism 1, types declared, object reuse, one Python operator between two
shuffles, network buffers sent after each record. The job runs once for each time of a bundle in
`BUNDLES_MS`; what counts is the run with the lowest 99th percentile.

PyFlink has no sources written in Python. A map after Flink's number source waits until a record is
due, and the one before the sink takes note of when it arrived.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from pyflink.common import Configuration, Types  # type: ignore[import-not-found]
from pyflink.datastream import (  # type: ignore[import-not-found]
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ValueStateDescriptor  # type: ignore[import-not-found]

from benchmarks.engines.percentiles import Times, check, latency_figures, read_times
from benchmarks.measure import Measurement, emit
from benchmarks.peers.pyflink_job import discard, numbers
from benchmarks.program import Task, parse_task
from benchmarks.records import draw, expected_total

#: As those of the job of Holdfast.
RATE = 1000.0
KEYS = 10_000
CHECKPOINTS_MS = 1000
#: Longest time of a bundle, in milliseconds.
BUNDLES_MS = (1, 10, 100)


class Paced(MapFunction):  # type: ignore[misc]
    """Of a number, a key and the time at which it was due; waits for that time."""

    def open(self, context: RuntimeContext) -> None:
        """Begin with the first number."""
        self._began: float | None = None

    def map(self, value: int) -> tuple[int, float]:
        """Wait for one."""
        if self._began is None:
            self._began = time.time()
        due = self._began + value / RATE
        time.sleep(max(0.0, due - time.time()))
        return draw(value, KEYS), due


class CountMade(KeyedProcessFunction):  # type: ignore[misc]
    """The time at which a record was made, and the count of its key."""

    def open(self, context: RuntimeContext) -> None:
        """Get hold of the state."""
        self._count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: tuple[int, float], ctx: Any) -> Iterator[tuple[float, int]]:
        """Count a record."""
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value[1], count


class Noted(MapFunction):  # type: ignore[misc]
    """Takes note of what arrives."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def open(self, context: RuntimeContext) -> None:
        """Begin with nothing."""
        self._times = Times()

    def map(self, value: tuple[float, int]) -> int:
        """Take note of one."""
        self._times.note(value[0], value[1], time.time())
        return value[1]

    def close(self) -> None:
        """Write the notes."""
        self._times.write(self._directory)


def environment(directory: str, bundle_ms: int) -> StreamExecutionEnvironment:
    """Return an environment that holds nothing back for longer than it has to."""
    config = Configuration()
    for key, value in {
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "rest.port": "0",
        "python.execution-mode": "thread",
        "python.fn-execution.bundle.size": "1",
        "python.fn-execution.bundle.time": str(bundle_ms),
        "python.operator-chaining.enabled": "true",
        "pipeline.object-reuse": "true",
        "state.backend.type": "hashmap",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": f"file://{directory}/checkpoints",
        "restart-strategy.type": "none",
    }.items():
        config.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(1)
    env.set_buffer_timeout(0)
    env.enable_checkpointing(CHECKPOINTS_MS)
    return env


def run(task: Task, bundle_ms: int) -> dict[str, float]:
    """Run the job once and return its figures."""
    directory = f"{task.directory}/{bundle_ms}"
    os.makedirs(directory)
    count = round(task.records * RATE)
    env = environment(directory, bundle_ms)
    stream = numbers(env, count).map(Paced(), Types.TUPLE([Types.LONG(), Types.DOUBLE()]))
    counted = stream.key_by(lambda r: r[0], Types.LONG()).process(
        CountMade(), Types.TUPLE([Types.DOUBLE(), Types.LONG()])
    )
    discard(counted.map(Noted(directory), Types.LONG()))
    env.execute("latency")
    seen = read_times(directory)
    check("the number of results", len(seen.made), count)
    check("the sum of all counts", seen.total, expected_total(count, KEYS))
    return latency_figures(seen) | {"bundle_ms": float(bundle_ms)}


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    # The embedded interpreter starts from the base installation and knows no virtual environment.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    best = min((run(task, bundle_ms) for bundle_ms in BUNDLES_MS), key=lambda each: each["p99"])
    emit(Measurement(records=round(task.records * RATE), figures=best))


if __name__ == "__main__":
    main()
