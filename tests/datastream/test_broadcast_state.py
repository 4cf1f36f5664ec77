"""The broadcast state pattern: rules that every subtask knows, beside a stream that they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Types, WatermarkStrategy
from holdfast.datastream import (
    BroadcastProcessFunction,
    DataStream,
    KeyedBroadcastProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.functions import KeyedStateFunction
from holdfast.datastream.state import MapStateDescriptor, ValueStateDescriptor
from holdfast.errors import JobDefinitionError, UserFunctionError
from holdfast.testing import AdvanceClock, EndOfEpoch, LocalExecutor, ScriptedSource, collect
from tests.crashing import undisturbed
from tests.lives import Life, live, lives

if TYPE_CHECKING:
    from tests.conftest import Executor

pytestmark = pytest.mark.usefixtures("disturbance")

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())
OTHERS = MapStateDescriptor("others", Types.STRING(), Types.TUPLE([Types.INT(), Types.INT()]))
COUNT = ValueStateDescriptor("count", Types.LONG())


class Rules(BroadcastProcessFunction[str, tuple[str, int], Any]):
    """Says which rules a record sees."""

    def process_element(
        self, value: str, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any]:
        rules = ctx.get_broadcast_state(RULES)
        assert sorted(rules) == sorted(rules.keys()) == sorted(key for key, _ in rules.items())
        assert rules.is_empty() == (not list(rules.values()))
        assert all(key in rules and rules[key] == rules.get(key) for key in rules)
        yield value, dict(rules.items())

    def process_broadcast_element(
        self, value: tuple[str, int], ctx: BroadcastProcessFunction.Context
    ) -> None:
        rules = ctx.get_broadcast_state(RULES)
        if value[1]:
            rules.put(*value)
        else:
            rules.remove(value[0])


class KeyedRules(KeyedBroadcastProcessFunction[str, Any, Any, Any]):
    """Counts per key; a broadcast record adds to all counts, or clears those that are even."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)

    def process_element(
        self, value: str, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.count.value(), ctx.get_broadcast_state(RULES).get("sum")

    def process_broadcast_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        rules = ctx.get_broadcast_state(RULES)
        rules.put("sum", (rules.get("sum") or 0) + value)
        change = Clear() if value == 0 else lambda key, state: state.update(state.value() + value)
        ctx.apply_to_keyed_state(COUNT, change)


class Clear(KeyedStateFunction):
    """Clears even counts."""

    def process(self, key: Any, state: Any) -> None:
        if state.value() % 2 == 0:
            state.clear()


def rules_of(env: StreamExecutionEnvironment, records: list[Any], rules: list[Any]) -> DataStream:
    stream = env.from_source(ScriptedSource(records)).rebalance()
    broadcast = env.from_source(ScriptedSource(rules)).broadcast(RULES)
    return stream.connect(broadcast).process(Rules())


def test_every_subtask_knows_the_rules(env: StreamExecutionEnvironment, executor: Executor) -> None:
    end = EndOfEpoch()
    records = [end, "a", "b", "c", end, "d", "e", end, end, "f"]
    rules = [("x", 1), ("y", 2), end, end, ("x", 0), end, ("y", 3), end]
    got = dict(executor.collect(rules_of(env, records, rules)))
    assert got == {
        **{name: {"x": 1, "y": 2} for name in "abc"},
        "d": got["d"],  # of one epoch with the change: before it, or after it
        "e": got["e"],
        "f": {"y": 3},
    }
    assert all(got[name] in ({"x": 1, "y": 2}, {"y": 2}) for name in "de")


rule = st.tuples(st.sampled_from("xyz"), st.integers(0, 3))


@undisturbed
@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(rule, max_size=3), max_size=6), lives())
def test_records_see_the_rules_of_all_epochs_before(
    epochs: list[list[tuple[str, int]]], life: Life
) -> None:
    """Rules come in even epochs and records in odd ones, three for each subtask."""
    script: list[Any] = [EndOfEpoch()]
    rules: list[Any] = []
    expected, known = [], {}
    for number, epoch in enumerate(epochs):
        rules += [*epoch, EndOfEpoch(), EndOfEpoch()]
        script += [*[number] * 9, EndOfEpoch(), EndOfEpoch()]
        for name, value in epoch:
            known[name] = value
            known = {name: value for name, value in known.items() if value}
        expected += [(number, tuple(sorted(known.items())))] * 9
    records = live(lambda env: rules_of(env, script, rules), life)
    assert Counter((n, tuple(sorted(seen.items()))) for n, seen in records) == Counter(expected)


@undisturbed
@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.sampled_from("abcdefgh") | st.integers(0, 3), max_size=14),
    lives(),
)
def test_all_keys_can_be_changed(events: list[Any], life: Life) -> None:
    """Each event in an epoch of its own: a record, or a broadcast one."""
    script: list[Any] = []
    rules: list[Any] = []
    counts: dict[str, int] = {}
    total, expected = None, []
    for event in events:
        if isinstance(event, str):
            script.append(event)
            counts[event] = counts.get(event, 0) + 1
            expected.append((event, counts[event], total))
        else:
            rules.append(event)
            total = (total or 0) + event
            counts = {
                key: count + event for key, count in counts.items() if event or count % 2 == 1
            }
        script.append(EndOfEpoch())
        rules.append(EndOfEpoch())

    def build(env: StreamExecutionEnvironment) -> DataStream:
        keyed = env.from_source(ScriptedSource(script)).key_by(lambda name: name)
        broadcast = env.from_source(ScriptedSource(rules)).broadcast(RULES)
        return keyed.connect(broadcast).process(KeyedRules())

    assert live(build, life) == expected


class Reminder(KeyedBroadcastProcessFunction[str, Any, Any, Any]):
    """Timers of both domains on the keyed side, which read the broadcast state."""

    def process_element(
        self, value: tuple[str, int], ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> None:
        assert ctx.timestamp() == value[1]
        assert ctx.current_watermark() == ctx.timer_service().current_watermark()
        ctx.timer_service().register_event_time_timer(value[1] + 5)
        ctx.timer_service().register_processing_time_timer(ctx.current_processing_time() + 50)

    def process_broadcast_element(
        self, value: tuple[str, int], ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        assert ctx.timestamp() == value[1]
        ctx.get_broadcast_state(RULES).put(value[0], value[1])

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterable[Any]:
        rules = ctx.get_broadcast_state(RULES)
        yield ctx.time_domain().name, ctx.get_current_key(), timestamp, dict(rules.items())


def test_timers_read_the_broadcast_state(env: StreamExecutionEnvironment) -> None:
    end = EndOfEpoch()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, _: record[1]
    )
    first = env.from_source(ScriptedSource([("a", 1), end, ("b", 9), end, AdvanceClock(60), end]))
    second = env.from_source(ScriptedSource([("x", 1), end, ("y", 8), end, end]))
    keyed = first.assign_timestamps_and_watermarks(strategy).key_by(lambda record: record[0])
    rules = second.assign_timestamps_and_watermarks(strategy).broadcast(RULES)
    got = collect(keyed.connect(rules).process(Reminder()), workers=2)
    both = {"x": 1, "y": 8}
    assert got[0] == ("EVENT_TIME", "a", 6, both)
    assert ("EVENT_TIME", "b", 14, both) in got
    assert ("PROCESSING_TIME", "a", 50, both) in got
    assert len(got) == 4


class Asks(BroadcastProcessFunction[Any, Any, Any]):
    """Does something with its context."""

    def __init__(self, side: int, what: Any) -> None:
        self.side, self.what = side, what

    def process_element(
        self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any] | None:
        return [self.what(ctx)] if self.side == 0 else None

    def process_broadcast_element(
        self, value: Any, ctx: BroadcastProcessFunction.Context
    ) -> Iterable[Any] | None:
        return [self.what(ctx)] if self.side == 1 else None


class AsksWithKeys(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def __init__(self, side: int, what: Any) -> None:
        self.side, self.what = side, what

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)

    def process_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any] | None:
        return [self.what(self, ctx)] if self.side == 0 else None

    def process_broadcast_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterable[Any] | None:
        return [self.what(self, ctx)] if self.side == 1 else None


CHANGES = {
    "put": lambda state: state.put("a", 1),
    "put_all": lambda state: state.put_all({}),
    "remove": lambda state: state.remove("a"),
    "clear": lambda state: state.clear(),
    "setitem": lambda state: state.__setitem__("a", 1),
    "delitem": lambda state: state.__delitem__("a"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_other_side_cannot_change_it(env: StreamExecutionEnvironment, change: Any) -> None:
    numbers = env.from_collection([1])
    asks = Asks(0, lambda ctx: change(ctx.get_broadcast_state(RULES)))
    stream = numbers.connect(numbers.broadcast(RULES)).process(asks).name("rules")
    message = "the broadcast state 'rules' of operator 'rules' can be changed in process_broadcast"
    with pytest.raises(UserFunctionError, match=message):
        collect(stream)


@pytest.mark.parametrize("side", [0, 1])
def test_a_state_that_the_stream_was_not_broadcast_with(
    env: StreamExecutionEnvironment, side: int
) -> None:
    numbers = env.from_collection([1])
    asks = Asks(side, lambda ctx: ctx.get_broadcast_state(OTHERS))
    message = "requests the broadcast state 'others', but its stream was broadcast with 'rules'; gi"
    with pytest.raises(UserFunctionError, match=message):
        collect(numbers.connect(numbers.broadcast(RULES)).process(asks))


def test_a_broadcast_record_has_no_key(env: StreamExecutionEnvironment) -> None:
    keyed, rules = (
        env.from_collection([1, 1]).key_by(lambda n: n),
        env.from_source(ScriptedSource([EndOfEpoch(), 2])),
    )
    for what in (
        lambda function, ctx: function.count.value(),
        lambda function, ctx: function.count.update(1),
        lambda function, ctx: ctx.timer_service().register_event_time_timer(1),
    ):
        stream = keyed.connect(rules.broadcast(RULES)).process(AsksWithKeys(1, what))
        with pytest.raises(UserFunctionError, match="a broadcast record has no key, so there is"):
            collect(stream)


def test_several_states(env: StreamExecutionEnvironment) -> None:
    def both(ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put("a", 1)
        ctx.get_broadcast_state(OTHERS).put_all({"a": (1, 2), "b": (3, 4)})
        del ctx.get_broadcast_state(OTHERS)["b"]
        return (
            dict(ctx.get_broadcast_state(RULES).items()),
            dict(ctx.get_broadcast_state(OTHERS).items()),
        )

    numbers = env.from_collection([1])
    stream = numbers.connect(numbers.broadcast(RULES, OTHERS)).process(Asks(1, both))
    assert collect(stream.set_parallelism(1)) == [({"a": 1}, {"a": (1, 2)})]


ANYTHING = MapStateDescriptor("rules")


class Keeps(Rules):
    """Rules of which each value is a tuple in a dict."""

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(ANYTHING).put(value, {"nested": (value, [value])})

    def process_element(
        self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any]:
        yield ctx.get_broadcast_state(ANYTHING).get("x")


def test_values_of_any_kind_follow_the_subtask(env: StreamExecutionEnvironment) -> None:
    records = env.from_source(ScriptedSource([EndOfEpoch(), EndOfEpoch(), 1]))
    rules = env.from_collection(["x"]).broadcast(ANYTHING)
    stream = records.connect(rules).process(Keeps())
    assert collect(stream, workers=3) == [{"nested": ("x", ["x"])}]


@undisturbed
def test_unchanged_rules_are_not_encoded_again(
    env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.state.live.operator_state import _ElementCodec

    calls: Counter[str] = Counter()
    for name in ("encode", "decode"):
        original = getattr(_ElementCodec, name)

        def counted(*args: Any, name: str = name, original: Any = original) -> Any:
            calls[name] += 1
            return original(*args)

        monkeypatch.setattr(_ElementCodec, name, counted)
    script: list[Any] = [n for number in range(8) for n in (number, EndOfEpoch())]
    with LocalExecutor(rules_of(env, script, [("x", 1)])) as run:
        run.epoch()
        calls.clear()
        for _ in range(5):
            run.epoch()
    assert calls == {}


def test_wrong_arguments(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1])
    keyed = numbers.key_by(lambda n: n)
    broadcast = numbers.broadcast(RULES)
    with pytest.raises(TypeError, match=r"a keyed stream that .* takes a KeyedBroadcast"):
        keyed.connect(broadcast).process(Rules())
    with pytest.raises(TypeError, match=r"a stream without keys .* takes a BroadcastProcessFunc"):
        numbers.connect(broadcast).process(KeyedRules())
    with pytest.raises(TypeError, match="broadcast: expected descriptors of map states; got"):
        numbers.broadcast(COUNT)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="broadcast: two states have the name 'rules'; give each"):
        numbers.broadcast(RULES, MapStateDescriptor("rules"))
    other = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    with pytest.raises(JobDefinitionError, match="belongs to another environment"):
        numbers.connect(other.broadcast(RULES))
