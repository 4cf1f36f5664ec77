"""`Head`: the files that form the state of a subtask, and the rule for merging them.

This module is pure: it reads and writes no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.common.plain_names import plain_name

#: number of stamps in a head; a worker that missed more epochs rebuilds its state from the base
LINEAGE: Final = 16
#: a delta is merged when the deltas after it have this many times its size
_FAN_IN: Final = 7
#: deltas smaller than this count as equal; reading one of this size takes half a millisecond
_SMALL: Final = 1 << 14
_LARGE: Final = 1 << 20
_MOST_LARGE: Final = 64


class FileRef(msgspec.Struct, frozen=True, array_like=True):
    """One state file: all changes of the epochs ``(since, until]``, as they stand after ``until``.

    Invariant: applied to the state after any epoch from ``since`` to ``until``, it gives the state
    after ``until``. (A file stores resulting values and never increments. Applying changes that the
    state already contains sets the same values again, or later ones.)

    A base has ``since == -1``: it holds the complete state, and needs no other file before it.

    Invariant: the name is a plain file name, so it cannot refer to a file in another directory.
    """

    name: str
    size: int
    since: int
    until: int

    def __post_init__(self) -> None:
        plain_name(self.name)


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The state of a subtask after an epoch: a base, and the deltas after it, oldest first.

    Invariant: ``files[0].since == -1`` and ``files[i].since == files[i - 1].until``. Consequence:
    the files applied in their order give the state, and a worker whose state is that after
    ``files[i]`` needs only the later files.

    Invariant: `lineage` holds the stamps of the last accepted writes, newest last; the newest is
    that of ``files[-1]``. Consequence: a worker whose state has one of these stamps holds an
    earlier state of this very head. A stamp that was never accepted is in no lineage.

    Invariant: merging replaces files at the end only. Consequence: the files that end before a
    worker's epoch are the same as when the worker last saw the head.

    `tables` belong to the base: database tables that hold the state, to which the contents of the
    base are applied (see `holdfast.state.format.table_files`). Consecutive bases share the tables
    that did not change.

    `overwritten` and `swept` determine when expired entries are removed. They are stored here
    because they must survive the process. `overwritten` is the size of the deltas of earlier bases
    that were written since all tables were last compacted. `swept` is the time, in milliseconds, at
    which all entries were last checked for expiration (0: unknown).
    """

    files: tuple[FileRef, ...] = ()
    lineage: tuple[str, ...] = ()
    tables: tuple[FileRef, ...] = ()
    overwritten: int = 0
    swept: int = 0

    def check(self) -> None:
        """Check the invariants of a head that was read from a file.

        Raises:
            ValueError: if the files are not a base followed by its deltas, or a size is not
                positive.
        """
        reached = -1
        for file in self.files:
            if file.since != reached or file.until <= reached:
                message = f"file {file.name!r} starts after epoch {file.since}, not {reached}"
                raise ValueError(message)
            reached = file.until
        if (self.tables or self.lineage) and not self.files:
            message = "a head has tables or stamps but no file"
            raise ValueError(message)
        if any(file.size <= 0 for file in self.all_files):
            message = "a file of a head has a size of zero or less"
            raise ValueError(message)

    @property
    def stamp(self) -> str | None:
        """Return the stamp of the newest write; None if nothing was ever written."""
        return self.lineage[-1] if self.lineage else None

    @property
    def until(self) -> int:
        """Return the epoch of the newest write; -1 if nothing was ever written."""
        return self.files[-1].until if self.files else -1

    @property
    def all_files(self) -> tuple[FileRef, ...]:
        """Return every file that the state needs: tables, base and deltas."""
        return self.tables + self.files

    @property
    def size(self) -> int:
        """Return the size of all files."""
        return sum(file.size for file in self.all_files)

    @property
    def turned_over(self) -> bool:
        """Return whether the bytes written since the last compaction reach the tables' size."""
        return self.written >= sum(table.size for table in self.tables)

    @property
    def written(self) -> int:
        """Return the size of all deltas since the last compaction of the tables."""
        return self.overwritten + sum(file.size for file in self.files[1:])

    def size_from(self, start: int) -> int:
        """Return how many bytes are read to apply the files from position ``start`` on."""
        return self.size if start == 0 else sum(file.size for file in self.files[start:])

    def since(self, fold: int) -> int:
        """Return `FileRef.since` of a file that replaces the last ``fold`` files."""
        kept = len(self.files) - fold
        return self.files[kept - 1].until if kept else -1

    def extended(self, file: FileRef, stamp: str, swept: int, fold: int = 0) -> Head:
        """Return the head with the file appended in place of the last ``fold`` files."""
        kept = self.files[: len(self.files) - fold]
        if not kept:
            return Head((file,), self._lineage(stamp), swept=swept)
        lineage = self._lineage(stamp)
        return Head((*kept, file), lineage, self.tables, self.overwritten, swept)

    def resized(self, written: Head) -> Head:
        """Return the head with the sizes that another one has for the same files."""
        sizes = {file.name: file.size for file in written.all_files}

        def resized(files: tuple[FileRef, ...]) -> tuple[FileRef, ...]:
            replace = msgspec.structs.replace
            return tuple(replace(file, size=sizes.get(file.name, file.size)) for file in files)

        files, tables = resized(self.files), resized(self.tables)
        return msgspec.structs.replace(self, files=files, tables=tables)

    def rebased(
        self, file: FileRef, stamp: str, tables: tuple[FileRef, ...], overwritten: int, swept: int
    ) -> Head:
        """Return the head of a new base that refers to these tables."""
        return Head((file,), self._lineage(stamp), tables, overwritten, swept)

    def _lineage(self, stamp: str) -> tuple[str, ...]:
        return (*self.lineage, stamp)[-LINEAGE:]


def files_to_fold(sizes: Sequence[int], new: int, live: int = 0) -> int:
    """Return how many trailing files the next write merges; merging all of them is a new base.

    ``sizes`` are the sizes of the head's files, base first. ``new`` is the estimated size of the
    next delta, and ``live`` that of a new base (0: unknown).

    - The base is rewritten when the deltas, including the next one, are at least as large as the
      base and at least one and a half times as large as a new base would be. So a head is never
      larger than twice its base, or two and a half times the live state, plus one delta. Rewriting
      the base costs at most as much as the deltas did. While state only grows, rewriting it would
      save nothing.
    - A delta is merged when seven times its size has been written after it: eight deltas of about
      the same size become one. So there are at most seven of each size class, each class is eight
      times as large as the one before, and a change is rewritten once per class. Head length and
      write amplification both grow with the logarithm of the number of deltas of a base.
    - A delta of 1 MB or more is not merged unless it is smaller than a 64th of the head, and
      neither are the deltas before it: rewriting it takes long, and keeping it costs almost
      nothing.
    - Deltas below 16 kB count as 16 kB among each other, because reading a small file takes as long
      as reading a tiny one. But tiny deltas do not cause a larger one to be rewritten.
    """
    if not sizes or new + sum(sizes[1:]) >= max(sizes[0], live * 3 // 2):
        return len(sizes)
    fold, after, small_after = 0, new, max(new, _SMALL)
    large = max(_LARGE, (new + sum(sizes)) // _MOST_LARGE)
    for count, size in enumerate(reversed(sizes[1:]), start=1):
        if size >= large:
            break
        if after >= _FAN_IN * size or small_after >= _FAN_IN * _SMALL > _FAN_IN * size:
            fold = count
        after += size
        small_after += max(size, _SMALL)
    return fold
