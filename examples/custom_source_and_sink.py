"""A source, a parallel source and a sink, all written in Python.

``Countdown`` runs once; ``Dice`` is a ``ParallelSourceFunction``, so each of its subtasks runs its
own loop and learns its number in ``open``. ``FileSink`` appends to a file per subtask. It opens the
file in ``open``, since an open file cannot be carried to another process. The program reads the
files at the end and prints, in order:

    countdown 1
    ...
    countdown 5
    dice of subtask 0: 2 rolls
    dice of subtask 1: 2 rolls

A sink function is called at least once for each record: if Spark has to run an epoch again, the
sink is called again. Here nothing fails.
"""

import os
import random
import tempfile
from collections import Counter
from pathlib import Path

from holdfast.datastream import (
    ParallelSourceFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.functions import SourceContext


class Countdown(SourceFunction):
    """A bounded source: ``run`` returns when there is no more."""

    def __init__(self, start: int) -> None:
        self._left = start
        self._running = True

    def run(self, ctx: SourceContext) -> None:
        while self._running and self._left > 0:
            # Emission and the change of the position are one step under the lock.
            with ctx.get_checkpoint_lock():
                ctx.collect(f"countdown {self._left}")
                self._left -= 1

    def cancel(self) -> None:
        self._running = False


class Dice(ParallelSourceFunction):
    """Every subtask rolls a dice of its own."""

    def __init__(self, rolls: int) -> None:
        self._rolls = rolls

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()
        self._random = random.Random(self._subtask)

    def run(self, ctx: SourceContext) -> None:
        for _ in range(self._rolls):
            ctx.collect(f"dice of subtask {self._subtask}: {self._random.randint(1, 6)}")


class FileSink(SinkFunction):
    """Appends records to a file of this subtask."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        name = f"part-{runtime_context.get_index_of_this_subtask()}"
        path = os.path.join(self._folder, name)
        self._file = open(path, "a", buffering=1)  # noqa: SIM115 - closed by close()

    def invoke(self, value: str, context: SinkFunction.Context) -> None:
        self._file.write(f"{value}\n")

    def close(self) -> None:
        self._file.close()


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    with tempfile.TemporaryDirectory() as folder:
        countdown = env.add_source(Countdown(5), "countdown")
        dice = env.add_source(Dice(rolls=2), "dice").set_parallelism(2)
        countdown.union(dice).add_sink(FileSink(folder)).set_parallelism(2)
        env.execute("custom source and sink")
        lines = sorted(
            line for part in Path(folder).iterdir() for line in part.read_text().splitlines()
        )
    rolls = Counter(line.split(":")[0] for line in lines if line.startswith("dice"))
    for line in lines:
        if line.startswith("countdown"):
            print(line)
    for dice_name, count in sorted(rolls.items()):
        print(f"{dice_name}: {count} rolls")


if __name__ == "__main__":
    main()
