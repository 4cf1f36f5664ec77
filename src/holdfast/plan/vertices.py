"""A plan as Flink's job graph: vertices, which have subtasks, and the edges between them.

A vertex is a set of operators of one level that call each other. So every record that enters or
leaves it passes a source, an exchange or a sink, where it is counted without a cost per record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from holdfast.graph.operations import (
    SINKS,
    FunctionOperation,
    SinkWriterOperation,
    SourceOperation,
)
from holdfast.plan.explain import draw
from holdfast.plan.model import Plan, PlannedOperator

#: the name of an edge within a vertex
_FORWARD: Final = "FORWARD"


class Input(msgspec.Struct, frozen=True):
    """An edge, as an input of its target.

    Attributes:
        id: the vertex, or the operator, that it comes from.
        strategy: how records are distributed, in Flink's words.
        exchange: its number in the plan; None for a direct call.
        tag: the side output that it carries, if any.
    """

    id: str
    strategy: str
    exchange: int | None = None
    tag: str | None = None


class VertexOperator(msgspec.Struct, frozen=True):
    """An operator within a vertex; its id is its uid.

    Attributes:
        number: its id in the plan.
        keyed: whether it has a key, and so may have keyed state.
        sink: whether records leave the job here: to an outside system, or to the program.
    """

    uid: str
    number: int
    name: str
    kind: str
    keyed: bool
    source: bool
    inputs: tuple[Input, ...]
    sink: bool = False


class Vertex(msgspec.Struct, frozen=True):
    """Operators that run as one.

    Attributes:
        id: 32 hexadecimal digits, the same for the same operators.
        name: its operators, as ``a -> b``.
        heads: the uids of the operators that records enter by.
        level: the Spark stage that it runs in; -1 for the rows of DataFrames.
    """

    id: str
    name: str
    level: int
    parallelism: int
    max_parallelism: int
    operators: tuple[VertexOperator, ...]
    heads: tuple[str, ...]
    inputs: tuple[Input, ...]


class JobGraph(msgspec.Struct, frozen=True):
    """All vertices, each after those it reads from."""

    name: str
    vertices: tuple[Vertex, ...]

    def vertex(self, vertex_id: str) -> Vertex | None:
        """Return the vertex of that id."""
        return next((vertex for vertex in self.vertices if vertex.id == vertex_id), None)

    @property
    def subtasks(self) -> int:
        """Return how many subtasks there are of all vertices."""
        return sum(vertex.parallelism for vertex in self.vertices)


def job_graph(plan: Plan) -> JobGraph:
    """Group the operators of a plan."""
    groups = list(_groups(plan))
    ids = {op.id: _vertex_id(group) for group in groups for op in group}
    return JobGraph(plan.name, tuple(_vertex(plan, group, ids) for group in groups))


def _groups(plan: Plan) -> Iterator[list[PlannedOperator]]:
    """Return the operators that are connected by calls; first those of the earliest levels."""
    neighbours: dict[int, set[int]] = {number: set() for number in plan.operators}
    for op in plan.operators.values():
        for call in op.calls:
            neighbours[op.id].add(call.target)
            neighbours[call.target].add(op.id)
    left = dict.fromkeys(sorted(plan.operators, key=lambda n: (plan.operators[n].level, n)))
    while left:
        found = _connected(next(iter(left)), neighbours)
        for number in found:
            del left[number]
        yield [plan.operators[number] for number in sorted(found)]


def _connected(start: int, neighbours: dict[int, set[int]]) -> set[int]:
    found, ahead = {start}, [start]
    while ahead:
        new = neighbours[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def _vertex_id(group: Iterable[PlannedOperator]) -> str:
    uids = "\0".join(op.uid for op in group)
    return hashlib.md5(uids.encode(), usedforsecurity=False).hexdigest()


def _vertex(plan: Plan, group: list[PlannedOperator], ids: dict[int, str]) -> Vertex:
    called = {call.target for op in group for call in op.calls}
    heads = [op for op in group if op.id not in called]
    members = {op.id for op in group}
    return Vertex(
        id=ids[group[0].id],
        name=", ".join(draw(plan, op, members) for op in heads),
        level=group[0].level,
        parallelism=group[0].parallelism,
        max_parallelism=min(op.max_parallelism for op in group),
        operators=tuple(_operator(plan, op) for op in group),
        heads=tuple(op.uid for op in heads),
        inputs=tuple(
            Input(ids[ex.source], str(ex.partitioning).upper(), ex.id, ex.tag)
            for ex in plan.exchanges
            if ex.target in members
        ),
    )


def _operator(plan: Plan, op: PlannedOperator) -> VertexOperator:
    operation = op.node.operation
    by_exchange = [
        Input(plan.operators[ex.source].uid, str(ex.partitioning).upper(), ex.id, ex.tag)
        for ex in plan.exchanges
        if ex.target == op.id
    ]
    by_call = [
        Input(other.uid, _FORWARD, None, call.tag)
        for other in plan.operators.values()
        for call in other.calls
        if call.target == op.id
    ]
    return VertexOperator(
        uid=op.uid,
        number=op.id,
        name=op.name,
        kind=op.node.kind,
        keyed=isinstance(operation, FunctionOperation) and operation.key_selector is not None,
        source=isinstance(operation, SourceOperation),
        inputs=(*by_call, *by_exchange),
        sink=isinstance(operation, (*SINKS, SinkWriterOperation)),
    )
