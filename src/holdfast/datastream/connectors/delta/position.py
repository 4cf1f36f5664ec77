"""Positions in a Delta table: which versions and files a reader has read, and which are left.

Each version deals its files to the subtasks in turn. With another parallelism, the files of
versions that were begun are still dealt as before: the old shares are finished by the new subtasks,
and new shares begin with the next version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

_T = TypeVar("_T")


class ShareCursor(NamedTuple):
    """The next row of a share.

    Attributes:
        version: the version that is read.
        is_snapshot: whether all rows of the table in this version are read, not only its new ones.
        file: the number of the file among those of the share.
        group: the number of the row group in the file.
        row: the number of the row in the group.
    """

    version: int
    is_snapshot: bool = False
    file: int = 0
    group: int = 0
    row: int = 0

    @property
    def has_begun(self) -> bool:
        """Return whether some of the version was read, or may have been."""
        return self.is_snapshot or (self.file, self.group, self.row) != (0, 0, 0)


class Share(NamedTuple):
    """The files that one subtask of some parallelism reads.

    Attributes:
        until: the last version that belongs to the share; None if it goes on for ever.
    """

    subtask: int
    parallelism: int
    cursor: ShareCursor
    until: int | None = None

    @property
    def is_done(self) -> bool:
        """Return whether nothing is left."""
        return self.until is not None and self.cursor.version > self.until

    def of(self, files: Sequence[_T], version: int) -> Sequence[_T]:
        """Return those of the files of a version that belong to the share.

        Versions begin with different subtasks, so that many small ones are spread as well.
        """
        return files[(self.subtask - version) % self.parallelism :: self.parallelism]


def encode(shares: Sequence[Share]) -> tuple[Any, ...]:
    """Return shares as tuples of plain values."""
    return tuple((share[0], share[1], tuple(share.cursor), share.until) for share in shares)


def decode(position: Any) -> list[Share]:
    """Return the shares of a position."""
    return [
        Share(subtask, parallelism, ShareCursor(*cursor), until)
        for subtask, parallelism, cursor, until in position
    ]


def deal_again(positions: Sequence[Any], parallelism: int) -> list[tuple[Any, ...]]:
    """Return the positions for another number of subtasks."""
    shares = [share for position in positions for share in decode(position)]
    going_on = [share.cursor for share in shares if share.until is None]
    dealt: list[list[Share]] = [[] for _ in range(parallelism)]
    if going_on:
        last = max(each.version - (not each.has_begun) for each in going_on)
        shares = [
            share if share.until is not None else share._replace(until=last) for share in shares
        ]
    left = [share for share in shares if not share.is_done]
    for number, share in enumerate(left):
        dealt[number % parallelism].append(share)
    if going_on:
        for subtask, own in enumerate(dealt):
            own.append(Share(subtask, parallelism, ShareCursor(last + 1)))
    return [encode(own) for own in dealt]
