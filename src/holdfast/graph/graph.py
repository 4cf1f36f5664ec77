"""The graph of one environment: an append-only list of nodes, and what to run of it.

A program may execute several times. Each execution runs the nodes that were added since the one
before it, and everything that they read from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from holdfast.graph.nodes import Edge, Node, Operation


class Graph:
    """Nodes by their id. Only this class makes or replaces them."""

    def __init__(self) -> None:
        """Start without nodes."""
        self._nodes: list[Node] = []
        self._executed = 0

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

    def __getitem__(self, node_id: int) -> Node:
        return self._nodes[node_id]

    def update(self, node_id: int, **changes: Any) -> None:
        """Replace a node by itself with other settings."""
        self._nodes[node_id] = replace(self._nodes[node_id], **changes)

    def pending(self) -> tuple[Node, ...]:
        """The nodes of the next execution: those added since the last one, and their inputs."""
        wanted: set[int] = set()
        open_ids = [node.id for node in self._nodes[self._executed :]]
        while open_ids:
            node_id = open_ids.pop()
            if node_id not in wanted:
                wanted.add(node_id)
                open_ids.extend(edge.source for edge in self._nodes[node_id].inputs)
        return tuple(self._nodes[node_id] for node_id in sorted(wanted))

    def mark_executed(self) -> None:
        """From now on, what is there already runs only where a later node reads from it."""
        self._executed = len(self._nodes)
