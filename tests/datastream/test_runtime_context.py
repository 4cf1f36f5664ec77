"""What a function learns in ``open``, and that its fields and metrics go where it goes."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.common import Types
from holdfast.datastream import (
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.testing import EndOfEpoch, Harness, KeyedHarness, LocalExecutor, ScriptedSource

if TYPE_CHECKING:
    from tests.conftest import Executor


class Introduces(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        context = runtime_context
        self.facts = (
            context.get_task_name(),
            context.get_task_name_with_subtasks(),
            context.get_index_of_this_subtask(),
            context.get_number_of_parallel_subtasks(),
            context.get_max_number_of_parallel_subtasks(),
            context.get_attempt_number(),
            context.get_job_parameter("city", "nowhere"),
            context.get_job_parameter("street", "none"),
        )

    def map(self, value: Any) -> Any:
        return self.facts


def test_runtime_context(env: StreamExecutionEnvironment, executor: Executor) -> None:
    env.get_config().set_global_job_parameters({"city": "Genoa"})
    numbers = env.from_source(NumberSequenceSource(1, 6)).set_parallelism(2)
    facts = numbers.map(Introduces()).name("greeter").set_max_parallelism(32)
    assert set(executor.collect(facts)) == {
        ("greeter", "greeter (1/2)", 0, 2, 32, 0, "Genoa", "none"),
        ("greeter", "greeter (2/2)", 1, 2, 32, 0, "Genoa", "none"),
    }


class Measures(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.opened = getattr(self, "opened", 0) + 1
        group = runtime_context.get_metrics_group()
        self.counter = group.counter("records")
        self.meter = group.meter("rate", time_span_in_seconds=30)
        self.sizes = group.add_group("kind", "number").distribution("sizes")
        self.largest = 0
        group.gauge("largest", lambda: self.largest)

    def map(self, value: int) -> int:
        self.counter.inc()
        self.counter.inc(2)
        self.counter.dec()
        self.meter.mark_event(value)
        self.sizes.update(value)
        self.largest = max(self.largest, value)
        return value


EXPECTED = {
    "records": 8,
    "rate": 10,
    "kind.number.sizes": {"count": 4, "sum": 10, "min": 1, "max": 4},
    "largest": 4,
}


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_metrics_survive_moving(env: StreamExecutionEnvironment, workers: int) -> None:
    env.set_parallelism(1).from_collection([3, 1, 4, 2]).map(Measures()).uid("measured").print()
    with LocalExecutor(env, quota=1, workers=workers) as run:
        run.run_to_end()
        assert len(run.reports) == 4
        assert run.metrics == {("measured", 0): EXPECTED}


def test_metrics_in_a_harness() -> None:
    harness = Harness(Measures())
    harness.process(3, 1)
    moved = harness.move()
    moved.process(4, 2)
    assert moved.metrics == EXPECTED


def test_metrics_on_spark(env: StreamExecutionEnvironment, executor: Executor) -> None:
    """The values are the same wherever the job runs; on Spark they come as accumulators."""
    script = [3, EndOfEpoch(), 1, EndOfEpoch(), 4, EndOfEpoch(), 2]
    env.from_source(ScriptedSource(script)).map(Measures()).set_parallelism(1).print()
    if type(executor).__name__ == "OnSpark":
        totals = env.execute().get_all_accumulator_results()
        assert totals["records"] == 8
    else:
        executor.run(env)


class Remembers(KeyedProcessFunction):
    """Fields of every sort: plain, shared, a state handle, the context, and a lock."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.alias = self.seen

    def open(self, runtime_context: RuntimeContext) -> None:
        self.context = runtime_context
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.handles = {"count": self.count}
        self.lock = threading.Lock()
        self.opened = True

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        with self.lock:
            self.seen.append(value)
        assert self.alias is self.seen
        assert self.handles["count"] is self.count
        self.handles["count"].update((self.count.value() or 0) + 1)
        yield list(self.seen), self.count.value(), self.context.get_task_name()


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("again", [False, True])
def test_fields_survive_epochs_and_moving(
    env: StreamExecutionEnvironment, workers: int, again: bool
) -> None:
    env.set_parallelism(1)
    keyed = env.from_collection([1, 2, 3, 4]).key_by(lambda n: n % 2)
    with LocalExecutor(keyed.process(Remembers()).name("memory"), workers=workers) as run:
        for _ in range(4):
            run.epoch(quota=1, rerun=again)
    assert run.records == [
        ([1], 1, "memory"),
        ([1, 2], 1, "memory"),
        ([1, 2, 3], 2, "memory"),
        ([1, 2, 3, 4], 2, "memory"),
    ]


def test_fields_in_a_harness() -> None:
    harness = KeyedHarness(Remembers(), lambda n: 0)
    harness.process(1, 2)
    moved = harness.move()
    assert moved.function is not harness.function
    assert moved.process(3) == [([1, 2, 3], 3, "operator")]


def test_fields_are_not_part_of_a_snapshot() -> None:
    harness = KeyedHarness(Remembers(), lambda n: 0)
    harness.process(1, 2)
    restored = KeyedHarness(Remembers(), lambda n: 0, restore=harness.snapshot())
    assert restored.process(3) == [([3], 3, "operator")]


class ChoosesItsFields(MapFunction):
    """Carries one field of its own choice."""

    def __init__(self) -> None:
        self.carried = 0
        self.left = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"carried": self.carried}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.carried = state["carried"]
        self.left = 0

    def map(self, value: int) -> tuple[int, int]:
        self.carried += 1
        self.left += 1
        return self.carried, self.left


def test_a_function_chooses_what_is_carried(env: StreamExecutionEnvironment) -> None:
    stream = env.set_parallelism(1).from_collection(range(4)).map(ChoosesItsFields())
    with LocalExecutor(stream, quota=1, workers=2) as run:
        run.run_to_end()
    assert run.records == [(1, 1), (2, 1), (3, 1), (4, 1)]


class Lifecycle(MapFunction):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls.append("open")

    def map(self, value: int) -> list[str]:
        self.calls.append("map")
        return list(self.calls)


def test_open_comes_first_and_once_in_a_worker(env: StreamExecutionEnvironment) -> None:
    stream = env.set_parallelism(1).from_collection(range(3)).map(Lifecycle())
    with LocalExecutor(stream, quota=1) as run:
        run.run_to_end()
    assert run.records[-1] == ["open", "map", "map", "map"]


class Closes(MapFunction):
    closed: list[int] = []  # noqa: RUF012

    def map(self, value: int) -> int:
        return value

    def close(self) -> None:
        type(self).closed.append(1)


@pytest.mark.parametrize("workers", [1, 2])
def test_close_is_called_once_at_the_end(env: StreamExecutionEnvironment, workers: int) -> None:
    Closes.closed.clear()
    stream = env.from_collection(range(5)).map(Closes()).set_parallelism(1)
    with LocalExecutor(stream, quota=1, workers=workers) as run:
        run.run_to_end()
        assert Closes.closed == [1]


def test_close_is_called_when_a_job_is_cancelled(env: StreamExecutionEnvironment) -> None:
    Closes.closed.clear()
    stream = env.from_collection(range(5)).map(Closes()).set_parallelism(1)
    with LocalExecutor(stream, quota=1) as run:
        run.epoch()
        run.cancel()
    assert Closes.closed == [1]
    assert run.records == [0]


class Slotted(MapFunction):
    __slots__ = ("lock", "seen")

    def __init__(self) -> None:
        self.seen = 0
        self.plain = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self.lock = threading.Lock()

    def map(self, value: int) -> tuple[int, int]:
        with self.lock:
            self.seen += 1
            self.plain += 1
        return self.seen, self.plain


@dataclass(frozen=True)
class Frozen(MapFunction):
    seen: list[int]

    def map(self, value: int) -> list[int]:
        self.seen.append(value)
        return list(self.seen)


def test_fields_in_slots_and_of_frozen_dataclasses(env: StreamExecutionEnvironment) -> None:
    numbers = env.set_parallelism(1).from_collection(range(3))
    both = numbers.map(Slotted()).union(numbers.map(Frozen([])))
    with LocalExecutor(both, quota=1, workers=2) as run:
        run.run_to_end()
    assert run.records == [(1, 1), [0], (2, 2), [0, 1], (3, 3), [0, 1, 2]]


class CountsCalls(ReduceFunction):
    """A function that stands within one of ours."""

    def __init__(self) -> None:
        self.calls = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self.lock = threading.Lock()

    def reduce(self, value1: int, value2: int) -> int:
        with self.lock:
            self.calls += 1
        return self.calls


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_fields_of_a_function_within_another(env: StreamExecutionEnvironment, workers: int) -> None:
    keyed = env.set_parallelism(1).from_collection([0] * 5).key_by(lambda n: 0)
    with LocalExecutor(keyed.reduce(CountsCalls()), quota=1, workers=workers) as run:
        run.run_to_end()
    assert run.records == [0, 1, 2, 3, 4]
