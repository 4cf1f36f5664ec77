"""What a function may not return is named when it does, with its operator and the user's line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Types
from holdfast.datastream import (
    CoFlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    ProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.data_stream_utils import DataStreamUtils
from holdfast.datastream.window import CountTrigger, GlobalWindows
from holdfast.errors import UserFunctionError
from holdfast.testing import run_locally

Build = Callable[[Any], Any]


class ReturnsThree(ProcessFunction, CoFlatMapFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        if value < 0:
            return None
        return 3

    def flat_map1(self, value: Any) -> Any:
        return 3

    def flat_map2(self, value: Any) -> Any:
        return 3


class TimerReturnsThree(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_processing_time_timer(0)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        return 3


class WindowReturnsThree(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return 3


def returns_three(value: Any, state: Any = None) -> Any:
    return 3


def returns_three_and_state(value: Any, state: Any) -> Any:
    return 3, state


def one_by_one(stream: Any) -> Any:
    """Windows of one record."""
    return stream.key_by(abs).window(GlobalWindows.create()).trigger(CountTrigger.of(1))


NOT_MANY = r"3 \(int\), which is not an iterable of results; yield each result, or return a list"
RESULTS: dict[str, tuple[Build, str, str]] = {
    "process_element": (
        lambda s: s.process(ReturnsThree()),
        "ReturnsThree.process_element",
        NOT_MANY,
    ),
    "flat_map": (lambda s: s.flat_map(returns_three), "returns_three", NOT_MANY),
    "flat_map1": (
        lambda s: s.connect(s).flat_map(ReturnsThree()),
        "ReturnsThree.flat_map[12]",
        NOT_MANY,
    ),
    "flat_map_with_state": (
        lambda s: s.key_by(abs).flat_map_with_state(returns_three_and_state),
        "returns_three_and_state",
        NOT_MANY,
    ),
    "on_timer": (
        lambda s: s.key_by(abs).process(TimerReturnsThree()),
        "TimerReturnsThree.on_timer",
        NOT_MANY,
    ),
    "window": (
        lambda s: (
            s.key_by(abs)
            .window(GlobalWindows.create())
            .trigger(CountTrigger.of(1))
            .process(WindowReturnsThree())
        ),
        "WindowReturnsThree.process",
        NOT_MANY,
    ),
    "map_with_state": (
        lambda s: s.key_by(abs).map_with_state(returns_three),
        "returns_three",
        r"3 \(int\), which is not a pair of a result and the new state; return result, state",
    ),
}


@pytest.mark.parametrize("build", RESULTS)
def test_a_wrong_result(env: StreamExecutionEnvironment, build: str) -> None:
    make, name, problem = RESULTS[build]
    made = make(env.from_collection([7])).name("guilty")
    with pytest.raises(UserFunctionError) as caught:
        run_locally(made)
    error = caught.value
    here = Path(__file__)
    pattern = rf"^TypeError: '{name}' \({here.name}, line \d+\) returned {problem}"
    assert caught.match(pattern)
    assert error.operator == "guilty"
    if build != "on_timer":
        assert error.record == "7" or build == "window"
    trace = error.user_traceback.splitlines()
    assert trace[0] == "Traceback (most recent call last):"
    assert trace[1].startswith(f'  File "{here}", line ')
    assert trace[2].strip() in ("return 3", "return 3, state")


def test_an_error_in_a_function_that_returns_a_list_is_its_own(
    env: StreamExecutionEnvironment,
) -> None:
    env.from_collection([1, 2]).flat_map(lambda x: [x] if x == 1 else len(x))
    with pytest.raises(UserFunctionError, match=r"TypeError: object of type 'int' has no len\(\)"):
        run_locally(env)


class TextKey(KeySelector):
    def get_key(self, value: Any) -> Any:
        return value


KEYS: dict[str, tuple[Any, Any, str]] = {
    "another type": (Types.STRING(), 7, r"the key 7 \(int\) does not fit the declared key_type"),
    "out of range": (Types.INT(), 2**40, r"the key 1099511627776 \(int\) does not fit"),
    "of a tuple": (Types.TUPLE([Types.STRING()]), (7,), r"the key \(7,\) \(tuple\) does not fit"),
    "of a list": (Types.LIST(Types.STRING()), [7], r"the key \[7\] \(list\) does not fit"),
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("selector", [lambda _, key: key, TextKey()], ids=["lambda", "object"])
def test_a_key_of_another_type(env: StreamExecutionEnvironment, key: str, selector: Any) -> None:
    key_type, value, message = KEYS[key]
    select = selector if isinstance(selector, TextKey) else (lambda _: value)
    env.from_collection([value]).key_by(select, key_type).reduce(max).name("biggest")
    with pytest.raises(UserFunctionError, match=message) as caught:
        run_locally(env)
    error = caught.value
    assert (error.operator, error.record) == ("Source: Collection", repr(value))
    assert "from the key selector" in error.error
    assert "or declare the type that it returns" in error.error
    assert f'File "{__file__}", line ' in error.user_traceback


def test_a_key_of_another_type_after_many_keys(env: StreamExecutionEnvironment) -> None:
    keys = [f"{number}" for number in range(30_000)]
    env.from_collection([*keys, 7]).key_by(TextKey(), Types.STRING()).reduce(max)
    with pytest.raises(UserFunctionError, match=r"the key 7 \(int\) does not fit") as caught:
        run_locally(env)
    assert caught.value.record == "7"


def test_a_key_of_another_type_where_nothing_is_sent(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([7])
    keyed = DataStreamUtils.reinterpret_as_keyed_stream(stream, TextKey(), Types.STRING())
    keyed.reduce(max)
    with pytest.raises(UserFunctionError, match=r"the key 7 \(int\) does not fit the declared"):
        run_locally(env)


class Constant(KeySelector):
    def __init__(self, key: Any) -> None:
        self.key = key

    def get_key(self, value: Any) -> Any:
        return self.key


def test_keys_that_fit_their_type(env: StreamExecutionEnvironment) -> None:
    """None fits every type, and an int is a double."""
    stream = env.from_collection([1, 2, 3])
    for key_type, key in ((Types.DOUBLE(), 1), (Types.STRING(), None), (Types.LONG(), 2**40)):
        stream.key_by(Constant(key), key_type).sum().print()
    run_locally(env)


def exits(value: Any) -> Any:
    sys.exit(3)


def test_a_function_that_calls_exit_ends_the_job_and_not_the_process(
    env: StreamExecutionEnvironment,
) -> None:
    with pytest.raises(UserFunctionError, match=r"(?s)SystemExit: 3.*'Map', subtask 0") as failed:
        run_locally(env.from_collection([1]).map(exits))
    assert ", in exits" in failed.value.user_traceback


def test_a_result_that_does_not_fit_its_declared_type(env: StreamExecutionEnvironment) -> None:
    texts = env.from_collection([1]).map(str, output_type=Types.INT())
    message = (
        "a result does not fit its declared type: value is declared Integer; got str: '1'; emit "
        "values of this type, or declare another output type"
    )
    with pytest.raises(UserFunctionError, match=message) as failed:
        run_locally(texts)
    assert "<string>" not in failed.value.user_traceback, "the generated code is not shown"
