"""Chains of state files: which files together are the state of a subtask, and when to fold them.

Pure: nothing here reads or writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.common.plain_names import plain_name

__all__ = ["LINEAGE", "Chain", "FileRef", "files_to_fold"]

#: how many stamps a chain remembers; a worker that missed more epochs rebuilds from the base
LINEAGE: Final = 16
#: a delta is folded when this many times its size has come after it
_FAN_IN: Final = 7
#: deltas smaller than this count as equal; one of this size costs half a millisecond
_SMALL: Final = 1 << 14
_LARGE: Final = 1 << 20
_MOST_LARGE: Final = 64


class FileRef(msgspec.Struct, frozen=True, array_like=True):
    """One state file: all changes of the epochs ``(since, until]``, as they stand after ``until``.

    Invariant: applied to the state after any epoch from ``since`` to ``until``, it gives the state
    after ``until``. (A file sets what changed and never says "one more", so that changes which the
    state already has are set to what they were set to anyway, or to what came after.)

    A base has ``since == -1``: it holds everything, and is applied to nothing.

    Invariant: the name is a plain one, so that it stays in the directory that it is looked for in.
    """

    name: str
    size: int
    since: int
    until: int

    def __post_init__(self) -> None:
        plain_name(self.name)


class Chain(msgspec.Struct, frozen=True, array_like=True):
    """The state of a subtask after an epoch: a base, and the deltas after it, oldest first.

    Invariant: ``files[0].since == -1`` and ``files[i].since == files[i - 1].until``.
    Consequence: the files applied in their order give the state, and a state after ``files[i]``
    needs only the files behind it.

    Invariant: `lineage` holds the stamps of the last accepted writes, newest last; the newest is
    that of ``files[-1]``. Consequence: a worker that stands at one of these stamps stands at an
    earlier state of this very chain. A worker that stands at a stamp that was never accepted finds
    itself in no lineage.

    Invariant: folding replaces files at the end only. Consequence: the files that end before a
    worker's epoch are the ones it knows.

    `tables` belong to the base: database tables that hold the state below what the base itself
    says (see `holdfast.state.table_files`). Consecutive bases share those that did not change.

    `overwritten` and `swept` say when expired entries are to be removed; they are here because they
    have to outlive the process. `overwritten` is the size of the deltas behind earlier bases that
    were written since all tables were last compacted, and `swept` the time, in milliseconds, at
    which all entries were last checked for expiration (0: unknown).
    """

    files: tuple[FileRef, ...] = ()
    lineage: tuple[str, ...] = ()
    tables: tuple[FileRef, ...] = ()
    overwritten: int = 0
    swept: int = 0

    def check(self) -> None:
        """Check what the files must be to one another, if the chain was read from somewhere.

        Raises:
            ValueError: when they are no base with the deltas after it, or a size is not possible.
        """
        reached = -1
        for file in self.files:
            if file.since != reached or file.until <= reached:
                message = f"file {file.name!r} begins after epoch {file.since}, not {reached}"
                raise ValueError(message)
            reached = file.until
        if (self.tables or self.lineage) and not self.files:
            message = "a chain has tables or stamps, and no file"
            raise ValueError(message)
        if any(file.size <= 0 for file in self.all_files):
            message = "a file of a chain has no size"
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
        """Return whether as much was written since the last compaction as the tables hold."""
        return self.written >= sum(table.size for table in self.tables)

    @property
    def written(self) -> int:
        """Return the size of all deltas since the last compaction of the tables."""
        return self.overwritten + sum(file.size for file in self.files[1:])

    def size_from(self, start: int) -> int:
        """Return the size of what is read to apply the files from one on."""
        return self.size if start == 0 else sum(file.size for file in self.files[start:])

    def since(self, fold: int) -> int:
        """Return the epoch after which a file begins that replaces the last ``fold`` files."""
        kept = len(self.files) - fold
        return self.files[kept - 1].until if kept else -1

    def extended(self, file: FileRef, stamp: str, swept: int, fold: int = 0) -> Chain:
        """Return the chain with the file at the end, in place of the last ``fold`` files."""
        kept = self.files[: len(self.files) - fold]
        if not kept:
            return Chain((file,), self._lineage(stamp), swept=swept)
        lineage = self._lineage(stamp)
        return Chain((*kept, file), lineage, self.tables, self.overwritten, swept)

    def resized(self, written: Chain) -> Chain:
        """Return the chain with the sizes that another one has for the same files."""
        sizes = {file.name: file.size for file in written.all_files}

        def resized(files: tuple[FileRef, ...]) -> tuple[FileRef, ...]:
            replace = msgspec.structs.replace
            return tuple(replace(file, size=sizes.get(file.name, file.size)) for file in files)

        files, tables = resized(self.files), resized(self.tables)
        return msgspec.structs.replace(self, files=files, tables=tables)

    def rebased(
        self, file: FileRef, stamp: str, tables: tuple[FileRef, ...], overwritten: int, swept: int
    ) -> Chain:
        """Return the chain of a new base that lies on these tables."""
        return Chain((file,), self._lineage(stamp), tables, overwritten, swept)

    def _lineage(self, stamp: str) -> tuple[str, ...]:
        return (*self.lineage, stamp)[-LINEAGE:]


def files_to_fold(sizes: Sequence[int], new: int, live: int = 0) -> int:
    """Return how many files at the end the next write replaces; all of them: a new base.

    ``sizes`` are those of the chain, base first, ``new`` is about that of the next delta, and
    ``live`` about that of a new base, if one knows.

    - The base is rewritten when the deltas, the next one among them, have outgrown it, and what a
      new one would hold by half. So a chain is never larger than twice its base, or two and a half
      times what is live, and one delta, and the base costs at most as much as the deltas did. While
      state only grows, there is nothing to be won.
    - A delta is folded when seven times its size has come after it: eight of about one size
      become one. So there are at most seven of each size, each eight times as large as the one
      before, and a change is written again once per size: chain length and write amplification
      both grow with the logarithm of the number of deltas in a base.
    - A delta of 1 MB is not folded unless that is less than a 64th of the chain, nor is what came
      before it: it costs long to write, and next to nothing to have.
    - Deltas below 16 kB count as one of that size, next to each other: a small file costs as much
      as a tiny one, but tiny ones are no reason to rewrite a larger one.
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
