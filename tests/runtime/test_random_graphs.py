"""Random graphs, cut into random epochs, with subtasks that move: the results are always the same.

Every operation gives a multiset that does not depend on the order of its input, so that plain
Python over lists can say what a graph gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.datastream import DataStream, StreamExecutionEnvironment
from holdfast.testing import AdvanceClock, EndOfEpoch, LocalExecutor, ScriptedSource

Numbers = list[int]


@dataclass(frozen=True)
class Operation:
    """One step: on a stream, and on a list."""

    name: str
    on_stream: Callable[[DataStream], DataStream]
    on_list: Callable[[Numbers], Numbers]

    def __repr__(self) -> str:
        return self.name


def running_counts(numbers: Numbers) -> Numbers:
    """What counting per key gives: for n records of a key, 1 to n."""
    sizes = Counter(number % 5 for number in numbers)
    return [key * 1000 + turn for key, size in sizes.items() for turn in range(1, size + 1)]


def count_by_key(stream: DataStream) -> DataStream:
    pairs = stream.map(lambda x: (x % 5, 1))
    counts = pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    return counts.map(lambda pair: pair[0] * 1000 + pair[1])


def largest(stream: DataStream) -> DataStream:
    return stream.key_by(lambda x: x % 3).map_with_state(
        lambda x, seen: (x % 3 * 1000 + (seen or 0), (seen or 0) + 1)
    )


def turns(numbers: Numbers) -> Numbers:
    sizes = Counter(number % 3 for number in numbers)
    return [key * 1000 + turn for key, size in sizes.items() for turn in range(size)]


OPERATIONS = [
    Operation("map", lambda s: s.map(lambda x: 3 * x + 1), lambda xs: [3 * x + 1 for x in xs]),
    Operation("filter", lambda s: s.filter(lambda x: x % 2), lambda xs: [x for x in xs if x % 2]),
    Operation(
        "flat_map",
        lambda s: s.flat_map(lambda x: [x] * (x % 3)),
        lambda xs: [x for x in xs for _ in range(x % 3)],
    ),
    Operation("reduce", count_by_key, running_counts),
    Operation("map_with_state", largest, turns),
    Operation("rebalance", lambda s: s.rebalance().map(abs), lambda xs: xs),
    Operation("shuffle", lambda s: s.shuffle().map(abs), lambda xs: xs),
    Operation("rescale", lambda s: s.rescale().map(abs), lambda xs: xs),
    Operation("broadcast", lambda s: s.broadcast().map(abs).set_parallelism(2), lambda xs: xs * 2),
    Operation("self union", lambda s: s.union(s).map(abs), lambda xs: xs + xs),
]


@dataclass(frozen=True)
class Step:
    """An operation on the union of one or two of the streams so far."""

    operation: Operation
    inputs: tuple[int, ...]
    parallelism: int | None


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[list[Any]], list[Step]]:
    element = st.one_of(
        st.integers(0, 20), st.integers(0, 20), st.just(EndOfEpoch()), st.just(AdvanceClock("1s"))
    )
    sources = draw(st.lists(st.lists(element, max_size=15), min_size=1, max_size=2))
    steps = []
    for place in range(draw(st.integers(1, 6))):
        known = st.integers(0, len(sources) + place - 1)
        inputs = draw(st.lists(known, min_size=1, max_size=2, unique=True))
        parallelism = draw(st.one_of(st.none(), st.integers(1, 4)))
        steps.append(Step(draw(st.sampled_from(OPERATIONS)), tuple(inputs), parallelism))
    return sources, steps


def stream_of(env: StreamExecutionEnvironment, graph: tuple[list[list[Any]], list[Step]]) -> Any:
    sources, steps = graph
    streams = [env.from_source(ScriptedSource(script)) for script in sources]
    for step in steps:
        first, *others = (streams[place] for place in step.inputs)
        stream = step.operation.on_stream(first.union(*others) if others else first)
        fixed = step.operation.name in ("broadcast",)
        streams.append(
            stream
            if step.parallelism is None or fixed
            else stream.set_parallelism(step.parallelism)
        )
    return streams[0].union(*streams[1:])


def expected_of(graph: tuple[list[list[Any]], list[Step]]) -> Counter[int]:
    sources, steps = graph
    lists: list[Numbers] = [[x for x in script if isinstance(x, int)] for script in sources]
    for step in steps:
        lists.append(step.operation.on_list([x for place in step.inputs for x in lists[place]]))
    return Counter(x for numbers in lists for x in numbers)


@settings(max_examples=120, deadline=None)
@given(
    graph=graphs(),
    parallelism=st.integers(1, 4),
    quota=st.integers(1, 8),
    workers=st.integers(1, 3),
    seed=st.integers(0, 5),
    data=st.data(),
)
def test_random_graphs(
    graph: tuple[list[list[Any]], list[Step]],
    parallelism: int,
    quota: int,
    workers: int,
    seed: int,
    data: st.DataObject,
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = stream_of(env, graph)
    with LocalExecutor(
        stream, parallelism=parallelism, quota=quota, workers=workers, seed=seed
    ) as run:
        places = [(lv.index, i) for lv in run.plan.levels for i in range(lv.parallelism)]
        some = st.lists(st.sampled_from(places), max_size=3)
        while not run.finished:
            run.epoch(rerun=data.draw(some), kill=data.draw(some))
    assert Counter(run.records) == expected_of(graph)
