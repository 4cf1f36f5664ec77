"""The plan of a job with another parallelism, and what it goes on from."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.base import Source, SourceReader
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.driver.rescaling import rescaled
from holdfast.errors import JobDefinitionError
from holdfast.plan.model import Plan
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
        ({"nobody": 2}, "no operators of the uids nobody; there are "),
    ],
)
def test_what_cannot_be(plan: Plan, parallelism: Any, problem: str) -> None:
    with pytest.raises(JobDefinitionError, match=problem):
        rescaled(plan, parallelism)


def test_a_source_that_cannot_go_on(plan: Plan) -> None:
    (fixed,) = [op.uid for op in plan.operators.values() if op.name == "Source: fixed"]
    with pytest.raises(JobDefinitionError, match="Fixed cannot go on with 3 subtasks; leave it"):
        rescaled(plan, {fixed: 3})
