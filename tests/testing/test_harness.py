"""One function by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from holdfast.common import Row, Types
from holdfast.datastream import (
    FilterFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
    SinkFunction,
)
from holdfast.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from holdfast.errors import PickleError
from holdfast.state.key_groups import key_group, key_group_range
from holdfast.testing import Harness, KeyedHarness, ManualClock


class Count(KeyedProcessFunction):
    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self.opened += 1
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))
        self.sizes = runtime_context.get_map_state(MapStateDescriptor("sizes"))
        self.last = runtime_context.get_reducing_state(ReducingStateDescriptor("last", max))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.seen.add(value)
        self.sizes.put(value, len(value))
        self.last.add(value)
        yield ctx.get_current_key(), count

    def close(self) -> None:
        self.closed += 1


def initial(word: str) -> str:
    return word[0]


@pytest.mark.parametrize(
    ("function", "kind", "records", "outputs"),
    [
        (abs, "map", [-1, 2], [1, 2]),
        (lambda x: None if x < 0 else [x, x], "flat_map", [-1, 2], [2, 2]),
        (lambda x: x > 0, "filter", [-1, 2], [2]),
    ],
)
def test_plain_callables(function: Any, kind: str, records: list[int], outputs: list[int]) -> None:
    assert Harness(function, kind=kind).process(*records) == outputs


def test_function_objects_say_what_they_are() -> None:
    class Even(FilterFunction):
        def filter(self, value: int) -> bool:
            return value % 2 == 0

    class Twice(ProcessFunction):
        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
            return [value, value]

    assert Harness(Even()).process(1, 2) == [2]
    assert Harness(Twice()).process(1) == [1, 1]


def test_a_sink_function_with_a_clock() -> None:
    class Stamps(SinkFunction):
        def __init__(self) -> None:
            self.got: list[Any] = []

        def invoke(self, value: Any, context: SinkFunction.Context) -> None:
            self.got.append((value, context.current_processing_time()))

    clock = ManualClock(100)
    harness = Harness(Stamps(), clock=clock)
    harness.process("a")
    clock.advance(50)
    assert harness.process("b") == []
    assert harness.function.got == [("a", 100), ("b", 150)]


def test_keyed_state_of_every_kind() -> None:
    with KeyedHarness(Count(), initial) as harness:
        assert harness.process("apple", "bean", "avocado") == [("a", 1), ("b", 1), ("a", 2)]
        assert harness.outputs == [("a", 1), ("b", 1), ("a", 2)]
        assert harness.state("count", "a") == 2
        assert harness.state("count", "z") is None
        assert harness.state("seen", "a") == ["apple", "avocado"]
        assert harness.state("sizes", "b") == {"bean": 4}
        assert harness.state("last", "a") == "avocado"
        assert harness.states("count") == {"a": 2, "b": 1}
    assert (harness.function.opened, harness.function.closed) == (1, 1)


def test_reduce() -> None:
    class Join(ReduceFunction):
        def reduce(self, value1: str, value2: str) -> str:
            return value1 + value2

    assert KeyedHarness(Join(), initial).process("ab", "ac") == ["ab", "abac"]


def test_snapshot_and_restore() -> None:
    harness = KeyedHarness(Count(), initial)
    harness.process("apple", "bean")
    snapshot = harness.snapshot()
    harness.process("avocado")
    restored = KeyedHarness(Count(), initial, restore=snapshot)
    assert restored.states("count") == {"a": 1, "b": 1}
    assert restored.process("apricot") == [("a", 2)]
    assert KeyedHarness(Count(), initial, restore=harness.snapshot()).state("count", "a") == 2


@pytest.mark.parametrize("path", [(1, 2), (2, 1), (2, 3), (4, 3), (3, 5)])
def test_rescaling(path: tuple[int, int]) -> None:
    """Each subtask of the new parallelism takes the keys that are its own from all old ones."""
    keys = [f"key {i}" for i in range(40)]
    harnesses = list(subtasks(path[0]))
    for key in keys:
        owner(harnesses, key).process(key)
    snapshots = [harness.snapshot() for harness in harnesses]
    restored = list(subtasks(path[1], restore=snapshots))
    assert sum(len(harness.states("count")) for harness in restored) == len(keys)
    for key in keys:
        assert owner(restored, key).process(key) == [(key, 2)]


def subtasks(parallelism: int, **settings: Any) -> Iterable[KeyedHarness]:
    for subtask in range(parallelism):
        yield KeyedHarness(Count(), str, parallelism=parallelism, subtask=subtask, **settings)


def owner(harnesses: list[KeyedHarness], key: str) -> KeyedHarness:
    group = key_group(key, 128)
    return next(
        harness
        for subtask, harness in enumerate(harnesses)
        if group in key_group_range(subtask, len(harnesses), 128)
    )


def test_moving_again_and_again() -> None:
    harness = KeyedHarness(Count(), initial)
    for turn in range(1, 6):
        assert harness.process("apple") == [("a", turn)]
        harness = harness.move()
    assert harness.state("seen", "a") == ["apple"] * 5


def test_a_function_that_cannot_be_moved() -> None:
    lock = threading.Lock()
    harness = Harness(lambda x: (lock.locked(), x))
    assert harness.process(1) == [(False, 1)]
    with pytest.raises(PickleError, match="cannot be moved: it cannot be pickled"):
        harness.move()


def test_exceptions_come_as_they_are() -> None:
    class Fails(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            raise OSError("no connection")

        def map(self, value: Any) -> Any: ...

    with pytest.raises(ZeroDivisionError):
        Harness(lambda x: 1 // x).process(0)
    with pytest.raises(OSError, match="no connection"):
        Harness(Fails()).open()


def test_runtime_context() -> None:
    class Facts(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.context = runtime_context

        def map(self, value: Any) -> Any:
            context = self.context
            return context.get_task_name_with_subtasks(), context.get_job_parameter("k", "")

    harness = Harness(Facts(), name="facts", parallelism=4, subtask=2, parameters={"k": "v"})
    assert harness.process(0) == [("facts (3/4)", "v")]


def test_declared_output_type() -> None:
    harness = Harness(lambda x: (x, 2), output_type=Types.ROW_NAMED(["a", "b"], [Types.INT()] * 2))
    assert harness.process(1) == [Row(a=1, b=2)]


def test_neither_a_function_nor_a_callable() -> None:
    with pytest.raises(TypeError, match="expected a function object or a callable; got 3"):
        Harness(3)
