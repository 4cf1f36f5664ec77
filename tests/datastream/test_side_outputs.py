"""Side outputs: ``yield tag, record`` from every process function, and what becomes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Row, Types, WatermarkStrategy
from holdfast.datastream import (
    BroadcastProcessFunction,
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import MapStateDescriptor
from holdfast.datastream.window import TumblingEventTimeWindows
from holdfast.errors import JobDefinitionError, UserFunctionError
from holdfast.testing import EndOfEpoch, ScriptedSource, collect
from tests.lives import Life, live, lives

if TYPE_CHECKING:
    from tests.conftest import Executor

ODD, LARGE, UNREAD = OutputTag("odd"), OutputTag("large"), OutputTag("nobody reads this")
RULES = MapStateDescriptor("rules")


def sort_out(number: int) -> Iterable[Any]:
    """Every number to the main output; some elsewhere as well."""
    yield number
    yield UNREAD, number
    if number % 2:
        yield OutputTag("odd"), number  # a tag of the same id is the same tag
    if number > 5:
        yield LARGE, number
        yield LARGE, -number


class Process(ProcessFunction):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield from sort_out(value)


class KeyedProcess(KeyedProcessFunction):
    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        yield from sort_out(value)


class OnTimer(KeyedProcessFunction):
    """From a timer; the same number is one timer, so numbers differ."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield from sort_out(timestamp)


class CoProcess(CoProcessFunction):
    def process_element1(self, value: int, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        yield from sort_out(value)

    def process_element2(self, value: int, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        yield from sort_out(value)


class KeyedCoProcess(KeyedCoProcessFunction):
    def process_element1(self, value: int, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        yield from sort_out(value)

    def process_element2(self, value: int, ctx: KeyedCoProcessFunction.Context) -> None:
        ctx.timer_service().register_processing_time_timer(-value)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield from sort_out(-timestamp)


class Broadcast(BroadcastProcessFunction[int, int, Any]):
    def process_element(
        self, value: int, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any]:
        yield from sort_out(value)

    def process_broadcast_element(
        self, value: int, ctx: BroadcastProcessFunction.Context
    ) -> Iterable[Any]:
        yield from sort_out(value)


class KeyedBroadcast(KeyedBroadcastProcessFunction[int, int, int, Any]):
    def process_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> None:
        ctx.timer_service().register_event_time_timer(value)

    def process_broadcast_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterable[Any]:
        yield from sort_out(value)

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterable[Any]:
        yield from sort_out(timestamp)


class Windowed(ProcessWindowFunction[int, Any, int, Any]):
    def process(
        self, key: int, context: ProcessWindowFunction.Context[Any], elements: Iterable[int]
    ) -> Iterable[Any]:
        for number in elements:
            yield from sort_out(number)


class WindowedTogether(ProcessAllWindowFunction[int, Any, Any]):
    def process(
        self, context: ProcessAllWindowFunction.Context[Any], elements: Iterable[int]
    ) -> Iterable[Any]:
        for number in elements:
            yield from sort_out(number)


class Joined(ProcessJoinFunction[int, int, Any]):
    def process_element(
        self, left: int, right: int, ctx: ProcessJoinFunction.Context
    ) -> Iterable[Any]:
        yield from sort_out(left)


def timed(stream: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(100).with_timestamp_assigner(
        lambda number, _: number
    )
    return stream.assign_timestamps_and_watermarks(strategy)


def with_itself(stream: DataStream) -> DataStream:
    keyed = timed(stream).key_by(itself)
    return keyed.interval_join(keyed).between(0, 0).process(Joined())


def itself(number: int) -> int:
    return number


#: a stream through each kind of process function; two inputs get a half of the numbers each
KINDS: dict[str, Callable[[DataStream, DataStream], DataStream]] = {
    "process": lambda a, b: a.union(b).process(Process()),
    "keyed process": lambda a, b: a.union(b).key_by(itself).process(KeyedProcess()),
    "timer": lambda a, b: a.union(b).key_by(itself).process(OnTimer()),
    "co-process": lambda a, b: a.connect(b).process(CoProcess()),
    "keyed co-process": lambda a, b: a.connect(b).key_by(itself, itself).process(KeyedCoProcess()),
    "broadcast": lambda a, b: a.connect(b.broadcast(RULES)).process(Broadcast()).set_parallelism(1),
    "keyed broadcast": lambda a, b: (
        a.key_by(itself).connect(b.broadcast(RULES)).process(KeyedBroadcast()).set_parallelism(1)
    ),
    "window": lambda a, b: (
        timed(a.union(b)).key_by(itself).window(TumblingEventTimeWindows.of(5)).process(Windowed())
    ),
    "window of all": lambda a, b: (
        timed(a.union(b)).window_all(TumblingEventTimeWindows.of(5)).process(WindowedTogether())
    ),
    "reduced window": lambda a, b: (
        timed(a.union(b))
        .key_by(itself)
        .window(TumblingEventTimeWindows.of(5))
        .reduce(max, window_function=Windowed())
    ),
    "interval join": lambda a, b: with_itself(a.union(b)),
}


def tell(name: str) -> Callable[[int], tuple[str, int]]:
    return lambda number: (name, number)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(KINDS)),
    st.sets(st.integers(0, 12)).map(sorted),
    st.integers(0, 6),
    st.integers(0, 3),
    lives(st.integers(1, 5)),
)
def test_from_every_process_function(
    kind: str, numbers: list[int], first: int, reader: int, life: Life
) -> None:
    """Read by nobody, in place, through shuffles, and by two at once."""

    def build(env: StreamExecutionEnvironment) -> DataStream:
        a = env.from_source(ScriptedSource(numbers[:first]))
        b = env.from_source(ScriptedSource(numbers[first:]))
        results = KINDS[kind](a, b)
        main, odd = results.map(tell("main")), results.get_side_output(ODD)
        large = results.get_side_output(LARGE).key_by(itself).map(tell("large"))
        if reader == 0:
            return main
        if reader == 1:
            return main.union(odd.map(tell("odd")))
        if reader == 2:
            return main.union(odd.rebalance().map(tell("odd")), large)
        return main.union(odd.map(tell("odd")), odd.key_by(itself).map(tell("odd too")), large)

    names = {0: ["main"], 1: ["main", "odd"], 2: ["main", "odd", "large"]}
    read = names.get(reader, ["main", "odd", "odd too", "large"])
    where = {
        "main": numbers,
        "odd": [n for n in numbers if n % 2],
        "odd too": [n for n in numbers if n % 2],
        "large": [m for n in numbers if n > 5 for m in (n, -n)],
    }
    expected = Counter((name, number) for name in read for number in where[name])
    assert Counter(live(build, life)) == expected


class Sides(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return "odd", value

    def map2(self, value: Any) -> Any:
        return "large", value


def test_side_outputs_are_connected(env: StreamExecutionEnvironment, in_process: Executor) -> None:
    results = env.from_collection([3, 6, 7]).process(Process())
    both = results.get_side_output(ODD).connect(results.get_side_output(LARGE))
    got = in_process.collect(both.key_by(itself, itself).map(Sides()))
    assert Counter(got) == Counter(
        [("odd", 3), ("odd", 7), *(("large", n) for n in (6, -6, 7, -7))]
    )


class Stamped(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp()


def test_records_keep_their_timestamps(env: StreamExecutionEnvironment) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda number, _: 100 + number
    )
    stream = env.from_source(ScriptedSource([1, EndOfEpoch(), 3]))
    results = stream.assign_timestamps_and_watermarks(strategy).process(Process())
    odd = results.get_side_output(ODD)
    assert collect(odd.process(Stamped())) == [(1, 101), (3, 103)]
    assert sorted(collect(odd.rebalance().process(Stamped()))) == [(1, 101), (3, 103)]


class Typed(ProcessFunction):
    def __init__(self, tag: OutputTag) -> None:
        self.tag = tag

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield self.tag, value


def test_records_take_the_shape_of_the_declared_type(env: StreamExecutionEnvironment) -> None:
    row = Types.ROW_NAMED(["name", "weight"], [Types.STRING(), Types.DOUBLE()])
    tag = OutputTag("typed", row)
    side = env.from_collection([("a", 1)]).process(Typed(tag)).get_side_output(tag)
    assert side.get_type() == row
    assert collect(side) == [Row(name="a", weight=1.0)]
    # and so do functions that keep the type of their input
    assert side.filter(lambda _: True).get_type() == row
    assert collect(side.key_by(lambda r: r.name).max("weight")) == [Row(name="a", weight=1.0)]


def test_a_record_that_does_not_fit_the_type(env: StreamExecutionEnvironment) -> None:
    tag = OutputTag("typed", Types.DOUBLE())
    side = env.from_collection(["text"]).process(Typed(tag)).name("typed").get_side_output(tag)
    with pytest.raises(UserFunctionError, match=r"operator 'typed'(.|\n)*record: 'text'"):
        collect(side)


def test_a_side_output_of_two_types(env: StreamExecutionEnvironment) -> None:
    results = env.from_collection([1]).process(Process())
    odd = results.get_side_output(ODD).union(
        results.get_side_output(OutputTag("odd", Types.LONG()))
    )
    message = "the side output 'odd' of operator 'Process' is read with two types: None and Long"
    with pytest.raises(JobDefinitionError, match=message):
        collect(odd)


def test_wrong_arguments(env: StreamExecutionEnvironment) -> None:
    results = env.from_collection([1]).process(Process())
    with pytest.raises(TypeError, match="get_side_output: expected an OutputTag; got 'odd'"):
        results.get_side_output("odd")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a side output of operators: set them on the operator"):
        results.get_side_output(ODD).name("odd")
    with pytest.raises(TypeError, match="this stream is a union"):
        results.union(results).get_side_output(ODD)
