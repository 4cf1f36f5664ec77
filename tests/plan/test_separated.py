"""Parts of a job that no records connect have levels of their own on the resident engine."""

from __future__ import annotations

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.driver.job.rescaling import rescaled
from holdfast.plan.model import Plan
from holdfast.plan.planner import separated


def plan_of(env: StreamExecutionEnvironment) -> Plan:
    return env._take_plan("parts")


def add(env: StreamExecutionEnvironment, name: str) -> None:
    """A part with two levels."""
    numbers = env.from_collection([1, 2]).uid(f"{name}-numbers").set_parallelism(1)
    numbers.key_by(lambda n: n).sum().uid(f"{name}-sums").print()


def levels_of(plan: Plan) -> dict[str, int]:
    return {op.uid: op.level for op in plan.operators.values() if op.uid[:2] in ("a-", "b-")}


def test_each_part_has_levels_of_its_own(env: StreamExecutionEnvironment) -> None:
    add(env, "a")
    add(env, "b")
    plan = plan_of(env)
    apart = separated(plan)
    together = {"a-numbers": 0, "a-sums": 1, "b-numbers": 0, "b-sums": 1}
    assert levels_of(plan) == together
    expected = {"a-numbers": 0, "a-sums": 1, "b-numbers": 2, "b-sums": 3}
    assert levels_of(apart) == expected
    assert [level.producers for level in plan.levels] == [(), (0,)]
    assert [level.producers for level in apart.levels] == [(), (0,), (), (2,)]
    assert [apart.targets(level) for level in range(4)] == [(1,), (), (3,), ()]
    assert [level.parallelism for level in apart.levels] == [1, 2, 1, 2]
    assert apart.widest_level.parallelism == plan.widest_level.parallelism


def test_they_stay_apart_with_another_parallelism(env: StreamExecutionEnvironment) -> None:
    add(env, "a")
    add(env, "b")
    apart = separated(plan_of(env))
    wider = rescaled(apart, {"b-sums": 3})
    assert levels_of(wider) == levels_of(apart)
    # the sink has its two subtasks still
    assert [level.parallelism for level in wider.levels] == [1, 2, 1, 3, 2]


def test_a_job_of_one_part_is_as_before(env: StreamExecutionEnvironment) -> None:
    """Two sources that are joined further on, and a branch."""
    first, second = (env.from_collection([n]).uid(f"source-{n}") for n in (1, 2))
    first.map(abs).print()
    first.rebalance().union(second).map(abs).print()
    plan = plan_of(env)
    assert separated(plan) is plan
