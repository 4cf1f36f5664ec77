"""Connected streams: one function object for the records of two streams, and state between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Types, WatermarkStrategy
from holdfast.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    KeyedCoProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import ListStateDescriptor, ValueStateDescriptor
from holdfast.errors import JobDefinitionError, UserFunctionError
from holdfast.testing import EndOfEpoch, LocalExecutor, ScriptedSource, collect, run_locally
from tests.crashing import undisturbed
from tests.lives import Life, live, lives

if TYPE_CHECKING:
    from tests.conftest import Executor

pytestmark = pytest.mark.usefixtures("disturbance")


class Sides(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return "first", value

    def map2(self, value: Any) -> Any:
        return "second", value


class Repeats(CoFlatMapFunction):
    """A record of the first stream as often as it says, none of the second but odd ones."""

    def flat_map1(self, value: int) -> Iterable[Any]:
        return [value] * value

    def flat_map2(self, value: int) -> Iterable[Any] | None:
        return (str(value) for _ in range(1)) if value % 2 else None


class Switch(KeyedCoProcessFunction):
    """The first stream turns keys on and off, and records of the second pass while theirs is on."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.is_on = runtime_context.get_state(ValueStateDescriptor("is on", Types.BOOLEAN()))

    def process_element1(
        self, value: tuple[str, bool], ctx: KeyedCoProcessFunction.Context
    ) -> None:
        self.is_on.update(value[1])

    def process_element2(
        self, value: tuple[str, int], ctx: KeyedCoProcessFunction.Context
    ) -> Iterable[Any]:
        if self.is_on.value():
            yield ctx.get_current_key(), value[1]


def test_map(env: StreamExecutionEnvironment, in_process: Executor) -> None:
    both = env.from_collection([1, 2]).connect(env.from_collection(["a"]))
    got = in_process.collect(both.map(Sides()))
    assert sorted(got) == [("first", 1), ("first", 2), ("second", "a")]


class Halves(CoMapFunction):
    """Half of each even number of the first stream, each text of the second that is not empty."""

    def map1(self, value: int) -> int | None:
        return None if value % 2 else value // 2

    def map2(self, value: str) -> str | None:
        return value or None


def test_a_map_that_returns_none_gives_no_record(
    env: StreamExecutionEnvironment, executor: Executor
) -> None:
    numbers, texts = env.from_collection(range(5)), env.from_collection(["a", "", "b"])
    plain = numbers.connect(texts).map(Halves()).map(repr)
    keyed = numbers.connect(texts).key_by(lambda n: n, len).map(Halves()).map(repr)
    typed = numbers.connect(numbers).map(Halves(), Types.DOUBLE()).key_by(lambda n: n)
    got = executor.collect(plain.union(keyed, typed.map(lambda n: n)))
    assert Counter(got) == Counter(
        2 * ["0", "1", "2", "'a'", "'b'"] + [0.0, 1.0, 2.0, 1.0, 2.0, 3.0, 4.0]
    )


def test_flat_map(env: StreamExecutionEnvironment, in_process: Executor) -> None:
    both = env.from_collection([0, 1, 3]).connect(env.from_collection([1, 2]))
    assert Counter(in_process.collect(both.flat_map(Repeats()))) == {1: 1, 3: 3, "1": 1}


def test_a_declared_type_shapes_the_results_of_both(env: StreamExecutionEnvironment) -> None:
    both = env.from_collection([1]).connect(env.from_collection([2]))
    typed = both.map(Sides(), Types.ROW_NAMED(["side", "number"], [Types.STRING(), Types.DOUBLE()]))
    assert sorted((row.side, row.number) for row in collect(typed)) == [
        ("first", 1.0),
        ("second", 2.0),
    ]


def test_a_switch(env: StreamExecutionEnvironment, in_process: Executor) -> None:
    end = EndOfEpoch()
    switches = [("a", True), end, ("b", True), end, end, ("a", False), end]
    records = [end, ("a", 1), end, ("a", 2), ("b", 3), end, ("b", 4), end, ("a", 5), ("b", 6)]
    first = env.from_source(ScriptedSource(switches)).key_by(lambda switch: switch[0])
    second = env.from_source(ScriptedSource(records)).key_by(lambda record: record[0])
    passed = in_process.collect(first.connect(second).process(Switch()))
    assert sorted(passed) == [("a", 1), ("a", 2), ("b", 3), ("b", 4), ("b", 6)]


def test_a_stream_with_itself(env: StreamExecutionEnvironment, in_process: Executor) -> None:
    numbers = env.from_collection([1, 2])
    got = Counter(in_process.collect(numbers.connect(numbers).map(Sides())))
    assert got == Counter([("first", 1), ("first", 2), ("second", 1), ("second", 2)])


def test_unions_on_both_sides(env: StreamExecutionEnvironment, in_process: Executor) -> None:
    one, two, three = (env.from_collection([n]) for n in (1, 2, 3))
    both = one.union(two).connect(three.rebalance().map(lambda n: n).union(one))
    got = Counter(in_process.collect(both.map(Sides())))
    assert got == Counter([("first", 1), ("first", 2), ("second", 3), ("second", 1)])


class Turns(CoFlatMapFunction):
    """The side and value of each record, and which one of its key it is."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def flat_map1(self, value: tuple[str, int]) -> Iterable[Any]:
        yield self.turn("first", value)

    def flat_map2(self, value: tuple[int, str]) -> Iterable[Any]:
        yield self.turn("second", (value[1], value[0]))

    def turn(self, side: str, value: tuple[str, int]) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.seen.add((side, value[1]))
        assert len(self.seen.get()) == count
        return side, value, count


keys = st.sampled_from("abcdefg")
first_scripts = st.lists(st.tuples(keys, st.integers(0, 9)) | st.just(EndOfEpoch()), max_size=15)
second_scripts = st.lists(st.tuples(st.integers(0, 9), keys) | st.just(EndOfEpoch()), max_size=15)


@undisturbed
@settings(max_examples=20, deadline=None)
@given(first_scripts, second_scripts, lives(st.integers(1, 6)), st.booleans())
def test_records_of_one_key_share_its_state(
    first: list[Any], second: list[Any], life: Life, at_once: bool
) -> None:
    """Each side has its own key selector, and equal keys of both meet in one subtask."""

    def build(env: StreamExecutionEnvironment) -> DataStream:
        one, two = (env.from_source(ScriptedSource(script)) for script in (first, second))
        if at_once:
            both = one.connect(two).key_by(lambda record: record[0], lambda record: record[1])
        else:
            both = one.key_by(lambda record: record[0]).connect(two.key_by(lambda r: r[1]))
        return both.flat_map(Turns())

    records = live(build, life)
    given_first = [record for record in first if isinstance(record, tuple)]
    given_second = [(key, n) for n, key in (r for r in second if isinstance(r, tuple))]
    assert Counter((side, value) for side, value, _ in records) == Counter(
        [("first", value) for value in given_first] + [("second", value) for value in given_second]
    )
    for key in "abcdefg":
        count = sum(value[0] == key for value in [*given_first, *given_second])
        turns = [turn for _, value, turn in records if value[0] == key]
        assert sorted(turns) == list(range(1, count + 1))
        for side, given_ in (("first", given_first), ("second", given_second)):
            mine = [value for got, value, _ in records if got == side and value[0] == key]
            assert mine == [value for value in given_ if value[0] == key]


class Expiring(KeyedCoProcessFunction):
    """Orders of the first stream, paid for by the second; a timer tells of those that are not."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.order = runtime_context.get_state(ValueStateDescriptor("order", Types.LONG()))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        assert ctx.timestamp() == value[1]
        self.order.update(value[1])
        ctx.timer_service().register_event_time_timer(value[1] + 10)

    def process_element2(
        self, value: Any, ctx: KeyedCoProcessFunction.Context
    ) -> Iterable[Any] | None:
        placed = self.order.value()
        if placed is None or value[1] > placed + 10:
            return None
        self.order.clear()
        ctx.timer_service().delete_event_time_timer(placed + 10)
        return [("paid", value[0])]

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield "expired", ctx.get_current_key()
        self.order.clear()


delays = st.lists(st.integers(0, 20), max_size=8)


@undisturbed
@settings(max_examples=20, deadline=None)
@given(delays, lives(st.integers(1, 4)))
def test_a_timer_tells_what_the_other_stream_did_not(delays: list[int], life: Life) -> None:
    """Payments come after all orders, so the result is the same however epochs are cut."""
    placed = [(f"order {n}", 10 * n) for n, _ in enumerate(delays)]
    paid = [(key, at + delay) for (key, at), delay in zip(placed, delays, strict=True)]
    payments = [EndOfEpoch() for _ in range(len(placed) + 2)] + sorted(paid, key=lambda p: p[1])

    def build(env: StreamExecutionEnvironment) -> DataStream:
        def stream(records: list[Any]) -> DataStream:
            strategy = WatermarkStrategy.for_monotonous_timestamps()
            return env.from_source(ScriptedSource(records)).assign_timestamps_and_watermarks(
                strategy.with_timestamp_assigner(lambda record, _: record[1])
            )

        both = stream(placed).connect(stream(payments))
        return both.key_by(lambda o: o[0], lambda p: p[0]).process(Expiring())

    expected = {
        ("paid" if delay <= 10 else "expired", f"order {n}") for n, delay in enumerate(delays)
    }
    assert sorted(live(build, life)) == sorted(expected)


class Stamps(CoProcessFunction):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        yield "first", ctx.timestamp()

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        yield "second", ctx.timestamp()


def test_timestamps_of_one_side_do_not_show_on_the_other(env: StreamExecutionEnvironment) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda number, _: number
    )
    stamped = env.from_collection([7]).assign_timestamps_and_watermarks(strategy)
    plain = env.from_source(ScriptedSource([EndOfEpoch(), 8]))
    assert collect(stamped.connect(plain).process(Stamps())) == [("first", 7), ("second", None)]
    assert collect(plain.connect(stamped).process(Stamps())) == [("second", 7), ("first", None)]


class Ends(KeyedCoProcessFunction):
    """A timer for the end of all time."""

    def process_element1(self, value: int, ctx: KeyedCoProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value)

    def process_element2(self, value: int, ctx: KeyedCoProcessFunction.Context) -> None:
        return None

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield timestamp


def test_an_input_that_has_ended_holds_nobody_up(env: StreamExecutionEnvironment) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda number, _: number
    )
    script = [n for number in range(1, 6) for n in (number, EndOfEpoch())]
    long = env.from_source(ScriptedSource(script)).assign_timestamps_and_watermarks(strategy)
    short = env.from_collection([0]).assign_timestamps_and_watermarks(strategy)
    both = long.connect(short).key_by(lambda n: n, lambda n: n).process(Ends())
    with LocalExecutor(both) as run:
        seen = []
        for _ in range(5):
            run.epoch()
            seen.append(sorted(run.records))
    assert seen == [[], [1], [1, 2], [1, 2, 3], [1, 2, 3, 4, 5]]


class NeedsKey(MapFunction):
    def map(self, value: Any) -> Any:
        return value


def test_keyed_functions_need_keys(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1])
    message = r"Switch is a KeyedCoProcessFunction, and these streams are not both keyed; call key"
    for both in (numbers.connect(numbers), numbers.key_by(lambda n: n).connect(numbers)):
        with pytest.raises(TypeError, match=message):
            both.process(Switch())
    with pytest.raises(UserFunctionError, match="'Co-Flat Map' requests the keyed state 'count'"):
        collect(numbers.connect(numbers.key_by(lambda n: n)).flat_map(Turns()))


def test_wrong_arguments(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1])
    both = numbers.connect(numbers)
    with pytest.raises(TypeError, match="map: connected streams take a CoMapFunction; got"):
        both.map(NeedsKey())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="take a CoProcessFunction or a KeyedCoProcessFunction"):
        both.process(Sides())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="connect: expected a stream; got 7"):
        numbers.connect(7)  # type: ignore[call-overload]
    other = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    with pytest.raises(JobDefinitionError, match=r"connect: stream .* belongs to another env"):
        numbers.connect(other)


class Fails(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        raise ValueError("second")


def test_a_failure_names_the_record_of_its_side(env: StreamExecutionEnvironment) -> None:
    both = env.from_collection([1, 2]).connect(env.from_collection(["x"]))
    with pytest.raises(UserFunctionError, match=r"ValueError: second(.|\n)*record: 'x'"):
        collect(both.map(Fails()))


@undisturbed
def test_calls_of_both_methods_are_counted(env: StreamExecutionEnvironment) -> None:
    both = env.from_collection([1, 2]).connect(env.from_collection(["x"]))
    run = run_locally(both.map(Sides()).name("sides"), count_calls=True)
    assert run.calls["sides"] == 3
