"""Keyed process functions: state of every kind, scoped to the key, through the runtime context."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.common import Types
from holdfast.datastream import (
    AggregateFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from holdfast.errors import UserFunctionError
from holdfast.testing import EndOfEpoch, LocalExecutor, ScriptedSource, collect

if TYPE_CHECKING:
    from tests.conftest import Executor


class CountWindowAverage(FlatMapFunction):
    """The average of every two values of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor(
            "average", Types.TUPLE([Types.LONG(), Types.LONG()]), default_value=(0, 0)
        )
        self.sum = runtime_context.get_state(descriptor)

    def flat_map(self, value: tuple[int, int]) -> Iterable[tuple[int, int]]:
        count, total = self.sum.value() or (0, 0)
        count, total = count + 1, total + value[1]
        if count < 2:
            self.sum.update((count, total))
        else:
            self.sum.clear()
            yield value[0], total // count


class CountPerKeyFunction(KeyedProcessFunction):
    """How often each key was seen, and a metric of all records."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.records = runtime_context.get_metrics_group().counter("records")

    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterable[tuple[Any, int]]:
        self.records.inc()
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield ctx.get_current_key(), count


class TemperatureAlert(FlatMapFunction):
    """Alerts when two readings of a sensor in a row differ by more than a threshold."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.DOUBLE()))

    def flat_map(self, value: tuple[str, float]) -> Iterable[tuple[str, float, float]]:
        sensor, temperature = value
        last = self.last.value()
        if last is not None and abs(temperature - last) > self.threshold:
            yield sensor, last, temperature
        self.last.update(temperature)


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[1] / accumulator[0]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class EveryKind(KeyedProcessFunction):
    """Keeps what it sees in a state of each kind, and says what they hold."""

    def open(self, runtime_context: RuntimeContext) -> None:
        context = runtime_context
        self.value = context.get_state(ValueStateDescriptor("value", Types.INT()))
        self.list = context.get_list_state(ListStateDescriptor("list", Types.INT()))
        self.map = context.get_map_state(MapStateDescriptor("map", Types.INT(), Types.INT()))
        self.reducing = context.get_reducing_state(ReducingStateDescriptor("reducing", max))
        self.aggregating = context.get_aggregating_state(
            AggregatingStateDescriptor("aggregating", Mean())
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            folding = FoldingStateDescriptor("folding", "", lambda text, n: f"{text}{n}")
        self.folding = context.get_folding_state(folding)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        if value < 0:
            for state in (self.value, self.list, self.map, self.reducing, self.aggregating):
                state.clear()
            self.folding.clear()
        else:
            self.value.update(value)
            self.list.add(value)
            self.map.put(value, value * value)
            self.reducing.add(value)
            self.aggregating.add(value)
            self.folding.add(value)
        yield (
            ctx.get_current_key(),
            self.value.value(),
            list(self.list),
            dict(self.map.items()),
            self.reducing.get(),
            self.aggregating.get(),
            self.folding.get(),
        )


def test_count_window_average(env: StreamExecutionEnvironment, executor: Executor) -> None:
    pairs = env.from_collection([(1, 3), (1, 5), (1, 7), (1, 4), (1, 2)])
    averages = pairs.key_by(lambda pair: pair[0]).flat_map(CountWindowAverage())
    assert executor.collect(averages) == [(1, 4), (1, 5)]


def test_every_kind_of_state(env: StreamExecutionEnvironment, executor: Executor) -> None:
    records = [4, 2, 1, 6, -2, 8]
    script = [part for record in records for part in (record, EndOfEpoch())]
    keyed = env.from_source(ScriptedSource(script)).key_by(lambda n: n % 2)
    got: dict[int, list[Any]] = {0: [], 1: []}
    for key, *states in executor.collect(keyed.process(EveryKind())):
        got[key].append(states)
    assert got[1] == [[1, [1], {1: 1}, 1, 1.0, "1"]]
    assert got[0] == [
        [4, [4], {4: 16}, 4, 4.0, "4"],
        [2, [4, 2], {4: 16, 2: 4}, 4, 3.0, "42"],
        [6, [4, 2, 6], {4: 16, 2: 4, 6: 36}, 6, 4.0, "426"],
        [None, [], {}, None, None, None],
        [8, [8], {8: 64}, 8, 8.0, "8"],
    ]


def test_count_per_key(env: StreamExecutionEnvironment) -> None:
    words = env.from_collection(["to", "be", "or", "not", "to", "be"])
    counts = words.key_by(lambda word: word).process(CountPerKeyFunction()).uid("counts")
    with LocalExecutor(counts, quota=2, workers=2) as run:
        run.run_to_end()
    assert dict(run.records) == {"to": 2, "be": 2, "or": 1, "not": 1}
    assert sum(metrics["records"] for _, metrics in run.metrics.items()) == 6
    assert run.state("counts", ValueStateDescriptor("count", Types.LONG())) == dict(run.records)


def test_temperature_alert(env: StreamExecutionEnvironment, in_process: Executor) -> None:
    readings = [("a", 20.0), ("b", 5.0), ("a", 20.5), ("a", 25.0), ("b", 5.5), ("a", 20.0)]
    keyed = env.from_collection(readings).key_by(lambda reading: reading[0])
    alerts = in_process.collect(keyed.flat_map(TemperatureAlert(1.0)))
    assert alerts == [("a", 20.5, 25.0), ("a", 25.0, 20.0)]


def test_state_is_scoped_to_its_key(env: StreamExecutionEnvironment, in_process: Executor) -> None:
    keyed = env.from_collection(["a", "b", "a", "c", "b", "a"]).key_by(lambda word: word)
    counts = in_process.collect(keyed.process(CountPerKeyFunction()).set_parallelism(1))
    expected = {"a": [1, 2, 3], "b": [1, 2], "c": [1]}
    assert {k: [n for key, n in counts if key == k] for k in expected} == expected


def test_state_is_scoped_to_its_operator(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection([1, 1, 1]).key_by(lambda n: n)
    first = keyed.process(CountPerKeyFunction())
    second = first.key_by(lambda pair: pair[0]).process(CountPerKeyFunction())
    assert collect(first.union(second), seed=1).count((1, 3)) == 2


@pytest.mark.parametrize("key", ["text", 7, 2.5, b"bytes", None, True, ("a", 1), frozenset({1})])
def test_kinds_of_keys(env: StreamExecutionEnvironment, in_process: Executor, key: Any) -> None:
    keyed = env.from_collection(range(3)).key_by(lambda _: key)
    got = in_process.collect(keyed.process(CountPerKeyFunction()))
    assert got == [(key, 1), (key, 2), (key, 3)]


class TwoStatesOfOneName(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.total = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map(self, value: Any) -> Any:
        return value


class TwoKindsOfOneName(TwoStatesOfOneName):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        runtime_context.get_list_state(ListStateDescriptor("count", Types.LONG()))


@pytest.mark.parametrize("function", [TwoStatesOfOneName(), TwoKindsOfOneName()])
def test_two_states_of_one_name(env: StreamExecutionEnvironment, function: MapFunction) -> None:
    stream = env.from_collection([1]).key_by(lambda n: n).map(function).name("twice")
    message = "operator 'twice' has two states with the name 'count'.*give each its own"
    with pytest.raises(UserFunctionError, match=message):
        collect(stream)


class LooksAgain(MapFunction):
    """Asks for its state with each record, as some programs do."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.context = runtime_context
        self.descriptor = ValueStateDescriptor("count", Types.LONG())

    def map(self, value: Any) -> Any:
        state = self.context.get_state(self.descriptor)
        same = self.context.get_state(ValueStateDescriptor("count", Types.LONG()))
        state.update((same.value() or 0) + 1)
        return state.value()


def test_asking_for_a_state_again(env: StreamExecutionEnvironment, in_process: Executor) -> None:
    keyed = env.from_collection([5, 5, 5, 5]).key_by(lambda n: n)
    assert in_process.collect(keyed.map(LooksAgain())) == [1, 2, 3, 4]


def test_keyed_state_without_a_key(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([(1, 2)]).flat_map(CountWindowAverage()).name("average")
    message = r"'average' requests the keyed state 'average'.*not a keyed stream; call key_by"
    with pytest.raises(UserFunctionError, match=message):
        collect(stream)


class UpdatesWithTheWrongType(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))

    def map(self, value: Any) -> Any:
        self.state.update("no number")
        return value


def test_a_value_that_does_not_fit_its_state(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1]).key_by(lambda n: n).map(UpdatesWithTheWrongType())
    with pytest.raises(Exception, match="number"):
        collect(stream)


def test_mutable_default_is_not_shared_between_keys(env: StreamExecutionEnvironment) -> None:
    class Appends(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.state = runtime_context.get_state(ValueStateDescriptor("seen", default_value=[]))

        def map(self, value: Any) -> Any:
            seen = self.state.value()
            assert seen is not None
            seen.append(value)
            self.state.update(seen)
            return list(seen)

    keyed = env.from_collection([1, 2, 11, 12]).key_by(lambda n: n % 10)
    assert sorted(collect(keyed.map(Appends()))) == [[1], [1, 11], [2], [2, 12]]
