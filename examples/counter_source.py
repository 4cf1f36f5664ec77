"""A source that counts, is killed twice by a failure downstream, and loses no number.

``CounterSource`` emits a number and moves its offset in one step, under the checkpoint lock, and
its offset is its state. Two subtasks of it run, each with a count of its own. A function behind a
``key_by`` counts in keyed state how often it saw each number, and fails twice, each time some
checkpoints later. The job goes back to the last completed checkpoint: the offsets and the counts
go back together, so in the end each number was seen exactly twice, once from each subtask. The
program prints this; the offsets depend on when checkpoints were taken:

    attempt 1 goes on from offsets [200, 200]
    attempt 2 goes on from offsets [400, 300]
    600 numbers, each seen once from each of 2 sources

Some results are collected twice, because they were computed after the last checkpoint and again.
"""

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.common import RestartStrategies, Types
from holdfast.datastream import (
    KeyedProcessFunction,
    ParallelSourceFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.functions import CheckpointListener, ListCheckpointed, SourceContext
from holdfast.datastream.state import ValueStateDescriptor

NUMBERS = 600
AT_ONCE = 100
SOURCES = 2
FAILURES = 2


class CounterSource(ParallelSourceFunction, ListCheckpointed, CheckpointListener):
    """Emits 0, 1, 2, … up to a limit.

    So that there is something to fail in the middle of, it waits after every hundred numbers until
    a checkpoint that contains them is complete. A source in earnest would wait for its input.
    """

    def __init__(self, limit: int, folder: Path) -> None:
        self.limit = limit
        self.folder = folder
        #: current offset, for exactly once
        self.offset = self.saved = 0
        #: the offset at each checkpoint that is not complete
        self.offsets: dict[int, int] = {}
        self.running = True

    def open(self, runtime_context: RuntimeContext) -> None:
        attempt = runtime_context.get_attempt_number()
        subtask = runtime_context.get_index_of_this_subtask()
        (self.folder / f"{attempt}-{subtask}").write_text(str(self.offset))

    def run(self, ctx: SourceContext) -> None:
        lock = ctx.get_checkpoint_lock()
        while self.running and self.offset < self.limit:
            if self.offset % AT_ONCE == 0 and self.saved < self.offset:
                time.sleep(0.005)
                continue
            # Output and state update are atomic.
            with lock:
                ctx.collect(self.offset)
                self.offset += 1

    def cancel(self) -> None:
        self.running = False

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any]:
        self.offsets[checkpoint_id] = self.offset
        return [self.offset]

    def restore_state(self, state: list[Any]) -> None:
        for offset in state:
            self.offset = self.saved = offset

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.saved = self.offsets.pop(checkpoint_id, self.saved)


class CountAndFail(KeyedProcessFunction, CheckpointListener):
    """Counts how often it sees each number; the first attempts fail after some checkpoints."""

    def __init__(self) -> None:
        #: checkpoints that were completed since the first record
        self.completed = 0
        self.begun = False

    def open(self, runtime_context: RuntimeContext) -> None:
        self.attempt = runtime_context.get_attempt_number()
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG(), 0))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.completed += self.begun

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int]]:
        if self.attempt < FAILURES and self.completed >= 2:
            msg = f"simulated failure at number {value}"
            raise RuntimeError(msg)
        self.begun = True
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield value, seen


def run(folder: Path) -> dict[int, set[int]]:
    """Run the job; returns the counts that each number went through."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(SOURCES).set_buffer_timeout(20)
    env.enable_checkpointing(10)
    env.get_checkpoint_config().set_checkpoint_storage_dir(str(folder / "checkpoints"))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(FAILURES, 10))
    numbers = env.add_source(CounterSource(NUMBERS, folder), "counter", Types.LONG())
    seen = numbers.key_by(lambda number: number, Types.LONG()).process(CountAndFail())
    counts: defaultdict[int, set[int]] = defaultdict(set)
    for number, count in seen.execute_and_collect("counter source"):
        counts[number].add(count)
    return counts


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        counts = run(folder)
        before = 0
        for attempt in range(1, FAILURES + 1):
            offsets = [int((folder / f"{attempt}-{i}").read_text()) for i in range(SOURCES)]
            print(f"attempt {attempt} goes on from offsets {offsets}")
            if sum(offsets) <= before:
                raise SystemExit(f"attempt {attempt} began no later than the one before it")
            before = sum(offsets)
    # A number that was lost would have fewer counts, one that came twice would have more.
    expected = {number: set(range(1, SOURCES + 1)) for number in range(NUMBERS)}
    if counts != expected:
        wrong = {n: c for n, c in counts.items() if c != expected.get(n)}
        raise SystemExit(f"{len(counts)} numbers were seen, these not as they should be: {wrong}")
    print(f"{NUMBERS} numbers, each seen once from each of {SOURCES} sources")


if __name__ == "__main__":
    main()
