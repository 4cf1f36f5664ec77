"""A job without a sink is an error, unless its functions may write somewhere themselves."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.common import Configuration
from holdfast.datastream import (
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
    SinkFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.data_stream import DataStream
from holdfast.datastream.missing_sink import check_sinks
from holdfast.datastream.windows.assigners import CountTumblingWindowAssigner
from holdfast.errors import JobDefinitionError


class Posting(MapFunction):
    def map(self, value: Any) -> Any:
        return value


class Larger(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return max(value1, value2)


class Nowhere(SinkFunction):
    def invoke(self, value: Any, context: SinkFunction.Context) -> None: ...


class Timed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(Configuration())


@pytest.fixture
def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_source(NumberSequenceSource(0, 9), source_name="numbers")


def check(env: StreamExecutionEnvironment) -> None:
    check_sinks(env._take_plan("job"))


def test_execute_refuses_it_before_anything_starts(
    env: StreamExecutionEnvironment, numbers: DataStream
) -> None:
    numbers.map(lambda n: n + 1).name("plus one")
    message = (
        "job 'sums' has no sink: nothing receives the records of 'plus one'. Call print(), "
        r"sink_to\(...\) or add_sink\(...\) on the stream before execute\(\), or "
        r"execute_and_collect\(\) instead of it"
    )
    with pytest.raises(JobDefinitionError, match=message.replace("print()", r"print\(\)")):
        env.execute("sums")


def test_the_stream_can_get_its_sink_afterwards(
    env: StreamExecutionEnvironment, numbers: DataStream
) -> None:
    doubled = numbers.map(lambda n: 2 * n)
    with pytest.raises(JobDefinitionError, match="has no sink"):
        check(env)
    doubled.print()
    check(env)


def test_all_ends_are_named(env: StreamExecutionEnvironment, numbers: DataStream) -> None:
    numbers.map(abs).name("left")
    numbers.map(abs).name("right")
    with pytest.raises(JobDefinitionError, match="the records of 'left', 'right'"):
        check(env)


def test_a_source_alone(env: StreamExecutionEnvironment, numbers: DataStream) -> None:
    with pytest.raises(JobDefinitionError, match="the records of 'Source: numbers'"):
        check(env)


def test_functions_within_holdfast_s_own(
    env: StreamExecutionEnvironment, numbers: DataStream
) -> None:
    keyed = numbers.key_by(lambda n: n % 2)
    keyed.reduce(max)
    keyed.sum()
    keyed.window(CountTumblingWindowAssigner.of(2)).reduce(max)
    with pytest.raises(JobDefinitionError, match="has no sink"):
        check(env)


@pytest.mark.parametrize("end", ["print", "add_sink"])
def test_one_sink_is_enough(env: StreamExecutionEnvironment, numbers: DataStream, end: str) -> None:
    numbers.map(abs).name("left")
    right = numbers.map(abs).name("right")
    right.print() if end == "print" else right.add_sink(Nowhere())
    check(env)


@pytest.mark.parametrize("kind", ["map", "reduce", "process"])
def test_a_function_object_may_write_somewhere_so_there_is_a_warning(
    env: StreamExecutionEnvironment,
    numbers: DataStream,
    kind: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    keyed = numbers.key_by(lambda n: n % 2)
    if kind == "map":
        numbers.map(Posting())
    elif kind == "reduce":
        keyed.reduce(Larger())
    else:
        keyed.process(Timed())
    check(env)
    (line,) = caplog.messages
    assert line.startswith("job 'job' has no sink: nothing receives the records of ")
    assert line.endswith("The job runs, because its functions may write somewhere")
