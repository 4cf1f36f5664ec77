"""Branches, unions and diamonds run every operator exactly once per record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from holdfast.datastream import (
    FlatMapFunction,
    MapFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from holdfast.testing import CollectingSink, LocalExecutor

N = 10


class Slotted(MapFunction):
    """Counting calls must not mind how a function object is made."""

    __slots__ = ("amount",)

    def __init__(self, amount: int) -> None:
        self.amount = amount

    def map(self, value: int) -> int:
        return value + self.amount


class Pairs(FlatMapFunction):
    def flat_map(self, value: int) -> Iterable[int]:
        return [value, value]


class Same(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("quota", [3, 100])
def test_every_operator_runs_once_per_record(
    env: StreamExecutionEnvironment, workers: int, quota: int
) -> None:
    numbers = env.from_collection(range(N)).map(abs).name("origin")
    left = numbers.map(Slotted(1)).name("left")
    right = numbers.filter(lambda x: x < 5).name("right")
    keyed = left.key_by(lambda x: x % 3).sum().name("keyed")
    joined = left.union(right, keyed).flat_map(Pairs()).name("joined")
    far = numbers.union(joined).rebalance().process(Same()).name("far")
    kept = CollectingSink()
    far.add_sink(kept).name("sink")
    right.add_sink(CollectingSink()).name("other sink")
    with LocalExecutor(env, workers=workers, quota=quota, count_calls=True) as run:
        run.run_to_end()
    joined_in = N + 5 + N
    assert run.calls == {
        "origin": N,
        "left": N,
        "right": N,
        "keyed": N,
        "joined": joined_in,
        "far": N + 2 * joined_in,
        "sink": N + 2 * joined_in,
        "other sink": 5,
    }
    assert len(kept.records) == N + 2 * joined_in


def test_a_run_that_is_thrown_away_calls_functions_again(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection(range(N)).map(abs).name("first").set_parallelism(1)
    with LocalExecutor(numbers.rebalance().map(abs).name("second"), count_calls=True) as run:
        run.epoch(rerun=[(0, 0)])
    assert run.calls == {"first": 2 * N, "second": N}
    assert sorted(run.records) == list(range(N))


def test_chaining_does_not_change_what_runs(env: StreamExecutionEnvironment) -> None:
    env.disable_operator_chaining().set_parallelism(1)
    stream = env.from_collection(range(N)).map(abs).name("a").filter(bool).name("b")
    with LocalExecutor(stream, count_calls=True) as run:
        run.run_to_end()
    assert run.calls == {"a": N, "b": N}


def test_operators_of_one_level_may_differ_in_parallelism(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection(range(20)).map(abs).set_parallelism(3)
    wide = numbers.key_by(lambda x: x % 7).sum().set_parallelism(4)
    narrow = numbers.key_by(lambda x: x % 7).sum().set_parallelism(1)
    with LocalExecutor(wide.union(narrow), quota=3, workers=3, seed=5) as run:
        run.run_to_end()
    assert len(run.records) == 40
    assert len({op.level for op in run.plan.operators.values() if op.name == "Sum"}) == 1
