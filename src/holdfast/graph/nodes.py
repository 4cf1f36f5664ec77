"""The vocabulary of the logical graph: nodes, and the edges that feed them.

A node is one operator of the user's program. Nodes are frozen: a later ``.name("x")`` replaces the
node in its graph. What a node does is its ``operation``; how records reach it are its ``inputs``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from holdfast.graph.operations import Operation, SourceOperation


@dataclass(frozen=True)
class Forward:
    """Subtask i sends to subtask i; the default, and the only one that allows a direct call."""

    explicit: bool = False

    def __str__(self) -> str:
        return "forward"


@dataclass(frozen=True)
class Hash:
    """By key: every record of one key reaches the same subtask.

    Attributes:
        selector: a ``KeySelector`` or a callable.
        kept: whether every record is already in the subtask of its key.
    """

    selector: Any
    key_type: Any = None
    kept: bool = False

    def __str__(self) -> str:
        return "hash"


@dataclass(frozen=True)
class Rebalance:
    """Round robin over all subtasks."""

    def __str__(self) -> str:
        return "rebalance"


@dataclass(frozen=True)
class Rescale:
    """Round robin over the share of subtasks that belongs to the sender."""

    def __str__(self) -> str:
        return "rescale"


@dataclass(frozen=True)
class Shuffle:
    """To a random subtask."""

    def __str__(self) -> str:
        return "shuffle"


@dataclass(frozen=True)
class Broadcast:
    """To every subtask."""

    def __str__(self) -> str:
        return "broadcast"


@dataclass(frozen=True)
class Global:
    """To the first subtask."""

    def __str__(self) -> str:
        return "global"


@dataclass(frozen=True)
class Custom:
    """By the user's partitioner: ``partitioner(selector(record), parallelism)``."""

    partitioner: Any
    selector: Any

    def __str__(self) -> str:
        return "custom"


Partitioning = Forward | Hash | Rebalance | Rescale | Shuffle | Broadcast | Global | Custom


@dataclass(frozen=True)
class Edge:
    """One input of a node: the node it comes from, and how its records are distributed.

    Attributes:
        input: which input of the node it is; 1 is the second one of two connected streams.
        tag: the side output that is read, if it is one.
        tag_type: the declared type of that side output.
    """

    source: int
    partitioning: Partitioning = field(default_factory=Forward)
    input: int = 0
    tag: str | None = None
    tag_type: Any = None


class Chaining(Enum):
    """Whether an operator may join the chain of its input, and its outputs its own."""

    ALWAYS = "always"
    HEAD = "head"
    NEVER = "never"


@dataclass(frozen=True)
class Node:
    """One operator.

    Attributes:
        id: its number in the graph, in the order of the user's calls.
        kind: a short word for ``explain`` and derived uids, such as ``map``.
        uid: the user's stable name for its state, or None to derive one.
        output_type: the declared type of its output, or None.
    """

    id: int
    kind: str
    name: str
    operation: Operation
    inputs: tuple[Edge, ...] = ()
    uid: str | None = None
    uid_hash: str | None = None
    description: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    chaining: Chaining = Chaining.ALWAYS
    output_type: Any = None
    buffer_timeout: int | None = None

    @property
    def is_source(self) -> bool:
        """Return whether records enter the job here."""
        return isinstance(self.operation, SourceOperation)
