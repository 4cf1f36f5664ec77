"""The classes that users inherit from: what they must implement, and what they need not."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import pytest

from holdfast.common.constants import MIN_LONG_VALUE
from holdfast.datastream import (
    KeyedProcessFunction,
    ProcessFunction,
    ProcessWindowFunction,
    TimeWindow,
    functions,
)
from holdfast.datastream.functions import (
    BroadcastProcessFunction,
    CoProcessFunction,
    Function,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    PassThroughAllWindowFunction,
    PassThroughWindowFunction,
)
from holdfast.errors import JobDefinitionError
from holdfast.testing import Harness, ManualClock

NONE: Any = None

MUST_IMPLEMENT = {
    "AllWindowFunction": {"apply"},
    "AsyncFunction": {"async_invoke"},
    "BroadcastProcessFunction": {"process_element", "process_broadcast_element"},
    "CoFlatMapFunction": {"flat_map1", "flat_map2"},
    "CoGroupFunction": {"co_group"},
    "CoMapFunction": {"map1", "map2"},
    "CoProcessFunction": {"process_element1", "process_element2"},
    "FlatJoinFunction": {"join"},
    "JoinFunction": {"join"},
    "KeyedBroadcastProcessFunction": {"process_element", "process_broadcast_element"},
    "KeyedCoProcessFunction": {"process_element1", "process_element2"},
    "KeyedProcessFunction": {"process_element"},
    "KeyedStateFunction": {"process"},
    "ProcessAllWindowFunction": {"process"},
    "ProcessFunction": {"process_element"},
    "ProcessJoinFunction": {"process_element"},
    "ProcessWindowFunction": {"process"},
    "WindowFunction": {"apply"},
}


@pytest.mark.parametrize("name", sorted(MUST_IMPLEMENT))
def test_what_a_user_must_implement(name: str) -> None:
    assert set(getattr(functions, name).__abstractmethods__) == MUST_IMPLEMENT[name]


def complete(base: Any) -> Any:
    """An object of a subclass that implements just what it must."""
    body = {name: lambda *_: None for name in base.__abstractmethods__}
    return type("Complete", (base,), body)()


@pytest.mark.parametrize(
    "base", [KeyedProcessFunction, KeyedCoProcessFunction, KeyedBroadcastProcessFunction]
)
def test_timers_are_optional(base: Any) -> None:
    assert complete(base).on_timer(1, NONE) is None


def test_clearing_a_window_is_optional() -> None:
    assert complete(ProcessWindowFunction).clear(NONE) is None
    assert complete(functions.ProcessAllWindowFunction).clear(NONE) is None


def test_window_functions_take_types() -> None:
    class Sizes(ProcessWindowFunction[str, int, str, TimeWindow]):
        def process(
            self,
            key: str,
            context: ProcessWindowFunction.Context[TimeWindow],
            elements: Iterable[str],
        ) -> Iterable[int]:
            yield len(list(elements))

    assert list(Sizes().process("a", NONE, ["x", "y"])) == [2]


def test_passing_through() -> None:
    assert list(PassThroughWindowFunction().apply("key", NONE, [1, 2])) == [1, 2]
    assert list(PassThroughAllWindowFunction().apply(NONE, [1, 2])) == [1, 2]


CONTEXTS = {
    ProcessFunction.Context: {"timer_service", "timestamp"},
    CoProcessFunction.Context: {"timer_service", "timestamp"},
    KeyedProcessFunction.Context: {"get_current_key", "timer_service", "timestamp"},
    KeyedProcessFunction.OnTimerContext: {
        "get_current_key",
        "time_domain",
        "timer_service",
        "timestamp",
    },
    KeyedCoProcessFunction.OnTimerContext: {
        "get_current_key",
        "time_domain",
        "timer_service",
        "timestamp",
    },
    BroadcastProcessFunction.Context: {
        "current_processing_time",
        "current_watermark",
        "get_broadcast_state",
        "timestamp",
    },
    KeyedBroadcastProcessFunction.Context: {
        "apply_to_keyed_state",
        "current_processing_time",
        "current_watermark",
        "get_broadcast_state",
        "timestamp",
    },
    KeyedBroadcastProcessFunction.OnTimerContext: {
        "current_processing_time",
        "current_watermark",
        "get_broadcast_state",
        "get_current_key",
        "time_domain",
        "timer_service",
        "timestamp",
    },
}


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.__qualname__)
def test_what_a_context_offers(context: Any) -> None:
    assert set(context.__abstractmethods__) == CONTEXTS[context]


def test_a_function_of_two_keyed_streams_can_share_a_context_with_one() -> None:
    assert issubclass(KeyedCoProcessFunction.OnTimerContext, KeyedCoProcessFunction.Context)
    assert issubclass(KeyedCoProcessFunction.Context, KeyedProcessFunction.Context)
    assert issubclass(CoProcessFunction.Context, ProcessFunction.Context)


def test_every_function_can_be_opened_and_closed() -> None:
    listed = [getattr(functions, name) for name in MUST_IMPLEMENT]
    apart = {f for f in listed if inspect.isclass(f) and not issubclass(f, Function)}
    assert apart == {functions.KeyedStateFunction}


class Ask(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        service = ctx.timer_service()
        yield service.current_processing_time(), service.current_watermark()


class SetTimer(ProcessFunction):
    def process_element(self, value: str, ctx: ProcessFunction.Context) -> None:
        getattr(ctx.timer_service(), value)(5)


class SetKeyedTimer(KeyedProcessFunction):
    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> None:
        getattr(ctx.timer_service(), value)(5)


TIMERS = [
    f"{do}_{domain}_time_timer"
    for do in ("register", "delete")
    for domain in ("event", "processing")
]


def test_a_process_function_can_ask_for_the_time() -> None:
    assert Harness(Ask(), clock=ManualClock(42)).process("a") == [(42, MIN_LONG_VALUE)]


@pytest.mark.parametrize("method", TIMERS)
def test_timers_need_a_key(method: str) -> None:
    with pytest.raises(JobDefinitionError, match=r"timers belong to keys.*call key_by\(\.\.\.\)"):
        Harness(SetTimer()).process(method)
