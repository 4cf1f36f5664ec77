"""The plan of a job with another parallelism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from holdfast.driver.start import is_fixed, is_keyed
from holdfast.errors import JobDefinitionError
from holdfast.graph.operations import SourceOperation
from holdfast.plan.model import Plan, PlannedOperator
from holdfast.plan.planner import plan_again


def rescaled(plan: Plan, parallelism: int | Mapping[str, int]) -> Plan:
    """Return the plan with another parallelism; operators keep their uids, and so their state.

    Args:
        plan: the current plan.
        parallelism: a number for all operators whose parallelism is not set in the program and can
            change; or a number for each uid.

    Raises:
        JobDefinitionError: when there is no such operator, or the job cannot run with it.
    """
    wanted, defaults = _wanted(plan, parallelism), plan.defaults
    if isinstance(parallelism, int):
        defaults = replace(defaults, parallelism=parallelism)
    operators = plan.operators.values()
    return plan_again(
        plan,
        {op.id: _parallelism(op, wanted[op.uid]) for op in operators if op.uid in wanted},
        # keys cannot be moved between key groups; other operators have none
        {op.id: op.node.max_parallelism for op in operators if not is_keyed(op)},
        defaults,
    )


def _wanted(plan: Plan, parallelism: int | Mapping[str, int]) -> dict[str, int]:
    """Return the requested parallelism, by uid."""
    operators = plan.operators.values()
    if isinstance(parallelism, int):
        return {op.uid: parallelism for op in operators if op.node.parallelism is None}
    unknown = sorted(set(parallelism) - {op.uid for op in operators})
    if unknown:
        known = ", ".join(sorted(op.uid for op in operators))
        message = f"there are no operators with the uids {', '.join(unknown)}; there are {known}"
        raise JobDefinitionError(message)
    _check_sources(plan, parallelism)
    return dict(parallelism)


def _parallelism(op: PlannedOperator, wanted: int) -> int:
    operation = op.node.operation
    if not isinstance(operation, SourceOperation):
        return wanted
    source = operation.source
    if is_fixed(source) or source.reads_rows:
        return op.parallelism
    return min(wanted, source.parallelism_limit or wanted)


def _check_sources(plan: Plan, wanted: Mapping[str, int]) -> None:
    for op in plan.sources:
        operation = op.node.operation
        assert isinstance(operation, SourceOperation)
        number = wanted.get(op.uid, op.parallelism)
        if number != op.parallelism and is_fixed(operation.source):
            kind = type(operation.source).__name__
            message = (
                f"operator '{op.name}' has parallelism {op.parallelism}, and {kind} cannot "
                f"continue with {number} subtasks; leave it out"
            )
            raise JobDefinitionError(message)
