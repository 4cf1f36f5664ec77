"""A job that can be checked: its output says if anything was lost or doubled, whatever happened.

    numbers ─┬─ sums by key (keyed state) ──── transactional sink "sums"
    ticks   ─┴─ batches (operator state) ───── transactional sink "batches"

The numbers come from a source with a reader, the ticks, numbers too, from a source function. What
is left in the batches' buffers at the end goes to files of its own. ``verify`` knows nothing of the
job: it recomputes everything from the numbers.

As a program it runs the job on Spark, in a folder: ``python -m tests.recovery.verifying FOLDER``.
Started again in the same folder, it goes on.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.common import Configuration, RestartStrategies
from holdfast.common.options.engine import FAULTS
from holdfast.datastream import (
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
    TwoPhaseCommitSinkFunction,
)
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    SourceContext,
)
from holdfast.datastream.state import ListState, ListStateDescriptor, ValueStateDescriptor
from tests.gates import Numbers

KEYS = 40
BATCH = 7
#: so many ticks may come before anything is processed
AHEAD = 20
#: a file: while it is there a job that can be held does not end
_HELD = "held"
#: a file: while it is there a subtask takes so many seconds for a record
_SLOW = "slow"
_PACE = 0.02


@dataclass(frozen=True)
class Settings:
    """How large the job is, and how it runs.

    Attributes:
        numbers: how many the reader gives.
        ticks: how many the source function gives, half as many at most; they are counted on.
        epoch: how many a subtask of the reader reads in an epoch.
        interval_ms: of checkpoints.
        faults: the directory of a plan of faults.
        spark: settings of Spark.
        checkpoints: where they are; by default in the folder.
        backend: of the state.
        holdable: whether it waits for `let_go` before it ends, if it was told to by `hold`.
    """

    folder: Path
    numbers: int = 600
    ticks: int = 0
    parallelism: int = 2
    epoch: int = 20
    interval_ms: int = 3_600_000
    faults: str | None = None
    spark: tuple[tuple[str, str], ...] = ()
    checkpoints: str | None = None
    backend: str = "hashmap"
    holdable: bool = False


def make_job(settings: Settings) -> StreamExecutionEnvironment:
    """The job."""
    configuration = Configuration(
        {
            "holdfast.epoch.max-records": str(settings.epoch),
            "execution.checkpointing.dir": settings.checkpoints
            or str(settings.folder / "checkpoints"),
            "state.backend.type": settings.backend,
            "state.backend.rocksdb.localdir": str(settings.folder / "local"),
            **({} if settings.faults is None else {str(FAULTS): settings.faults}),
            **dict(settings.spark),
        }
    )
    env = StreamExecutionEnvironment(configuration)
    env.set_parallelism(settings.parallelism).set_buffer_timeout(0)
    env.enable_checkpointing(settings.interval_ms)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1_000, 0))
    last = settings.numbers + settings.ticks
    numbers = env.from_source(NumberSequenceSource(0, settings.numbers - 1))
    if settings.ticks:
        numbers = numbers.union(env.add_source(Ticks(settings.numbers, last, settings.folder)))
    if settings.holdable:
        numbers = numbers.union(holder(env, settings.folder))
    numbers = numbers.map(Progress(settings.folder / "progress"))
    sums = numbers.key_by(lambda number: number % KEYS).process(Sums())
    sums.add_sink(FileTransactions(settings.folder / "sums"))
    batches = numbers.flat_map(Batches(settings.folder / "left"))
    batches.add_sink(FileTransactions(settings.folder / "batches"))
    return env


class Ticks(SourceFunction, CheckpointedFunction):
    """Numbers from a loop; the next one is operator state.

    They keep step with the job, one for two of the reader's, or all would be in the first epoch.
    While the job is held the loop does not end: somebody may want to kill its process.
    """

    def __init__(self, first: int, last: int, folder: Path) -> None:
        self.next = first
        self._first = first
        self._last = last
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        self._cancelled = threading.Event()

    def run(self, ctx: SourceContext) -> None:
        held = self._folder / _HELD
        while self.next < self._last or held.exists():
            if self._cancelled.wait(0.001):
                return
            while self.next < min(self._last, self._first + AHEAD + progress(self._folder) // 3):
                with ctx.get_checkpoint_lock():
                    ctx.collect(self.next)
                    self.next += 1

    def cancel(self) -> None:
        self._cancelled.set()

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self._state = store.get_list_state(ListStateDescriptor("next", int))
        for number in self._state.get():
            self.next = number

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._state.update([self.next])


class Progress(MapFunction):
    """Makes a file longer, by a byte with each record, repeated ones too; slow while it is held."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def map(self, value: int) -> int:
        # opened each time: nobody closes the files of a process that is killed
        with self._path.open("ab", buffering=0) as file:
            file.write(b".")
        if self._path.with_name(_SLOW).exists():
            time.sleep(_PACE)
        return value


@dataclass(frozen=True)
class Released:
    """Opens when nobody holds the job of a folder."""

    folder: Path

    def __call__(self) -> bool:
        return not (self.folder / _HELD).exists()


def holder(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
    """A source without records, which does not end while the job is held.

    It never waits itself, so that epochs and checkpoints go on.
    """
    return env.from_source(Numbers(0, {0: Released(folder)}), source_name="holder")


@contextmanager
def held(folder: Path, slow: bool = True) -> Iterator[None]:
    """Have the job at work until all that is to be done to it was done."""
    hold(folder, slow)
    yield
    let_go(folder)


def hold(folder: Path, slow: bool = True) -> None:
    """Keep the job from its end until `let_go`, if it can be held; and let it be slow."""
    (folder / _HELD).touch()
    if slow:
        (folder / _SLOW).touch()


def let_go(folder: Path) -> None:
    """Let the job be as fast as it can be, and end."""
    (folder / _SLOW).unlink(missing_ok=True)
    (folder / _HELD).unlink()


class Sums(KeyedProcessFunction):
    """The count and the sum of a key, with each number."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("sum", tuple[int, int]))

    def process_element(self, value: int, ctx: Any) -> Any:
        count, total = self.state.value() or (0, 0)
        self.state.update((count + 1, total + value))
        yield value, count + 1, total + value


class Batches(FlatMapFunction, CheckpointedFunction):
    """Numbers in lists of a fixed length; those that wait are operator state."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.buffer: list[int] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()

    def flat_map(self, value: int) -> Any:
        self.buffer.append(value)
        if len(self.buffer) == BATCH:
            yield list(self.buffer)
            self.buffer.clear()

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.state: ListState[int] = store.get_list_state(ListStateDescriptor("buffer", int))
        self.buffer = list(self.state.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update(self.buffer)

    def close(self) -> None:
        """Write what is left; perhaps again, if the last epoch is run again."""
        self._folder.mkdir(exist_ok=True)
        (self._folder / str(self._subtask)).write_text(json.dumps(self.buffer))


class FileTransactions(TwoPhaseCommitSinkFunction):
    """A transaction is a hidden file; a commit gives it its name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin_transaction(self) -> dict[str, Any]:
        return {"name": uuid.uuid4().hex, "records": []}

    def invoke(
        self, transaction: dict[str, Any], value: Any, context: SinkFunction.Context
    ) -> None:
        transaction["records"].append(value)

    def pre_commit(self, transaction: dict[str, Any]) -> None:
        self._folder.mkdir(exist_ok=True)
        self._hidden(transaction).write_text(json.dumps(transaction["records"]))
        transaction["records"] = []

    def commit(self, transaction: dict[str, Any]) -> None:
        shown = self._folder / transaction["name"]
        try:
            self._hidden(transaction).rename(shown)
        except FileNotFoundError:
            if not shown.exists():
                msg = f"transaction {transaction['name']} in {self._folder} is lost"
                raise RuntimeError(msg) from None

    def abort(self, transaction: dict[str, Any]) -> None:
        self._hidden(transaction).unlink(missing_ok=True)

    def _hidden(self, transaction: dict[str, Any]) -> Path:
        return self._folder / f".{transaction['name']}"


def committed(folder: Path) -> list[Any]:
    """All records of committed transactions."""
    shown = [path for path in folder.glob("*") if not path.name.startswith(".")]
    return [record for path in shown for record in json.loads(path.read_text())]


def progress(folder: Path) -> int:
    """How many records were processed so far, repeated ones too."""
    path = folder / "progress"
    return path.stat().st_size if path.exists() else 0


def verify(settings: Settings) -> None:
    """Compare what a finished job left behind with what must be there."""
    expected = Counter(range(settings.numbers + settings.ticks))
    sums = committed(settings.folder / "sums")
    assert Counter(number for number, _, _ in sums) == expected, "each number once in the output"
    for key in range(KEYS):
        steps = sorted((count, total, n) for n, count, total in sums if n % KEYS == key)
        running = 0
        for place, (count, total, number) in enumerate(steps, 1):
            running += number
            assert (count, total) == (place, running), f"each number once in the state of key {key}"
    batches = committed(settings.folder / "batches")
    assert {len(batch) for batch in batches} <= {BATCH}
    left = committed(settings.folder / "left")
    assert Counter([number for batch in batches for number in batch] + left) == expected, (
        "each number once in a batch, or left in a buffer"
    )


def main() -> None:
    """Run the job on Spark, to its end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name in ("numbers", "ticks", "parallelism", "epoch", "interval_ms"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Settings, name))
    parser.add_argument("--faults")
    parser.add_argument("--checkpoints")
    parser.add_argument("--holdable", action="store_true")
    parser.add_argument("--spark", action="append", default=[], type=lambda s: s.split("=", 1))
    given = vars(parser.parse_args())
    settings = Settings(**{**given, "spark": tuple((key, value) for key, value in given["spark"])})
    make_job(settings).execute("verifying")


if __name__ == "__main__":
    main()
