"""Programs that are cut off in the middle and started again, and functions that show their state.

They run in this process, so functions leave what they saw on a board that the test can look at.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.common import Configuration
from holdfast.datastream import (
    DataStream,
    KeyedProcessFunction,
    ParallelSourceFunction,
    ProcessFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.functions import (
    AggregateFunction,
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ListCheckpointed,
    SourceContext,
)
from holdfast.datastream.state import (
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from holdfast.datastream.time_domain import TimeDomain
from holdfast.testing import LocalExecutor


@dataclass
class Board:
    """What functions leave for the test.

    Attributes:
        saved: what each subtask put into its last snapshot, by kind of state and subtask.
        restored: what each subtask was given when its attempt began.
        flushed: what the buffering sink has written.
    """

    saved: dict[tuple[str, int], Any] = field(default_factory=dict)
    restored: dict[tuple[str, int], Any] = field(default_factory=dict)
    flushed: list[Any] = field(default_factory=list)

    def clear(self) -> None:
        """Begin a run; what was flushed stays, as outside the job."""
        self.saved.clear()
        self.restored.clear()

    def by_subtask(self, what: dict[tuple[str, int], Any], kind: str) -> list[Any]:
        """What the subtasks have of a kind, in their order."""
        found = {subtask: value for (name, subtask), value in what.items() if name == kind}
        assert sorted(found) == list(range(len(found)))
        return [found[subtask] for subtask in sorted(found)]


BOARD = Board()


class Gate:
    """Lets source functions emit a number of records, and no more until it is opened further."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._left = 0
        self._opened = 0

    def close(self) -> None:
        """Begin a run: nothing may pass."""
        with self._changed:
            self._left = self._opened = 0

    def open_to(self, count: int) -> None:
        """Let so many records pass, counted from the beginning of the run."""
        with self._changed:
            self._left += count - self._opened
            self._opened = count
            self._changed.notify_all()

    def passes(self, source: Any) -> bool:
        """Wait for a record's turn; False when the source was cancelled."""
        with self._changed:
            self._changed.wait_for(lambda: self._left > 0 or source.cancelled)
            self._left -= 1
            return not source.cancelled

    def wake(self) -> None:
        """Let those who wait look whether they were cancelled."""
        with self._changed:
            self._changed.notify_all()


GATE = Gate()

MAX_WATERMARK = 2**63 - 1

#: more than any source of a test has
EVERYTHING = 1_000_000


@dataclass(frozen=True)
class Program:
    """A program that can be started any number of times.

    Attributes:
        build: makes the job; returns the stream whose records are collected.
        directory: of its checkpoints.
    """

    build: Callable[[StreamExecutionEnvironment], DataStream]
    directory: Path | str

    @contextmanager
    def started(
        self,
        parallelism: int = 2,
        savepoint: str | None = None,
        settings: dict[str, str] | None = None,
        quota: int = 10,
    ) -> Iterator[LocalExecutor]:
        """A run: from its own last checkpoint, or from a savepoint."""
        BOARD.clear()
        GATE.close()
        configuration = Configuration(
            {
                "execution.checkpointing.dir": str(self.directory),
                "execution.checkpointing.interval": "1 h",
                **({} if savepoint is None else {"execution.state-recovery.path": savepoint}),
                **(settings or {}),
            }
        )
        env = StreamExecutionEnvironment(configuration).set_parallelism(parallelism)
        # two workers and blocks in any order: a subtask changes its process with each epoch
        with LocalExecutor(self.build(env), quota=quota, workers=2, seed=parallelism) as run:
            yield run


def read_to(run: LocalExecutor, count: int) -> None:
    """Run epochs until the run has given so many records, or a few more."""
    GATE.open_to(count)
    run.run_until(lambda: len(run.records) >= count or run.finished)


# Keyed state

NUMBERS = 180


def key_of(number: int) -> int | str:
    """Keys of two types."""
    place = number * 7 % 23
    return place if place % 2 else f"key-{place}"


class Mean(AggregateFunction):
    """An accumulator of another type than its input and its output."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[1] / accumulator[0]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


KEYED: dict[str, StateDescriptor] = {
    "value": ValueStateDescriptor("value", int),
    "list": ListStateDescriptor("list", int),
    "map": MapStateDescriptor("map", int, int),
    "reducing": ReducingStateDescriptor("reducing", max, int),
    "aggregating": AggregatingStateDescriptor("aggregating", Mean(), tuple[int, int]),
}


class Ledger(KeyedProcessFunction):
    """Keeps every kind of keyed state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.value = runtime_context.get_state(KEYED["value"])  # type: ignore[arg-type]
        self.list = runtime_context.get_list_state(KEYED["list"])  # type: ignore[arg-type]
        self.map = runtime_context.get_map_state(KEYED["map"])  # type: ignore[arg-type]
        self.reducing = runtime_context.get_reducing_state(KEYED["reducing"])  # type: ignore[arg-type]
        self.aggregating = runtime_context.get_aggregating_state(KEYED["aggregating"])  # type: ignore[arg-type]

    def process_element(self, value: int, ctx: Any) -> Any:
        self.value.update((self.value.value() or 0) + 1)
        self.list.add(value)
        self.map.put(value % 5, (self.map.get(value % 5) or 0) + value)
        self.reducing.add(value)
        self.aggregating.add(value)
        yield value


def keyed_states(run: LocalExecutor, operator: str) -> dict[str, dict[Any, Any]]:
    """What the ledger holds, by kind of state and key; the order within a list is no matter."""
    states = {kind: run.state(operator, descriptor) for kind, descriptor in KEYED.items()}
    states["list"] = {key: sorted(values) for key, values in states["list"].items()}
    return states


def keyed_model(numbers: list[int]) -> dict[str, dict[Any, Any]]:
    """What the ledger must hold after these numbers."""
    lists: dict[Any, list[int]] = {}
    for number in sorted(numbers):
        lists.setdefault(key_of(number), []).append(number)
    return {
        "value": {key: len(values) for key, values in lists.items()},
        "list": lists,
        "map": {
            key: {rest: sum(v for v in values if v % 5 == rest) for rest in {v % 5 for v in values}}
            for key, values in lists.items()
        },
        "reducing": {key: max(values) for key, values in lists.items()},
        "aggregating": {key: (len(values), sum(values)) for key, values in lists.items()},
    }


class Alarms(KeyedProcessFunction):
    """Sets two timers for every number: in processing time, and at the end of event time."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_processing_time_timer(10_000 + value)
        ctx.timer_service().register_event_time_timer(MAX_WATERMARK - 1_000 + value)
        yield value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        if ctx.time_domain() is TimeDomain.PROCESSING_TIME:
            yield "processing time", ctx.get_current_key(), timestamp - 10_000
        else:
            yield "event time", ctx.get_current_key(), timestamp - MAX_WATERMARK + 1_000


# Operator state


class Keeper(ProcessFunction, CheckpointedFunction):
    """Keeps every kind of operator state."""

    def __init__(self) -> None:
        self.mine: list[int] = []
        self.shared: dict[int, str] = {}
        self.given: dict[str, Any] | None = None

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.split = store.get_list_state(ListStateDescriptor("split", int))
        self.union = store.get_union_list_state(ListStateDescriptor("union"))
        self.broadcast = store.get_broadcast_state(MapStateDescriptor("broadcast", int, str))
        self.mine = list(self.split.get())
        self.shared = dict(self.broadcast.items())
        self.given = {
            "is restored": context.is_restored(),
            "split": list(self.split.get()),
            "union": list(self.union.get()),
            "broadcast": dict(self.broadcast.items()),
            "raw": list(context.get_raw_operator_state_inputs()),
        }

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        for kind, value in (self.given or {}).items():
            BOARD.restored[kind, self.subtask] = value

    def process_element(self, value: int, ctx: Any) -> Any:
        self.mine.append(value)
        yield value

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        checkpoint = context.get_checkpoint_id()
        self.shared[checkpoint] = f"checkpoint {checkpoint}"
        self.split.update(self.mine)
        self.union.update([(self.subtask, number) for number in self.mine[:3]])
        self.broadcast.put_all(self.shared)
        raw = f"{checkpoint} of {self.subtask}".encode()
        context.set_raw_operator_state(raw)
        BOARD.saved["split", self.subtask] = list(self.mine)
        BOARD.saved["union", self.subtask] = list(self.union.get())
        BOARD.saved["broadcast", self.subtask] = dict(self.shared)
        BOARD.saved["raw", self.subtask] = [raw]


class ListKeeper(ProcessFunction, ListCheckpointed):
    """Keeps a list in the older way."""

    def __init__(self) -> None:
        self.mine: list[int] = []
        self.given: list[int] | None = None

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        if self.given is not None:
            BOARD.restored["list checkpointed", self.subtask] = self.given

    def process_element(self, value: int, ctx: Any) -> Any:
        self.mine.append(value)
        yield value

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[int]:
        BOARD.saved["list checkpointed", self.subtask] = list(self.mine)
        return self.mine

    def restore_state(self, state: list[int]) -> None:
        self.given = list(state)
        self.mine = list(state)


class BufferingSink(SinkFunction, CheckpointedFunction):
    """Writes records in batches; what waits for its batch is operator state."""

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self.buffer: list[int] = []
        self.given: list[int] | None = None

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.state: ListState[int] = store.get_list_state(ListStateDescriptor("buffered", int))
        self.buffer = list(self.state.get())
        self.given = list(self.buffer)

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        if self.given is not None:
            BOARD.restored["buffered", self.subtask] = self.given

    def invoke(self, value: int, context: Any) -> None:
        self.buffer.append(value)
        if len(self.buffer) >= self._threshold:
            BOARD.flushed += self.buffer
            self.buffer.clear()

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update(self.buffer)
        BOARD.saved["buffered", self.subtask] = list(self.buffer)


# Source functions


class Counter(SourceFunction, CheckpointedFunction):
    """Counts up, in one subtask; its position is operator state."""

    def __init__(self, count: int, first: int = 0) -> None:
        self._end = first + count
        self.next = first
        self.cancelled = False

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("next", int))
        if context.is_restored():
            (self.next,) = self.state.get()

    def run(self, ctx: SourceContext) -> None:
        while self.next < self._end and GATE.passes(self):
            with ctx.get_checkpoint_lock():
                ctx.collect(self.next)
                self.next += 1

    def cancel(self) -> None:
        self.cancelled = True
        GATE.wake()

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update([self.next])


class Slices(ParallelSourceFunction, CheckpointedFunction):
    """Emits slices of a range; each subtask keeps how far it is in the slices that it has.

    With ``union`` every subtask gets all slices when it is restored, and takes those that are its
    by their number, as a source of partitions does.
    """

    def __init__(self, count: int, first: int = 0, union: bool = False) -> None:
        self._all = [[n, n, min(n + 11, first + count)] for n in range(first, first + count, 11)]
        self._union = union
        self.slices: list[list[int]] = []
        self.restored = self.cancelled = False

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store, descriptor = context.get_operator_state_store(), ListStateDescriptor("slices")
        asked = store.get_union_list_state if self._union else store.get_list_state
        self.state = asked(descriptor)
        self.restored = context.is_restored()

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        parallelism = runtime_context.get_number_of_parallel_subtasks()
        if self.restored and not self._union:
            self.slices = [list(part) for part in self.state.get()]
        else:
            known = {part[0]: list(part) for part in self.state.get()}
            whole = {part[0]: part for part in self._all}
            parts = [known.get(name, whole[name]) for name in sorted(whole)]
            self.slices = parts[self.subtask :: parallelism]

    def run(self, ctx: SourceContext) -> None:
        for part in self.slices:
            while part[1] < part[2] and GATE.passes(self):
                with ctx.get_checkpoint_lock():
                    ctx.collect(part[1])
                    part[1] += 1

    def cancel(self) -> None:
        self.cancelled = True
        GATE.wake()

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update([tuple(part) for part in self.slices])
