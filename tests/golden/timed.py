"""Windows, joins, timers and state that expires, for the golden files of single commits.

One source gives ticks, in order, each with its time. Where a checkpoint was cut says which windows
had fired by then; `expected_windows` computes all of them without any of Holdfast, each with the
tick that makes it fire.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

from holdfast.common import Time, Types, WatermarkStrategy
from holdfast.datastream import (
    DataStream,
    KeyedProcessFunction,
    KeyedStream,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.functions import ProcessJoinFunction, TwoPhaseCommitSinkFunction
from holdfast.datastream.state import (
    ListStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tests.golden.program import Mean

TICKS = range(200)
#: milliseconds between two ticks
STEP = 100
HOUR = 3_600_000
#: the timers of processing time are behind it; none is due while a checkpoint is made
ALARMS = 2 * HOUR
#: the time by the clock at which a job goes on
LATER = 3 * HOUR

_GAP = 500
_IN_COUNT = 4
_IN_FIRING = 2


def key_of(tick: int) -> int:
    """Each key has six ticks one after the other, and then none for a while."""
    return tick // 6 % 5


def _add(a: int, b: int) -> int:
    return a + b


class Told(ProcessWindowFunction):
    """Tells what a window holds, and at which windows its key had fired before."""

    def __init__(self, name: str) -> None:
        self._name = name

    def process(
        self, key: int, context: ProcessWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterator[Any]:
        start = context.window().start
        fired = context.global_state().get_list_state(ListStateDescriptor("fired", Types.LONG()))
        yield "window", (self._name, key, start), (list(elements), list(fired.get()))
        fired.add(start)

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        """There is no state of a single window."""


class ToldOften(ProcessWindowFunction):
    """Tells what a window holds so far; the window's own state says how often it has fired."""

    def process(
        self, key: int, context: ProcessWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterator[Any]:
        state = context.window_state().get_state(ValueStateDescriptor("firings", Types.LONG()))
        firing = (state.value() or 0) + 1
        state.update(firing)
        place = ("triggered", key, context.window().start, firing)
        yield "window", place, (list(elements), [])

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        context.window_state().get_state(ValueStateDescriptor("firings", Types.LONG())).clear()


class Counted(ProcessWindowFunction):
    """Tells what a window without times holds."""

    def process(
        self, key: int, context: ProcessWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterator[Any]:
        first, *others = elements
        yield "window", ("counted", key, first), ([first, *others], [])


class Pairs(ProcessJoinFunction):
    """Tells the two ticks that were joined."""

    def process_element(
        self, left: int, right: int, ctx: ProcessJoinFunction.Context
    ) -> Iterator[Any]:
        yield "window", ("joined", left, right), ([left, right], [])


class Alarms(KeyedProcessFunction):
    """Sets a timer of processing time for every tick."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_processing_time_timer(ALARMS + value)

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[tuple[str, int, Any]]:
        yield "alarm", timestamp, ctx.get_current_key()


class Expiring(KeyedProcessFunction):
    """Keeps the last tick for an hour, and for years; tells both when the former is not there."""

    def open(self, runtime_context: RuntimeContext) -> None:
        brief = ValueStateDescriptor("brief", Types.LONG())
        brief.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        kept = ValueStateDescriptor("kept", Types.LONG())
        kept.enable_time_to_live(StateTtlConfig.new_builder(Time.days(3650)).build())
        self._brief = runtime_context.get_state(brief)
        self._kept = runtime_context.get_state(kept)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if self._brief.value() is None:
            yield "fresh", ctx.get_current_key(), (value, self._kept.value())
        self._brief.update(value)
        self._kept.update(value)


class Transactions(TwoPhaseCommitSinkFunction):
    """Transactions are lists of ticks; what is committed can be seen in this process."""

    committed: ClassVar[list[int]] = []

    def begin_transaction(self) -> list[int]:
        return []

    def invoke(self, transaction: list[int], value: int, context: Any) -> None:
        transaction.append(value)

    def pre_commit(self, transaction: list[int]) -> None:
        """A list can do without."""

    def commit(self, transaction: list[int]) -> None:
        Transactions.committed.extend(transaction)

    def abort(self, transaction: list[int]) -> None:
        """Nobody has seen it."""


def _windowed(ticks: KeyedStream) -> dict[str, DataStream]:
    """All operators with windows, by uid."""
    second = TumblingEventTimeWindows.of(Time.seconds(1))
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    sliding = SlidingEventTimeWindows.of(Time.seconds(2), Time.seconds(1))
    sessions = EventTimeSessionWindows.with_gap(Time.milliseconds(_GAP))
    return {
        "tumbling": ticks.window(second).process(Told("tumbling")),
        "sliding": ticks.window(sliding).reduce(_add, Told("sliding")),
        "averaged": ticks.window(second).aggregate(Mean(), Told("averaged"), pair),
        "sessions": ticks.window(sessions).process(Told("sessions")),
        "evicted": ticks.window(second).evictor(CountEvictor.of(2)).process(Told("evicted")),
        "triggered": ticks.window(second).trigger(CountTrigger.of(_IN_FIRING)).process(ToldOften()),
        "counted": ticks.count_window(_IN_COUNT).process(Counted()),
    }


def streams(env: StreamExecutionEnvironment) -> list[DataStream]:
    """Everything that tells something of its state."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda tick, _: tick * STEP
    )
    ticks = (
        env.from_collection(list(TICKS), Types.LONG())
        .uid("ticks")
        .assign_timestamps_and_watermarks(strategy)
        .uid("times")
        .set_parallelism(1)
    )
    ticks.add_sink(Transactions()).uid("transactions")
    keyed = ticks.key_by(key_of, Types.INT())
    even, odd = (_of_parity(ticks, rest) for rest in (0, 1))
    joined = even.interval_join(odd).between(Time.milliseconds(-STEP), Time.milliseconds(STEP))
    told = _windowed(keyed) | {
        "joined": joined.process(Pairs()),
        "alarms": keyed.process(Alarms()),
        "expiring": keyed.process(Expiring()),
        "ticks-read": ticks.map(lambda tick: ("tick", tick, None)),
    }
    return [stream.uid(uid) for uid, stream in told.items()]


def _of_parity(ticks: DataStream, rest: int) -> KeyedStream:
    """The even or the odd ticks, by key."""
    half = ticks.filter(lambda tick: tick % 2 == rest).uid(f"half-{rest}").set_parallelism(1)
    return half.key_by(key_of, Types.INT())


class Firing(NamedTuple):
    """What a window tells, and the tick that makes it fire; one after all ticks: their end."""

    value: Any
    due: int


def expected_windows() -> dict[tuple[Any, ...], Firing]:
    """Every firing of every window."""
    found = dict(_expected_joins())
    for key in {key_of(tick) for tick in TICKS}:
        ticks = [tick for tick in TICKS if key_of(tick) == key]
        found |= _expected_counts(key, ticks)
        found |= _expected_tumbling(key, ticks)
        found |= _expected_timed("sliding", key, _slices(ticks, 20, 10), sum)
        found |= _expected_timed("sessions", key, _sessions(ticks), list)
    return found


_Windows = dict[tuple[int, int], list[int]]


def _expected_tumbling(key: int, ticks: list[int]) -> dict[tuple[Any, ...], Firing]:
    slices = _slices(ticks, 10, 10)
    found = _expected_timed("tumbling", key, slices, list)
    found |= _expected_timed("averaged", key, slices, lambda held: sum(held) / len(held))
    found |= _expected_timed("evicted", key, slices, lambda held: held[-2:])
    for (start, _), held in slices.items():
        for count in range(_IN_FIRING, len(held) + 1, _IN_FIRING):
            place = ("triggered", key, start, count // _IN_FIRING)
            found[place] = Firing((held[:count], []), held[count - 1])
    return found


def _expected_timed(
    name: str, key: int, windows: _Windows, value_of: Callable[[list[int]], Any]
) -> dict[tuple[Any, ...], Firing]:
    found: dict[tuple[Any, ...], Firing] = {}
    fired: list[int] = []
    for (start, end), held in sorted(windows.items()):
        value = value_of(held)
        values = value if isinstance(value, list) else [value]
        found[name, key, start] = Firing((values, list(fired)), -(-end // STEP))
        fired.append(start)
    return found


def _expected_counts(key: int, ticks: list[int]) -> dict[tuple[Any, ...], Firing]:
    full = range(0, len(ticks) - _IN_COUNT + 1, _IN_COUNT)
    parts = [ticks[first : first + _IN_COUNT] for first in full]
    return {("counted", key, part[0]): Firing((part, []), part[-1]) for part in parts}


def _expected_joins() -> Iterator[tuple[tuple[Any, ...], Firing]]:
    for left in TICKS[::2]:
        for right in (left - 1, left + 1):
            if right in TICKS and key_of(left) == key_of(right):
                yield ("joined", left, right), Firing(([left, right], []), max(left, right))


def _slices(ticks: list[int], size: int, slide: int) -> _Windows:
    """The ticks by start and end of the window, in milliseconds."""
    windows: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for tick in ticks:
        for start in range(tick - tick % slide, tick - size, -slide):
            windows[start * STEP, (start + size) * STEP].append(tick)
    return windows


def _sessions(ticks: list[int]) -> _Windows:
    sessions: list[list[int]] = []
    for tick in ticks:
        if sessions and (tick - sessions[-1][-1]) * STEP < _GAP:
            sessions[-1].append(tick)
        else:
            sessions.append([tick])
    return {(held[0] * STEP, held[-1] * STEP + _GAP): held for held in sessions}
