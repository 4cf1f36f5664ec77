"""A job goes on with another parallelism, and its state is shared out anew.

It is stopped with a savepoint and started from it with two subtasks in place of one. Keyed state
goes with its key groups. A list of operator state is divided evenly, a union list goes to
everybody, and raw bytes, which nobody looks into, are divided like a list. Prints:

    subtask 0 has ['element1'], the union has 2, raw 0
    subtask 1 has ['element2'], the union has 2, raw 1
    10000 numbers were counted under 10 keys, each once
"""

import tempfile
import time
from collections.abc import Iterator
from typing import Any

from holdfast.common import Configuration
from holdfast.datastream import (
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from holdfast.datastream.state import ListStateDescriptor, ValueStateDescriptor

NUMBERS = 10_000
KEYS = 10


class Holder(FlatMapFunction, CheckpointedFunction):
    """Has operator state of three sorts, and tells once what came to it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.told = False

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.split = store.get_list_state(ListStateDescriptor("elements", str))
        self.union = store.get_union_list_state(ListStateDescriptor("everybody's", str))
        self.elements = ["element1", "element2"]
        self.report = ""
        if context.is_restored():
            self.elements = list(self.split.get())
            everybody, raw = list(self.union.get()), context.get_raw_operator_state_inputs()
            self.report = f"has {self.elements}, the union has {len(everybody)}, raw {len(raw)}"

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.split.update(self.elements)
        self.union.update(self.elements)  # only what is ours, or it would grow with each restart
        context.set_raw_operator_state(b"nobody looks into this")

    def flat_map(self, value: int) -> Iterator[str]:
        if self.report and not self.told:
            self.told = True
            yield f"subtask {self.subtask} {self.report}"


class Count(KeyedProcessFunction):
    """Counts per key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[Any, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield ctx.get_current_key(), count


def job(parallelism: int, savepoint: str | None) -> tuple[StreamExecutionEnvironment, DataStream]:
    """The same job, to run with so many subtasks."""
    configuration = Configuration()
    if savepoint is None:  # small epochs, so that there is something left to do
        configuration.set_string("holdfast.epoch.max-records", "1000")
    else:
        configuration.set_string("execution.state-recovery.path", savepoint)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism).set_buffer_timeout(20)
    numbers = env.from_source(NumberSequenceSource(1, NUMBERS), source_name="numbers")
    numbers.uid("numbers").set_parallelism(1)
    reports = numbers.rebalance().flat_map(Holder()).uid("holder")
    counts = numbers.key_by(lambda n: n % KEYS).process(Count()).uid("counts")
    return env, reports.union(counts)


def main() -> None:
    """Run the job with one subtask, then go on with two."""
    with tempfile.TemporaryDirectory() as folder:
        env, _ = job(1, None)
        client = env.execute_async("rescaling")
        while not client.get_epochs():
            time.sleep(0.01)
        savepoint = client.stop_with_savepoint(False, folder).result()

        _, stream = job(2, savepoint)
        results = list(stream.execute_and_collect("rescaling"))
    for report in sorted(result for result in results if isinstance(result, str)):
        print(report)
    counts = dict(result for result in results if not isinstance(result, str))
    print(f"{sum(counts.values())} numbers were counted under {len(counts)} keys, each once")
    if counts != dict.fromkeys(range(KEYS), NUMBERS // KEYS):
        raise SystemExit("a number was lost or counted twice")


if __name__ == "__main__":
    main()
