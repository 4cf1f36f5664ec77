"""State that is changed in place and not saved: found and named, with every kind and backend."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Configuration, Time, Types
from holdfast.datastream import (
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.functions import (
    AggregateFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
from holdfast.datastream.state import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.datastream.windows.assigners import CountTumblingWindowAssigner
from holdfast.errors import UserFunctionError
from holdfast.state.errors import StateMutationError
from holdfast.testing import KeyedHarness, LocalExecutor
from tests.conftest import Executor

CHECK = "holdfast.state.check-mutations"
PLAIN_VIEWS = ("holdfast.state.live.value_views", "holdfast.state.live.views")


class Collect(AggregateFunction):
    """The values themselves, in a list, which is also the result."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return a + b


def folding() -> StateDescriptor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return FoldingStateDescriptor("s", [], lambda folded, value: [*folded, value])


def concatenated(a: list[Any], b: list[Any]) -> list[Any]:
    return a + b


@dataclass
class Kind:
    """A kind of state with lists in it: how to save one, to read one, and what it is called."""

    make: Callable[[], StateDescriptor]
    save: Callable[[Any, list[Any]], None]
    read: Callable[[Any], list[Any]]
    what: str
    remedy: str


PLAIN = {
    "value": Kind(
        lambda: ValueStateDescriptor("s", Types.LIST(Types.LONG())),
        lambda s, v: s.update(v),
        lambda s: s.value(),
        "value of its state 's', key 'k'",
        "pass it to update()",
    ),
    "untyped": Kind(
        lambda: ValueStateDescriptor("s"),
        lambda s, v: s.update(v),
        lambda s: s.value(),
        "value of its state 's', key 'k'",
        "pass it to update()",
    ),
    "list": Kind(
        lambda: ListStateDescriptor("s", Types.LIST(Types.LONG())),
        lambda s, v: s.update([v]),
        lambda s: s.get()[0],
        "element of its state 's', key 'k'",
        "pass the whole list to update()",
    ),
    "map": Kind(
        lambda: MapStateDescriptor("s", Types.STRING(), Types.LIST(Types.LONG())),
        lambda s, v: s.put("m", v),
        lambda s: s.get("m"),
        "value of its state 's' for 'm', key 'k'",
        "pass it to put()",
    ),
    "reducing": Kind(
        lambda: ReducingStateDescriptor("s", concatenated),
        lambda s, v: s.add(v),
        lambda s: s.get(),
        "accumulator of its state 's', key 'k'",
        "pass the value to add to add()",
    ),
    "aggregating": Kind(
        lambda: AggregatingStateDescriptor("s", Collect()),
        lambda s, v: s.add(v[0]),
        lambda s: s.get(),
        "accumulator of its state 's', key 'k'",
        "pass the value to add to add()",
    ),
    "folding": Kind(
        folding,
        lambda s, v: s.add(v[0]),
        lambda s: s.get(),
        "accumulator of its state 's', key 'k'",
        "pass the value to add to add()",
    ),
}


@pytest.fixture(params=sorted(PLAIN))
def kind(request: pytest.FixtureRequest) -> Kind:
    return PLAIN[request.param]


@pytest.fixture(params=[False, True], ids=["for ever", "ttl"])
def descriptor(request: pytest.FixtureRequest, kind: Kind) -> StateDescriptor:
    made = kind.make()
    if request.param:
        made.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    return made


class Acting(KeyedProcessFunction):
    """Does what each record says with its state; a text in place of it stands for a timer."""

    def __init__(self, descriptor: StateDescriptor, **actions: Callable[[Any], None]) -> None:
        self.descriptor = descriptor
        self.actions = actions

    def open(self, runtime_context: RuntimeContext) -> None:
        get: dict[str, Callable[[Any], Any]] = {
            "value": runtime_context.get_state,
            "list": runtime_context.get_list_state,
            "map": runtime_context.get_map_state,
            "reducing": runtime_context.get_reducing_state,
            "aggregating": runtime_context.get_aggregating_state,
            "folding": runtime_context.get_folding_state,
        }
        self.state = get[self.descriptor.kind](self.descriptor)

    def process_element(self, value: str, ctx: Any) -> Iterable[str]:
        if value == "timer":
            ctx.timer_service().register_event_time_timer(10)
        else:
            self.actions[value](self.state)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        self.actions["fire"](self.state)


def acting(
    descriptor: StateDescriptor, checks: bool = True, **actions: Callable[[Any], None]
) -> KeyedHarness:
    function = Acting(descriptor, **actions)
    return KeyedHarness(function, lambda _: "k", name="op", check_mutations=checks)


# What is found.


def test_a_value_that_was_read_and_changed(kind: Kind, descriptor: StateDescriptor) -> None:
    harness = acting(
        descriptor, save=lambda s: kind.save(s, [1]), change=lambda s: kind.read(s).append(2)
    )
    harness.process("save")
    with pytest.raises(StateMutationError) as error:
        harness.process("change")
    assert str(error.value) == (
        f"operator 'op' changed the {kind.what} in place and did not save it: it was [1] and is "
        f"[1, 2]; {kind.remedy} after the last change, or change a copy"
    )


def test_a_value_that_was_changed_after_it_was_saved(
    kind: Kind, descriptor: StateDescriptor
) -> None:
    def save_and_change(state: Any) -> None:
        kind.save(state, [1])
        kind.read(state).append(2)

    with pytest.raises(StateMutationError, match=r"it was \[1\] and is \[1, 2\]"):
        acting(descriptor, both=save_and_change).process("both")


def test_the_object_that_was_passed_to_the_state() -> None:
    def save_and_change(state: Any) -> None:
        mine = [1]
        state.update(mine)
        mine.append(2)

    with pytest.raises(StateMutationError, match=r"it was \[1\] and is \[1, 2\]"):
        acting(ValueStateDescriptor("s"), both=save_and_change).process("both")


def test_a_change_by_a_timer(kind: Kind, descriptor: StateDescriptor) -> None:
    harness = acting(
        descriptor, save=lambda s: kind.save(s, [1]), fire=lambda s: kind.read(s).append(2)
    )
    harness.process("save", "timer")
    with pytest.raises(StateMutationError, match=re.escape(kind.what)):
        harness.advance_watermark(10)


def test_a_default_that_was_changed_and_not_saved() -> None:
    harness = acting(
        ValueStateDescriptor("s", default_value=[]), change=lambda s: s.value().append(1)
    )
    with pytest.raises(StateMutationError, match=r"it was \[\] and is \[1\]"):
        harness.process("change")


def test_one_entry_changed_while_another_is_saved() -> None:
    def change(state: Any) -> None:
        state.get("a").append(1)
        state.put("b", [2])

    harness = acting(
        MapStateDescriptor("s"), fill=lambda s: s.put_all({"a": [], "b": []}), change=change
    )
    harness.process("fill")
    with pytest.raises(StateMutationError, match="of its state 's' for 'a'"):
        harness.process("change")


@pytest.mark.parametrize("read", ["items", "values"])
def test_entries_that_were_read_all_at_once(read: str) -> None:
    def change(state: Any) -> None:
        (found,) = getattr(state, read)()
        (found[1] if read == "items" else found).append(1)

    harness = acting(MapStateDescriptor("s"), fill=lambda s: s.put("a", []), change=change)
    harness.process("fill")
    with pytest.raises(StateMutationError, match="of its state 's' for 'a'"):
        harness.process("change")


def test_an_element_that_is_added_again_is_not_saved_where_it_was() -> None:
    def change(state: Any) -> None:
        first = state.get()[0]
        first.append(1)
        state.add(first)

    harness = acting(ListStateDescriptor("s"), fill=lambda s: s.add([]), change=change)
    harness.process("fill")
    with pytest.raises(StateMutationError, match="element of its state 's'"):
        harness.process("change")


class Session:
    """Neither a value of a library's nor with an equality of its own."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def __repr__(self) -> str:
        return f"Session({self.pages})"


def test_objects_of_the_users_own_classes() -> None:
    harness = acting(
        ValueStateDescriptor("s"),
        save=lambda s: s.update(Session()),
        change=lambda s: s.value().pages.append("home"),
    )
    harness.process("save")
    with pytest.raises(StateMutationError, match=r"it was Session\(\[\]\) and is Session\(\['home"):
        harness.process("change")


# What is right.


def test_a_change_that_is_saved(kind: Kind, descriptor: StateDescriptor) -> None:
    def change(state: Any) -> None:
        value = kind.read(state)
        if kind.what.startswith("accumulator"):
            kind.save(state, [2])
        else:
            value.append(2)
            kind.save(state, value)

    harness = acting(descriptor, save=lambda s: kind.save(s, [1]), change=change)
    harness.process("save", "change", "change")
    assert kind.read(harness._instance.context.state_named("s")) == [1, 2, 2]


def test_a_change_of_what_is_removed_or_replaced(kind: Kind, descriptor: StateDescriptor) -> None:
    def change_and_clear(state: Any) -> None:
        kind.read(state).append(2)
        state.clear()

    def change_and_replace(state: Any) -> None:
        kind.read(state).append(2)
        state.clear()
        kind.save(state, [3])

    harness = acting(
        descriptor,
        save=lambda s: kind.save(s, [1]),
        clear=change_and_clear,
        replace=change_and_replace,
    )
    harness.process("save", "replace", "clear", "save", "replace")


def test_a_list_of_the_callers_own() -> None:
    """The list that ``get`` returns is no part of the state, only its elements are."""
    harness = acting(
        ListStateDescriptor("s"), fill=lambda s: s.add([1]), sort=lambda s: s.get().clear()
    )
    harness.process("fill", "sort")
    assert harness.state("s", "k") == [[1]]


@dataclass
class Page:
    name: str
    visits: set[int] = field(default_factory=set)

    @cached_property
    def length(self) -> int:
        return len(self.name)


def test_what_does_not_change_the_value() -> None:
    """An object may keep what it has computed, and a set may come to have another order."""

    def look(state: Any) -> None:
        page = state.value()
        assert page.length == 4
        page.visits.discard(8)
        page.visits.add(8)

    page = Page("home", {16, 8, 0})
    harness = acting(ValueStateDescriptor("s"), save=lambda s: s.update(page), look=look)
    harness.process("save", "look")


def test_what_a_record_did_that_failed_is_not_held_against_the_next_one() -> None:
    def fail(state: Any) -> None:
        state.value().append(2)
        message = "boom"
        raise ValueError(message)

    harness = acting(
        ValueStateDescriptor("s"), save=lambda s: s.update([1]), fail=fail, look=lambda s: s.value()
    )
    harness.process("save")
    with pytest.raises(ValueError, match="boom"):
        harness.process("fail")
    harness.process("look")


def test_a_value_that_cannot_be_saved_is_told_at_the_end_of_the_epoch() -> None:
    harness = acting(
        ValueStateDescriptor("s", Types.LONG()), save=lambda s: s.update(["no number"])
    )
    harness.process("save")


# When it is off.


def test_it_can_be_turned_off_and_costs_nothing_then(kind: Kind) -> None:
    harness = acting(
        kind.make(),
        checks=False,
        save=lambda s: kind.save(s, [1]),
        change=lambda s: kind.read(s).append(2),
    )
    harness.process("save", "change")
    assert harness._instance.step().check is None
    assert type(harness._instance.context.state_named("s")).__module__ in PLAIN_VIEWS


# In jobs.


class Carts(KeyedProcessFunction):
    """Forgets to save the cart."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.cart = runtime_context.get_state(ValueStateDescriptor("cart", Types.LIST(Types.INT())))

    def process_element(self, value: int, ctx: Any) -> Iterable[int]:
        cart = self.cart.value()
        if cart is None:
            self.cart.update([value])
        else:
            cart.append(value)
        yield value


def carts(settings: dict[str, str]) -> Any:
    env = StreamExecutionEnvironment(Configuration(settings)).set_parallelism(1)
    numbers = env.from_collection([1, 2, 3])
    return numbers.key_by(lambda n: "anna").process(Carts()).name("carts")


FORGOTTEN = (
    r"operator 'carts' changed the value of its state 'cart', key 'anna' in place and did not save "
    r"it: it was \[1\] and is \[1, 2\]; pass it to update\(\) after the last change"
)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_job_in_this_process_is_checked(backend: str, tmp_path: Path) -> None:
    settings = {"state.backend.type": backend, "state.backend.rocksdb.localdir": str(tmp_path)}
    with (
        LocalExecutor(carts(settings)) as run,
        pytest.raises(StateMutationError, match=FORGOTTEN),
    ):
        run.run_to_end()
    with LocalExecutor(carts(settings | {CHECK: "false"})) as run:
        run.run_to_end()
    assert run.records == [1, 2, 3]


@pytest.mark.spark
def test_a_job_on_spark_is_checked_if_that_is_set(spark: Any, engine: str) -> None:
    with pytest.raises(StateMutationError, match=FORGOTTEN):
        list(carts({CHECK: "true"}).execute_and_collect())
    assert list(carts({}).execute_and_collect()) == [1, 2, 3]


class Enrich(ProcessWindowFunction):
    """Changes the records of a window that will fire again."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        for element in elements:
            element.append("seen")
            yield element


def test_the_contents_of_a_window(in_process: Executor) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    records = env.from_collection([["a"], ["b"], ["c"]]).key_by(lambda r: 0)
    once = records.window(CountTumblingWindowAssigner.of(3)).process(Enrich())
    assert len(in_process.collect(once)) == 3  # they go when it has fired
    records = env.from_collection([["a"], ["b"], ["c"]]).key_by(lambda r: 0)
    again = records.count_window(3, 1).process(Enrich()).name("enriched")
    with pytest.raises(
        StateMutationError,
        match=r"'enriched' changed the element of its state 'window-contents', .*; change a copy$",
    ):
        in_process.collect(again)


def test_a_record_that_an_operator_keeps_and_the_next_one_changes(in_process: Executor) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    sums = env.from_collection([[1], [2]]).key_by(lambda r: 0).reduce(concatenated).name("sums")
    with pytest.raises(StateMutationError, match="'sums' changed the value of its state 'reduced'"):
        in_process.collect(sums.map(lambda r: r.clear() or r))


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LIST(Types.LONG()))


class Rules(BroadcastProcessFunction):
    """Changes a rule where it must be put, or where it must not be changed at all."""

    def __init__(self, careless: str) -> None:
        self.careless = careless

    def process_broadcast_element(self, value: int, ctx: Any) -> None:
        rules = ctx.get_broadcast_state(RULES)
        rule = rules.get("r") or []
        rule.append(value)
        if self.careless != "broadcast" or value == 1:
            rules.put("r", rule)

    def process_element(self, value: int, ctx: Any) -> Iterable[int]:
        rule = ctx.get_broadcast_state(RULES).get("r") or []
        if self.careless == "read only":
            rule.append(value)
        yield len(rule)


class KeyedRules(Rules, KeyedBroadcastProcessFunction):
    """The same for a keyed stream; and a broadcast record changes the state of all keys."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def process_broadcast_element(self, value: int, ctx: Any) -> None:
        super().process_broadcast_element(value, ctx)

        def change(key: Any, state: Any) -> None:
            elements = state.get()
            elements[0].append(value)
            if self.careless != "all keys":
                state.update(elements)

        ctx.apply_to_keyed_state(ListStateDescriptor("seen"), change)

    def process_element(self, value: int, ctx: Any) -> Iterable[int]:
        self.seen.add([value])
        yield from super().process_element(value, ctx)


def with_rules(function: Any, keyed: bool) -> LocalExecutor:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    rules = env.from_collection([1, 2, 3]).broadcast(RULES)
    numbers: Any = env.from_collection([5, 6, 7])
    if keyed:
        numbers = numbers.key_by(lambda n: n % 2)
    return LocalExecutor(numbers.connect(rules).process(function).name("ruled"), quota=1)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("careless", ["broadcast", "read only"])
def test_values_of_broadcast_state(careless: str, keyed: bool) -> None:
    kind = KeyedRules if keyed else Rules
    with (
        with_rules(kind(careless), keyed) as run,
        pytest.raises(
            StateMutationError,
            match=r"'ruled' changed the value of its state 'rules' for 'r' in place .*"
            r"pass it to put\(\)",
        ),
    ):
        run.run_to_end()
    with with_rules(kind(""), keyed) as run:
        run.run_to_end()


def test_the_state_of_all_keys() -> None:
    with (
        with_rules(KeyedRules("all keys"), True) as run,
        pytest.raises(StateMutationError, match=r"element of its state 'seen', key [01] in place"),
    ):
        run.run_to_end()


class Failing(Carts):
    """Raises as well; that comes first."""

    def process_element(self, value: int, ctx: Any) -> Iterable[int]:
        yield from super().process_element(value, ctx)
        if value == 2:
            message = "boom"
            raise ValueError(message)


def test_an_exception_of_the_function_comes_first() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    stream = env.from_collection([1, 2, 3]).key_by(lambda n: "anna").process(Failing())
    with LocalExecutor(stream) as run, pytest.raises(UserFunctionError, match="boom"):
        run.run_to_end()
