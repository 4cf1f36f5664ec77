"""The plan of a job with another parallelism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from holdfast.driver.start import is_fixed, is_keyed
from holdfast.errors import JobDefinitionError
from holdfast.graph.nodes import Node, SourceOperation
from holdfast.plan.model import Plan, PlannedOperator
from holdfast.plan.planner import make_plan

__all__ = ["rescaled"]


def rescaled(plan: Plan, parallelism: int | Mapping[str, int]) -> Plan:
    """Return the plan with another parallelism; operators keep their uids, and so their state.

    Args:
        plan: what runs now.
        parallelism: of all operators for which the program says none, and that can have another;
            or by uid.

    Raises:
        JobDefinitionError: when there is no such operator, or the job cannot run like that.
    """
    wanted, defaults = _wanted(plan, parallelism), plan.defaults
    if isinstance(parallelism, int):
        defaults = replace(defaults, parallelism=parallelism)
    nodes = [_node(op, wanted.get(op.uid)) for op in plan.operators.values()]
    planned = make_plan(nodes, defaults, plan.name)
    operators = {
        number: _with_node_of(plan.operators[number], op)
        for number, op in planned.operators.items()
    }
    return replace(planned, operators=operators)


def _wanted(plan: Plan, parallelism: int | Mapping[str, int]) -> dict[str, int]:
    """Return the parallelism that was asked for, by uid."""
    operators = plan.operators.values()
    if isinstance(parallelism, int):
        return {op.uid: parallelism for op in operators if op.node.parallelism is None}
    unknown = sorted(set(parallelism) - {op.uid for op in operators})
    if unknown:
        known = ", ".join(sorted(op.uid for op in operators))
        message = f"there are no operators of the uids {', '.join(unknown)}; there are {known}"
        raise JobDefinitionError(message)
    _check_sources(plan, parallelism)
    return dict(parallelism)


def _with_node_of(before: PlannedOperator, op: PlannedOperator) -> PlannedOperator:
    """Return the operator as the program asked for it: what it left open, the next change sets."""
    return replace(op, node=before.node, max_parallelism_given=before.max_parallelism_given)


def _node(op: PlannedOperator, wanted: int | None) -> Node:
    operation = op.node.operation
    parallelism = op.parallelism if wanted is None else wanted
    if isinstance(operation, SourceOperation):
        limit = operation.source.parallelism_limit
        stays = is_fixed(operation.source) or operation.source.reads_rows
        parallelism = op.parallelism if stays else min(parallelism, limit or parallelism)
    # keys cannot be moved between key groups
    groups = op.max_parallelism if is_keyed(op) else op.node.max_parallelism
    return replace(op.node, uid=op.uid, parallelism=parallelism, max_parallelism=groups)


def _check_sources(plan: Plan, wanted: Mapping[str, int]) -> None:
    for op in plan.sources:
        operation = op.node.operation
        assert isinstance(operation, SourceOperation)
        number = wanted.get(op.uid, op.parallelism)
        if number != op.parallelism and is_fixed(operation.source):
            kind = type(operation.source).__name__
            message = (
                f"operator '{op.name}' has parallelism {op.parallelism}, and {kind} cannot go on "
                f"with {number} subtasks; leave it out"
            )
            raise JobDefinitionError(message)
