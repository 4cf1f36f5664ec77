"""Two keyed functions by one key, without a shuffle between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.common import Types
from holdfast.datastream import (
    DataStream,
    DataStreamUtils,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.errors import InternalError
from holdfast.testing import LocalExecutor

WORDS = [f"w{number % 7}" for number in range(60)]


class Count(KeyedProcessFunction):
    """Numbers the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[str, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield ctx.get_current_key(), count


def counted_twice(parallelism: int = 2, key: Callable[[Any], Any] = lambda r: r[0]) -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    env.set_parallelism(2)
    once = env.from_collection(WORDS).key_by(lambda word: word).process(Count()).uid("once")
    keyed = DataStreamUtils.reinterpret_as_keyed_stream(once, key)
    return keyed.process(Count()).set_parallelism(parallelism).uid("again")


def levels(run: LocalExecutor) -> list[int]:
    return [op.level for op in run.plan.operators.values() if op.uid in ("once", "again")]


@pytest.mark.parametrize(("parallelism", "apart"), [(2, False), (3, True)])
def test_no_shuffle_where_there_need_be_none(parallelism: int, apart: bool) -> None:
    with LocalExecutor(counted_twice(parallelism), quota=7, workers=2) as run:
        run.epoch(checkpoint=True)
        run.recover()
        run.run_to_end()
        first, second = levels(run)
        assert (second > first) is apart
        expected = [(word, WORDS[: place + 1].count(word)) for place, word in enumerate(WORDS)]
        assert sorted(run.records) == sorted(expected)


def test_another_max_parallelism_is_shuffled() -> None:
    stream = counted_twice().set_max_parallelism(256)
    with LocalExecutor(stream, quota=100) as run:
        first, second = levels(run)
        assert second > first
        run.run_to_end()
        assert len(run.records) == len(WORDS)


def test_a_key_that_is_not_where_it_belongs_is_told() -> None:
    with (
        LocalExecutor(counted_twice(key=lambda r: r[1])) as run,
        pytest.raises(InternalError, match="a record came to the wrong subtask"),
    ):
        run.epoch(checkpoint=True)
