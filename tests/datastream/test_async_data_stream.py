"""AsyncDataStream: many calls at once, in order or not, with a capacity, timeouts and retries.

Which call ends first is decided by the calls themselves, through events; no test waits for time to
pass, but for those of timeouts.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Time, Types, WatermarkStrategy
from holdfast.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    DataStream,
    KeyedProcessFunction,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    async_retry_predicates,
)
from holdfast.datastream.async_data_stream import AsyncSettings
from holdfast.datastream.async_retry_strategies import NO_RETRY_STRATEGY
from holdfast.errors import PickleError, UserFunctionError
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.operators.async_calls import AsyncCalls
from holdfast.runtime.operators.event_loop import EventLoop
from holdfast.testing import EndOfEpoch, LocalExecutor, ScriptedSource, collect
from tests.lives import Life, live, lives

if TYPE_CHECKING:
    from tests.conftest import Executor

MINUTE = Time.minutes(1)
WAITS = {"ordered": AsyncDataStream.ordered_wait, "unordered": AsyncDataStream.unordered_wait}
RETRIES = {
    "ordered": AsyncDataStream.ordered_wait_with_retry,
    "unordered": AsyncDataStream.unordered_wait_with_retry,
}
both_ways = pytest.mark.parametrize("how", ["ordered", "unordered"])


class Double(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(0)
        return [value, value]


class Meeting(AsyncFunction[tuple[int, list[int]], int]):
    """A record gives its number once the calls of other records are done."""

    def __init__(self) -> None:
        self.done: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.done = defaultdict(asyncio.Event)

    async def async_invoke(self, value: tuple[int, list[int]]) -> list[int]:
        number, others = value
        for other in others:
            await self.done[other].wait()
        self.done[number].set()
        return [number]


@st.composite
def meetings(draw: st.DrawFn) -> list[tuple[int, list[int]]]:
    """Records that wait for others, without a circle."""
    order = draw(st.permutations(range(draw(st.integers(1, 12)))))
    waits = {
        number: draw(st.lists(st.sampled_from(order[:place]), max_size=3)) if place else []
        for place, number in enumerate(order)
    }
    return [(number, waits[number]) for number in range(len(order))]


@settings(max_examples=60, deadline=None)
@given(meetings())
def test_results_come_as_promised(records: list[tuple[int, list[int]]]) -> None:
    for how, wait in WAITS.items():
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        results = collect(wait(env.from_collection(records), Meeting(), MINUTE))
        assert sorted(results) == list(range(len(records)))
        if how == "ordered":
            assert results == sorted(results)
        for number, others in records if how == "unordered" else ():
            assert all(results.index(other) < results.index(number) for other in others)


def test_any_number_of_results(env: StreamExecutionEnvironment, executor: Executor) -> None:
    numbers = env.from_collection(range(40))
    doubled = AsyncDataStream.unordered_wait(numbers, Double(), MINUTE, 7)
    assert Counter(executor.collect(doubled)) == Counter(dict.fromkeys(range(40), 2))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 9) | st.just(EndOfEpoch()), max_size=25),
    st.integers(1, 5),
    st.booleans(),
    lives(st.integers(1, 8)),
)
def test_nothing_is_in_flight_between_epochs(
    script: list[Any], capacity: int, ordered: bool, life: Life
) -> None:
    """So a crash loses nothing and repeats nothing, and a savepoint needs nothing of it."""

    def build(env: StreamExecutionEnvironment) -> DataStream:
        wait = WAITS["ordered" if ordered else "unordered"]
        return wait(env.from_source(ScriptedSource(script)), Double(), MINUTE, capacity)

    numbers = [number for number in script if isinstance(number, int)]
    assert Counter(live(build, life)) == Counter(numbers + numbers)


class Crowd(AsyncFunction[int, int]):
    """Waits until so many calls are under way at once; says how many there were at most."""

    def __init__(self, size: int) -> None:
        self.size = size

    def open(self, runtime_context: RuntimeContext) -> None:
        self.here = self.most = 0
        self.complete = asyncio.Event()

    async def async_invoke(self, value: int) -> list[int]:
        self.here += 1
        self.most = max(self.most, self.here)
        if self.here == self.size:
            self.complete.set()
        await self.complete.wait()
        self.here -= 1
        return [self.most]


@both_ways
@pytest.mark.parametrize("size", [1, 10, 5000])
def test_as_many_calls_as_the_capacity_allows(
    env: StreamExecutionEnvironment, how: str, size: int
) -> None:
    numbers = env.from_collection(range(2 * size)).set_parallelism(1)
    crowd = WAITS[how](numbers, Crowd(size), MINUTE, size).set_parallelism(1)
    results = collect(crowd)
    assert len(results) == 2 * size
    assert max(results) == size


class Stamped(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


@both_ways
def test_results_have_the_timestamp_of_their_record(
    env: StreamExecutionEnvironment, how: str
) -> None:
    """And the watermark does not overtake them."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda number, _: 10 * number
    )
    source = env.from_source(ScriptedSource([1, 2, EndOfEpoch(), 3]))
    stream = source.assign_timestamps_and_watermarks(strategy)
    doubled = WAITS[how](stream, Double(), MINUTE).rebalance().process(Stamped())
    low, first = -(2**63), 19
    assert Counter(collect(doubled)) == Counter([(1, 10, low), (2, 20, low), (3, 30, first)] * 2)


class Later(KeyedProcessFunction):
    """Gives each record from a timer, of event time or of processing time."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        if value % 2:
            ctx.timer_service().register_event_time_timer(value)
        else:
            ctx.timer_service().register_processing_time_timer(0)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key()


@both_ways
def test_what_timers_give_is_called_in_the_same_epoch(
    env: StreamExecutionEnvironment, how: str
) -> None:
    later = env.from_collection([1, 2, 3, 4]).key_by(lambda number: number).process(Later())
    twice = WAITS[how](WAITS[how](later, Double(), MINUTE), Double(), MINUTE)
    with LocalExecutor(twice) as run:
        run.epoch()
        assert Counter(run.records) == Counter(dict.fromkeys((1, 2, 3, 4), 4))


# The life of the function


class Diary(AsyncFunction[int, str]):
    """Writes down its life."""

    told: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self.count = 0

    async def open(self, runtime_context: RuntimeContext) -> None:
        await asyncio.sleep(0)
        self.lock = asyncio.Lock()
        self.told.append("open")

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.told.append("close")

    async def async_invoke(self, value: int) -> list[str]:
        async with self.lock:
            self.count += 1
            return [f"{value} is number {self.count}"]


class Plain(Diary):
    """The same with functions that are not coroutines, but want a running loop."""

    def open(self, runtime_context: RuntimeContext) -> None:  # type: ignore[override]
        self.lock = asyncio.Lock()
        self.task = asyncio.get_running_loop().create_task(asyncio.sleep(3600))
        self.told.append("open")

    def close(self) -> None:  # type: ignore[override]
        self.told.append("close")


@pytest.mark.parametrize("function", [Diary(), Plain()])
@pytest.mark.parametrize("workers", [1, 2])
def test_the_life_of_a_function(
    env: StreamExecutionEnvironment, function: Diary, workers: int
) -> None:
    Diary.told.clear()
    numbers = env.from_source(ScriptedSource([7, EndOfEpoch(), 8, EndOfEpoch(), 9]))
    stream = AsyncDataStream.ordered_wait(numbers, function, MINUTE).set_parallelism(1)
    results = collect(stream, workers=workers)
    assert results == ["7 is number 1", "8 is number 2", "9 is number 3"]
    assert Diary.told == ["open"] * workers + ["close"]


def test_on_a_keyed_stream(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection(range(8)).key_by(lambda number: number % 3)
    doubled = AsyncDataStream.ordered_wait(keyed, Double(), MINUTE, output_type=Types.DOUBLE())
    assert Counter(collect(doubled)) == Counter({float(number): 2 for number in range(8)})


# Timeouts


class Never(AsyncFunction[int, int]):
    """Odd numbers have no result; some calls do not want to end."""

    def __init__(self, stubborn: bool = False) -> None:
        self.stubborn = stubborn

    async def async_invoke(self, value: int) -> list[int]:
        try:
            while value % 2:
                await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            if not self.stubborn:
                raise
        return [value]


class Instead(Never):
    def timeout(self, value: int) -> list[int]:
        return [-value]


@both_ways
@pytest.mark.parametrize("stubborn", [True, False])
def test_results_in_the_place_of_those_that_take_too_long(
    env: StreamExecutionEnvironment, how: str, stubborn: bool
) -> None:
    numbers = env.from_collection(range(200)).set_parallelism(1)
    function = Instead(stubborn)
    results = collect(WAITS[how](numbers, function, Time.milliseconds(20), 60).set_parallelism(1))
    expected = [-number if number % 2 else number for number in range(200)]
    assert sorted(results) == sorted(expected)
    assert how == "unordered" or results == expected


@both_ways
def test_a_timeout_fails_the_job(env: StreamExecutionEnvironment, how: str) -> None:
    stream = WAITS[how](env.from_collection([2, 3]), Never(), 10).name("waits")
    message = r"TimeoutError: Never.async_invoke took longer(.|\n)*operator 'waits'(.|\n)*record: 3"
    with pytest.raises(UserFunctionError, match=message):
        collect(stream)


def test_no_timeout(env: StreamExecutionEnvironment) -> None:
    assert collect(AsyncDataStream.ordered_wait(env.from_collection([2]), Never(), 0)) == [2]


def test_calls_that_are_done_are_not_kept_for_their_timeout() -> None:
    """Even behind one that is not done: the deadlines hold no more than the capacity."""
    loop, results = EventLoop(), []
    settings = AsyncSettings(3_600_000, 10, NO_RETRY_STRATEGY, ordered=False)
    reporter = FailureReporter("operator", 0)
    calls = AsyncCalls(Instead(), settings, loop, reporter, results.extend)
    for number in [1, *range(0, 10_000, 2)]:
        calls.begin(number, None)
    assert calls._deadlines is not None
    assert len(calls._deadlines._calls) < 100
    assert len(results) >= 4990
    loop.close()


# Retries


class Flaky(AsyncFunction[int, Any]):
    """Fails, or has no result, as often as the number says."""

    def __init__(self, error: type[Exception] | None) -> None:
        self.error = error
        self.tries: Counter[int] = Counter()

    async def async_invoke(self, value: int) -> list[Any]:
        self.tries[value] += 1
        if self.tries[value] <= value:
            if self.error is not None:
                raise self.error(f"try {self.tries[value]} of {value}")
            return []
        return [(value, self.tries[value])]

    def timeout(self, value: int) -> list[Any]:
        return [(value, "too late")]


def on_errors(attempts: int, *errors: type[Exception]) -> AsyncRetryStrategy[Any]:
    predicate = functools.partial(
        async_retry_predicates.exception_type_predicate, expected_error_type=errors
    )
    return AsyncRetryStrategy.fixed_delay(attempts, 1, None, predicate)


def on_nothing(attempts: int) -> AsyncRetryStrategy[Any]:
    predicate = async_retry_predicates.empty_result_predicate
    return AsyncRetryStrategy.exponential_backoff(attempts, 1, 4, 2.0, predicate, None)


@both_ways
def test_errors_are_tried_again(env: StreamExecutionEnvironment, how: str) -> None:
    numbers = env.from_collection([0, 3, 1, 2])
    stream = RETRIES[how](numbers, Flaky(OSError), MINUTE, on_errors(3, OSError, KeyError))
    assert sorted(collect(stream, parallelism=1)) == [(0, 1), (1, 2), (2, 3), (3, 4)]


@both_ways
def test_results_are_tried_again(env: StreamExecutionEnvironment, how: str) -> None:
    """What is still empty after the last try counts as it is."""
    numbers = env.from_collection([0, 3, 1, 2, 4])
    stream = RETRIES[how](numbers, Flaky(None), MINUTE, on_nothing(3))
    assert sorted(collect(stream, parallelism=1)) == [(0, 1), (1, 2), (2, 3), (3, 4)]


@both_ways
def test_the_last_error_counts(env: StreamExecutionEnvironment, how: str) -> None:
    stream = RETRIES[how](
        env.from_collection([1, 4]), Flaky(OSError), MINUTE, on_errors(3, OSError)
    )
    with pytest.raises(UserFunctionError, match=r"OSError: try 4 of 4(.|\n)*record: 4"):
        collect(stream)


def test_an_error_of_another_kind_is_not_tried_again(env: StreamExecutionEnvironment) -> None:
    strategy = on_errors(3, KeyError)
    flaky = Flaky(OSError)
    stream = AsyncDataStream.ordered_wait_with_retry(
        env.from_collection([1]), flaky, MINUTE, strategy
    )
    with pytest.raises(UserFunctionError, match=r"OSError: try 1 of 1"):
        collect(stream)


@both_ways
def test_the_timeout_is_for_all_tries_together(env: StreamExecutionEnvironment, how: str) -> None:
    numbers = env.from_collection([1_000_000, 1])
    strategy = on_errors(1_000_000_000, OSError)
    stream = RETRIES[how](numbers, Flaky(OSError), Time.milliseconds(50), strategy)
    assert sorted(collect(stream, parallelism=1)) == [(1, 2), (1_000_000, "too late")]


# Failures


class Fails(AsyncFunction[int, int]):
    """While it is broken, one number fails and another one waits until it is cancelled."""

    is_broken: ClassVar[bool] = True
    cancelled: ClassVar[list[int]] = []

    async def async_invoke(self, value: int) -> list[int]:
        if value == 13 and self.is_broken:
            raise ValueError("thirteen")
        if value == 14 and self.is_broken:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self.cancelled.append(value)
        return [value]


@both_ways
def test_a_failing_call_names_its_record(env: StreamExecutionEnvironment, how: str) -> None:
    Fails.is_broken, Fails.cancelled = True, []
    stream = WAITS[how](env.from_collection([11, 12, 13, 14]).set_parallelism(1), Fails(), MINUTE)
    stream = stream.name("lookup").set_parallelism(1)
    message = r"ValueError: thirteen(.|\n)*operator 'lookup', subtask 0(.|\n)*record: 13"
    with LocalExecutor(stream) as run:
        with pytest.raises(UserFunctionError, match=message) as caught:
            run.epoch()
        assert isinstance(caught.value.original, ValueError)
        assert Fails.cancelled == [14]
        Fails.is_broken = False
        run.run_to_end()
    assert sorted(run.records) == [11, 12, 13, 14]


class GivesNoList(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> Any:
        return value


@pytest.mark.parametrize("result", [None, "text", 7])
def test_a_result_that_is_no_list(env: StreamExecutionEnvironment, result: Any) -> None:
    stream = AsyncDataStream.ordered_wait(env.from_collection([result]), GivesNoList(), MINUTE)
    message = (
        f"async_invoke of GivesNoList must return a list with any number of results; got {result!r}"
    )
    with pytest.raises(UserFunctionError, match=message):
        collect(stream)


def test_other_iterables_are_fine(env: StreamExecutionEnvironment) -> None:
    stream = AsyncDataStream.ordered_wait(env.from_collection([(1, 2)]), GivesNoList(), MINUTE)
    assert collect(stream) == [1, 2]


class CancelsItself(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> Any:
        raise asyncio.CancelledError


def test_a_call_that_cancels_itself(env: StreamExecutionEnvironment) -> None:
    stream = AsyncDataStream.ordered_wait(env.from_collection([5]), CancelsItself(), 0)
    with pytest.raises(UserFunctionError, match=r"CancelledError(.|\n)*record: 5"):
        collect(stream)


class FailsToOpen(Double):
    async def open(self, runtime_context: RuntimeContext) -> None:
        raise OSError("no connection")


def test_a_failing_open(env: StreamExecutionEnvironment) -> None:
    stream = AsyncDataStream.ordered_wait(env.from_collection([5]), FailsToOpen(), 0)
    with pytest.raises(UserFunctionError, match=r"OSError: no connection in open\(\)"):
        collect(stream)


class NotAsync(AsyncFunction[Any, Any]):
    def async_invoke(self, value: Any) -> Any:
        return [value]


def test_wrong_arguments(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1])
    wait, retry = AsyncDataStream.ordered_wait, AsyncDataStream.ordered_wait_with_retry
    with pytest.raises(TypeError, match="expected an AsyncFunction; got"):
        wait(numbers, Stamped(), 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="async_invoke of NotAsync must be declared as 'async def'"):
        wait(numbers, NotAsync(), 1)
    with pytest.raises(ValueError, match="the capacity must be at least 1; got 0"):
        wait(numbers, Double(), 1, 0)
    with pytest.raises(ValueError, match="the timeout must not be negative; got -1 ms"):
        wait(numbers, Double(), -1)
    with pytest.raises(ValueError, match="a retry strategy requires a timeout; got 0"):
        retry(numbers, Double(), 0, on_nothing(1))
    with pytest.raises(TypeError, match="expected an AsyncRetryStrategy; got None"):
        retry(numbers, Double(), 1, None)  # type: ignore[arg-type]


def test_a_strategy_that_cannot_be_sent(env: StreamExecutionEnvironment) -> None:
    import threading

    lock = threading.Lock()
    strategy = AsyncRetryStrategy.fixed_delay(1, 1, lambda results: lock.locked(), None)
    stream = AsyncDataStream.ordered_wait_with_retry(
        env.from_collection([1]), Double(), 1, strategy
    )
    with pytest.raises(PickleError, match="of operator 'async wait operator' cannot be sent"):
        collect(stream)
