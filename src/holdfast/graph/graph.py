"""The graph of one environment: an append-only list of nodes, and what to run of it.

A program may execute several times. Each execution runs the nodes that were added since the one
before it, and everything that they read from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from holdfast.graph.nodes import Edge, Node
from holdfast.graph.operations import Operation


class Graph:
    """Nodes by their id. Only this class makes or replaces them."""

    def __init__(self) -> None:
        """Start without nodes."""
        self._nodes: list[Node] = []
        self._executed: set[int] = set()

    def add(
        self,
        kind: str,
        name: str,
        operation: Operation,
        inputs: Iterable[Edge] = (),
        **settings: Any,
    ) -> int:
        """Append a node and return its id."""
        node = Node(len(self._nodes), kind, name, operation, tuple(inputs), **settings)
        self._nodes.append(node)
        return node.id

    def find(self, kind: str, inputs: tuple[Edge, ...], output_type: Any) -> int | None:
        """Return the first node of a kind with these inputs and this type; None without one."""
        for node in self._nodes:
            if node.kind == kind and (node.inputs, node.output_type) == (inputs, output_type):
                return node.id
        return None

    def __getitem__(self, node_id: int) -> Node:
        return self._nodes[node_id]

    def update(self, node_id: int, **changes: Any) -> None:
        """Replace a node by itself with other settings."""
        self._nodes[node_id] = replace(self._nodes[node_id], **changes)

    def pending(self) -> tuple[Node, ...]:
        """Return the nodes of the next execution: the new ones, and their inputs."""
        return self._with_inputs([node.id for node in self._nodes if node.id not in self._executed])

    def _with_inputs(self, open_ids: list[int]) -> tuple[Node, ...]:
        wanted: set[int] = set()
        while open_ids:
            node_id = open_ids.pop()
            if node_id not in wanted:
                wanted.add(node_id)
                open_ids.extend(edge.source for edge in self._nodes[node_id].inputs)
        return tuple(self._nodes[node_id] for node_id in sorted(wanted))

    def branch(self) -> Graph:
        """Return a graph of the same nodes, all executed; nodes added to it are not added here."""
        other = Graph()
        other._nodes = list(self._nodes)
        other.mark_executed()
        return other

    def upstream(self, edges: Iterable[Edge]) -> tuple[Node, ...]:
        """Return the nodes that edges read from, and all nodes before these."""
        return self._with_inputs([edge.source for edge in edges])

    def mark_executed(self, nodes: Iterable[Node] | None = None) -> None:
        """Mark nodes as executed, or all: they run again only if a later node reads from them."""
        self._executed.update(node.id for node in (self._nodes if nodes is None else nodes))
