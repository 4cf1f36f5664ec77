"""Plans for people (``explain``) and for tools (Flink's JSON plan)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from itertools import groupby

from holdfast.graph.operations import FunctionOperation
from holdfast.plan.model import ROWS_LEVEL, Exchange, Plan, PlannedOperator
from holdfast.printable import counted, printable


def explain(plan: Plan, engine: str) -> str:
    """Return levels, chains, exchanges, parallelism and uids as indented text.

    ``engine``: a note about the engine.
    """
    return "\n".join(map(printable, _lines(plan, engine))) + "\n"


def _lines(plan: Plan, engine: str) -> Iterator[str]:
    levels, exchanges = counted(len(plan.levels), "level"), counted(len(plan.exchanges), "exchange")
    yield f"job '{plan.name}': {levels}, {exchanges}"
    yield f"engine: {engine}"
    if plan.rows_sources:
        yield "rows of Spark DataFrames"
        yield from _operator_lines(plan, plan.rows_sources)
    for level in plan.levels:
        yield f"level {level.index} (parallelism {level.parallelism})"
        yield from _operator_lines(plan, [plan.operators[i] for i in level.operators])


def _operator_lines(
    plan: Plan, operators: list[PlannedOperator] | tuple[PlannedOperator, ...]
) -> Iterator[str]:
    by_chain = sorted(operators, key=lambda op: (op.chain, op.id))
    for _, members in groupby(by_chain, key=lambda op: op.chain):
        chain = list(members)
        yield f"  chain: {draw(plan, chain[0], {op.id for op in chain})}"
        for op in chain:
            yield f"    {_describe(op)}"
            yield from (f"      {line}" for line in _outputs(plan, op))


def draw(plan: Plan, op: PlannedOperator, among: Collection[int]) -> str:
    """Return an operator and the ones it calls: ``a -> b``, or ``a -> (b, c)`` at a branch."""
    after = [
        draw(plan, plan.operators[target], among)
        for target in dict.fromkeys(call.target for call in op.calls)
        if target in among
    ]
    if not after:
        return op.name
    return f"{op.name} -> {after[0] if len(after) == 1 else '(' + ', '.join(after) + ')'}"


def _describe(op: PlannedOperator) -> str:
    keyed = isinstance(op.node.operation, FunctionOperation) and op.node.operation.key_selector
    parallelism = "" if op.level == ROWS_LEVEL else f" parallelism={op.parallelism}"
    groups = f" key_groups={op.max_parallelism}" if keyed else ""
    return f"{op.name} [{op.node.kind}] uid={op.uid}{parallelism}{groups}"


def _outputs(plan: Plan, op: PlannedOperator) -> Iterator[str]:
    for call in op.calls:
        if plan.operators[call.target].chain != op.chain:
            yield f"call{_side(call.tag)} -> {plan.operators[call.target].name}"
    for number in op.exchanges:
        ex = plan.exchanges[number]
        target_op = plan.operators[ex.target]
        yield f"{ex.partitioning}{_side(ex.tag)} -> {target_op.name} (level {ex.target_level})"


def _side(tag: str | None) -> str:
    return "" if tag is None else f" of side output '{tag}'"


def to_json(plan: Plan) -> str:
    """Return the plan in the JSON form that Flink's ``get_execution_plan`` has."""
    by_pair: dict[tuple[int, int], Exchange] = {(ex.source, ex.target): ex for ex in plan.exchanges}
    nodes = [_json_node(op, by_pair) for op in plan.operators.values()]
    return json.dumps({"nodes": nodes}, indent=2)


def _json_node(op: PlannedOperator, by_pair: dict[tuple[int, int], Exchange]) -> dict[str, object]:
    node: dict[str, object] = {
        "id": op.id,
        "uid": op.uid,
        "type": op.name,
        "pact": "Data Source" if op.node.is_source else "Operator",
        "contents": op.node.description or op.name,
        "parallelism": op.parallelism,
    }
    if op.node.inputs:
        node["predecessors"] = [
            {
                "id": edge.source,
                "ship_strategy": str(_partitioning(op, edge.source, by_pair)).upper(),
                "side": "second",
            }
            for edge in op.node.inputs
        ]
    return node


def _partitioning(
    op: PlannedOperator, source: int, by_pair: dict[tuple[int, int], Exchange]
) -> object:
    exchange = by_pair.get((source, op.id))
    return exchange.partitioning if exchange else "forward"
