"""The interval join: exactly the pairs of a nested loop over the records that were not late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Time, Types, WatermarkStrategy
from holdfast.datastream import (
    DataStream,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import MapStateDescriptor, ValueStateDescriptor
from holdfast.errors import JobDefinitionError, UserFunctionError
from holdfast.testing import EndOfEpoch, LocalExecutor, ScriptedSource, collect
from tests.crashing import undisturbed
from tests.lives import Life, live, lives

if TYPE_CHECKING:
    from tests.conftest import Executor

pytestmark = pytest.mark.usefixtures("disturbance")

#: key, timestamp, number
Record = tuple[str, int, int]

LEFT_LATE, RIGHT_LATE = OutputTag("late left"), OutputTag("late right")
DELAY = 3


class Pairs(ProcessJoinFunction[Record, Record, Any]):
    """The pair, with what the context says of it."""

    def process_element(
        self, left: Record, right: Record, ctx: ProcessJoinFunction.Context
    ) -> Iterable[Any]:
        assert (ctx.get_left_timestamp(), ctx.get_right_timestamp()) == (left[1], right[1])
        yield "pair", left, right, ctx.get_timestamp()


class Stamped(ProcessFunction):
    """A result of a join, and the timestamp it has."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp()


def stamped(env: StreamExecutionEnvironment, script: list[Any], delay: int = DELAY) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(delay)
    return env.from_source(ScriptedSource(script)).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda record, _: record[1])
    )


def joined(
    env: StreamExecutionEnvironment,
    left: list[Any],
    right: list[Any],
    bounds: tuple[int, int],
    exclusive: tuple[bool, bool] = (False, False),
) -> DataStream:
    one, two = (stamped(env, script).key_by(lambda record: record[0]) for script in (left, right))
    join = one.interval_join(two).between(*bounds)
    join = join.lower_bound_exclusive() if exclusive[0] else join
    join = join.upper_bound_exclusive() if exclusive[1] else join
    late = join.side_output_left_late_data(LEFT_LATE).side_output_right_late_data(RIGHT_LATE)
    pairs = late.process(Pairs())
    lefts, rights = (
        pairs.get_side_output(tag).map(lambda record, tag=tag: (tag.tag_id, record))
        for tag in (LEFT_LATE, RIGHT_LATE)
    )
    return pairs.process(Stamped()).union(lefts, rights)


def expected(
    left: list[list[Record]],
    right: list[list[Record]],
    bounds: tuple[int, int],
    exclusive: tuple[bool, bool],
) -> Counter[Any]:
    """What a nested loop finds among the records that are not late."""
    on_time, found = late_and_on_time(left, right)
    for one, two in product(*on_time):
        lower, upper = one[1] + bounds[0], one[1] + bounds[1]
        above = two[1] > lower if exclusive[0] else two[1] >= lower
        below = two[1] < upper if exclusive[1] else two[1] <= upper
        if one[0] == two[0] and above and below:
            later = max(one[1], two[1])
            found.append((("pair", one, two, later), later))
    return Counter(found)


def late_and_on_time(
    left: list[list[Record]], right: list[list[Record]]
) -> tuple[list[list[Record]], list[Any]]:
    on_time: list[list[Record]] = [[], []]
    late: list[Any] = []
    largest, watermark = [-(2**63)] * 2, -(2**63)
    for number in range(max(len(left), len(right))):
        for side, epochs in enumerate((left, right)):
            for record in epochs[number] if number < len(epochs) else []:
                largest[side] = max(largest[side], record[1])
                if record[1] > watermark:
                    on_time[side].append(record)
                else:
                    late.append(("late left" if side == 0 else "late right", record))
        ended = [number + 1 >= len(epochs) for epochs in (left, right)]
        inputs = [
            2**63 - 1 if over else time - DELAY - 1
            for over, time in zip(ended, largest, strict=True)
        ]
        watermark = max(watermark, min(inputs))
    return on_time, late


def script_of(epochs: list[list[Record]]) -> list[Any]:
    script: list[Any] = []
    for epoch in epochs:
        script += [*epoch, EndOfEpoch()]
    return script[:-1]


@st.composite
def sides(draw: st.DrawFn) -> list[list[Record]]:
    """Epochs of records; each has a number of its own, so that pairs can be told apart."""
    entry = st.tuples(st.sampled_from("ab"), st.integers(0, 30))
    epochs = draw(st.lists(st.lists(entry, min_size=1, max_size=4), min_size=1, max_size=5))
    numbers = iter(range(100))
    return [[(key, time, next(numbers)) for key, time in epoch] for epoch in epochs]


bounds = st.tuples(st.integers(-10, 10), st.integers(0, 12)).map(lambda b: (b[0], b[0] + b[1]))


@undisturbed
@settings(max_examples=40, deadline=None)
@given(sides(), sides(), bounds, st.tuples(st.booleans(), st.booleans()), lives())
def test_the_pairs_of_a_nested_loop(
    left: list[list[Record]],
    right: list[list[Record]],
    bounds: tuple[int, int],
    exclusive: tuple[bool, bool],
    life: Life,
) -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        return joined(env, script_of(left), script_of(right), bounds, exclusive)

    assert Counter(live(build, life)) == expected(left, right, bounds, exclusive)


def test_orders_and_payments(env: StreamExecutionEnvironment, in_process: Executor) -> None:
    orders = [("a", 0, 1), ("b", 5, 2), ("a", 10, 3)]
    payments = [("a", 2, 4), ("b", 30, 5), ("a", 8, 6)]
    pairs = joined(env, orders, payments, (0, 5))
    assert in_process.collect(pairs) == [(("pair", ("a", 0, 1), ("a", 2, 4), 2), 2)]


def test_records_are_forgotten_when_they_can_join_no_more(env: StreamExecutionEnvironment) -> None:
    left: list[Any] = [("a", 0, 1), EndOfEpoch(), ("b", 100, 2), EndOfEpoch(), ("b", 200, 3)]
    right: list[Any] = [("a", 5, 4), EndOfEpoch(), ("b", 100, 5), EndOfEpoch(), ("b", 200, 6)]
    with LocalExecutor(joined(env, left, right, (-5, 10))) as run:
        states = []
        while not run.finished:
            run.epoch()
            states.append(
                [
                    sorted(run.state("Interval Join", buffer).items())
                    for buffer in (
                        MapStateDescriptor("\0left-records", Types.LONG()),
                        MapStateDescriptor("\0right-records", Types.LONG()),
                    )
                ]
            )
    assert states[0] == [[("a", {0: [("a", 0, 1)]})], [("a", {5: [("a", 5, 4)]})]]
    assert states[1] == [[("b", {100: [("b", 100, 2)]})], [("b", {100: [("b", 100, 5)]})]]
    assert states[-1] == [[], []]


class Numbered(Pairs):
    """Has state and side outputs of its own."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, left: Record, right: Record, ctx: ProcessJoinFunction.Context
    ) -> Iterable[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield left[0], self.count.value()
        yield LEFT_LATE, "aside"


def test_a_join_function_is_like_any_other(env: StreamExecutionEnvironment) -> None:
    records = [("a", 1, 1), ("b", 1, 2), ("a", 2, 3)]
    one = stamped(env, records).key_by(lambda record: record[0])
    results = one.interval_join(one).between(0, 0).process(Numbered())
    got = collect(results.union(results.get_side_output(LEFT_LATE)), workers=2)
    assert Counter(got) == Counter([("a", 1), ("a", 2), ("b", 1), *["aside"] * 3])


@pytest.mark.parametrize(
    "between", [(Time.seconds(-1), Time.seconds(1)), (timedelta(seconds=-1), timedelta(seconds=1))]
)
def test_bounds_of_any_kind(env: StreamExecutionEnvironment, between: Any) -> None:
    one = stamped(env, [("a", 1000, 1)]).key_by(lambda record: record[0])
    two = stamped(env, [("a", at, at) for at in (-1, 0, 2000, 2001)]).key_by(lambda r: r[0])
    pairs = collect(one.interval_join(two).between(*between).process(Pairs()))
    assert sorted(right[1] for _, _, right, _ in pairs) == [0, 2000]


def test_a_stream_without_timestamps(env: StreamExecutionEnvironment) -> None:
    one = stamped(env, [("a", 1, 1)]).key_by(lambda record: record[0])
    two = env.from_collection([("a", 1, 1)]).name("plain").key_by(lambda record: record[0])
    join = one.interval_join(two).between(0, 0).process(Pairs())
    message = "'Interval Join' joins by timestamps, and its right input, 'plain', has none; call as"
    with pytest.raises(JobDefinitionError, match=message):
        collect(join)


def test_a_union_with_a_stream_without_timestamps(env: StreamExecutionEnvironment) -> None:
    one = stamped(env, [("a", 1, 1)])
    mixed = one.union(env.from_collection([("a", 7, 7)]))
    both = one.key_by(lambda r: r[0]).interval_join(mixed.key_by(lambda record: record[0]))
    with pytest.raises(JobDefinitionError, match="its right input, 'Source: Collection', has none"):
        collect(both.between(0, 0).process(Pairs()))


class ByTheClock(KeyedProcessFunction):
    """What a processing-time timer gives has no timestamp."""

    def process_element(self, value: Record, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_processing_time_timer(0)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield "a", 1, 2


def test_a_record_without_a_timestamp(env: StreamExecutionEnvironment) -> None:
    one = stamped(env, [("a", 1, 1)]).key_by(lambda record: record[0])
    join = one.interval_join(one.process(ByTheClock()).key_by(lambda record: record[0]))
    message = r"needs timestamps, and this record has none; call assign(.|\n)*record: \('a', 1, 2\)"
    with pytest.raises(UserFunctionError, match=message):
        collect(join.between(0, 0).process(Pairs()))


def test_wrong_arguments(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1])
    keyed = numbers.key_by(lambda n: n)
    with pytest.raises(TypeError, match="interval_join: expected a KeyedStream; got"):
        keyed.interval_join(numbers)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lower bound must not be above the upper one; got 2 ms"):
        keyed.interval_join(keyed).between(2, 1)
    between = keyed.interval_join(keyed).between(1, 2)
    with pytest.raises(TypeError, match="an interval join takes a ProcessJoinFunction; got"):
        between.process(Stamped())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="late records needs an OutputTag; got 'late'"):
        between.side_output_left_late_data("late")  # type: ignore[arg-type]


class Fails(Pairs):
    def process_element(
        self, left: Record, right: Record, ctx: ProcessJoinFunction.Context
    ) -> Iterable[Any]:
        raise ValueError("no")


def test_a_failure_names_the_record(env: StreamExecutionEnvironment) -> None:
    one = stamped(env, [("a", 1, 1)]).key_by(lambda record: record[0])
    with pytest.raises(UserFunctionError, match=r"ValueError: no(.|\n)*record: \('a', 1, 1\)"):
        collect(one.interval_join(one).between(0, 0).process(Fails()))
