"""A job whose functions change values of state in place, and save them then; for torture.

    holdfast torture tests/torture/changed_in_place.py OUTPUT NUMBERS

Most jobs replace values, so they would not see that a value is changed in a checkpoint that is
still being written. Here lists, dicts and objects are changed in every kind of state. Each state of
a key counts the numbers of that key in its own way. They must all have the same count, and the
counts of a key must go up by one.

Encoding an object takes a while (`Tally`), so records arrive while a checkpoint is being written.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast.common import Configuration, Encoder, Time, WatermarkStrategy
from holdfast.datastream import (
    AggregateFunction,
    BroadcastProcessFunction,
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.file_system import FileSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import CheckpointedFunction, FunctionInitializationContext
from holdfast.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.datastream.window import TumblingEventTimeWindows

KEYS: Final = 12
NAMES: Final = 3
RULES: Final = MapStateDescriptor("rules")
#: nothing expires during a run
TTL: Final = StateTtlConfig.new_builder(Time.days(1)).build()


@dataclass
class Tally:
    """A count; encoding it takes this many seconds."""

    pause: float = 0.0
    count: int = 0

    def __getstate__(self) -> dict[str, Any]:
        time.sleep(self.pause)
        return self.__dict__


class Gather(AggregateFunction):
    """Puts all numbers into one list."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> list[int]:
        return accumulator

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        acc_a += acc_b
        return acc_a


def extend(first: list[int], second: list[int]) -> list[int]:
    """Return the first list, with the elements of the second."""
    first += second
    return first


class EveryKind(KeyedProcessFunction, CheckpointedFunction):
    """Counts the numbers of each key in every kind of state."""

    def __init__(self, new_tally: Callable[[], Tally] = Tally) -> None:
        self._new_tally = new_tally
        #: pairs of a key and its count, for the operator state
        self._counts: list[list[int]] = []

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self._saved = store.get_union_list_state(ListStateDescriptor("counts"))
        # every subtask gets the pairs of all: of a key, the highest count is the newest
        newest: dict[int, int] = {}
        for key, count in self._saved.get():
            newest[key] = max(count, newest.get(key, 0))
        self._counts = [[key, count] for key, count in newest.items()]

    def snapshot_state(self, context: Any) -> None:
        self._saved.update(self._counts)

    def open(self, runtime_context: RuntimeContext) -> None:
        get = runtime_context
        self._tally = get.get_state(ValueStateDescriptor("a tally"))
        self._values = [get.get_state(d) for d in both(ValueStateDescriptor, "list")]
        self._dicts = [get.get_state(d) for d in both(ValueStateDescriptor, "dict")]
        self._lists = [get.get_list_state(d) for d in both(ListStateDescriptor, "lists")]
        self._maps = [get.get_map_state(d) for d in both(MapStateDescriptor, "map")]
        self._sums = [
            get.get_aggregating_state(d) for d in both(AggregatingStateDescriptor, "all", Gather())
        ]
        self._reduced = [
            get.get_reducing_state(d) for d in both(ReducingStateDescriptor, "reduced", extend)
        ]

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        counts = {
            "tally": [self._count_tally()],
            "list": [append(state, value) for state in self._values],
            "dict": [count_up(state) for state in self._dicts],
            "lists": [append_to_last(state, value) for state in self._lists],
            "map": [append_to_name(state, value) for state in self._maps],
            "aggregated": [added(state, value) for state in self._sums],
            "reduced": [added(state, [value]) for state in self._reduced],
            "operator": [self._count_here(ctx.get_current_key())],
        }
        found = {count for each in counts.values() for count in each}
        yield f"key {ctx.get_current_key()}: {found.pop() if len(found) == 1 else counts}"

    def _count_tally(self) -> int:
        tally = self._tally.value() or self._new_tally()
        tally.count += 1
        self._tally.update(tally)
        return int(tally.count)

    def _count_here(self, key: int) -> int:
        for pair in self._counts:
            if pair[0] == key:
                pair[1] += 1
                return pair[1]
        self._counts.append([key, 1])
        return 1


def both(kind: Any, name: str, *arguments: Any) -> list[StateDescriptor]:
    """Return two descriptors: without and with a time-to-live."""
    plain, expiring = kind(name, *arguments), kind(f"{name} with TTL", *arguments)
    expiring.enable_time_to_live(TTL)
    return [plain, expiring]


def append(state: Any, value: int) -> int:
    """Append to a list in a value state, and return its length."""
    values = state.value() or []
    values.append(value)
    state.update(values)
    return len(values)


def count_up(state: Any) -> int:
    """Count in a dict in a value state."""
    counts: dict[str, int] = state.value() or {"n": 0}
    counts["n"] += 1
    state.update(counts)
    return counts["n"]


def append_to_last(state: Any, value: int) -> int:
    """Append to the last list in a list state, or begin another one; return how many there are."""
    lists = list(state.get())
    if lists and len(lists[-1]) < 5:
        lists[-1].append(value)
        state.update(lists)
    else:
        state.add([value])
    return sum(map(len, state.get()))


def append_to_name(state: Any, value: int) -> int:
    """Append to a list in a map state; return the length of all."""
    values = state.get(value % NAMES) or []
    values.append(value)
    state.put(value % NAMES, values)
    return sum(map(len, state.values()))


def added(state: Any, value: Any) -> int:
    """Add to an accumulator; return its length."""
    state.add(value)
    return len(state.get())


class Rules(BroadcastProcessFunction):
    """Keeps the numbers of each rule in broadcast state; the first subtask counts them."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._tells = runtime_context.get_index_of_this_subtask() == 0

    def process_element(self, value: int, ctx: Any) -> Iterator[str]:
        yield from ()

    def process_broadcast_element(self, value: int, ctx: Any) -> Iterator[str]:
        rules = ctx.get_broadcast_state(RULES)
        values = rules.get(value % NAMES) or []
        values.append(value)
        rules.put(value % NAMES, values)
        if self._tells:
            yield f"rule {value % NAMES}: {len(values)}"


def key_of(value: int) -> int:
    return value % KEYS


def counted(numbers: DataStream, rules: DataStream, function: EveryKind) -> DataStream:
    """Return lines with the counts of both streams."""
    all_kinds = numbers.key_by(key_of).process(function)
    by_rule = numbers.connect(rules.broadcast(RULES)).process(Rules())
    # all of them have the same time, so the windows are open until the end
    watermarks = WatermarkStrategy.no_watermarks()
    timed = numbers.assign_timestamps_and_watermarks(
        watermarks.with_timestamp_assigner(lambda value, _: 0)
    )
    window = TumblingEventTimeWindows.of(Time.days(1))
    gathered = timed.key_by(key_of).window(window).aggregate(Gather())
    reduced = timed.map(lambda n: [n]).key_by(lambda ns: key_of(ns[0])).window(window)
    windows = gathered.union(reduced.reduce(extend)).map(lambda ns: f"window: {sorted(ns)}")
    return all_kinds.union(by_rule, windows)


def main(output: str, numbers: int, pause: float = 0.01) -> None:
    """Count this many numbers, and a quarter as many rules, and write the counts to files."""
    # the objects in state are pickled, and a savepoint is read by another start of the program
    trusted = {"holdfast.state-recovery.allow-pickled-state": "true"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(trusted))
    env.set_parallelism(2)
    source = env.from_source(NumberSequenceSource(1, numbers))
    rules = env.from_source(NumberSequenceSource(1, numbers // 4))
    sink = FileSink.for_row_format(output, Encoder.simple_string_encoder())
    function = EveryKind(lambda: Tally(pause))
    counted(source, rules, function).sink_to(sink.build()).name("counts")
    env.execute("changed in place")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
