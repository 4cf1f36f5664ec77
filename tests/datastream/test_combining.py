"""Windows whose records are combined before the exchange: the same results, fewer records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Time, Types, WatermarkStrategy
from holdfast.datastream import (
    AggregateFunction,
    DataStream,
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from holdfast.datastream.windows.evictors import CountEvictor
from holdfast.errors import JobDefinitionError, JobExecutionError
from holdfast.runtime.operators.windows.event_time_windows import TumblingWindows
from holdfast.testing import LocalExecutor, collect
from tests.conftest import Executor
from tests.lives import Life, live, lives
from tests.savepoint.jobs import configuration

#: a key, a number and a time
Record = tuple[str, int, int]

_ANY_ORDER = WatermarkStrategy.for_bounded_out_of_orderness(Time.milliseconds(1000))
_STRATEGY = _ANY_ORDER.with_timestamp_assigner(lambda record, _: record[2])
_TUMBLING: Any = TumblingEventTimeWindows.of(Time.milliseconds(100), Time.milliseconds(30))
_SLIDING: Any = SlidingEventTimeWindows.of(Time.milliseconds(100), Time.milliseconds(40))
_GAPS: Any = SlidingEventTimeWindows.of(Time.milliseconds(30), Time.milliseconds(70))


class Numbers(AggregateFunction):
    """All numbers, in a list that is changed in place, with what `get_result` makes of it."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Record, accumulator: list[int]) -> list[int]:
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator: list[int]) -> tuple[int, ...]:
        return tuple(sorted(accumulator))

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        acc_a += acc_b
        return acc_a


class Named(ProcessWindowFunction[Any, Any, Any, Any]):
    """A result with its key and window."""

    def process(self, key: str, context: Any, elements: Any) -> Any:
        yield key, context.window().start, next(iter(elements))


def _sum(first: Any, second: Any) -> Any:
    """The key is not kept: nothing may look for it in a sum."""
    return "", first[1] + second[1], 0


def _aggregated(windowed: Any) -> DataStream:
    return windowed.aggregate(Numbers(), Named())  # type: ignore[no-any-return]


def _reduced(windowed: Any) -> DataStream:
    return windowed.reduce(_sum, Named())  # type: ignore[no-any-return]


def _windows(
    env: StreamExecutionEnvironment,
    records: list[Record],
    assigner: Any,
    finish: Callable[[Any], DataStream],
    combine: bool = True,
) -> DataStream:
    stream = env.from_collection(records).uid("records")
    timed = stream.assign_timestamps_and_watermarks(_STRATEGY).uid("time")
    windowed = timed.key_by(lambda record: record[0]).window(assigner)
    return finish(windowed.combine_before_exchange() if combine else windowed).uid("windows")


def _shown(rows: list[Any]) -> list[Any]:
    """A reduced record has the sum in its second field; one alone is itself."""
    return sorted(
        (key, start, value if isinstance(value[0], int) else value[1]) for key, start, value in rows
    )


_RECORDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-9, 9), st.integers(0, 900)),
    min_size=1,
    max_size=40,
)


@pytest.mark.parametrize("finish", [_aggregated, _reduced])
@pytest.mark.parametrize("assigner", [_TUMBLING, _SLIDING, _GAPS])
def test_results_are_those_of_single_records(
    assigner: Any, finish: Callable[[Any], DataStream]
) -> None:
    @settings(max_examples=8, deadline=None)
    @given(_RECORDS, lives(st.integers(1, 30)))
    def check(records: list[Record], life: Life) -> None:
        def build(combine: bool) -> Callable[[StreamExecutionEnvironment], DataStream]:
            return lambda env: _windows(env, records, assigner, finish, combine)

        found, expected = live(build(True), life), live(build(False), Life(1))
        assert _shown(found) == _shown(expected)

    check()


_MANY = [(key, n, n) for n in range(1000) for key in "ab"]


def test_it_runs_on_every_engine(executor: Executor) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    found = executor.collect(_windows(env, _MANY, _TUMBLING, _reduced))
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    assert _shown(found) == _shown(collect(_windows(env, _MANY, _TUMBLING, _reduced, False)))


def test_a_subtask_gets_a_partial_value_instead_of_records() -> None:
    received: dict[bool, int] = {}
    processing = TumblingWindows.processing
    for combine in (True, False):
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
        process = Mock()

        def counting(windows: TumblingWindows, process: Mock = process) -> Callable[..., Any]:
            return _seen(process, processing(windows))

        with patch.object(TumblingWindows, "processing", counting):
            collect(_windows(env, _MANY, _TUMBLING, _aggregated, combine), quota=500)
        received[combine] = process.call_count
    assert received[False] == len(_MANY)
    assert received[True] * 10 < len(_MANY)


def _seen(mock: Mock, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function; the mock is called, too."""

    def call(*args: Any) -> Any:
        mock()
        return function(*args)

    return call


def test_windows_of_the_whole_stream() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    timed = env.from_collection(_MANY).assign_timestamps_and_watermarks(_STRATEGY)
    sums = timed.window_all(_TUMBLING).combine_before_exchange().reduce(_sum)
    assert sum(total for _, total, _ in collect(sums)) == sum(n for _, n, _ in _MANY)


@pytest.mark.parametrize("first", [True, False])
def test_it_can_be_turned_on_and_off(first: bool, tmp_path: Path) -> None:
    """The state of the windows is the same."""

    def build(combine: bool, start: str | None = None) -> DataStream:
        config = configuration(tmp_path / str(combine), "hashmap", start)
        env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(2)
        return _windows(env, _MANY, _SLIDING, _aggregated, combine)

    with LocalExecutor(build(first), quota=700) as run:
        run.epoch()
        path = run.savepoint(tmp_path / "savepoint")
        found = list(run.records)
    with LocalExecutor(build(not first, path), quota=700) as run:
        run.run_to_end()
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    expected = collect(_windows(env, _MANY, _SLIDING, _aggregated, False))
    assert sorted(found + run.records) == sorted(expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.trigger(CountTrigger.of(2)), "a trigger or an evictor needs the records"),
        (lambda w: w.evictor(CountEvictor.of(2)), "a trigger or an evictor needs the records"),
        (lambda w: w.allowed_lateness(5), "late records are handled one by one"),
        (lambda w: w.side_output_late_data(OutputTag("late")), "late records are handled one by"),
    ],
)
def test_what_needs_single_records_is_refused(change: Any, message: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(JobDefinitionError, match=message):
        _windows(env, [("a", 1, 1)], _TUMBLING, lambda windowed: _reduced(change(windowed)))


def test_sessions_and_functions_of_all_records_are_refused() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    sessions: Any = EventTimeSessionWindows.with_gap(Time.milliseconds(10))
    with pytest.raises(JobDefinitionError, match="use tumbling or sliding windows of event time"):
        _windows(env, [("a", 1, 1)], sessions, _reduced)
    with pytest.raises(JobDefinitionError, match="the function needs all records of a window"):
        _windows(env, [("a", 1, 1)], _TUMBLING, lambda windowed: windowed.process(Named()))


def test_keys_are_those_of_records() -> None:
    """Lists, which are keys where their type is declared, and None."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    records: Any = [([1, 2], 1, 1), ([1, 2], 2, 2), ([3], 4, 3)]
    timed = env.from_collection(records).assign_timestamps_and_watermarks(_STRATEGY)
    lists = timed.key_by(lambda record: record[0], Types.LIST(Types.INT()))
    found = collect(_reduced(lists.window(_TUMBLING).combine_before_exchange()))
    assert sorted((key, value[1]) for key, _, value in found) == [([1, 2], 3), ([3], 4)]
    nothing = timed.key_by(lambda record: None).window(_TUMBLING).combine_before_exchange()
    assert [(key, value[1]) for key, _, value in collect(_reduced(nothing))] == [(None, 7)]


def test_a_function_must_return_something() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    with pytest.raises(JobExecutionError, match="a window cannot contain None"):
        collect(
            _windows(
                env, _MANY, _TUMBLING, lambda windowed: windowed.reduce(lambda first, second: None)
            )
        )


def test_a_failure_names_the_record() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    records: Any = [("a", 1, 1), ("a", None, 2)]
    with pytest.raises(JobExecutionError, match=r"(?s)in operator 'Combine'.*\('a', None, 2\)"):
        collect(_windows(env, records, _TUMBLING, _reduced))


def test_the_first_record_is_not_changed_for_others() -> None:
    """A function that changes its argument sees a copy: another operator may have the record."""

    def extended(first: list[Any], second: list[Any]) -> list[Any]:
        first[1] += second[1]
        return first

    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    records = [["a", 1, 1], ["a", 2, 2]]
    timed = env.from_collection(records, Types.PICKLED_BYTE_ARRAY())
    timed = timed.assign_timestamps_and_watermarks(_STRATEGY)
    windowed = timed.key_by(lambda record: record[0]).window(_SLIDING)
    sums = windowed.combine_before_exchange().reduce(extended)
    numbers = sums.map(lambda record: ("sum", record[1])).union(
        timed.map(lambda record: ("record", record[1]))
    )
    found = sorted(collect(numbers))
    assert found == [("record", 1), ("record", 2), ("sum", 3), ("sum", 3), ("sum", 3)]
