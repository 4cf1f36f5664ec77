"""Source functions that give timestamps and watermarks by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from queue import Queue
from typing import Any

import pytest

from holdfast.common import WatermarkStrategy
from holdfast.datastream import ProcessFunction, SourceFunction, StreamExecutionEnvironment
from holdfast.datastream.functions import SourceContext
from holdfast.errors import UserFunctionError
from holdfast.testing import EndOfEpoch, LocalExecutor, ScriptedSource, collect

MIN = -(2**63)

#: what the loop is told to do, and that it has done it
ORDERS: Queue[Callable[[SourceContext], None] | None] = Queue()
DONE: Queue[None] = Queue()


class Obeys(SourceFunction):
    """A loop that does what it is told, so that a test knows what is in which epoch."""

    gives_timestamps = True

    def run(self, ctx: SourceContext) -> None:
        while (order := ORDERS.get()) is not None:
            order(ctx)
            DONE.put(None)


def tell(*orders: Callable[[SourceContext], None]) -> None:
    for order in orders:
        ORDERS.put(order)
        DONE.get(timeout=120)


def record(value: str, timestamp: int) -> Callable[[SourceContext], None]:
    return lambda ctx: ctx.collect_with_timestamp(value, timestamp)


def watermark(timestamp: int) -> Callable[[SourceContext], None]:
    return lambda ctx: ctx.emit_watermark(timestamp)


class Probe(ProcessFunction):
    def process_element(self, value: str, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


@pytest.fixture(autouse=True)
def loop_ends() -> Iterator[None]:
    """No loop outlives its test, and none hears what was meant for the one before."""
    ORDERS.queue.clear()
    DONE.queue.clear()
    yield
    ORDERS.put(None)


def test_records_come_with_timestamps_and_time_moves(env: StreamExecutionEnvironment) -> None:
    probe = env.add_source(Obeys()).rebalance().process(Probe())
    with LocalExecutor(probe, workers=2) as run:
        run.epoch()  # the loop begins
        tell(record("a", 5), watermark(7), record("b", 9))
        run.epoch(rerun=True)
        tell(watermark(3), record("c", 10))
        run.epoch(rerun=True)
        tell(lambda ctx: ctx.collect("d"))
        run.epoch()
        ORDERS.put(None)
        run.run_to_end()
    assert sorted(run.records) == [("a", 5, MIN), ("b", 9, MIN), ("c", 10, 7), ("d", None, 7)]


def test_an_idle_loop_holds_nobody_up(env: StreamExecutionEnvironment) -> None:
    script = [part for n in range(1, 6) for part in ((f"{n}", 10 * n), EndOfEpoch())]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda pair, _: pair[1]
    )
    busy = env.from_source(ScriptedSource([*script, EndOfEpoch(), EndOfEpoch(), ("6", 60)]))
    names = busy.assign_timestamps_and_watermarks(strategy).map(lambda pair: pair[0])
    both = names.union(env.add_source(Obeys()).map(lambda value: value))
    with LocalExecutor(both.rebalance().process(Probe())) as run:
        run.epoch()
        tell(watermark(4))
        run.epoch()
        tell(lambda ctx: ctx.mark_as_temporarily_idle())
        run.epoch()
        run.epoch()
        tell(record("x", 5))
        run.epoch()
        run.epoch()
        ORDERS.put(None)
        run.run_to_end()
    seen = {value: time for value, _, time in run.records}
    assert seen == {"1": MIN, "2": MIN, "3": 4, "4": 29, "5": 39, "x": 39, "6": seen["6"]}
    assert seen["6"] >= 39


class Silent(SourceFunction):
    """Does not say that it gives timestamps."""

    def __init__(self, call: str, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def run(self, ctx: SourceContext) -> None:
        getattr(ctx, self.call)(*self.arguments)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("collect_with_timestamp", ("a", 1)),
        ("emit_watermark", (1,)),
        ("mark_as_temporarily_idle", ()),
    ],
)
def test_a_class_has_to_say_so(
    env: StreamExecutionEnvironment, call: str, arguments: tuple[Any, ...]
) -> None:
    message = rf"run\(\) calls {call}, but .* does not declare .* set gives_timestamps = True in it"
    with pytest.raises(UserFunctionError, match=message):
        collect(env.add_source(Silent(call, *arguments)))


class Says(Silent):
    gives_timestamps = True


@pytest.mark.parametrize(
    ("call", "arguments"),
    [("collect_with_timestamp", ("a", 1.5)), ("emit_watermark", ("now",))],
)
def test_a_timestamp_that_is_no_int(
    env: StreamExecutionEnvironment, call: str, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(UserFunctionError, match="a timestamp must be in milliseconds, an int; got"):
        collect(env.add_source(Says(call, *arguments)))
