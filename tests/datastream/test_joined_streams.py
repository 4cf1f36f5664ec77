"""Window joins and co-groups, against loops within loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Configuration, WatermarkStrategy
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

if TYPE_CHECKING:
    from tests.conftest import Executor

#: key, timestamp
Record = tuple[str, int]
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


records = st.lists(
    st.one_of(st.tuples(st.sampled_from("ab"), st.integers(0, 40)), st.just(EndOfEpoch())),
    max_size=20,
)


def spans(assigner: str, records: list[Record]) -> list[list[Record]]:
    """The windows of all records together, each as the records that may be in it."""
    if assigner == "sessions":
        sessions: list[list[Record]] = []
        for record in sorted(records, key=lambda r: r[1]):
            if sessions and record[1] <= sessions[-1][-1][1] + 5:
                sessions[-1].append(record)
            else:
                sessions.append([record])
        return sessions
    size, slide = (10, 10) if assigner == "tumbling" else (10, 4)
    starts = range(-12, 41, 1)
    return [
        [r for r in records if start <= r[1] < start + size]
        for start in starts
        if start % slide == 0
    ]


ASSIGNERS = {
    "tumbling": TumblingEventTimeWindows.of(10),
    "sliding": SlidingEventTimeWindows.of(10, 4),
    "sessions": EventTimeSessionWindows.with_gap(5),
}


@settings(max_examples=60, deadline=None)
@given(
    left=records,
    right=records,
    assigner=st.sampled_from(sorted(ASSIGNERS)),
    parallelism=st.integers(1, 3),
    workers=st.integers(1, 2),
    crash=st.booleans(),
)
def test_joins_are_loops_within_loops(
    left: list[Any],
    right: list[Any],
    assigner: str,
    parallelism: int,
    workers: int,
    crash: bool,
) -> None:
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.interval", "1 h")
    env = StreamExecutionEnvironment(configuration).set_parallelism(parallelism)
    # each record is told apart by its place
    first = [(*r, f"l{n}") if isinstance(r, tuple) else r for n, r in enumerate(left)]
    second = [(*r, f"r{n}") if isinstance(r, tuple) else r for n, r in enumerate(right)]
    joined = stream(env, first, "left").join(stream(env, second, "right"))
    windows = joined.where(lambda r: r[0]).equal_to(lambda r: r[0]).window(ASSIGNERS[assigner])
    pairs = windows.apply(Pairs()).uid("join")
    expected: Counter[Any] = Counter()
    for key in "ab":
        both = [r for r in (*first, *second) if isinstance(r, tuple) and r[0] == key]
        for window in spans(assigner, both):
            expected.update(
                (a, b) for a in window for b in window if a[2][0] == "l" and b[2][0] == "r"
            )
    with LocalExecutor(pairs, workers=workers) as run:
        run.epoch(checkpoint=True)
        kept = len(run.records)
        while not run.finished:
            run.epoch()
            if crash and not run.finished:
                crash = False
                run.recover()
                del run.records[kept:]
    assert Counter(run.records) == expected


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
    with pytest.raises(TypeError, match="apply: expected a JoinFunction, a FlatJoinFunction or"):
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
