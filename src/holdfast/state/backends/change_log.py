"""`ChangeLog`: which files hold the state of a backend, and what has changed since.

Every backend has one, beside the tables or the database with the state itself. It records

- the head from which the state was restored, or as which it was captured;
- what changed since the last capture, by state and blob, and what each file of the head changed;
- the sections of states that no function has declared yet, because only a descriptor has the types;
- the captures that may not be written yet.

A capture counts as written from the moment it is taken. If writing it fails, the log returns to the
head before it, and everything that it contained counts as changed again.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdfast.state.backends.capture import Capture, FileCapture, Unchanged
from holdfast.state.errors import StateMigrationError
from holdfast.state.format.files import BlobId, Section
from holdfast.state.format.head import Head
from holdfast.state.format.stored_files import merge_blobs
from holdfast.state.key_groups import KeyGroupShare
from holdfast.state.live.tables import Table
from holdfast.state.live.ttl.cleanup import TtlStates
from holdfast.state.names import StateId

Tables = Mapping[StateId, Table[Any]]

#: estimated size of a change in a file, until one was measured
_BYTES_PER_CHANGE: Final = 32.0


class SpanChanges:
    """The changes of a range of epochs: the marks of each table, and the blobs."""

    __slots__ = ("blobs", "tables")

    def __init__(self) -> None:
        self.tables: dict[StateId, Any] = {}
        self.blobs: set[BlobId] = set()

    def __bool__(self) -> bool:
        return bool(self.tables or self.blobs)

    def add(self, later: SpanChanges, tables: Tables) -> None:
        """Add the changes of a later span; the later one is not modified."""
        for state, marks in later.tables.items():
            self.tables[state] = tables[state].merge(
                self.tables.get(state) or tables[state].new_marks(), marks
            )
        self.blobs |= later.blobs


class Blobs:
    """The blobs of a subtask, and which of them were set since the last capture."""

    def __init__(self) -> None:
        self.live: dict[BlobId, bytes] = {}
        self.dirty: set[BlobId] = set()

    def set(self, blob_id: BlobId, data: bytes | None) -> None:
        """Set a blob; None removes it. Setting equal bytes is no change."""
        if self.live.get(blob_id) != data:
            self.dirty.add(blob_id)
            self.load({blob_id: data})

    def load(self, blobs: Mapping[BlobId, bytes | memoryview | None]) -> None:
        """Apply the blobs of a file."""
        merge_blobs(self.live, blobs)

    def of(self, blob_ids: Iterable[BlobId]) -> dict[BlobId, bytes | None]:
        """Return these blobs; None stands for a removed one."""
        return {blob_id: self.live.get(blob_id) for blob_id in blob_ids}

    def clear(self) -> None:
        """Remove everything."""
        self.live.clear()
        self.dirty.clear()


class UnreadSections(dict[StateId, list[tuple[int, Section]]]):
    """Sections of states that are not declared yet, each with the `until` of its file."""

    def add(self, until: int, section: Section) -> None:
        """Keep a copy of a section, so that the rest of its file can be freed."""
        self.setdefault(section.id, []).append((until, section.copy()))

    def after(self, since: int | None) -> Iterator[Section]:
        """Yield the sections of the files that end after an epoch; None: all."""
        for entries in self.values():
            yield from (s for until, s in entries if since is None or until > since)

    def forget_after(self, since: int) -> None:
        """Drop the sections of the files that end after an epoch."""
        for state, entries in list(self.items()):
            del self[state]
            if kept := [entry for entry in entries if entry[0] <= since]:
                self[state] = kept

    def moved(self, since: int, until: int) -> UnreadSections:
        """Return the sections as they are after one file replaced all that end after ``since``."""
        return UnreadSections(
            (state, [(until if old > since else old, section) for old, section in entries])
            for state, entries in self.items()
        )


class BaseFacts(NamedTuple):
    """What is known about the base of a head, besides its file.

    Attributes:
        entries: the number of entries when it was written; 0 if unknown.
        tables: the names of its tables in the database.
    """

    entries: int = 0
    tables: tuple[str, ...] = ()


class _Pending(NamedTuple):
    """A capture that may not be written yet.

    Attributes:
        before: the log before the capture; its `changed` is what the capture writes.
        stale: the states with a time-to-live whose files may have contained expired entries.
    """

    capture: FileCapture
    before: ChangeLog
    stale: Sequence[Any]


class ChangeLog:
    """The files of a backend's state, and what has changed since.

    Attributes:
        head: the files of the state without the later changes; includes captures that are not
            written yet.
        base: what is known about the base of the head.
        steps: by `until`, what each file of the head changed, except for the base; only used by a
            backend that folds files.
        changed: what changed since the last capture, without the current marks of tables and blobs.
        pickled: the states with pickled values in some file.
        needs_base: whether the next file must be a base: the state has no head, or its files have
            old types and must be replaced before the types change again.
        bytes_per_change: the average size of a change in the last file that was read or written.
    """

    def __init__(self, tables: Tables, ttl: TtlStates) -> None:
        self.blobs = Blobs()
        self.unread = UnreadSections()
        self.pickled: set[StateId] = set()
        self.bytes_per_change = _BYTES_PER_CHANGE
        self._tables = tables
        self._ttl = ttl
        self._pending: deque[_Pending] = deque()
        self._begin()

    def _begin(self) -> None:
        self.head = Head()
        self.base = BaseFacts()
        self.steps: dict[int, SpanChanges] = {}
        self.changed = SpanChanges()
        self.needs_base = False

    def clear(self) -> None:
        """Remove everything, and cancel the captures that are not written yet."""
        self.blobs.clear()
        self.unread.clear()
        self.pickled.clear()
        for pending in self._pending:
            pending.capture.drop()
        self._pending.clear()
        self._begin()

    # What has changed.

    @property
    def has_changes(self) -> bool:
        """Return whether the state differs from the head."""
        if self.needs_base or self.changed or self.blobs.dirty:
            return True
        return any(table.changes for table in self._tables.values())

    def collect(self) -> SpanChanges:
        """Move the marks of tables and blobs to `changed`, and return the moved ones.

        The caller must not modify them.
        """
        newest = SpanChanges()
        for state, table in self._tables.items():
            if table.changes:
                newest.tables[state] = marks = table.take_marks()
                older = self.changed.tables.get(state)
                self.changed.tables[state] = marks if older is None else table.merge(older, marks)
        newest.blobs, self.blobs.dirty = self.blobs.dirty, set()
        self.changed.blobs |= newest.blobs
        return newest

    def changed_since(self, since: int) -> SpanChanges:
        """Return the changes after that epoch, up to the last `collect`."""
        folded = [step for until, step in self.steps.items() if until > since]
        if not folded:
            return self.changed
        merged = SpanChanges()
        for step in (*folded, self.changed):
            merged.add(step, self._tables)
        return merged

    # Restoring.

    def missing_from(self, head: Head) -> int:
        """Return the index of the first file to apply; 0: everything must be read.

        A base cannot be applied to existing state, since it does not say what was removed.
        """
        if self.has_changes or self.head.stamp not in head.lineage:
            return 0
        return next(i for i, file in enumerate(head.files) if file.until > self.head.until)

    def forget_after(self, since: int) -> None:
        """Drop the records of what the files after that epoch changed; the state keeps the changes.

        The next file to apply begins at that epoch and replaces the dropped files, so its marks
        replace theirs. It may contain changes that the state already has.
        """
        for until in [until for until in self.steps if until > since]:
            del self.steps[until]
        self.unread.forget_after(since)

    def own_part(self, section: Section, share: KeyGroupShare) -> Section:
        """Return the part of a section that belongs to the key groups of a subtask.

        Raises:
            StateMigrationError: when it was written with another max parallelism.
        """
        if section.max_parallelism != share.max_parallelism:
            message = (
                f"{section.id} was written with max parallelism {section.max_parallelism}; this "
                f"job has {share.max_parallelism}; keys cannot be moved between key groups, so "
                f"call set_max_parallelism({section.max_parallelism})"
            )
            raise StateMigrationError(message)
        own = section.clip(share.key_groups)
        if own.pickled:
            self.pickled.add(own.id)
        return own

    def marks(self, until: int, state: StateId, table: Table[Any]) -> Any | None:
        """Return the marks of a state in the file that ends there; None if it is a base."""
        step = self.steps.get(until)
        return None if step is None else step.tables.setdefault(state, table.new_marks())

    # Capturing.

    @property
    def is_settled(self) -> bool:
        """Return whether all captures are known to be written."""
        return not self._pending

    @property
    def last(self) -> Capture | None:
        """Return the last capture, on which the next one builds, if it may not be written yet."""
        return self._pending[-1].capture if self._pending else None

    def unchanged(self, epoch: int, full: bool) -> Capture | None:
        """Return an empty capture if there is nothing to write, else None.

        ``full``: several files are to be merged into one, even if nothing changed.
        """
        if not self.has_changes and not (full and len(self.head.files) > 1):
            return Unchanged(epoch, self.head, self.last)
        if epoch <= self.head.until:
            written = self.head.until
            message = f"epoch {epoch} cannot follow epoch {written}, which is already written"
            raise ValueError(message)
        return None

    def take(
        self,
        capture: FileCapture,
        head: Head,
        step: SpanChanges | None = None,
        base: BaseFacts | None = None,
    ) -> None:
        """Record a capture, which writes `changed` to a file and so leads to this head.

        ``step``: what the file changes, if it may be folded later; ``base``: the file is a base.
        """
        self._pending.append(_Pending(capture, copy.copy(self), self._ttl.stale_states()))
        since, until = capture.placement.since, capture.placement.until
        self.steps = {old: known for old, known in self.steps.items() if old <= since}
        if step is not None:
            self.steps[until] = step
        self.unread = self.unread.moved(since, until)
        self.head, self.base = head, base or self.base
        self.changed, self.needs_base = SpanChanges(), False

    def settle(self) -> bool:
        """Record which captures were written or failed; return whether there were any."""
        pending, before = self._pending, len(self._pending)
        while pending and (head := pending[0].capture.head) is not None:
            self._note_written(pending.popleft().capture, head)
        if pending and pending[0].capture.failed:
            self._take_back([each.before for each in pending], pending[0].stale)
            pending.clear()
        if not pending:
            for table in self._tables.values():
                table.all_written()
        return len(pending) < before

    def _note_written(self, capture: FileCapture, head: Head) -> None:
        self.pickled |= capture.pickled
        self.bytes_per_change = capture.bytes_per_change or self.bytes_per_change
        if self._pending:
            self.head = self.head.resized(head)
            self._pending[0].before.head = head
        else:
            self.head = head

    def _take_back(self, before: list[ChangeLog], stale: Sequence[Any]) -> None:
        """Mark the contents of failed captures as changed, relative to the last written head."""
        first = before[0]
        self.head, self.base, self.steps = first.head, first.base, first.steps
        # NB: the marks of sections that were read meanwhile are in steps that are dropped
        was_read = first.unread.keys() - self.unread.keys()
        self.unread = UnreadSections({state: first.unread[state] for state in self.unread})
        self.needs_base |= bool(was_read) or any(log.needs_base for log in before)
        self.needs_base |= any(table.renumbers for table in self._tables.values())
        self._ttl.not_compacted(stale)
        changed = SpanChanges()
        for span in (*(log.changed for log in before), self.changed):
            changed.add(span, self._tables)
        self.changed = changed
