"""Timers of keyed functions: when they fire, in which order, and what they live through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import WatermarkStrategy
from holdfast.datastream import (
    DataStream,
    KeyedProcessFunction,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TimeDomain,
)
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.errors import UserFunctionError
from holdfast.testing import AdvanceClock, EndOfEpoch, LocalExecutor, ScriptedSource, collect
from tests.crashing import undisturbed
from tests.lives import Life, live, lives

pytestmark = pytest.mark.usefixtures("disturbance")

MIN = -(2**63)
MAX = 2**63 - 1
#: how far the watermark is behind the largest timestamp
DELAY = 3
#: key, timestamp of the record, what to do, for which time
Command = tuple[str, int, str, int]

by_fields = WatermarkStrategy.for_bounded_out_of_orderness(DELAY).with_timestamp_assigner(
    lambda record, _: record[1]
)


class Obeys(KeyedProcessFunction):
    """Sets and deletes timers as the records say; some timers set or delete others."""

    def process_element(self, value: Command, ctx: KeyedProcessFunction.Context) -> None:
        timers = ctx.timer_service()
        if value[2] == "set":
            timers.register_event_time_timer(value[3])
        else:
            timers.delete_event_time_timer(value[3])

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterable[tuple[str, int]]:
        assert ctx.timestamp() == timestamp
        assert ctx.time_domain() is TimeDomain.EVENT_TIME
        assert timestamp <= ctx.timer_service().current_watermark()
        if timestamp % 7 == 3:
            ctx.timer_service().register_event_time_timer(timestamp + 5)
        if timestamp % 5 == 0:
            ctx.timer_service().delete_event_time_timer(timestamp + 1)
        yield ctx.get_current_key(), timestamp


def model_of_obeys(script: list[Any]) -> dict[str, list[int]]:
    """The same with a set of timers per key."""
    timers: dict[str, set[int]] = {"a": set(), "b": set(), "c": set()}
    fired: dict[str, list[int]] = {key: [] for key in timers}
    watermark = largest = MIN
    for element in [*script, EndOfEpoch(), None]:
        if isinstance(element, tuple):
            key, timestamp, what, time = element
            largest = max(largest, timestamp)
            timers[key].add(time) if what == "set" else timers[key].discard(time)
            continue
        now = MAX if element is None else max(watermark, largest - DELAY - 1)
        if now > watermark:
            watermark = now
            for key in timers:
                fired[key] += fire(timers[key], now)
    return fired


def fire(timers: set[int], now: int) -> Iterator[int]:
    while due := [time for time in timers if time <= now]:
        time = min(due)
        timers.remove(time)
        timers |= {time + 5} if time % 7 == 3 else set()
        timers -= {time + 1} if time % 5 == 0 else set()
        yield time


commands = st.tuples(
    st.sampled_from("abc"),
    st.integers(0, 60),
    st.sampled_from(["set", "set", "delete"]),
    st.integers(0, 60),
)


@undisturbed
@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(commands, commands, st.just(EndOfEpoch())), max_size=30), lives())
def test_timers_do_what_a_sorted_list_does(script: list[Any], life: Life) -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        source = env.from_source(ScriptedSource(script)).assign_timestamps_and_watermarks(by_fields)
        return source.key_by(lambda command: command[0]).process(Obeys())

    fired: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    for key, timestamp in live(build, life):
        fired[key].append(timestamp)
    assert fired == model_of_obeys(script)


class Alarm(KeyedProcessFunction):
    """Sets a processing-time timer for each record, so much later as the record says."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.records = runtime_context.get_state(ValueStateDescriptor("records", int))

    def process_element(self, value: tuple[str, int], ctx: KeyedProcessFunction.Context) -> None:
        assert ctx.timestamp() is None
        self.records.update((self.records.value() or 0) + 1)
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + value[1])

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterable[tuple[str, int, int | None]]:
        assert ctx.time_domain() is TimeDomain.PROCESSING_TIME
        yield ctx.get_current_key(), timestamp, self.records.value()


def alarms(env: StreamExecutionEnvironment, script: list[Any]) -> DataStream:
    source = env.from_source(ScriptedSource(script))
    return source.key_by(lambda record: record[0]).process(Alarm())


def test_processing_time_timers_fire_without_data(env: StreamExecutionEnvironment) -> None:
    script = [("a", 5), ("b", 7), ("a", 5), EndOfEpoch(), *[AdvanceClock(2)] * 6, EndOfEpoch()]
    with LocalExecutor(alarms(env, script), workers=2) as run:
        seen = []
        while not run.finished:
            run.epoch()
            seen.append((run.clock(), list(run.records)))
    first = [record for at, records in seen for record in records if at < 7]
    assert set(first) == {("a", 5, 2)}
    assert run.records == [("a", 5, 2), ("b", 7, 1)]


def test_timers_fire_in_the_order_of_their_times(env: StreamExecutionEnvironment) -> None:
    records = [("a", delay) for delay in (9, 2, 7, 7, 1, 4)]
    script = [*records, EndOfEpoch(), AdvanceClock(100), EndOfEpoch()]
    assert [time for _, time, _ in collect(alarms(env, script))] == [1, 2, 4, 7, 9]


@undisturbed
@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.one_of(
            # NB: a timer that is due at once fires at once, and can then be set once more
            st.tuples(st.sampled_from("abc"), st.integers(1, 20)),
            st.just(EndOfEpoch()),
            st.just(AdvanceClock(4)),
        ),
        max_size=20,
    ),
    lives(),
)
def test_processing_time_timers_survive(script: list[Any], life: Life) -> None:
    """Each once, never before its time; the clock itself does not go back in a crash."""
    full = [*script, EndOfEpoch(), AdvanceClock(10_000), EndOfEpoch()]
    fired = Counter(key for key, _, _ in live(lambda env: alarms(env, full), life))
    wanted = Counter(record[0] for record in script if isinstance(record, tuple))
    assert set(fired) == set(wanted)
    assert fired <= wanted, "no timer fires twice"
    if not life.events and life.parallelism == 1:
        assert fired == Counter(key for key, _ in distinct_alarms(script))


def distinct_alarms(script: list[Any]) -> set[tuple[str, int]]:
    clock, found = 0, set()
    for element in script:
        if isinstance(element, AdvanceClock):
            clock += 4
        elif isinstance(element, tuple):
            found.add((element[0], clock + element[1]))
    return found


class OnTimerContextGone(KeyedProcessFunction):
    """Says the timestamp that each record and each timer sees."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        ctx.timer_service().register_processing_time_timer(0)
        yield "record", ctx.timestamp()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield "timer", ctx.timestamp()


def test_the_timestamp_of_a_timer_is_not_that_of_the_next_record(
    env: StreamExecutionEnvironment,
) -> None:
    script = [1, EndOfEpoch(), 1]
    keyed = env.from_source(ScriptedSource(script)).key_by(lambda n: n)
    assert collect(keyed.process(OnTimerContextGone())) == [
        ("record", None),
        ("timer", 0),
        ("record", None),
        ("timer", 0),
    ]


class SetsTimer(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(1)


def test_a_timer_without_a_key(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1]).process(SetsTimer()).name("sets")
    with pytest.raises(Exception, match=r"'sets' sets a timer, but timers belong to keys.*key_by"):
        collect(stream)


class FailsInTimer(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(5)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield 1 / (timestamp - 5)


def test_a_failure_in_a_timer_says_where(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1]).key_by(lambda n: n).process(FailsInTimer()).name("fails")
    with pytest.raises(UserFunctionError, match=r"ZeroDivisionError.*on_timer(.|\n)*'fails'"):
        collect(stream)
