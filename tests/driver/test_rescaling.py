"""The plan of a job with another parallelism, and what it goes on from."""

from __future__ import annotations

from typing import Any

import pytest
from cloudpickle import dumps, loads

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.base import Source, SourceReader
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.driver.job.rescaling import rescaled
from holdfast.errors import JobDefinitionError
from holdfast.plan.model import Defaults, Plan
from tests.serving import Counts


class Fixed(Source):
    """A source that does not say how other subtasks go on from its positions."""

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        raise NotImplementedError


@pytest.fixture
def plan(env: StreamExecutionEnvironment) -> Plan:
    numbers = env.from_source(NumberSequenceSource(0, 9), source_name="numbers")
    fixed = env.from_source(Fixed(), source_name="fixed")
    both = numbers.map(lambda n: n).union(fixed.map(lambda n: n))
    counted = both.key_by(lambda n: n % 3).process(Counts()).name("count")
    counted.map(lambda n: n).set_parallelism(1).name("one")
    return env._plan("job")


def widths(plan: Plan) -> dict[str, int]:
    return {op.name: op.parallelism for op in plan.operators.values()}


def uids(plan: Plan) -> list[str]:
    return [op.uid for op in plan.operators.values()]


def test_a_number_is_for_operators_for_which_the_program_says_none(plan: Plan) -> None:
    wider = rescaled(plan, 5)
    found = widths(wider)
    assert (found["count"], found["one"], found["Map"]) == (5, 1, 5)
    assert found["Source: fixed"] == 2, "it could not go on"
    assert uids(wider) == uids(plan)
    groups = {op.max_parallelism for op in wider.operators.values() if op.name == "count"}
    assert groups == {128}


def test_it_can_be_changed_again_and_back(plan: Plan) -> None:
    again = rescaled(rescaled(rescaled(plan, 5), 1), 2)
    assert widths(again) == widths(plan)
    assert [op.calls for op in again.operators.values()] == [
        op.calls for op in plan.operators.values()
    ]
    assert again.exchanges == plan.exchanges
    assert again.levels == plan.levels


def test_by_uid(plan: Plan) -> None:
    (count,) = [op.uid for op in plan.operators.values() if op.name == "count"]
    assert widths(rescaled(plan, {count: 7})) == widths(plan) | {"count": 7}


@pytest.mark.parametrize(
    ("parallelism", "problem"),
    [
        (200, r"parallelism 200, above its max parallelism\s+128"),
        ({"nobody": 2}, "no operators with the uids nobody; there are "),
    ],
)
def test_what_cannot_be(plan: Plan, parallelism: Any, problem: str) -> None:
    with pytest.raises(JobDefinitionError, match=problem):
        rescaled(plan, parallelism)


def test_a_source_that_cannot_go_on(plan: Plan) -> None:
    (fixed,) = [op.uid for op in plan.operators.values() if op.name == "Source: fixed"]
    with pytest.raises(JobDefinitionError, match="Fixed cannot continue with 3 subtasks; leave it"):
        rescaled(plan, {fixed: 3})


def shape(plan: Plan) -> dict[str, Any]:
    """Everything that a plan decides, without the functions."""
    return {
        "operators": {
            op.uid: (op.chain, op.level, op.parallelism, op.max_parallelism, op.calls)
            for op in plan.operators.values()
        },
        "open": [(op.node, op.max_parallelism_given) for op in plan.operators.values()],
        "exchanges": plan.exchanges,
        "levels": plan.levels,
        "defaults": plan.defaults,
    }


def chains(plan: Plan) -> list[int]:
    return [op.chain for op in plan.operators.values()]


def test_chaining_is_on_also_if_nothing_could_be_chained(env: StreamExecutionEnvironment) -> None:
    """The collection has one subtask; the map has one only after the change."""
    env.from_collection([1, 2]).map(lambda n: n)
    plan = env._plan("job")
    assert chains(plan) == [0, 1]
    assert chains(rescaled(plan, 1)) == [0, 0]
    assert chains(rescaled(rescaled(plan, 1), 2)) == [0, 1]
    assert chains(rescaled(rescaled(plan, 3), 1)) == [0, 0]


def test_chaining_that_is_off_stays_off(env: StreamExecutionEnvironment) -> None:
    env.disable_operator_chaining().from_collection([1, 2]).map(lambda n: n).map(lambda n: n)
    plan = env._plan("job")
    assert chains(plan) == chains(rescaled(plan, 1)) == [0, 1, 2]


def test_an_operator_that_was_set_apart_stays_so(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_source(NumberSequenceSource(0, 9))
    numbers.map(lambda n: n).start_new_chain().map(lambda n: n).disable_chaining()
    plan = env._plan("job")
    assert chains(plan) == chains(rescaled(plan, 3)) == [0, 1, 2]


def test_the_max_parallelism_of_the_environment_holds(env: StreamExecutionEnvironment) -> None:
    env.set_max_parallelism(8).from_source(NumberSequenceSource(0, 9)).map(lambda n: n)
    plan = env._plan("job")
    wider = rescaled(plan, 8)
    assert {op.max_parallelism for op in wider.operators.values()} == {8}
    assert all(op.max_parallelism_given for op in wider.operators.values())
    for before in (plan, wider):
        with pytest.raises(JobDefinitionError, match=r"parallelism 9, above its max parallelism 8"):
            rescaled(before, 9)


def test_a_max_parallelism_that_nobody_chose_stays_open(plan: Plan) -> None:
    """Otherwise a start from state with another number of key groups would be refused."""
    assert not any(op.max_parallelism_given for op in rescaled(plan, 5).operators.values())


@pytest.mark.parametrize("between", [1, 5, {"count": 7}])
def test_two_changes_are_like_the_last_one(plan: Plan, between: Any) -> None:
    if isinstance(between, dict):
        (count,) = [op.uid for op in plan.operators.values() if op.name == "count"]
        between = {count: between["count"]}
    assert shape(rescaled(rescaled(plan, between), 3)) == shape(rescaled(plan, 3))


def test_a_changed_plan_is_the_one_of_a_program_that_begins_like_that(
    env: StreamExecutionEnvironment,
) -> None:
    """Except for the key groups, which are those of the state."""
    numbers = env.from_collection([1, 2]).map(lambda n: n)
    numbers.key_by(lambda n: n % 3).process(Counts()).name("count")
    for parallelism in (1, 2, 4):
        expected = env.set_parallelism(parallelism)._plan("job")
        for before in (1, 2, 4):
            plan = env.set_parallelism(before)._plan("job")
            assert shape(rescaled(plan, parallelism)) == shape(expected)


def test_a_plan_keeps_its_defaults_in_other_processes(plan: Plan) -> None:
    kept = loads(dumps(plan))
    assert kept.defaults == plan.defaults == Defaults(2)
    assert shape(rescaled(kept, 3))["operators"] == shape(rescaled(plan, 3))["operators"]
