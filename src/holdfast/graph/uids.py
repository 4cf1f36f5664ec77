"""Stable names for operators: the user's, or one derived from the position in the graph.

A derived uid depends on the kind of the operator, the uids of its inputs, and its turn among equal
siblings; not on names, parallelism or node ids. So it survives a rename and a change of scale, and
changes when operators are inserted before it. State is stored under the uid: set a uid for
every operator whose state must outlive a change of the job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from holdfast.errors import JobDefinitionError
from holdfast.graph.nodes import Edge, Node


def assign_uids(nodes: Sequence[Node]) -> dict[int, str]:
    """Assign a uid to each node (in topological order); duplicate uids are an error."""
    uids: dict[int, str] = {}
    turns: dict[str, int] = {}
    owners: dict[str, Node] = {}
    for node in nodes:
        uid = node.uid or node.uid_hash or _derive(node, uids, turns)
        if uid in owners:
            raise JobDefinitionError(
                f"two operators have the uid '{uid}': '{owners[uid].name}' and '{node.name}'; "
                "a uid names the state of one operator: give each its own"
            )
        owners[uid] = node
        uids[node.id] = uid
    return uids


def _describe(edge: Edge, uids: dict[int, str]) -> str:
    tag = "" if edge.tag is None else f":{edge.tag}"
    second = "" if edge.input == 0 else f"#{edge.input}"
    return f"{uids[edge.source]}{tag}:{edge.partitioning}{second}"


def _derive(node: Node, uids: dict[int, str], turns: dict[str, int]) -> str:
    inputs = ",".join(_describe(edge, uids) for edge in node.inputs)
    place = f"{node.kind}({inputs})"
    turn = turns[place] = turns.get(place, 0) + 1
    digest = hashlib.blake2s(f"{place}#{turn}".encode(), digest_size=4).hexdigest()
    return f"{node.kind}-{digest}"
