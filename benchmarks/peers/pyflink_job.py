"""The workloads on PyFlink, in thread mode (embedded interpreter) or process mode.

Variant ``plain`` is the program that Holdfast runs: the same calls, no declared types, the same
parallelism, thread mode, and otherwise PyFlink's defaults.

The others are set as PyFlink's own tuning guide says: object reuse on, bundles as large as a second
allows, records typed as tuples so that they cross to the JVM without pickling, all Python functions
between two shuffles in one operator. Checkpoints go to the heap backend's files.

Thread mode has one interpreter and one lock for all subtasks, so it runs with parallelism 1: with
2 its threads fight for the lock, and the rate swings between half of it and all of it. Process mode
runs real processes, one per subtask, rather than the threads of the client that a local run would
use by default, and its state cache has room for every key.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pyflink.common import Configuration, Types, WatermarkStrategy  # type: ignore[import-not-found]
from pyflink.datastream import (  # type: ignore[import-not-found]
    DataStream,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.base import Sink  # type: ignore[import-not-found]
from pyflink.datastream.connectors.number_seq import (  # type: ignore[import-not-found]
    NumberSequenceSource,
)
from pyflink.datastream.state import ValueStateDescriptor  # type: ignore[import-not-found]
from pyflink.java_gateway import get_gateway  # type: ignore[import-not-found]

from benchmarks.measure import Meter, emit, measured, read_marks
from benchmarks.program import PARALLELISM, Task, parse_task
from benchmarks.records import KEYS, WORDS_PER_SENTENCE, Record, record, sentence

#: The environment variable by which PyFlink is told to run workers as processes of their own.
WORKER_MODE = "_python_worker_execution_mode"

RECORD = Types.TUPLE([Types.STRING(), Types.DOUBLE(), Types.LONG()])
TOTALS = Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()])


#: Whether records, keys and results have declared types; a plain program declares none.
typed = True


def declared(type_info: Any) -> Any:
    """Return the type, or None in a plain program."""
    return type_info if typed else None


class Metered:
    """Counts, in one subtask, the records that a function is given."""

    def __init__(self, marks: str) -> None:
        self._marks = marks

    def open(self, context: RuntimeContext) -> None:
        """Open the meter."""
        self.meter = Meter(self._marks)

    def close(self) -> None:
        """Count the last ones."""
        self.meter.close()


class CountAndTotal(Metered, KeyedProcessFunction):  # type: ignore[misc]
    """Count and total per user."""

    def open(self, context: RuntimeContext) -> None:
        """Get hold of the state."""
        super().open(context)
        totals = Types.TUPLE([Types.LONG(), Types.DOUBLE()])
        self.totals = context.get_state(ValueStateDescriptor("totals", totals))

    def process_element(self, value: Record, ctx: Any) -> Iterator[tuple[str, int, float]]:
        """Add a record to its user."""
        count, total = self.totals.value() or (0, 0.0)
        count += 1
        total += value[1]
        self.totals.update((count, total))
        self.meter.tick()
        yield value[0], count, total


class Count(Metered, KeyedProcessFunction):  # type: ignore[misc]
    """Count per word."""

    def open(self, context: RuntimeContext) -> None:
        """Get hold of the state."""
        super().open(context)
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Iterator[tuple[str, int]]:
        """Count a word."""
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.meter.tick()
        yield value, count


class Largest(Metered, KeyedProcessFunction):  # type: ignore[misc]
    """The largest amount per group."""

    def open(self, context: RuntimeContext) -> None:
        """Get hold of the state."""
        super().open(context)
        self.peak = context.get_state(ValueStateDescriptor("peak", Types.DOUBLE()))

    def process_element(self, value: Record, ctx: Any) -> Iterator[tuple[str, int, float]]:
        """Compare a record with the largest so far."""
        peak = self.peak.value()
        if peak is None or value[1] > peak:
            peak = value[1]
            self.peak.update(peak)
        self.meter.tick()
        yield value[0], value[2], peak


class Tax(Metered, MapFunction):  # type: ignore[misc]
    """Change the amount."""

    def map(self, value: Record) -> Record:
        """Change one."""
        self.meter.tick()
        return value[0], value[1] * 1.2, value[2]


class Even(Metered, FilterFunction):  # type: ignore[misc]
    """Keep every second record."""

    def filter(self, value: Record) -> bool:
        """Keep it or not."""
        self.meter.tick()
        return value[2] % 2 == 0


class Pair(Metered, FlatMapFunction):  # type: ignore[misc]
    """Two strings for every record."""

    def flat_map(self, value: Record) -> Iterator[str]:
        """Yield the two."""
        self.meter.tick()
        yield value[0]
        yield str(value[2])


def discard(stream: DataStream) -> None:
    """Send a stream to Flink's own discarding sink."""
    jvm = get_gateway().jvm
    stream.sink_to(Sink(jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()))


def numbers(env: StreamExecutionEnvironment, count: int) -> DataStream:
    """Return the stream of 0 to ``count - 1``."""
    source = NumberSequenceSource(0, count - 1)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())


def keyed_count(env: StreamExecutionEnvironment, records: int, marks: str) -> None:
    """Count and total per user, one output per record."""
    stream = numbers(env, records).map(record, declared(RECORD))
    keyed = stream.key_by(lambda r: r[0], declared(Types.STRING()))
    discard(keyed.process(CountAndTotal(marks), declared(TOTALS)))


def word_count(env: StreamExecutionEnvironment, records: int, marks: str) -> None:
    """Count words; a record is a word."""
    sentences = numbers(env, records // WORDS_PER_SENTENCE).map(sentence, declared(Types.STRING()))
    words = sentences.flat_map(str.split, declared(Types.STRING()))
    keyed = words.key_by(lambda word: word, declared(Types.STRING()))
    discard(keyed.process(Count(marks), declared(Types.TUPLE([Types.STRING(), Types.LONG()]))))


def stateless_map(env: StreamExecutionEnvironment, records: int, marks: str) -> None:
    """Change each record and keep every second one."""
    stream = numbers(env, records).map(record, declared(RECORD))
    discard(stream.map(Tax(marks), declared(RECORD)).filter(lambda r: r[2] % 2 == 0))


def branches(env: StreamExecutionEnvironment, records: int, marks: str) -> None:
    """Five branches, three sinks: see `benchmarks.workloads`."""
    stream = numbers(env, records).map(record, declared(RECORD))
    taxed = stream.map(Tax(marks), declared(RECORD))
    even = stream.filter(Even(marks))
    pair = stream.flat_map(Pair(marks), declared(Types.STRING()))
    totals = stream.key_by(lambda r: r[0], declared(Types.STRING())).process(
        CountAndTotal(marks), declared(TOTALS)
    )
    peaks = stream.key_by(lambda r: r[2] % 1000, declared(Types.LONG())).process(
        Largest(marks), declared(TOTALS)
    )
    discard(taxed.union(even))
    discard(totals.union(peaks))
    discard(pair)


#: The workloads, and how often their functions count a record.
JOBS: dict[str, tuple[Callable[[StreamExecutionEnvironment, int, str], None], float]] = {
    "keyed_count": (keyed_count, 1.0),
    "word_count": (word_count, 1.0),
    "stateless_map": (stateless_map, 1.0),
    "branches": (branches, 5.0),
}


def environment(task: Task) -> StreamExecutionEnvironment:
    """Return the environment, tuned unless the program is plain."""
    config = Configuration()
    config.set_string("python.executable", sys.executable)
    config.set_string("python.client.executable", sys.executable)
    config.set_string("rest.port", "0")
    if task.variant == "plain":
        config.set_string("python.execution-mode", "thread")
        env = StreamExecutionEnvironment.get_execution_environment(config)
        env.set_parallelism(PARALLELISM)
        return env
    for key, value in {
        "python.execution-mode": task.variant,
        "python.fn-execution.bundle.size": "10000",
        "python.fn-execution.bundle.time": "1000",
        "python.state.cache-size": str(2 * KEYS),
        "python.operator-chaining.enabled": "true",
        "pipeline.object-reuse": "true",
        "state.backend.type": "hashmap",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": f"file://{task.directory}/checkpoints",
        # A job that cannot run fails instead of starting again for ever.
        "restart-strategy.type": "none",
    }.items():
        config.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(1 if task.variant == "thread" else PARALLELISM)
    env.enable_checkpointing(task.checkpoint * 1000)
    return env


def main() -> None:
    """Run the task on the command line."""
    global typed
    task = parse_task()
    typed = task.variant != "plain"
    # The embedded interpreter starts from the base installation and knows no virtual environment.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    if task.variant == "process":
        os.environ[WORKER_MODE] = "process"
    build, counted = JOBS[task.workload]
    env = environment(task)
    build(env, task.records, task.directory)
    env.execute(task.workload)
    emit(measured(read_marks(task.directory, counted)))


if __name__ == "__main__":
    main()
