"""The workloads on Bytewax: recovery on, two processes with one worker each.

The source has one partition per process and can resume, as recovery asks for. It hands out a
thousand records at a time; more or fewer at once makes no difference to the rate.
"""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op  # type: ignore[import-not-found]
from bytewax._bytewax import cli_main  # type: ignore[import-not-found]
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from bytewax.inputs import (  # type: ignore[import-not-found]
    FixedPartitionedSource,
    StatefulSourcePartition,
)
from bytewax.outputs import DynamicSink, StatelessSinkPartition  # type: ignore[import-not-found]
from bytewax.recovery import RecoveryConfig, init_db_dir  # type: ignore[import-not-found]

from benchmarks.measure import Meter, emit, measured, read_marks
from benchmarks.program import PARALLELISM, Task, parse_task
from benchmarks.records import WORDS_PER_SENTENCE, Record, record, sentence

BATCH = 1000


class IndexPartition(StatefulSourcePartition):  # type: ignore[misc]
    """Every ``PARALLELISM``-th item from ``start`` on."""

    def __init__(self, make: Callable[[int], Any], start: int, stop: int) -> None:
        self._make = make
        self._next = start
        self._stop = stop

    def next_batch(self) -> Iterable[Any]:
        """Return the next items."""
        if self._next >= self._stop:
            raise StopIteration
        end = min(self._next + BATCH * PARALLELISM, self._stop)
        batch = [self._make(i) for i in range(self._next, end, PARALLELISM)]
        self._next += BATCH * PARALLELISM
        return batch

    def snapshot(self) -> int:
        """Return where to go on."""
        return self._next


class IndexSource(FixedPartitionedSource):  # type: ignore[misc]
    """``make(0)``, ``make(1)``, … ``make(count - 1)``, dealt out to the partitions."""

    def __init__(self, make: Callable[[int], Any], count: int) -> None:
        self._make = make
        self._count = count

    def list_parts(self) -> list[str]:
        """Return the names of the partitions."""
        return [str(part) for part in range(PARALLELISM)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> IndexPartition:
        """Return one partition, from where it was."""
        start = int(for_part) if resume_state is None else resume_state
        return IndexPartition(self._make, start, self._count)


class CountingPartition(StatelessSinkPartition):  # type: ignore[misc]
    """Counts what it is given and throws it away."""

    def __init__(self, marks: str) -> None:
        self._meter = Meter(marks)

    def write_batch(self, items: list[Any]) -> None:
        """Count."""
        self._meter.add(len(items))

    def close(self) -> None:
        """Count the last ones."""
        self._meter.close()


class CountingSink(DynamicSink):  # type: ignore[misc]
    """Counts what it is given and throws it away."""

    def __init__(self, marks: str) -> None:
        self._marks = marks

    def build(self, step_id: str, worker_index: int, worker_count: int) -> CountingPartition:
        """Return the sink of one worker."""
        return CountingPartition(self._marks)


Totals = tuple[int, float]


def count_and_total(state: Totals | None, value: Record) -> tuple[Totals, Totals]:
    """Add a record to the state of its user; the new state is the output as well."""
    count, total = state or (0, 0.0)
    new = (count + 1, total + value[1])
    return new, new


def count(state: int | None, value: Any) -> tuple[int, int]:
    """Count."""
    new = (state or 0) + 1
    return new, new


def largest(state: float | None, value: Record) -> tuple[float, float]:
    """Keep the largest amount."""
    new = value[1] if state is None or value[1] > state else state
    return new, new


def keyed_count(flow: Dataflow, records: int, marks: str) -> None:
    """Count and total per user, one output per record."""
    stream = op.input("numbers", flow, IndexSource(record, records))
    keyed = op.key_on("user", stream, lambda r: r[0])
    op.output("sink", op.stateful_map("count", keyed, count_and_total), CountingSink(marks))


def word_count(flow: Dataflow, records: int, marks: str) -> None:
    """Count words; a record is a word."""
    source = IndexSource(sentence, records // WORDS_PER_SENTENCE)
    words = op.flat_map("split", op.input("sentences", flow, source), str.split)
    keyed = op.key_on("word", words, lambda word: word)
    op.output("sink", op.stateful_map("count", keyed, count), CountingSink(marks))


def stateless_map(flow: Dataflow, records: int, marks: str) -> None:
    """Change each record and keep every second one."""
    stream = op.input("numbers", flow, IndexSource(record, records))
    taxed = op.map("tax", stream, lambda r: (r[0], r[1] * 1.2, r[2]))
    op.output("sink", op.filter("even", taxed, lambda r: r[2] % 2 == 0), CountingSink(marks))


def branches(flow: Dataflow, records: int, marks: str) -> None:
    """Five branches, three sinks: see `benchmarks.workloads`."""
    stream = op.input("numbers", flow, IndexSource(record, records))
    taxed = op.map("tax", stream, lambda r: (r[0], r[1] * 1.2, r[2]))
    even = op.filter("even", stream, lambda r: r[2] % 2 == 0)
    pair = op.flat_map("pair", stream, lambda r: (r[0], str(r[2])))
    by_user = op.key_on("user", stream, lambda r: r[0])
    totals = op.stateful_map("count", by_user, count_and_total)
    by_group = op.key_on("group", stream, lambda r: str(r[2] % 1000))
    peaks = op.stateful_map("peak", by_group, largest)
    op.output("plain", op.merge("a", taxed, even), CountingSink(marks))
    op.output("keyed", op.merge("b", totals, peaks), CountingSink(marks))
    op.output("pairs", pair, CountingSink(marks))


#: The workloads, and how often their sinks count a record.
FLOWS: dict[str, tuple[Callable[[Dataflow, int, str], None], float]] = {
    "keyed_count": (keyed_count, 1.0),
    "word_count": (word_count, 1.0),
    "stateless_map": (stateless_map, 0.5),
    "branches": (branches, 5.5),
}


def run_process(task: Task, process: int, addresses: list[str]) -> None:
    """Run one of the processes to the end."""
    flow = Dataflow(task.workload)
    build, _ = FLOWS[task.workload]
    build(flow, task.records, task.directory)
    cli_main(
        flow,
        process_id=process,
        addresses=addresses,
        epoch_interval=timedelta(seconds=task.checkpoint),
        recovery_config=RecoveryConfig(str(Path(task.directory) / "recovery"), timedelta(0)),
    )


def free_addresses(count: int) -> list[str]:
    """Return addresses on this host that nobody listens on."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    addresses = [f"localhost:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    recovery = Path(task.directory) / "recovery"
    recovery.mkdir()
    init_db_dir(recovery, PARALLELISM)
    addresses = free_addresses(PARALLELISM)
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=run_process, args=(task, i, addresses)) for i in range(PARALLELISM)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(f"exit codes {[process.exitcode for process in processes]}")
    emit(measured(read_marks(task.directory, FLOWS[task.workload][1])))


if __name__ == "__main__":
    main()
