"""The job behind the checkpoints in this directory, and what its state must be in the end.

Five sources give numbers, each from a range of its own. Four operators with keys of different types
keep states of every kind and many types, one sets timers, and two functions keep operator state.
`make.py` lets the job fail halfway, which leaves a checkpoint; the test goes on from it. Wherever
the checkpoint was cut, the states after the last number are those that `expected_keyed` computes
without any of Holdfast.
"""

from __future__ import annotations

import datetime
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

from holdfast.common import Configuration, Instant, RestartStrategies, Row, Time, Types
from holdfast.datastream import (
    AggregateFunction,
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    SourceFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.file_system import FileSource, StreamFormat
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ListCheckpointed,
    SourceContext,
)
from holdfast.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)

JOB = "golden"
PARALLELISM = 2
#: records of a source subtask in an epoch, while the checkpoint is made
QUOTA = 20
FAIL_AT = 110

SEQUENCE = range(300)
COLLECTION = range(1000, 1200)
LINES = range(2000, 2200)
LOOP = range(3000, 3200)
LOOP_LISTED = range(4000, 4200)
NUMBERS = [n for part in (SEQUENCE, COLLECTION, LINES, LOOP, LOOP_LISTED) for n in part]
#: a position names its file, so this one is always in the same place
LINES_FILE = Path("/tmp/holdfast-golden/lines.txt")


class Colour(Enum):
    RED = "red"
    GREEN = "green"


@dataclass(frozen=True)
class Place:
    street: str
    number: int


@dataclass
class Reading:
    sensor: str
    degrees: float
    tags: list[str]


_DAY = datetime.date(2024, 2, 29)
_MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 15, 250_000)  # noqa: DTZ001 - SQL's has no zone

#: by name: the declared type, and the value for a number
VALUES: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "boolean": (Types.BOOLEAN(), lambda n: n % 2 == 0),
    "byte": (Types.BYTE(), lambda n: n % 100 - 50),
    "short": (Types.SHORT(), lambda n: -n),
    "int": (Types.INT(), lambda n: n * 1000),
    "long": (Types.LONG(), lambda n: n << 40),
    "double": (Types.DOUBLE(), lambda n: n / 7),
    "string": (Types.STRING(), lambda n: f"№ {n}"),
    "char": (Types.CHAR(), lambda n: chr(ord("a") + n % 26)),
    "big int": (Types.BIG_INT(), lambda n: n << 100),
    "big decimal": (Types.BIG_DEC(), lambda n: Decimal(n) / 8),
    "date": (Types.SQL_DATE(), lambda n: _DAY + datetime.timedelta(days=n)),
    "time": (Types.SQL_TIME(), lambda n: datetime.time(n % 24, n % 60, 1)),
    "timestamp": (Types.SQL_TIMESTAMP(), lambda n: _MOMENT + datetime.timedelta(seconds=n)),
    "instant": (Types.INSTANT(), Instant.of_epoch_milli),
    "row": (Types.ROW([Types.LONG(), Types.STRING()]), lambda n: Row(f0=n, f1=f"r{n}")),
    "named row": (
        Types.ROW_NAMED(["number", "text"], [Types.LONG(), Types.STRING()]),
        lambda n: Row(number=n, text=f"r{n}"),
    ),
    "tuple": (Types.TUPLE([Types.LONG(), Types.DOUBLE()]), lambda n: (n, n / 2)),
    "list": (Types.LIST(Types.LONG()), lambda n: list(range(n % 5))),
    "map": (Types.MAP(Types.STRING(), Types.LONG()), lambda n: {"n": n, "square": n * n}),
    "array": (Types.PRIMITIVE_ARRAY(Types.LONG()), lambda n: [n, n + 1]),
    "bytes": (Types.PICKLED_BYTE_ARRAY(), lambda n: {n, "anything"}),
    "dataclass": (Reading, lambda n: Reading(f"s{n}", n / 4, ["a"] * (n % 3))),
    "scalars": (None, lambda n: (n % 2 == 0, n, n / 3, str(n), b"%d" % n)[n % 5]),
    "tuples": (None, lambda n: (n, str(n))),
    "pickled": (None, lambda n: (Decimal(n), frozenset({n}), Place("x", n))),
}
#: states of lists and maps are kept for these, with every so many numbers
EVERY = 4
IN_LISTS = ("string", "tuple", "dataclass", "scalars", "pickled")
IN_MAPS = ("string", "long", "named row", "tuples", "pickled")

_ANYTHING = (
    None,
    2.5,
    7,
    "text",
    b"bytes",
    (1, (2, "c")),
    Decimal("1.25"),
    _DAY,
    _MOMENT,
    uuid.UUID(int=5),
    Colour.GREEN,
    Row(1, "a"),
    Place("y", 2),
)
#: by operator: the key of a number
KEYS: dict[str, Callable[[int], Any]] = {
    "texts": lambda n: f"key {n % 11}",
    "numbers": lambda n: n % 13 - 6,
    "pairs": lambda n: (n % 3, str(n % 4)),
    "anything": lambda n: _ANYTHING[n % len(_ANYTHING)],
}


class Mean(AggregateFunction):
    """The accumulator has another type than input and output."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Distinct(AggregateFunction):
    """An accumulator without a declared type."""

    def create_accumulator(self) -> set[int]:
        return set()

    def add(self, value: int, accumulator: set[int]) -> set[int]:
        return accumulator | {value % 50}

    def get_result(self, accumulator: set[int]) -> list[int]:
        return sorted(accumulator)

    def merge(self, acc_a: set[int], acc_b: set[int]) -> set[int]:
        return acc_a | acc_b


def lasting(descriptor: StateDescriptor) -> Any:
    """A state with a time-to-live, of which nobody will see the end."""
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(365_000)).build())
    return descriptor


def _add(a: int, b: int) -> int:
    return a + b


class AllStates(KeyedProcessFunction):
    """Keeps every kind of state; tells all of it once it has had all numbers of its key."""

    def __init__(self, operator: str) -> None:
        self._operator = operator
        self._numbers = Counter(map(KEYS[operator], NUMBERS))

    def open(self, runtime_context: RuntimeContext) -> None:
        context = runtime_context
        self._count = context.get_state(ValueStateDescriptor("count", Types.LONG(), 0))
        self._smallest = context.get_reducing_state(
            ReducingStateDescriptor("smallest", min, Types.LONG())
        )
        self._last = context.get_reducing_state(ReducingStateDescriptor("last", max))
        tuple_type = Types.TUPLE([Types.LONG(), Types.LONG()])
        self._mean = context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), tuple_type)
        )
        self._distinct = context.get_aggregating_state(
            AggregatingStateDescriptor("distinct", Distinct())
        )
        self._lasting = (
            context.get_state(lasting(ValueStateDescriptor("lasting value", Types.STRING()))),
            context.get_list_state(lasting(ListStateDescriptor("lasting list", Types.LONG()))),
            context.get_map_state(lasting(MapStateDescriptor("lasting map"))),
            context.get_reducing_state(lasting(ReducingStateDescriptor("lasting sum", _add))),
        )
        self._values = {
            name: context.get_state(ValueStateDescriptor(f"value of {name}", declared))
            for name, (declared, _) in VALUES.items()
        }
        self._lists = {
            name: context.get_list_state(ListStateDescriptor(f"list of {name}", VALUES[name][0]))
            for name in IN_LISTS
        }
        self._maps = {
            name: context.get_map_state(
                MapStateDescriptor(f"map of {name}", VALUES[name][0], VALUES["tuple"][0])
                if VALUES[name][0]
                else MapStateDescriptor(f"map of {name}")
            )
            for name in IN_MAPS
        }

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self._count.update((self._count.value() or 0) + 1)
        self._smallest.add(value)
        self._last.add(f"{value:05}")
        self._mean.add(value)
        self._distinct.add(value)
        last, numbers, squares, total = self._lasting
        last.update(self._last.get())
        total.add(value)
        # The smallest number of a key comes early, so that these values come from the checkpoint.
        if self._smallest.get() == value:
            for name, state in self._values.items():
                state.update(VALUES[name][1](value))
        if value % EVERY == 0:
            numbers.add(value)
            squares.put(value, None if value % 3 else value * value)
            for name, elements in self._lists.items():
                elements.add(VALUES[name][1](value))
            for name, entries in self._maps.items():
                entries.put(VALUES[name][1](value), VALUES["tuple"][1](value))
        if (self._count.value() or 0) >= self._numbers[ctx.get_current_key()]:
            yield "keyed", (self._operator, ctx.get_current_key()), self._all()

    def _all(self) -> dict[str, Any]:
        states: dict[str, Any] = {
            "count": self._count.value(),
            "smallest": self._smallest.get(),
            "last": self._last.get(),
            "mean": self._mean.get(),
            "distinct": self._distinct.get(),
        }
        last, numbers, squares, total = self._lasting
        states |= {"lasting value": last.value(), "lasting list": _sorted(numbers.get())}
        states |= {"lasting map": dict(squares.items()), "lasting sum": total.get()}
        states |= {f"value of {name}": state.value() for name, state in self._values.items()}
        states |= {f"list of {name}": _sorted(state.get()) for name, state in self._lists.items()}
        states |= {f"map of {name}": dict(state.items()) for name, state in self._maps.items()}
        return states


def expected_keyed(
    operators: Iterable[str] = tuple(KEYS), numbers: Collection[int] = tuple(NUMBERS)
) -> dict[tuple[str, Any], dict[str, Any]]:
    """All keyed state after these numbers, by operator and key."""
    return {
        (operator, key): _expected([n for n in numbers if KEYS[operator](n) == key])
        for operator in operators
        for key in {KEYS[operator](n) for n in numbers}
    }


def _expected(numbers: list[int]) -> dict[str, Any]:
    states: dict[str, Any] = {
        "count": len(numbers),
        "smallest": min(numbers),
        "last": f"{max(numbers):05}",
        "mean": sum(numbers) / len(numbers),
        "distinct": sorted({n % 50 for n in numbers}),
    }
    for name, (_, make) in VALUES.items():
        states[f"value of {name}"] = make(min(numbers))
    some = [n for n in numbers if n % EVERY == 0]
    states |= {"lasting value": f"{max(numbers):05}", "lasting list": _sorted(some)}
    states |= {"lasting map": {n: None if n % 3 else n * n for n in some}}
    states |= {"lasting sum": sum(numbers)}
    for name in IN_LISTS:
        states[f"list of {name}"] = _sorted(VALUES[name][1](n) for n in some)
    for name in IN_MAPS:
        states[f"map of {name}"] = {VALUES[name][1](n): (n, n / 2) for n in some}
    return states


def _sorted(values: Any) -> list[Any]:
    """Numbers of one key come from several sources, in any order."""
    return sorted(values, key=repr)


class Timers(KeyedProcessFunction):
    """Sets a timer for some numbers; there are no watermarks, so all are due at the end."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        if value % EVERY == 0:
            ctx.timer_service().register_event_time_timer(value)

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[tuple[str, int, Any]]:
        yield "timer", timestamp, ctx.get_current_key()


def expected_timers() -> dict[int, str]:
    """The keys of all timers, by time."""
    return {n: KEYS["texts"](n) for n in NUMBERS if n % EVERY == 0}


#: what broadcast state and ``ListCheckpointed`` hold, in every subtask
SETTINGS = {"limit": 5, "names": ["a", "b"], ("pair", 1): _DAY, 3: Place("z", 3)}
LISTED = [1, "text", b"bytes", None, 2.5, (1, 2), Decimal("0.5"), _DAY]


class AllModes(FlatMapFunction, CheckpointedFunction):
    """Operator state of every mode; tells what it was given with its first number.

    Each subtask has its numbers in list state and its index in union list state; both have the same
    settings in broadcast state; the raw bytes are the index.
    """

    def __init__(self) -> None:
        self.given: dict[str, Any] | None = None

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.split = store.get_list_state(ListStateDescriptor("numbers", Types.LONG()))
        self.pickled = store.get_list_state(ListStateDescriptor("places"))
        self.union = store.get_union_list_state(ListStateDescriptor("subtasks", Types.INT()))
        self.settings = store.get_broadcast_state(MapStateDescriptor("settings"))
        if context.is_restored():
            self.given = {
                "numbers": self.split.get(),
                "places": self.pickled.get(),
                "subtasks": sorted(self.union.get()),
                "settings": dict(self.settings.items()),
                "raw": context.get_raw_operator_state_inputs(),
            }
        self.settings.put_all(SETTINGS)

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def flat_map(self, value: int) -> Iterator[Any]:
        if self.given is not None:
            yield "operator", self.subtask, self.given
            self.given = None
        self.split.add(value)
        self.pickled.add(Place("w", value))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.union.update([self.subtask])
        context.set_raw_operator_state(b"raw %d" % self.subtask)


class Listed(FlatMapFunction, ListCheckpointed):
    """The short form; tells what it was given with its first number."""

    def __init__(self) -> None:
        self.given: list[Any] | None = None

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def flat_map(self, value: int) -> Iterator[Any]:
        if self.given is not None:
            yield "listed", self.subtask, self.given
            self.given = None

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any]:
        return [self.subtask, *LISTED]

    def restore_state(self, state: list[Any]) -> None:
        self.given = state


class _Waiting(SourceFunction):
    """Emits numbers; waits for a checkpoint after every quota, if it is told one."""

    numbers: range

    def __init__(self, quota: int | None) -> None:
        self.quota = quota
        self.next = self.saved = self.numbers.start
        self.running = True

    def run(self, ctx: SourceContext) -> None:
        while self.running and self.next < self.numbers.stop:
            if self.quota is not None and self.next >= self.saved + self.quota:
                time.sleep(0.005)
                continue
            with ctx.get_checkpoint_lock():
                ctx.collect(self.next)
                self.next += 1

    def cancel(self) -> None:
        self.running = False


class Loop(_Waiting, CheckpointedFunction):
    """A source function."""

    numbers = LOOP

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("next", Types.LONG()))
        self.next = self.saved = next(iter(self.state.get()), LOOP.start)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update([self.next])
        self.saved = self.next


class ListedLoop(_Waiting, ListCheckpointed):
    """The same in the short form."""

    numbers = LOOP_LISTED

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any]:
        self.saved = self.next
        return [self.next]

    def restore_state(self, state: list[Any]) -> None:
        (self.next,) = state
        self.saved = self.next


class FailAt(MapFunction):
    """Fails at a number, if it is told one."""

    def __init__(self, number: int | None) -> None:
        self._number = number

    def map(self, value: Any) -> int:
        if int(value) == self._number:
            msg = f"failed at {value}, as it should"
            raise RuntimeError(msg)
        return int(value)


def job(checkpoints: Path, making: bool) -> DataStream:
    """The job's output; it fails halfway when a checkpoint is made."""
    quota = QUOTA if making else None
    settings = {"holdfast.epoch.max-records": str(quota)} if quota else {}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(settings))
    env.set_parallelism(PARALLELISM).set_buffer_timeout(10)
    env.enable_checkpointing(10)
    env.get_checkpoint_config().set_checkpoint_storage_dir(str(checkpoints))
    env.set_restart_strategy(RestartStrategies.no_restart())
    first, *others = streams(env, quota, KEYS, FAIL_AT if making else None)
    return first.union(*others)


def streams(
    env: StreamExecutionEnvironment,
    quota: int | None,
    operators: Iterable[str],
    fail_at: int | None = None,
) -> list[DataStream]:
    """Everything that tells something of its state, with these of the operators in `KEYS`."""
    write_lines()
    lines = StreamFormat.text_line_format()
    files = FileSource.for_record_stream_format(lines, str(LINES_FILE)).build()
    sequence = NumberSequenceSource(SEQUENCE[0], SEQUENCE[-1])
    everything = (
        env.from_source(sequence, source_name="sequence")
        .uid("sequence")
        .union(
            env.from_collection(list(COLLECTION)).uid("collection"),
            env.from_source(files, source_name="lines").uid("lines"),
            env.add_source(Loop(quota), "loop").uid("loop"),
            env.add_source(ListedLoop(quota), "listed loop").uid("listed-loop"),
        )
        .map(FailAt(fail_at), Types.LONG())
        .uid("fail")
    )
    modes = everything.rebalance().flat_map(AllModes()).uid("modes")
    listed = everything.rebalance().flat_map(Listed()).uid("listed")
    keyed = [
        everything.key_by(KEYS[operator]).process(AllStates(operator)).uid(operator)
        for operator in operators
    ]
    timers = everything.key_by(KEYS["texts"]).process(Timers()).uid("timers")
    numbers = everything.map(lambda n: ("number", n, None)).uid("numbers-read")
    return [numbers, modes, listed, timers, *keyed]


def write_lines() -> None:
    """Put the file of the file source where its position says that it is."""
    text = "".join(f"{n}\n" for n in LINES)
    if not LINES_FILE.exists() or LINES_FILE.read_text() != text:
        LINES_FILE.parent.mkdir(exist_ok=True)
        LINES_FILE.write_text(text)
