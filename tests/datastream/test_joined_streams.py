"""Window joins and co-groups, against loops within loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import count, zip_longest
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast.common import WatermarkStrategy
from holdfast.datastream import (
    CoGroupFunction,
    DataStream,
    FlatJoinFunction,
    JoinFunction,
    KeySelector,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from holdfast.errors import JobDefinitionError
from holdfast.testing import EndOfEpoch, LocalExecutor, ScriptedSource, collect
from tests.conformance.saved_state import sizes
from tests.conformance.window_model import END, Windows
from tests.crashing import undisturbed
from tests.lives import Life, live, lives

if TYPE_CHECKING:
    from tests.conftest import Executor

pytestmark = pytest.mark.usefixtures("disturbance")

#: no record is late
PATIENT = WatermarkStrategy.for_bounded_out_of_orderness(10_000).with_timestamp_assigner(
    lambda record, _: record[1]
)


def stream(env: StreamExecutionEnvironment, script: list[Any], name: str) -> DataStream:
    return env.from_source(ScriptedSource(script), PATIENT, name).uid(name)


def windowed(left: DataStream, right: DataStream, assigner: WindowAssigner[Any, Any]) -> Any:
    """Left records have their key in front, right ones at the end."""
    joined = left.join(right).where(lambda record: record[0]).equal_to(lambda record: record[-1])
    return joined.window(assigner)


class Pairs(JoinFunction[Any, Any, Any]):
    def join(self, first: Any, second: Any) -> Any:
        return first, second


class Both(FlatJoinFunction[Any, Any, Any]):
    def join(self, first: Any, second: Any) -> Iterator[Any]:
        if first[1] != second[1]:
            yield first
            yield second


class Groups(CoGroupFunction[Any, Any, Any]):
    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Iterator[Any]:
        yield sorted(first), sorted(second)


LEFT = [("a", 1), ("a", 4), ("b", 5), ("a", 12)]
RIGHT = [(3, 2, "a"), (4, 11, "a"), (5, 13, "a"), (6, 25, "c")]


def test_join(env: StreamExecutionEnvironment, executor: Executor) -> None:
    left, right = stream(env, LEFT, "left"), stream(env, RIGHT, "right")
    windows = windowed(left, right, TumblingEventTimeWindows.of(10))
    assert sorted(executor.collect(windows.apply(Pairs()))) == [
        (("a", 1), (3, 2, "a")),
        (("a", 4), (3, 2, "a")),
        (("a", 12), (4, 11, "a")),
        (("a", 12), (5, 13, "a")),
    ]


def test_a_join_with_a_plain_function(env: StreamExecutionEnvironment) -> None:
    left, right = stream(env, LEFT, "left"), stream(env, RIGHT, "right")
    windows = windowed(left, right, TumblingEventTimeWindows.of(10))
    assert sorted(collect(windows.apply(lambda a, b: a[1] + b[0]))) == [4, 7, 16, 17]


def test_a_flat_join(env: StreamExecutionEnvironment) -> None:
    left, right = stream(env, LEFT, "left"), stream(env, [(0, 4, "a"), (0, 3, "a")], "right")
    windows = windowed(left, right, TumblingEventTimeWindows.of(10))
    given = Counter(collect(windows.apply(Both())))
    assert given == Counter({("a", 1): 2, (0, 4, "a"): 1, (0, 3, "a"): 2, ("a", 4): 1})


def test_co_group(env: StreamExecutionEnvironment, executor: Executor) -> None:
    left, right = stream(env, LEFT, "left"), stream(env, RIGHT, "right")
    grouped = left.co_group(right).where(lambda record: record[0]).equal_to(lambda r: r[-1])
    groups = grouped.window(TumblingEventTimeWindows.of(10)).apply(Groups())
    assert sorted(executor.collect(groups)) == [
        ([], [(6, 25, "c")]),
        ([("a", 1), ("a", 4)], [(3, 2, "a")]),
        ([("a", 12)], [(4, 11, "a"), (5, 13, "a")]),
        ([("b", 5)], []),
    ]


SIDES = ("left", "right")
#: of both inputs: how far the watermark is behind the largest timestamp
BOUND = 3
#: key, timestamp, side, and a number of its own
Told = tuple[str, int, str, int]
#: by epoch
Input = list[list[Told]]


@st.composite
def inputs(draw: st.DrawFn) -> tuple[Input, Input]:
    """Two streams; some of their records come too late."""
    numbers = count()
    entry = st.tuples(st.sampled_from("ab"), st.integers(0, 25))
    epochs = st.lists(st.lists(entry, min_size=1, max_size=4), min_size=1, max_size=5)

    def tell(side: str) -> Input:
        return [
            [(key, time + 8 * place, side, next(numbers)) for key, time in epoch]
            for place, epoch in enumerate(draw(epochs))
        ]

    return tell("left"), tell("right")


def aligned(size: int, slide: int, record: Any) -> list[tuple[int, int]]:
    starts = range(record[1] - size + 1, record[1] + 1)
    return [(start, start + size) for start in starts if start % slide == 0]


#: each with what the model makes of it, and whether its windows merge
ASSIGNERS: dict[str, tuple[WindowAssigner[Any, Any], Any, bool]] = {
    "tumbling": (TumblingEventTimeWindows.of(10), partial(aligned, 10, 10), False),
    "sliding": (SlidingEventTimeWindows.of(10, 4), partial(aligned, 10, 4), False),
    "sessions": (EventTimeSessionWindows.with_gap(5), lambda r: [(r[1], r[1] + 5)], True),
}


def windows_of(assigner: str, left: Input, right: Input) -> list[tuple[list[Told], list[Told]]]:
    """What both streams have in each window of each key, without what is late.

    Which stream comes first in an epoch is chance. A record that is late by itself may find a
    session to merge with, or not, by that chance: such inputs say nothing.
    """
    either = [_windows_of(assigner, left, right, order) for order in (SIDES, SIDES[::-1])]
    assume(sorted(map(repr, either[0])) == sorted(map(repr, either[1])))
    return either[0]


def _windows_of(
    assigner: str, left: Input, right: Input, order: Sequence[str]
) -> list[tuple[list[Told], list[Told]]]:
    model = Windows(ASSIGNERS[assigner][1], merging=ASSIGNERS[assigner][2])
    found = []
    for number, both in enumerate(zip_longest(left, right, fillvalue=[])):
        # the model is told whole records as their values
        told = dict(zip(SIDES, both, strict=True))
        records: Any = [(record[0], record[1], record) for side in order for record in told[side]]
        watermark = min(watermark_after(number, epochs) for epochs in (left, right))
        for fired in model.epoch(records, watermark)[0]:
            values: Any = fired.values
            found.append(tuple(sorted(v for v in values if v[2] == side) for side in SIDES))
    return found  # type: ignore[return-value]


def watermark_after(number: int, epochs: Input) -> int:
    if number + 1 >= len(epochs):
        return END
    seen = [record[1] for epoch in epochs[: number + 1] for record in epoch]
    return max(seen) - BOUND - 1


def both(env: StreamExecutionEnvironment, left: Input, right: Input) -> tuple[DataStream, ...]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(BOUND).with_timestamp_assigner(
        lambda record, _: record[1]
    )
    streams = []
    for epochs in (left, right):
        script = [element for epoch in epochs for element in (EndOfEpoch(), *epoch)]
        streams.append(env.from_source(ScriptedSource(script[1:]), strategy))
    return tuple(streams)


@undisturbed
@settings(max_examples=30, deadline=None)
@given(inputs(), st.sampled_from(sorted(ASSIGNERS)), lives())
def test_joins_are_loops_within_loops(
    streams: tuple[Input, Input], assigner: str, life: Life
) -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        first, second = both(env, *streams)
        joined = first.join(second).where(lambda r: r[0]).equal_to(lambda r: r[0])
        return joined.window(ASSIGNERS[assigner][0]).apply(Pairs())

    windows = windows_of(assigner, *streams)
    expected = Counter((a, b) for left, right in windows for a in left for b in right)
    assert Counter(live(build, life)) == expected


@undisturbed
@settings(max_examples=20, deadline=None)
@given(inputs(), st.sampled_from(sorted(ASSIGNERS)), lives())
def test_co_groups_are_windows_of_both(
    streams: tuple[Input, Input], assigner: str, life: Life
) -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        first, second = both(env, *streams)
        grouped = first.co_group(second).where(lambda r: r[0]).equal_to(lambda r: r[0])
        return grouped.window(ASSIGNERS[assigner][0]).apply(Groups())

    expected = windows_of(assigner, *streams)
    assert Counter(map(repr, live(build, life))) == Counter(map(repr, expected))


class FirstLetter(KeySelector):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.opened = True

    def get_key(self, value: Any) -> Any:
        return value[0]


class CountsCalls(JoinFunction[Any, Any, Any]):
    def __init__(self) -> None:
        self.calls = 0

    def join(self, first: Any, second: Any) -> int:
        self.calls += 1
        return self.calls


@undisturbed
def test_functions_of_a_join_are_functions(env: StreamExecutionEnvironment) -> None:
    """A selector may be an object; the fields of the join function follow it."""
    env.set_parallelism(1)
    script = [("a", 1), EndOfEpoch(), ("a", 2), EndOfEpoch(), ("a", 3)]
    left, right = stream(env, script, "left"), stream(env, script, "right")
    windows = left.join(right).where(FirstLetter()).equal_to(FirstLetter())
    every = windows.window(TumblingEventTimeWindows.of(10)).trigger(CountTrigger.of(2))
    with LocalExecutor(every.apply(CountsCalls()).uid("join"), workers=3) as run:
        run.run_to_end()
    assert run.records == list(range(1, 1 + 1 + 4 + 9))


def test_a_join_with_all_settings(env: StreamExecutionEnvironment) -> None:
    """A trigger that purges, and an evictor, which sees pairs of side and record."""
    env.set_parallelism(1)
    left = stream(env, [("a", n) for n in range(3)], "left")
    right = stream(env, [EndOfEpoch(), (9, 3, "a")], "right")
    windows = windowed(left, right, TumblingEventTimeWindows.of(10)).allowed_lateness(5)
    windows.trigger(PurgingTrigger.of(CountTrigger.of(4))).evictor(CountEvictor.of(3))
    with LocalExecutor(windows.apply(Pairs()).uid("join")) as run:
        run.run_to_end()
        assert run.records == [(("a", 1), (9, 3, "a")), (("a", 2), (9, 3, "a"))]
        assert sizes(run, "join") == Counter()


def test_what_cannot_be(env: StreamExecutionEnvironment) -> None:
    left, right = env.from_collection(LEFT), env.from_collection(RIGHT)
    wrong: Any = 5
    with pytest.raises(TypeError, match="where: expected a KeySelector or a callable; got 5"):
        left.join(right).where(wrong)
    both = left.join(right).where(len).equal_to(len)
    with pytest.raises(TypeError, match="window: expected a WindowAssigner; got 5"):
        both.window(wrong)
    windows = both.window(TumblingEventTimeWindows.of(10))
    with pytest.raises(TypeError, match="apply: expected a JoinFunction or a callable; got 5"):
        windows.apply(wrong)
    grouped = left.co_group(right).where(len).equal_to(len)
    with pytest.raises(TypeError, match="apply: expected a CoGroupFunction or a callable; got"):
        grouped.window(TumblingEventTimeWindows.of(10)).apply(Pairs())  # type: ignore[arg-type]
    other = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    with pytest.raises(JobDefinitionError, match="belong to two environments"):
        left.join(other)


def test_streams_keep_their_subtasks(env: StreamExecutionEnvironment) -> None:
    """The records of a stream of three subtasks are not shuffled before they are joined."""
    env.set_parallelism(2)
    left = env.from_collection(LEFT).map(lambda r: r).set_parallelism(3).name("left")
    windows = left.join(left).where(lambda r: r[0]).equal_to(lambda r: r[0])
    windows.window(TumblingEventTimeWindows.of(10)).apply(Pairs()).print()
    assert "First Input" in env.explain()
    assert "rebalance -> First Input" not in env.explain()
