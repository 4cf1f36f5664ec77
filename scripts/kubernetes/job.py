"""Counts numbers by key, slowly, into files that are exactly-once: what the trial's pods run.

    holdfast run ... job.py OUTPUT NUMBERS PAUSE
    spark-submit ... job.py OUTPUT NUMBERS PAUSE CHECKPOINTS

Each subtask of the source needs PAUSE seconds for each of its numbers. Each number becomes a line
with its key, the count of the key so far, and the sum. CHECKPOINTS: where they are, if no settings
say that.
"""

import sys
import time
from collections.abc import Iterator

from holdfast.common import Encoder, Types
from holdfast.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.file_system import FileSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.state import ValueState, ValueStateDescriptor

KEYS = 10


class Slow(MapFunction):
    """Passes numbers on, but not too fast."""

    def __init__(self, pause: float) -> None:
        self._pause = pause

    def map(self, value: int) -> int:
        """Wait a moment."""
        time.sleep(self._pause)
        return value


class Count(KeyedProcessFunction):
    """Counts the numbers of each key, and adds them up."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Ask for the states."""
        count = ValueStateDescriptor("count", Types.LONG(), default_value=0)
        self._count: ValueState[int] = runtime_context.get_state(count)
        total = ValueStateDescriptor("sum", Types.LONG(), default_value=0)
        self._sum: ValueState[int] = runtime_context.get_state(total)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        """Return the line of a number."""
        count = (self._count.value() or 0) + 1
        total = (self._sum.value() or 0) + value
        self._count.update(count)
        self._sum.update(total)
        yield f"{ctx.get_current_key()} {count} {total}"


def main(output: str, numbers: int, pause: float, checkpoints: str = "") -> None:
    """Run the job."""
    env = StreamExecutionEnvironment.get_execution_environment()
    if checkpoints:
        env.enable_checkpointing(1000)
        env.get_checkpoint_config().set_checkpoint_storage_dir(checkpoints)
    sink = FileSink.for_row_format(output, Encoder.simple_string_encoder()).build()
    (
        env.from_source(NumberSequenceSource(0, numbers - 1), source_name="numbers")
        .map(Slow(pause))
        .key_by(lambda number: number % KEYS)
        .process(Count())
        .sink_to(sink)
    )
    env.execute("count")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:])
