"""Lower the logical graph to levels, chains and exchanges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.errors import JobDefinitionError
from holdfast.graph.nodes import Chaining, Edge, Forward, Hash, Node, Partitioning, Rebalance
from holdfast.graph.operations import (
    BatchOperation,
    IntervalJoinOperation,
    SourceOperation,
    TimestampsOperation,
    WindowingOperation,
)
from holdfast.graph.uids import assign_uids
from holdfast.plan.model import (
    ROWS_LEVEL,
    Call,
    Defaults,
    Exchange,
    Level,
    Plan,
    PlannedOperator,
)

DEFAULT_MAX_PARALLELISM = 128
LARGEST_MAX_PARALLELISM = 32768


def make_plan(nodes: Sequence[Node], defaults: Defaults, name: str) -> Plan:
    """Check the nodes (in the order of the user's calls) and plan them.

    Raises:
        JobDefinitionError: when the graph cannot run; the message names the operator.
    """
    if not nodes:
        raise JobDefinitionError(
            "there is nothing to execute: the program has not made a stream since the last "
            "execution; add a source and a sink before calling execute"
        )
    return _Planner(nodes, defaults).plan(name)


def plan_again(
    plan: Plan,
    parallelism: Mapping[int, int],
    max_parallelism: Mapping[int, int | None],
    defaults: Defaults | None = None,
) -> Plan:
    """Plan the operators of a plan again, with another parallelism for some, by id.

    A max parallelism of None is that of the defaults, or derived. Operators keep their uids.
    What the program has not set may change again the next time.

    Raises:
        JobDefinitionError: when the job cannot run with that parallelism.
    """
    nodes = [
        replace(
            op.node,
            uid=op.uid,
            parallelism=parallelism.get(op.id, op.parallelism),
            max_parallelism=max_parallelism.get(op.id, op.max_parallelism),
        )
        for op in plan.operators.values()
    ]
    planned = make_plan(nodes, defaults or plan.defaults, plan.name)
    operators = {
        op.id: replace(
            planned.operators[op.id], node=op.node, max_parallelism_given=op.max_parallelism_given
        )
        for op in plan.operators.values()
    }
    return replace(planned, operators=operators)


def separated(plan: Plan) -> Plan:
    """Return the plan with levels of its own for each part that is not connected to the others.

    A subtask runs all operators of a level in one thread. So if a function of one part blocks, the
    other parts continue.
    """
    parts = _parts([op.node for op in plan.operators.values()])
    if len(set(parts.values())) == 1:
        return plan
    return plan_again(plan, {}, {}, replace(plan.defaults, separates=True))


class _Planner:
    def __init__(self, nodes: Sequence[Node], defaults: Defaults) -> None:
        self.nodes = {node.id: node for node in nodes}
        self.defaults = defaults
        self.parallelism = {node.id: _parallelism(node, defaults) for node in nodes}
        for node in nodes:
            self._check(node)
        self.uids = assign_uids(nodes)
        self.max_parallelism = {
            node.id: _max_parallelism(node, self.parallelism[node.id], defaults) for node in nodes
        }

        self.timestamped = self._timestamped()
        for node in nodes:
            self._check_timestamps(node)

    def _timestamped(self) -> set[int]:
        """Return the nodes whose records may have timestamps."""
        found: set[int] = set()
        for node in self.nodes.values():
            if _gives_timestamps(node) or any(edge.source in found for edge in node.inputs):
                found.add(node.id)
        return found

    def _timestamped_inputs(self, node: Node) -> frozenset[int]:
        if _reads_timestamps(node):
            return frozenset(() if getattr(node.output_type, "columnar", False) else {0})
        return frozenset(edge.input for edge in node.inputs if self._has_timestamps(edge))

    def _has_timestamps(self, edge: Edge) -> bool:
        """Return whether each record has its own timestamp; a batch has those of its rows."""
        return edge.source in self.timestamped and not self._is_columnar(edge)

    def _is_columnar(self, edge: Edge) -> bool:
        kind = self.nodes[edge.source].output_type if edge.tag is None else edge.tag_type
        return bool(getattr(kind, "columnar", False))

    def plan(self, name: str) -> Plan:
        levels = self._levels()
        chains = self._chains(levels)
        calls: dict[int, list[Call]] = {node_id: [] for node_id in self.nodes}
        exchanges: list[Exchange] = []
        for node in self.nodes.values():
            for edge in node.inputs:
                if levels[edge.source] == levels[node.id] and self._is_local(edge, node):
                    calls[edge.source].append(Call(node.id, edge.input, edge.tag))
                else:
                    exchanges.append(self._exchange(len(exchanges), edge, node, levels))
        operators = {
            node_id: PlannedOperator(
                node=node,
                uid=self.uids[node_id],
                level=levels[node_id],
                chain=chains[node_id],
                parallelism=self.parallelism[node_id],
                max_parallelism=self.max_parallelism[node_id],
                calls=tuple(calls[node_id]),
                exchanges=tuple(ex.id for ex in exchanges if ex.source == node_id),
                max_parallelism_given=bool(node.max_parallelism or self.defaults.max_parallelism),
                timestamped_inputs=self._timestamped_inputs(node),
                side_types=self._side_types(node),
            )
            for node_id, node in self.nodes.items()
        }
        found = tuple(exchanges)
        return Plan(name, operators, found, _make_levels(operators, found), self.defaults)

    def _side_types(self, node: Node) -> dict[str, Any]:
        """Return the types of a node's side outputs; all readers of one must agree."""
        types: dict[str, Any] = {}
        for edge in (edge for other in self.nodes.values() for edge in other.inputs):
            if edge.source == node.id and edge.tag is not None:
                known = types.setdefault(edge.tag, edge.tag_type)
                if known != edge.tag_type:
                    raise JobDefinitionError(
                        f"the side output '{edge.tag}' of operator '{node.name}' is read with two "
                        f"types: {known!r} and {edge.tag_type!r}; use one OutputTag for both"
                    )
        return types

    def _check(self, node: Node) -> None:
        read = {edge.source for other in self.nodes.values() for edge in other.inputs}
        if _reads_rows(node) and node.id not in read:
            raise JobDefinitionError(
                f"nothing reads from '{node.name}'; add an operator or a sink to the stream"
            )
        if not node.inputs and not node.is_source:
            raise JobDefinitionError(f"operator '{node.name}' has no input")
        for edge in node.inputs:
            if edge.source not in self.nodes:
                raise JobDefinitionError(
                    f"operator '{node.name}' reads from a stream of another environment"
                )
            self._check_forward(edge, node)

    def _check_forward(self, edge: Edge, node: Node) -> None:
        ours, theirs = self.parallelism[node.id], self.parallelism[edge.source]
        explicit = isinstance(edge.partitioning, Forward) and edge.partitioning.explicit
        if explicit and ours != theirs:
            source = self.nodes[edge.source].name
            raise JobDefinitionError(
                f"forward() from '{source}' (parallelism {theirs}) to '{node.name}' (parallelism "
                f"{ours}): forward needs the same parallelism on both sides; use rebalance() or "
                "rescale(), or set the same parallelism"
            )

    def _check_timestamps(self, node: Node) -> None:
        if not isinstance(node.operation, IntervalJoinOperation):
            return
        for edge in node.inputs:
            if edge.source not in self.timestamped:
                side, source = ("left", "right")[edge.input], self.nodes[edge.source].name
                raise JobDefinitionError(
                    f"operator '{node.name}' joins by timestamps, and its {side} input, '{source}',"
                    " has none; call assign_timestamps_and_watermarks(...) on that stream"
                )

    def _is_local(self, edge: Edge, node: Node) -> bool:
        """Return whether records may pass by a direct call, if both ends are in one level."""
        ours, theirs = node.id, edge.source
        if isinstance(edge.partitioning, Hash):
            # with another max parallelism, many keys belong to another subtask
            same_groups = self.max_parallelism[ours] == self.max_parallelism[theirs]
            stays = edge.partitioning.kept and same_groups
        else:
            stays = isinstance(edge.partitioning, Forward)
        same = self.parallelism[ours] == self.parallelism[theirs]
        return stays and same and not _reads_rows(self.nodes[theirs])

    def _levels(self) -> dict[int, int]:
        levels: dict[int, int] = {}
        for node in self.nodes.values():
            if _reads_rows(node):
                levels[node.id] = ROWS_LEVEL
                continue
            steps = (
                levels[edge.source] + (0 if self._is_local(edge, node) else 1)
                for edge in node.inputs
            )
            levels[node.id] = max(steps, default=0)
        return self._separate(levels) if self.defaults.separates else levels

    def _separate(self, levels: dict[int, int]) -> dict[int, int]:
        """Return the levels such that those of one part follow those of the part before."""
        parts, first = _parts(list(self.nodes.values())), 0
        found = dict(levels)
        for part in dict.fromkeys(parts.values()):
            own = {node: levels[node] for node in parts if parts[node] == part}
            found |= {node: level + first for node, level in own.items() if level != ROWS_LEVEL}
            first += max(own.values()) + 1
        return found

    def _chains(self, levels: dict[int, int]) -> dict[int, int]:
        """Number the chains: an operator joins the chain of its only input if allowed."""
        chains: dict[int, int] = {}
        for node in self.nodes.values():
            joined = self._chain_to_join(node, levels, chains)
            chains[node.id] = len(set(chains.values())) if joined is None else joined
        return chains

    def _chain_to_join(
        self, node: Node, levels: dict[int, int], chains: dict[int, int]
    ) -> int | None:
        if len(node.inputs) != 1 or not self.defaults.chaining:
            return None
        edge = node.inputs[0]
        source = self.nodes[edge.source]
        may = node.chaining is Chaining.ALWAYS and source.chaining is not Chaining.NEVER
        near = levels[source.id] == levels[node.id] and self._is_local(edge, node)
        return chains[source.id] if may and near else None

    def _exchange(self, number: int, edge: Edge, node: Node, levels: dict[int, int]) -> Exchange:
        return Exchange(
            id=number,
            source=edge.source,
            target=node.id,
            partitioning=self._partitioning(edge, node),
            source_level=levels[edge.source],
            target_level=levels[node.id],
            source_parallelism=self.parallelism[edge.source],
            target_parallelism=self.parallelism[node.id],
            max_parallelism=self.max_parallelism[node.id],
            input=edge.input,
            tag=edge.tag,
            timestamped=self._has_timestamps(edge),
            columnar=self._is_columnar(edge),
        )

    def _partitioning(self, edge: Edge, node: Node) -> Partitioning:
        """Return the partitioning; forward with unequal parallelism is a rebalance, as in Flink."""
        if isinstance(edge.partitioning, Forward) and not self._is_local(edge, node):
            return Rebalance()
        return edge.partitioning


def _parts(nodes: Sequence[Node]) -> dict[int, int]:
    """Return for each node the part that it belongs to: records connect the nodes of a part."""
    parts: dict[int, int] = {}
    for node in nodes:
        parts[node.id] = node.id
        for joined in {parts[edge.source] for edge in node.inputs}:
            parts = {other: node.id if part == joined else part for other, part in parts.items()}
    return parts


def _gives_timestamps(node: Node) -> bool:
    operation = node.operation
    if isinstance(operation, SourceOperation):
        return operation.strategy is not None or _reads_timestamps(node)
    if isinstance(operation, BatchOperation):
        return operation.time_column is not None
    return isinstance(operation, TimestampsOperation | WindowingOperation)


def _reads_timestamps(node: Node) -> bool:
    """Return whether it is a source whose records come with timestamps."""
    operation = node.operation
    return isinstance(operation, SourceOperation) and getattr(
        operation.source, "gives_timestamps", False
    )


def _reads_rows(node: Node) -> bool:
    return isinstance(node.operation, SourceOperation) and node.operation.source.reads_rows


def _make_levels(
    operators: dict[int, PlannedOperator], exchanges: Sequence[Exchange]
) -> tuple[Level, ...]:
    count = max(op.level for op in operators.values()) + 1
    return tuple(_make_level(index, operators, exchanges) for index in range(count))


def _make_level(
    index: int, operators: dict[int, PlannedOperator], exchanges: Sequence[Exchange]
) -> Level:
    members = [op for op in operators.values() if op.level == index]
    producers = {ex.source_level for ex in exchanges if ex.target_level == index}
    return Level(
        index=index,
        parallelism=max((op.parallelism for op in members), default=1),
        operators=tuple(op.id for op in members),
        producers=tuple(sorted(producers)),
    )


def _parallelism(node: Node, defaults: Defaults) -> int:
    parallelism = node.parallelism or defaults.parallelism
    if isinstance(node.operation, SourceOperation) and node.parallelism is None:
        parallelism = node.operation.source.parallelism_limit or parallelism
    return parallelism


def _max_parallelism(node: Node, parallelism: int, defaults: Defaults) -> int:
    given = node.max_parallelism or defaults.max_parallelism
    limit = given or _derived_max_parallelism(parallelism)
    if parallelism > limit:
        raise JobDefinitionError(
            f"operator '{node.name}' has parallelism {parallelism}, above its max parallelism "
            f"{limit}; lower the parallelism or raise it with set_max_parallelism"
        )
    return limit


def _derived_max_parallelism(parallelism: int) -> int:
    """Apply Flink's rule: 1.5 times as much, rounded up to a power of two, at least 128."""
    wanted = parallelism + parallelism // 2
    power = 1 << (wanted - 1).bit_length()
    return min(max(DEFAULT_MAX_PARALLELISM, power), LARGEST_MAX_PARALLELISM)
