"""A job that fails in the middle and goes on from its last checkpoint.

A source counts; its position is operator state, changed under the checkpoint lock together with
each record. A function keeps a total per key in state, and raises once, halfway. The restart
strategy starts the job again from the last completed checkpoint. The totals come out as if nothing
had happened:

    failed once, restarted at number 3000, and counted 6000 numbers: {0: 600, 1: 600, ...}

Some results are seen twice, because they were computed after the last checkpoint and again.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.common import Configuration, RestartStrategies
from holdfast.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    SourceFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    SourceContext,
)
from holdfast.datastream.state import ListStateDescriptor, ValueStateDescriptor

NUMBERS = 6000
AT_ONCE = 1000


class CounterSource(SourceFunction, CheckpointedFunction, CheckpointListener):
    """Emits 0, 1, 2, … and goes on where it was after a failure.

    After every thousand numbers it waits until a checkpoint that contains them is complete, so that
    there is one to go back to. A source in earnest would wait for its input instead.
    """

    def __init__(self, last: int, restored: Path) -> None:
        self.last = last
        self.restored = restored
        self.next = self.saved = 0
        #: the position at each checkpoint that is not complete
        self.positions: dict[int, int] = {}
        self.running = True

    def run(self, ctx: SourceContext) -> None:
        while self.running and self.next < self.last:
            if self.next % AT_ONCE == 0 and self.saved < self.next:
                time.sleep(0.005)
                continue
            with ctx.get_checkpoint_lock():
                ctx.collect(self.next)
                self.next += 1

    def cancel(self) -> None:
        self.running = False

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.position = store.get_list_state(ListStateDescriptor("position", int))
        if context.is_restored():
            (self.next,) = self.position.get()
            self.saved = self.next
            self.restored.write_text(str(self.next))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.position.update([self.next])
        self.positions[context.get_checkpoint_id()] = self.next

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.saved = self.positions.pop(checkpoint_id, self.saved)


class CountAndFail(KeyedProcessFunction):
    """Counts per key; raises at a record, once."""

    def __init__(self, marker: Path, fail_at: int) -> None:
        self.marker = marker
        self.fail_at = fail_at

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[Any, int]]:
        if value == self.fail_at and not self.marker.exists():
            self.marker.touch()
            msg = f"simulated failure at record {value}"
            raise RuntimeError(msg)
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield ctx.get_current_key(), count


def main() -> None:
    """Run the job and look at its totals."""
    with tempfile.TemporaryDirectory() as folder:
        env = StreamExecutionEnvironment.get_execution_environment(
            Configuration({"holdfast.epoch.max-records": "1000"})
        )
        env.enable_checkpointing(50)
        env.get_checkpoint_config().set_checkpoint_storage_dir(f"{folder}/checkpoints")
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 100))
        marker, restored = Path(folder) / "failed", Path(folder) / "restored"
        totals: dict[int, int] = {}
        stream = env.add_source(CounterSource(NUMBERS, restored)).key_by(lambda n: n % 10)
        results = stream.process(CountAndFail(marker, NUMBERS // 2)).execute_and_collect("counting")
        for key, count in results:
            totals[key] = max(count, totals.get(key, 0))
        assert marker.exists()
        print(
            f"failed once, restarted at number {restored.read_text()}, and counted "
            f"{sum(totals.values())} numbers: {totals}"
        )
        if totals != dict.fromkeys(range(10), NUMBERS // 10):
            raise SystemExit("a number was lost or counted twice")


if __name__ == "__main__":
    main()
