"""Windows that people use, one by one; tests/conformance/test_windows.py has all combinations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Configuration, Time, WatermarkStrategy
from holdfast.common.serializer import TypeSerializer
from holdfast.datastream import (
    AggregateFunction,
    AllWindowedStream,
    DataStream,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    WindowedStream,
    WindowFunction,
)
from holdfast.datastream.functions import (
    AllWindowFunction,
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from holdfast.datastream.state import (
    ListStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from holdfast.datastream.window import (
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    GlobalWindows,
    MergingWindowAssigner,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingProcessingTimeWindows,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
    WindowAssigner,
)
from holdfast.errors import JobDefinitionError, UserFunctionError
from holdfast.testing import AdvanceClock, EndOfEpoch, LocalExecutor, ScriptedSource, collect
from tests.conformance.saved_state import saved, sizes
from tests.crashing import undisturbed
from tests.lives import Life, live, lives

if TYPE_CHECKING:
    from tests.conftest import Executor

pytestmark = pytest.mark.usefixtures("disturbance")

LATE = OutputTag("late")
BY_TIME = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
    lambda record, _: record[1]
)


def timed(env: StreamExecutionEnvironment, script: list[Any]) -> DataStream:
    """A stream of (key, timestamp, …), with no bound for disorder."""
    return env.from_source(ScriptedSource(script), BY_TIME)


def keyed(env: StreamExecutionEnvironment, script: list[Any]) -> Any:
    return timed(env, script).key_by(lambda record: record[0])


class Sums(ProcessWindowFunction[Any, Any, Any, Any]):
    """Key, span and the sum of the last fields."""

    def process(
        self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[Any]:
        window = context.window()
        yield key, window.start, window.end, sum(element[-1] for element in elements)


class Lists(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> list[Any]:
        return [(key, list(inputs))]


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value[-1], accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class LargeMean(Mean):
    """No result where the mean is small."""

    def get_result(self, accumulator: tuple[int, int]) -> float | None:  # type: ignore[override]
        mean = super().get_result(accumulator)
        return None if mean < 5 else mean


# On both executors.


def test_windows_of_event_time(env: StreamExecutionEnvironment, executor: Executor) -> None:
    records = [("a", 1, 1), ("b", 4, 2), ("a", 9, 3), ("a", 10, 4), ("b", 12, 5), ("a", 7, 6)]
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Time.milliseconds(5))
    strategy = strategy.with_timestamp_assigner(lambda record, _: record[1])
    stream = env.from_collection(records).assign_timestamps_and_watermarks(strategy)
    windows = stream.key_by(lambda record: record[0]).window(TumblingEventTimeWindows.of(10))
    assert sorted(executor.collect(windows.process(Sums()))) == [
        ("a", 0, 10, 10),
        ("a", 10, 20, 4),
        ("b", 0, 10, 2),
        ("b", 10, 20, 5),
    ]


# Count windows.


@undisturbed
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 50), max_size=40),
    st.integers(1, 5),
    st.integers(0, 6),
    lives(st.integers(1, 10)),
)
def test_count_windows(numbers: list[int], size: int, slide: int, life: Life) -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        by_key = env.from_collection(numbers).key_by(lambda number: number % 3)
        return by_key.count_window(size, slide).apply(Lists())

    expected = []
    for key in range(3):
        of_key = [number for number in numbers if number % 3 == key]
        starts = range(0, len(of_key) - size + 1, slide or size)
        expected += [(key, of_key[start : start + size]) for start in starts]
    assert sorted(live(build, life)) == sorted(expected)


def pyflinks_count_windows(numbers: list[int], size: int, slide: int) -> list[list[int]]:
    """What PyFlink's `CountSlidingWindowAssigner` and `CountTrigger` give, step by step."""
    fired, contents, counts = [], dict[int, list[int]](), Counter[int]()
    for position, number in enumerate(numbers):
        id = position // slide
        start = id * slide
        while id >= 0 and start <= position <= start + size - 1:
            contents.setdefault(id, []).append(number)
            counts[id] += 1
            if counts[id] >= size:
                fired.append(list(contents[id]))
                del counts[id]
            id, start = id - 1, start - slide
    return fired


def javas_count_windows(numbers: list[int], size: int, slide: int) -> list[list[int]]:
    """What a global window with a `CountTrigger` and a `CountEvictor` gives, step by step."""
    fired, contents, count = [], list[int](), 0
    for number in numbers:
        contents.append(number)
        count += 1
        if count >= slide:
            count = 0
            del contents[: max(0, len(contents) - size)]
            fired.append(list(contents))
    return fired


@undisturbed
@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 5), st.integers(1, 7))
def test_sliding_count_windows_are_those_of_pyflink(
    numbers: list[int], size: int, slide: int
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    stream = env.from_collection(numbers)
    by_key = stream.key_by(lambda n: 0)
    sliding = by_key.count_window(size, slide).apply(Lists()).map(lambda r: ("PyFlink", r[1]))
    windows = by_key.window(GlobalWindows.create()).trigger(CountTrigger.of(slide))
    last = windows.evictor(CountEvictor.of(size)).apply(Lists()).map(lambda r: ("Java", r[1]))
    sums = stream.count_window_all(size, slide).reduce(lambda a, b: a + b)
    found = collect(sliding.union(last, sums.map(lambda n: ("all", n))), quota=7)
    by_name = {name: [r for n, r in found if n == name] for name in ("PyFlink", "Java", "all")}
    full = pyflinks_count_windows(numbers, size, slide)
    assert by_name == {
        "PyFlink": full,
        "Java": javas_count_windows(numbers, size, slide),
        "all": list(map(sum, full)),
    }


def test_full_count_windows_are_gone(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_source(ScriptedSource([*range(7), EndOfEpoch()]))
    windows = numbers.key_by(lambda n: 0).count_window(3).apply(Lists()).uid("windows")
    with LocalExecutor(windows) as run:
        run.epoch()
        assert run.records == [(0, [0, 1, 2]), (0, [3, 4, 5])]
        contents = saved(run, "windows")["\0window-contents"]
        assert contents == {(0, 2): [6]}, "of the third window, which is not full"


def test_count_windows_of_a_whole_stream(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection(range(7))
    sums = numbers.count_window_all(3).reduce(lambda a, b: a + b)
    assert collect(sums) == [3, 12]
    env = StreamExecutionEnvironment.get_execution_environment()
    sliding = env.from_collection(range(7)).count_window_all(3, 2).reduce(lambda a, b: a + b)
    assert collect(sliding) == [3, 9, 15]


def test_global_windows_with_a_trigger(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection(range(7)).key_by(lambda n: 0)
    growing = numbers.window(GlobalWindows.create()).trigger(CountTrigger.of(3)).apply(Lists())
    assert collect(growing) == [(0, [0, 1, 2]), (0, [0, 1, 2, 3, 4, 5])]
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_collection(range(7)).key_by(lambda n: 0)
    windows = numbers.window(GlobalWindows.create())
    purged = windows.trigger(PurgingTrigger.of(CountTrigger.of(3))).apply(Lists())
    assert collect(purged) == [(0, [0, 1, 2]), (0, [3, 4, 5])]


def test_a_delta_trigger_on_a_global_window(env: StreamExecutionEnvironment) -> None:
    """Every hundred metres, the fastest of the last records: Flink's example of top speeds."""
    drives = [("a", metres, speed) for metres, speed in [(0, 9), (60, 14), (110, 11), (220, 8)]]
    windows = env.from_collection(drives).key_by(lambda r: r[0]).window(GlobalWindows.create())
    windows.trigger(DeltaTrigger.of(100, lambda old, new: new[1] - old[1]))
    assert collect(windows.reduce(lambda a, b: max(a, b, key=lambda r: r[2]))) == [
        ("a", 60, 14),
        ("a", 60, 14),
    ]


def test_an_aggregate_whose_result_is_none_gives_nothing(env: StreamExecutionEnvironment) -> None:
    """As in Flink: a window without contents does not fire, and its contents are the result."""
    numbers = env.from_collection([(n,) for n in range(9)])
    by_key = numbers.key_by(lambda r: 0)
    means = by_key.count_window(3).aggregate(LargeMean())
    listed = by_key.count_window(3).aggregate(LargeMean(), Lists())
    evicted = by_key.count_window(3).evictor(CountEvictor.of(2)).aggregate(LargeMean())
    of_all = numbers.count_window_all(3).aggregate(LargeMean())
    streams = [s.map(lambda r, n=n: (n, r)) for n, s in enumerate((means, listed, evicted, of_all))]
    got = collect(streams[0].union(*streams[1:]))
    assert sorted(got) == [(0, 7.0), (1, (0, [7.0])), (2, 7.5), (3, 7.0)]


# Windows of a whole stream.


class Everything(ProcessAllWindowFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtasks = runtime_context.get_number_of_parallel_subtasks()

    def process(
        self, context: ProcessAllWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[Any]:
        count = context.global_state().get_state(ValueStateDescriptor("windows", int))
        count.update((count.value() or 0) + 1)
        yield context.window().start, count.value(), self.subtasks, sorted(elements)


class Spans(AllWindowFunction[Any, Any, Any]):
    def apply(self, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(window.start, *inputs)]


def all_windows(env: StreamExecutionEnvironment) -> AllWindowedStream:
    script = [("a", 1, 1), ("b", 5, 2), EndOfEpoch(), ("c", 11, 3), ("d", 25, 4)]
    return timed(env.set_parallelism(3), script).window_all(TumblingEventTimeWindows.of(10))


@pytest.mark.parametrize("workers", [1, 2])
def test_window_all_is_one_subtask(env: StreamExecutionEnvironment, workers: int) -> None:
    with LocalExecutor(all_windows(env).process(Everything()), workers=workers) as run:
        run.run_to_end()
    assert run.records == [
        (0, 1, 1, [("a", 1, 1), ("b", 5, 2)]),
        (10, 2, 1, [("c", 11, 3)]),
        (20, 3, 1, [("d", 25, 4)]),
    ]


def test_window_all_with_other_functions() -> None:
    def windows() -> AllWindowedStream:
        return all_windows(StreamExecutionEnvironment.get_execution_environment())

    def later(a: Any, b: Any) -> Any:
        return max(a, b)

    assert collect(windows().reduce(later)) == [("b", 5, 2), ("c", 11, 3), ("d", 25, 4)]
    assert collect(windows().reduce(later, Spans()))[0] == (0, ("b", 5, 2))
    assert collect(windows().aggregate(Mean())) == [1.5, 3.0, 4.0]
    assert collect(windows().aggregate(Mean(), Everything()))[0] == (0, 1, 1, [1.5])
    assert collect(windows().apply(Spans()))[1] == (10, ("c", 11, 3))


class Fired(ProcessAllWindowFunction[Any, Any, Any]):
    """How often this window fired, kept in its state."""

    times = ValueStateDescriptor("times", int)

    def process(
        self, context: ProcessAllWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[Any]:
        times = context.window_state().get_state(self.times)
        times.update((times.value() or 0) + 1)
        yield context.window().start, times.value(), [element[-1] for element in elements]

    def clear(self, context: ProcessAllWindowFunction.Context[Any]) -> None:
        context.window_state().get_state(self.times).clear()


def test_window_all_has_what_other_windows_have(env: StreamExecutionEnvironment) -> None:
    """A trigger, an evictor, lateness, a side output of late records, state of the window."""
    script = [
        *(("a", 1, 1), ("b", 2, 2), ("c", 12, 3), EndOfEpoch()),
        *(("d", 3, 4), ("e", 19, 5), ("f", 27, 6), EndOfEpoch(), ("g", 4, 7)),
    ]
    windows = timed(env, script).window_all(TumblingEventTimeWindows.of(10))
    windows.trigger(PurgingTrigger.of(EventTimeTrigger())).evictor(CountEvictor.of(2))
    results = windows.allowed_lateness(5).side_output_late_data(LATE).process(Fired()).uid("all")
    with LocalExecutor(results.union(results.get_side_output(LATE))) as run:
        run.run_to_end()
        assert run.records == [
            (0, 1, [1, 2]),
            (0, 2, [4]),  # late: it fires again, without what was purged
            (10, 1, [3, 5]),
            ("g", 4, 7),
            (20, 1, [6]),
        ]
        assert sizes(run, "all") == Counter()


def test_window_all_cannot_be_made_parallel(env: StreamExecutionEnvironment) -> None:
    result = all_windows(env).reduce(max).set_parallelism(2)
    with pytest.raises(JobDefinitionError, match="parallelism 2, above its max parallelism 1"):
        collect(result)


# Processing time.


def test_windows_of_processing_time(env: StreamExecutionEnvironment) -> None:
    script = [
        *(("a", 0, 1), ("a", 0, 2), AdvanceClock(9), ("a", 0, 4), ("b", 0, 8)),
        *(AdvanceClock(1), ("a", 0, 16), AdvanceClock(30), EndOfEpoch()),
    ]
    records = env.from_source(ScriptedSource(script)).key_by(lambda record: record[0])
    sums = records.window(TumblingProcessingTimeWindows.of(10)).process(Sums()).uid("windows")
    with LocalExecutor(sums) as run:
        run.epoch()
        run.epoch()
        assert run.records == [], "the clock is at 9, which is in the window"
        run.epoch()
        assert sorted(run.records) == [("a", 0, 10, 7), ("b", 0, 10, 8)]
        run.epoch()
        assert run.records[2:] == [("a", 10, 20, 16)], "without a record"
        assert sizes(run, "windows") == Counter()


class DerivedWindows(TumblingProcessingTimeWindows[Any]):
    """Served by the general operator, as all classes that users derive."""


@settings(max_examples=20, deadline=None)
@given(
    script=st.lists(
        st.one_of(
            st.tuples(st.sampled_from("ab"), st.integers(0, 9)),
            st.builds(AdvanceClock, st.integers(1, 12)),
            st.just(EndOfEpoch()),
        ),
        max_size=30,
    ),
    workers=st.integers(1, 2),
)
def test_usual_windows_of_processing_time_are_what_the_general_operator_gives(
    script: list[Any], workers: int
) -> None:
    def averages(kind: type[TumblingProcessingTimeWindows[Any]]) -> list[Any]:
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        keyed = env.from_source(ScriptedSource(script)).key_by(lambda record: record[0])
        return collect(keyed.window(kind(7, 2)).aggregate(Mean()), workers=workers)

    assert averages(TumblingProcessingTimeWindows) == averages(DerivedWindows)


def test_sliding_windows_of_processing_time(env: StreamExecutionEnvironment) -> None:
    script = [("a", 0, 1), AdvanceClock(5), ("a", 0, 2), AdvanceClock(50), EndOfEpoch()]
    records = env.from_source(ScriptedSource(script)).key_by(lambda record: record[0])
    sums = records.window(SlidingProcessingTimeWindows.of(10, 5)).process(Sums())
    assert collect(sums) == [("a", -5, 5, 1), ("a", 0, 10, 3), ("a", 5, 15, 2)]


def test_sessions_of_processing_time(env: StreamExecutionEnvironment) -> None:
    script = [
        *(("a", 0, 1), AdvanceClock(6), ("a", 0, 2), AdvanceClock(10), ("b", 0, 4)),
        *(AdvanceClock(1), ("a", 0, 8), AdvanceClock(100), EndOfEpoch()),
    ]
    records = env.from_source(ScriptedSource(script)).key_by(lambda record: record[0])
    sums = records.window(ProcessingTimeSessionWindows.with_gap(10)).process(Sums()).uid("windows")
    with LocalExecutor(sums, workers=2) as run:
        run.run_to_end()
        assert sorted(run.records) == [("a", 0, 16, 3), ("a", 17, 27, 8), ("b", 16, 26, 4)]
        assert sizes(run, "windows") == Counter()


def test_windows_whose_end_has_not_come_when_the_input_ends(
    env: StreamExecutionEnvironment,
) -> None:
    records = env.from_collection([("a", 0, 1)]).key_by(lambda record: record[0])
    assert collect(records.window(TumblingProcessingTimeWindows.of(10)).process(Sums())) == []


def test_early_results_by_the_clock(env: StreamExecutionEnvironment) -> None:
    script = [
        *(("a", 1, 1), AdvanceClock(6), ("a", 2, 2), AdvanceClock(6), AdvanceClock(1)),
        ("a", 50, 4),
    ]
    windows = keyed(env, script).window(TumblingEventTimeWindows.of(10))
    sums = windows.trigger(ContinuousProcessingTimeTrigger.of(5)).process(Sums()).uid("windows")
    with LocalExecutor(sums) as run:
        run.run_to_end()
        assert run.records == [("a", 0, 10, 1), ("a", 0, 10, 3)]
        assert sizes(run, "windows") == Counter(), "its timers of processing time are gone, too"


# State of functions.


class Visits(ProcessWindowFunction[Any, Any, str, Any]):
    """Two states of one name: how often this window fired, and how often any of the key did."""

    count = ValueStateDescriptor("count", int)

    def process(
        self, key: str, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[Any]:
        found = []
        for store in (context.window_state(), context.global_state()):
            state = store.get_state(self.count)
            state.update((state.value() or 0) + 1)
            found.append(state.value())
        yield key, context.window().start, *found, context.current_watermark()

    def clear(self, context: ProcessWindowFunction.Context[Any]) -> None:
        state = context.window_state().get_state(self.count)
        assert state.value() is not None, "clear is called once"
        state.clear()


@undisturbed
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("fails", [False, True])
def test_window_state_and_global_state_of_one_name(workers: int, fails: bool) -> None:
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.interval", "1 h")
    env = StreamExecutionEnvironment(configuration).set_parallelism(2)
    script = [
        *(("a", 1, 0), ("b", 2, 0), ("a", 12, 0), EndOfEpoch()),
        *(("a", 3, 0), ("a", 4, 0), EndOfEpoch()),
        *(("b", 16, 0), EndOfEpoch(), ("a", 5, 0), ("a", 40, 0)),
    ]
    windows = keyed(env, script).window(TumblingEventTimeWindows.of(10)).allowed_lateness(5)
    with LocalExecutor(windows.process(Visits()).uid("windows"), workers=workers) as run:
        run.epoch(checkpoint=True)
        if fails:
            run.epoch()
            run.recover()
            del run.records[2:]
        assert sorted(run.records) == [("a", 0, 1, 1, 11), ("b", 0, 1, 1, 11)]
        run.epoch()
        assert run.records[2:] == [("a", 0, 2, 2, 11), ("a", 0, 3, 3, 11)], "late, each again"
        run.epoch()
        assert sorted(key for key, _ in saved(run, "windows")["count"]) == ["a", "b"]
        run.epoch()
        at_end = 2**63 - 1
        expected = [("a", 10, 1, 4, at_end), ("a", 40, 1, 5, at_end), ("b", 10, 1, 2, at_end)]
        assert sorted(run.records[4:]) == expected
        left = saved(run, "windows")
        assert left.pop("count") == {("a", None): 5, ("b", None): 2}, "that of the keys stays"
        assert not any(left.values())


def test_windows_that_merge_have_no_state_of_their_own(env: StreamExecutionEnvironment) -> None:
    windows = keyed(env, [("a", 1, 1)]).window(EventTimeSessionWindows.with_gap(5))
    with pytest.raises(UserFunctionError, match=r"window_state\(\), but its windows merge"):
        collect(windows.process(Visits()))


class AllKinds(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(
        self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[Any]:
        store = context.window_state()
        seen = store.get_list_state(ListStateDescriptor("seen", int))
        most = store.get_reducing_state(ReducingStateDescriptor("most", max, int))
        for element in elements:
            seen.add(element[-1])
            most.add(element[-1])
        yield sorted(seen.get()), most.get()

    def clear(self, context: ProcessWindowFunction.Context[Any]) -> None:
        context.window_state().get_list_state(ListStateDescriptor("seen", int)).clear()
        context.window_state().get_reducing_state(ReducingStateDescriptor("most", max, int)).clear()


def test_other_kinds_of_window_state(env: StreamExecutionEnvironment) -> None:
    script = [("a", 1, 1), ("a", 2, 9), ("a", 11, 5)]
    windows = keyed(env, script).window(TumblingEventTimeWindows.of(10)).process(AllKinds())
    with LocalExecutor(windows.uid("windows")) as run:
        run.run_to_end()
        assert run.records == [([1, 9], 9), ([5], 5)]
        assert sizes(run, "windows") == Counter()


class TwoKinds(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(
        self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> None:
        context.window_state().get_state(ValueStateDescriptor("one"))
        context.window_state().get_list_state(ListStateDescriptor("one"))


def test_two_window_states_of_one_name(env: StreamExecutionEnvironment) -> None:
    windows = keyed(env, [("a", 1)]).window(TumblingEventTimeWindows.of(10)).process(TwoKinds())
    with pytest.raises(UserFunctionError, match="declares the state 'one' twice"):
        collect(windows)


# What is kept.


def test_of_an_aggregate_only_the_accumulator_is_kept(env: StreamExecutionEnvironment) -> None:
    script = [("a", n % 10, n) for n in range(5000)]
    windows = keyed(env, [*script, EndOfEpoch(), ("a", 20, 0)]).window(
        TumblingEventTimeWindows.of(15)
    )
    with LocalExecutor(windows.aggregate(Mean(), Sizes()).uid("windows")) as run:
        run.epoch()
        contents = saved(run, "windows")["\0window-contents"]
        assert contents == {("a", (0, 15)): (sum(range(5000)), 5000)}
        run.run_to_end()
    assert run.records == [("a", 0, [2499.5]), ("a", 15, [0.0])]


class Sizes(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(
        self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> list[Any]:
        return [(key, context.window().start, list(elements))]


def test_of_a_reduction_only_the_result_is_kept(env: StreamExecutionEnvironment) -> None:
    script = [*(("a", n % 10, n) for n in range(100)), EndOfEpoch(), ("a", 20, 0)]
    windows = keyed(env, script).window(EventTimeSessionWindows.with_gap(5))
    with LocalExecutor(windows.reduce(max).uid("windows")) as run:
        run.epoch()
        contents = saved(run, "windows")["\0window-contents"]
        assert contents == {("a", (0, 5)): ("a", 9, 99)}, "at the first window of the session"
        assert saved(run, "windows")["\0merging-windows"] == {("a", None): {(0, 5): (0, 14, True)}}


def test_sessions_merge_under_reduce_and_aggregate(env: StreamExecutionEnvironment) -> None:
    """In PyFlink two sessions that merge lose data here."""
    script = [("a", 0, 1), ("a", 8, 2), EndOfEpoch(), ("a", 4, 4), ("a", 50, 0)]
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(20)
    strategy = strategy.with_timestamp_assigner(lambda record, _: record[1])
    records = env.from_source(ScriptedSource(script), strategy).key_by(lambda record: record[0])
    windows = records.window(EventTimeSessionWindows.with_gap(5))
    assert collect(windows.aggregate(Mean(), Sizes())) == [("a", 0, [7 / 3]), ("a", 50, [0.0])]


# Lateness.


def test_late_records_are_counted(env: StreamExecutionEnvironment) -> None:
    script = [("a", 25, 1), EndOfEpoch(), ("a", 3, 2), ("a", 19, 3), ("a", 21, 4), ("b", 9, 5)]
    windows = keyed(env, script).window(TumblingEventTimeWindows.of(10))
    with LocalExecutor(windows.process(Sums()).uid("windows"), workers=2) as run:
        run.run_to_end()
        dropped = [m.get("numLateRecordsDropped", 0) for (uid, _), m in run.metrics.items()]
    assert run.records == [("a", 20, 30, 5)]
    assert sum(dropped) == 3


def test_late_records_as_a_side_output(env: StreamExecutionEnvironment) -> None:
    script = [("a", 25, 1), EndOfEpoch(), ("a", 3, 2), ("a", 19, 3), ("a", 21, 4)]
    windows = keyed(env, script).window(TumblingEventTimeWindows.of(10))
    sums = windows.allowed_lateness(Time.milliseconds(6)).side_output_late_data(LATE).reduce(max)
    assert collect(sums.union(sums.get_side_output(LATE))) == [
        ("a", 3, 2),  # too late
        ("a", 19, 3),  # late: its window fires again
        ("a", 25, 1),
    ]


def test_a_session_that_fired_grows(env: StreamExecutionEnvironment) -> None:
    script = [
        *(("a", 0, 1), ("a", 20, 2), EndOfEpoch()),  # fires 0 to 5
        *(("a", 4, 4), EndOfEpoch()),  # late: 0 to 9 fires again
        *(("a", 16, 8), EndOfEpoch()),  # brings nothing together with it: 16 to 25 is to come
        *(("a", 9, 16), ("a", 12, 32), EndOfEpoch()),  # everything is one session
        ("a", 90, 0),
    ]
    windows = keyed(env, script).window(EventTimeSessionWindows.with_gap(5))
    with LocalExecutor(windows.allowed_lateness(50).process(Sums()).uid("windows")) as run:
        given = []
        while not run.finished:
            before = len(run.records)
            run.epoch()
            given.append(run.records[before:])
        assert sizes(run, "windows") == Counter()
    assert given[:5] == [
        [("a", 0, 5, 1)],
        [("a", 0, 9, 5)],
        [],
        [("a", 0, 14, 21)],
        [("a", 0, 25, 63), ("a", 90, 95, 0)],
    ]


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        (1, [("a", 0, 10, 3), ("b", 5, 10, 0)]),
        (2, [("a", 0, 5, 1), ("a", 5, 10, 2), ("b", 5, 10, 0)]),
    ],
)
def test_a_record_exactly_a_gap_after_the_last_one(
    env: StreamExecutionEnvironment, epochs: int, expected: list[Any]
) -> None:
    """It is not late, and its session has fired or not: the one case in which that shows."""
    script = [("a", 0, 1), ("b", 5, 0), *[EndOfEpoch()] * (epochs - 1), ("a", 5, 2)]
    windows = keyed(env, script).window(EventTimeSessionWindows.with_gap(5))
    late = windows.side_output_late_data(LATE).process(Sums())
    assert sorted(collect(late.union(late.get_side_output(LATE)))) == expected


def test_durations_of_any_kind(env: StreamExecutionEnvironment) -> None:
    windows = keyed(env, []).window(TumblingEventTimeWindows.of(timedelta(seconds=1)))
    assert windows.allowed_lateness("2 s").allowed_lateness(timedelta(seconds=1)) is windows
    with pytest.raises(ValueError, match="allowed_lateness: must not be negative; got -1"):
        windows.allowed_lateness(-1)


# Evictors.


class Everyone(Evictor[Any, Any]):
    """Leaves nothing."""

    def evict_before(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        assert size == len(elements)
        evictor_context.get_metric_group().counter("evicted").inc(size)
        assert evictor_context.get_current_watermark() > 0
        assert evictor_context.get_current_processing_time() == 0
        elements.clear()

    def evict_after(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        assert size == 0


@pytest.mark.parametrize(
    ("function", "expected"),
    [("apply", [("a", [])]), ("reduce", []), ("aggregate", [0])],
)
def test_a_window_of_which_an_evictor_leaves_nothing(
    env: StreamExecutionEnvironment, function: str, expected: list[Any]
) -> None:
    class Count(Mean):
        def get_result(self, accumulator: tuple[int, int]) -> float:
            return accumulator[1]

    windows = keyed(env, [("a", 1, 1), ("a", 2, 2)]).window(TumblingEventTimeWindows.of(10))
    windows.evictor(Everyone())
    argument: Any = {"apply": Lists(), "reduce": max, "aggregate": Count()}[function]
    with LocalExecutor(getattr(windows, function)(argument).uid("windows")) as run:
        run.run_to_end()
        assert run.records == expected
        assert any(metrics.get("evicted") == 2 for metrics in run.metrics.values())


# Triggers and assigners of one's own.


class Debounce(Trigger[Any, Any]):
    """Fires when no record has come for a while by the clock, or at the end of the window."""

    due = ValueStateDescriptor("due", int)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        due = ctx.get_partitioned_state(self.due)
        if due.value() is not None:
            ctx.delete_processing_time_timer(due.value())
        due.update(ctx.get_current_processing_time() + 10)
        ctx.register_processing_time_timer(due.value())
        ctx.get_metric_group().counter("asked").inc()
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        assert time == ctx.get_partitioned_state(self.due).value()
        return TriggerResult.FIRE_AND_PURGE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE

    def on_merge(self, window: Any, ctx: Any) -> None:
        raise NotImplementedError

    def clear(self, window: Any, ctx: Any) -> None:
        due = ctx.get_partitioned_state(self.due)
        if due.value() is not None:
            ctx.delete_processing_time_timer(due.value())
            due.clear()


def test_a_trigger_with_timers_of_both_kinds(env: StreamExecutionEnvironment) -> None:
    script = [
        *(("a", 1, 1), AdvanceClock(6), ("a", 2, 2), AdvanceClock(6), AdvanceClock(6)),
        *(("a", 3, 4), AdvanceClock(1), ("a", 20, 8)),
    ]
    windows = keyed(env, script).window(TumblingEventTimeWindows.of(10)).trigger(Debounce())
    with LocalExecutor(windows.process(Sums()).uid("windows"), workers=2) as run:
        run.run_to_end()
        assert run.records == [("a", 0, 10, 3), ("a", 0, 10, 4), ("a", 20, 30, 8)]
        assert sizes(run, "windows") == Counter()


class Forgets(EventTimeTrigger[Any]):
    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> Any:
        super().on_element(element, timestamp, window, ctx)


def test_a_trigger_that_says_nothing(env: StreamExecutionEnvironment) -> None:
    windows = keyed(env, [("a", 1)]).window(TumblingEventTimeWindows.of(10)).trigger(Forgets())
    with pytest.raises(UserFunctionError, match="returned None; a trigger returns a TriggerResult"):
        collect(windows.apply(Lists()))


@dataclass(frozen=True)
class Shop(Window):
    """A window of one's own: all that happens on one day in one shop."""

    name: str
    day: int

    def max_timestamp(self) -> int:
        return 100 * self.day + 99


@dataclass(frozen=True)
class Shops(WindowAssigner[Any, Shop]):
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[Shop]:
        return [Shop(name, timestamp // 100) for name in element[2]]

    def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[Any, Shop]:
        return EventTimeTrigger()

    def get_window_serializer(self) -> TypeSerializer[Shop]:
        raise NotImplementedError

    def is_event_time(self) -> bool:
        return True


class ByShop(WindowFunction[Any, Any, Any, Shop]):
    def apply(self, key: Any, window: Shop, inputs: Iterable[Any]) -> list[Any]:
        return [(window.name, window.day, [record[1] for record in inputs])]


def test_windows_of_ones_own(env: StreamExecutionEnvironment) -> None:
    script = [("a", 10, "xy"), ("a", 20, "x"), EndOfEpoch(), ("a", 130, "y"), ("a", 250, "")]
    windows = keyed(env, script).window(Shops()).apply(ByShop()).uid("windows")
    with LocalExecutor(windows, workers=2) as run:
        run.run_to_end()
        assert run.records == [("x", 0, [10, 20]), ("y", 0, [10]), ("y", 1, [130])]
        assert sizes(run, "windows") == Counter()


class Neighbours(MergingWindowAssigner[Any, TimeWindow]):
    """Merges windows that are side by side, but not across a multiple of a hundred."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return [TimeWindow(timestamp, timestamp + 10)]

    def merge_windows(
        self,
        windows: Iterable[TimeWindow],
        callback: MergingWindowAssigner.MergeCallback[TimeWindow],
    ) -> None:
        sides: dict[int, list[TimeWindow]] = {}
        for window in windows:
            sides.setdefault(window.start // 100, []).append(window)
        for side in sides.values():
            TimeWindow.merge_windows(side, callback)

    def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[Any, TimeWindow]:
        return EventTimeTrigger()

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        raise NotImplementedError

    def is_event_time(self) -> bool:
        return True


def test_windows_that_merge_in_a_way_of_ones_own(env: StreamExecutionEnvironment) -> None:
    script = [("a", 80, 1), ("a", 95, 2), ("a", 102, 4), ("a", 88, 8), ("a", 104, 16)]
    windows = keyed(env, script).window(Neighbours()).process(Sums()).uid("windows")
    with LocalExecutor(windows) as run:
        run.run_to_end()
        assert run.records == [("a", 80, 105, 11), ("a", 102, 114, 20)]
        assert sizes(run, "windows") == Counter()


# Functions are functions.


class CountsOpens(ReduceFunction, CheckpointedFunction):
    """Has fields, operator state, and something that cannot be carried."""

    def __init__(self) -> None:
        self.calls = 0
        self.restored: list[int] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self.iterator = iter(range(10**9))

    def reduce(self, value1: Any, value2: Any) -> Any:
        next(self.iterator)
        self.calls += 1
        return *value1[:2], (self.calls, self.restored)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update([self.calls])

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("calls"))
        self.restored = list(self.state.get())


@undisturbed
@pytest.mark.parametrize("workers", [1, 3])
def test_fields_and_operator_state_of_a_function_of_windows(workers: int) -> None:
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.interval", "1 h")
    env = StreamExecutionEnvironment(configuration).set_parallelism(1)
    script: list[Any] = [("a", 1, 0)]
    for _ in range(4):
        script += [EndOfEpoch(), ("a", 1, 0)]
    windows = keyed(env, script).window(TumblingEventTimeWindows.of(10)).reduce(CountsOpens())
    with LocalExecutor(windows, workers=workers) as run:
        run.run_to_end()
        assert run.records == [("a", 1, (4, []))], "a field goes on from epoch to epoch"
    with LocalExecutor(windows, workers=workers) as run:
        run.epoch()
        run.epoch()
        run.epoch(checkpoint=True)
        run.recover()
        run.run_to_end()
        assert run.records == [("a", 1, (2, [2]))], "a new object, with the operator state"


class Fails(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> list[Any]:
        return [1 // 0]


def test_an_error_names_the_window_and_the_key(env: StreamExecutionEnvironment) -> None:
    windows = keyed(env, [("a", 1)]).window(TumblingEventTimeWindows.of(10)).apply(Fails())
    with pytest.raises(UserFunctionError) as error:
        collect(windows.name("tens"))
    text = str(error.value)
    assert "operator 'tens'" in text
    assert "ZeroDivisionError" in text
    assert "in TimeWindow(start=0, end=10) of key 'a'" in text


@pytest.mark.parametrize("trigger", [EventTimeTrigger(), Debounce()])
def test_windows_of_event_time_need_timestamps(
    env: StreamExecutionEnvironment, trigger: Trigger[Any, Any]
) -> None:
    records = env.from_collection([("a", 1)]).key_by(lambda record: record[0])
    windows = records.window(TumblingEventTimeWindows.of(10)).trigger(trigger)
    with pytest.raises(UserFunctionError, match="needs records with a timestamp"):
        collect(windows.apply(Lists()))


class Nothing(Mean):
    def add(self, value: Any, accumulator: Any) -> Any:
        kept: Any = None  # NB: a plain "return None" is found when the program is built
        return kept


@pytest.mark.parametrize("kind", ["reduce", "aggregate"])
def test_there_must_be_something_to_keep(env: StreamExecutionEnvironment, kind: str) -> None:
    windows = keyed(env, [("a", 1), ("a", 2)]).window(TumblingEventTimeWindows.of(10))
    function = {"reduce": lambda a, b: None, "aggregate": Nothing()}[kind]
    with pytest.raises(UserFunctionError, match="a window cannot contain None"):
        collect(getattr(windows, kind)(function))


# What is refused when the program is built.


def test_what_cannot_be(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1])
    by_key = stream.key_by(lambda n: n)
    tens: WindowedStream = by_key.window(TumblingEventTimeWindows.of(10))
    wrong: Any = 5
    with pytest.raises(TypeError, match="window: expected a WindowAssigner; got 5"):
        by_key.window(wrong)
    with pytest.raises(TypeError, match="trigger: expected a Trigger; got 5"):
        tens.trigger(wrong)
    with pytest.raises(TypeError, match="evictor: expected a Evictor; got 5"):
        tens.evictor(wrong)
    with pytest.raises(TypeError, match="side_output_late_data: expected a OutputTag; got 5"):
        tens.side_output_late_data(wrong)
    with pytest.raises(TypeError, match="reduce: expected a ReduceFunction or a callable; got 5"):
        tens.reduce(wrong)
    with pytest.raises(TypeError, match="aggregate: expected an AggregateFunction; got 5"):
        tens.aggregate(wrong)
    with pytest.raises(TypeError, match="apply: expected a WindowFunction; got"):
        tens.apply(Sums())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="process: expected a ProcessWindowFunction; got"):
        tens.process(Everything())  # type: ignore[arg-type]
    message = "reduce: expected a WindowFunction or a ProcessWindowFunction; got"
    with pytest.raises(TypeError, match=message):
        tens.reduce(max, Spans())  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match=r"DeltaTrigger.* cannot merge; implement can_m"):
        by_key.window(EventTimeSessionWindows.with_gap(5)).trigger(DeltaTrigger.of(1, abs))


def test_what_is_known_of_windows(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([("a", 1)], type_info=tuple[str, int])
    windows = stream.key_by(lambda record: record[0]).window(TumblingEventTimeWindows.of(10))
    assert windows.get_execution_environment() is env
    assert windows.get_input_type() == stream.get_type()
    reduced = windows.reduce(max)
    assert reduced.get_type() == stream.get_type()
    assert reduced.get_name() == "TumblingEventTimeWindows"
    assert "[window]" in env.explain()
