"""The same keyed count on Quix Streams: two processes of one consumer group.

State is in RocksDB and its changelog in Kafka, both of which are Quix Streams' defaults. It commits
as often as every other system takes a checkpoint. The topic has the user as its key, so records
need not be sent to other processes.
"""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

from quixstreams import Application, State  # type: ignore[import-not-found]

from benchmarks.engines.percentiles import check
from benchmarks.kafka.topics import RECORDS, keyed_broker
from benchmarks.measure import Meter, emit, measured, read_marks
from benchmarks.program import PARALLELISM, Task, parse_task
from benchmarks.records import KEYS, expected_total

#: Seconds without a record after which a process ends.
_PATIENCE = 10.0


def count_and_total(line: str, state: State) -> tuple[str, int, float]:
    """Add a record to its user."""
    user, amount, _ = line.split(",")
    count, total = state.get("totals") or (0, 0.0)
    count += 1
    total += float(amount)
    state.set("totals", (count, total))
    return user, count, total


class Summed:
    """Counts the results, and adds up the counts that they carry."""

    def __init__(self, directory: str) -> None:
        self._meter = Meter(directory)
        self.sum = 0

    def add(self, value: tuple[str, int, float]) -> None:
        """Add a result."""
        self.sum += value[1]
        self._meter.tick()

    def close(self) -> None:
        """Count the last ones."""
        self._meter.close()


def run_process(task: Task, address: str, number: int) -> None:
    """Run one of the processes until no more records come."""
    application = Application(
        broker_address=address,
        consumer_group="count",
        auto_offset_reset="earliest",
        commit_interval=float(task.checkpoint),
        state_dir=f"{task.directory}/state-{number}",
        use_changelog_topics=True,
        loglevel="WARNING",
    )
    summed = Summed(task.directory)
    lines = application.dataframe(application.topic(RECORDS, value_deserializer="str"))
    lines.apply(count_and_total, stateful=True).update(summed.add)
    application.run(timeout=_PATIENCE, collect=False)
    summed.close()
    Path(f"{task.directory}/{number}.sum").write_text(json.dumps(summed.sum), "utf-8")


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    context = multiprocessing.get_context("spawn")
    with keyed_broker(task.directory, task.records) as running:
        processes = [
            context.Process(target=run_process, args=(task, running.address, number))
            for number in range(PARALLELISM)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(f"Error: exit codes {[process.exitcode for process in processes]}")
    sums = [json.loads(path.read_text("utf-8")) for path in Path(task.directory).glob("*.sum")]
    check("the sum of all counts", sum(sums), expected_total(task.records, KEYS))
    emit(measured(read_marks(task.directory)))


if __name__ == "__main__":
    main()
