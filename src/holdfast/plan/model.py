"""The parts of a plan. They are frozen and picklable, and are sent to the workers.

Invariant: an operator's level is above the level of everything it reads through an exchange, and
equal to the level of everything that calls it directly. Consequence: one Spark stage per level, in
order, runs every operator once per epoch.

Invariant: a level reads from the level before it, unless it has sources only. Only a plan whose
parts are separate has such a level after the first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.graph.nodes import Node, Partitioning
from holdfast.graph.operations import SourceOperation

#: The level of tasks that turn the rows of a Spark DataFrame into records; they keep no state.
ROWS_LEVEL = -1


class Call(NamedTuple):
    """Records that pass by a direct call: the operator, its input, and the output."""

    target: int
    input: int = 0
    tag: str | None = None


@dataclass(frozen=True)
class Exchange:
    """Records that leave one level for another one, through Spark.

    Attributes:
        id: its index in ``Plan.exchanges``.
        source: the operator that sends.
        target: the operator that receives.
        input: the index of the target's input.
        tag: the side output that is sent, if any.
        timestamped: records travel with their timestamps.
        columnar: batches travel instead of records; timestamps are a part of them.
    """

    id: int
    source: int
    target: int
    partitioning: Partitioning
    source_level: int
    target_level: int
    source_parallelism: int
    target_parallelism: int
    max_parallelism: int
    input: int = 0
    tag: str | None = None
    timestamped: bool = False
    columnar: bool = False


@dataclass(frozen=True)
class PlannedOperator:
    """A node with everything that the plan decided about it.

    Attributes:
        node: what the user asked for.
        calls: operators of the same level that take its output by a direct call.
        exchanges: ids of the exchanges that take its output.
        chain: the number of its chain.
        max_parallelism_given: whether the user chose it; if not, a restore may choose another.
        timestamped_inputs: by input: whether records of it may have timestamps.
        side_types: the declared types of the side outputs that are read, by tag.
    """

    node: Node
    uid: str
    level: int
    chain: int
    parallelism: int
    max_parallelism: int
    calls: tuple[Call, ...]
    exchanges: tuple[int, ...]
    max_parallelism_given: bool = False
    timestamped_inputs: frozenset[int] = frozenset()
    side_types: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> int:
        """Return the id of its node."""
        return self.node.id

    @property
    def name(self) -> str:
        """Return the name that users see."""
        return self.node.name


@dataclass(frozen=True)
class Level:
    """All operators between two shuffles; one Spark stage.

    Attributes:
        operators: their ids, each after everything that calls it.
        producers: the levels that send blocks to this one.
    """

    index: int
    parallelism: int
    operators: tuple[int, ...]
    producers: tuple[int, ...]


@dataclass(frozen=True)
class Defaults:
    """The settings of the environment, for nodes without their own.

    Attributes:
        separates: operators that no records connect, even indirectly, have different levels.
    """

    parallelism: int
    max_parallelism: int | None = None
    chaining: bool = True
    separates: bool = False


@dataclass(frozen=True)
class Plan:
    """The whole job, ready to run.

    Attributes:
        defaults: the settings it was planned with, which are needed to plan it again.
    """

    name: str
    operators: dict[int, PlannedOperator]
    exchanges: tuple[Exchange, ...]
    levels: tuple[Level, ...]
    defaults: Defaults

    @property
    def rows_sources(self) -> tuple[PlannedOperator, ...]:
        """Return the sources that read a Spark DataFrame."""
        return tuple(op for op in self.operators.values() if op.level == ROWS_LEVEL)

    @property
    def sources(self) -> tuple[PlannedOperator, ...]:
        """Return the sources that a subtask reads by itself."""
        return tuple(
            op
            for op in self.operators.values()
            if op.level != ROWS_LEVEL and isinstance(op.node.operation, SourceOperation)
        )

    def titled_levels(self) -> Iterator[tuple[str, Sequence[PlannedOperator]]]:
        """Yield the operators of each level with a title for people; first those that read rows."""
        if self.rows_sources:
            yield "rows of Spark DataFrames", self.rows_sources
        for level in self.levels:
            title = f"level {level.index}, parallelism {level.parallelism}"
            yield title, [self.operators[number] for number in level.operators]

    @property
    def driver_level(self) -> int:
        """Return the number after the last level: blocks sent there go to the driver."""
        return len(self.levels)

    @property
    def widest_level(self) -> Level:
        """Return the first of the levels with the most subtasks."""
        return max(self.levels, key=lambda level: level.parallelism)

    def targets(self, level: int) -> tuple[int, ...]:
        """Return the levels that get blocks from a level."""
        found = {ex.target_level for ex in self.exchanges if ex.source_level == level}
        return tuple(sorted(found))
