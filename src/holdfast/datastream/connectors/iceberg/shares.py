"""Which files a subtask of a source reads, and how far it is.

A source reads in steps: all rows of a snapshot, then the files that each later snapshot has
appended. The files of a step never change, so every subtask computes the same shares of them, and
a position is a few numbers: the step, the number of files of the own share that were read, and the
rows of the next file.

After a change of the parallelism, the positions of the earlier subtasks are a stage: they tell
which files of a step are left, and these are dealt to the new subtasks. There may be several
stages, one after another, if the parallelism changes again before a step is read.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

_File = TypeVar("_File")


#: the number of files that were read of a step of which nothing is to be read
ALL: Final = sys.maxsize


class StepCursor(NamedTuple):
    """The position of one subtask.

    Attributes:
        snapshot: the snapshot of the step.
        is_scan: whether the step is all rows of the snapshot, not only those that it has appended.
        file: how many files of the share were read.
        row: how many rows of the next file were read.
    """

    snapshot: int
    is_scan: bool
    file: int = 0
    row: int = 0


#: the positions of all subtasks before a change of the parallelism
Stage = tuple[StepCursor, ...]


class Position(NamedTuple):
    """What is saved of a reader.

    Attributes:
        cursor: None before the first plan, and after a change of the parallelism.
        stages: from the oldest.
    """

    cursor: StepCursor | None = None
    stages: tuple[Stage, ...] = ()
    ended: bool = False


class StepFile(NamedTuple, Generic[_File]):
    """A file, without its first rows.

    Attributes:
        number: its place among the files of the step.
        size: in bytes.
        row: the first row.
    """

    number: int
    file: _File
    size: int
    row: int = 0


def encode(position: Position) -> Any:
    """Return a position as plain tuples."""
    cursor = None if position.cursor is None else tuple(position.cursor)
    stages = tuple(tuple(tuple(each) for each in stage) for stage in position.stages)
    return cursor, stages, position.ended


def decode(saved: Any) -> Position:
    """Return the position that ``encode`` made plain."""
    cursor, stages, ended = saved
    return Position(
        None if cursor is None else StepCursor(*cursor),
        tuple(tuple(StepCursor(*each) for each in stage) for stage in stages),
        ended,
    )


def merge(positions: Sequence[Position]) -> Position:
    """Return the position for each subtask of another parallelism.

    Earlier stages are the same in all positions, except that a subtask forgets those that it has
    passed; so the longest list has all that are needed.
    """
    cursors = [each.cursor for each in positions]
    started = [cursor for cursor in cursors if cursor is not None]
    stages = max((each.stages for each in positions), key=len)
    if not started:  # nothing was read since the last change, or ever
        return Position(None, stages, all(each.ended for each in positions))
    # a subtask without a cursor is where the first of the others began
    complete = tuple(cursor or started[0]._replace(file=0, row=0) for cursor in cursors)
    return Position(None, (*stages, complete), all(each.ended for each in positions))


def share(
    parts: Sequence[StepFile[_File]],
    snapshot: int,
    stages: Sequence[Stage],
    order: Mapping[int, int],
    parallelism: int,
    subtask: int,
) -> list[StepFile[_File]]:
    """Return what one subtask reads of a step.

    Args:
        parts: all files of the step.
        snapshot: the snapshot of the step.
        stages: what earlier subtasks have read.
        order: the places of snapshots in the history of the table.
        parallelism: the number of subtasks.
        subtask: the number of this one.
    """
    left = list(parts)
    for stage in stages:
        dealt = deal(left, len(stage))
        left = []
        for cursor, own in zip(stage, dealt, strict=True):
            left += _unread(own, cursor, order[cursor.snapshot] - order[snapshot])
        left.sort(key=lambda part: part.number)
    return deal(left, parallelism)[subtask]


def _unread(own: list[StepFile[_File]], cursor: StepCursor, ahead: int) -> list[StepFile[_File]]:
    if ahead:
        return [] if ahead > 0 else own
    rest = own[cursor.file :]
    if rest and cursor.row:
        rest[0] = rest[0]._replace(row=cursor.row)
    return rest


def deal(parts: Sequence[StepFile[_File]], parallelism: int) -> list[list[StepFile[_File]]]:
    """Give each part, the largest first, to the subtask with the least to read."""
    loads = [(0, 0, subtask) for subtask in range(parallelism)]
    dealt: list[list[StepFile[_File]]] = [[] for _ in range(parallelism)]
    for part in sorted(parts, key=lambda part: (-part.size, part.number)):
        size, count, subtask = least = min(loads)
        loads[loads.index(least)] = (size + part.size, count + 1, subtask)
        dealt[subtask].append(part)
    for own in dealt:
        own.sort(key=lambda part: part.number)
    return dealt
