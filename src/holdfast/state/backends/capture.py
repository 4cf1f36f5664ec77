"""`Capture`: the state of a subtask at a barrier, written while the subtask continues.

A capture is taken in the thread of the subtask and can be written in another one. It contains all
that is written; the writing thread never accesses the backend. The result is stored in the capture,
and the backend reads it in the thread of the subtask, before the next capture.

Captures are written in the order in which they were taken, since each builds on the head of the
one before it. If one cannot be written, those that build on it fail too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.errors import InternalError
from holdfast.state.errors import StateStorageError
from holdfast.state.format.files import BlobId, Section, StateFile, encode_file
from holdfast.state.format.head import FileRef, Head
from holdfast.state.key_groups import KeyGroupShare
from holdfast.state.live.sections import export_section
from holdfast.state.live.tables import Table
from holdfast.state.names import StateId
from holdfast.state.storage.directory import StateStorage


class Capture(ABC):
    """The part of a subtask's state that is to be written.

    Attributes:
        head: the result of `write`; None until then.
        failed: whether `write` has raised.
        pickled: the states with pickled values in what was written.
    """

    def __init__(self, epoch: int, head: Head, before: Capture | None) -> None:
        """Build on a head, or on that of the capture ``before`` if it is not written yet."""
        self.epoch = epoch
        self.head: Head | None = None
        self.failed = False
        self.pickled: set[StateId] = set()
        self._after = head
        self._before = before

    def write(self, storage: StateStorage, uploads: bool = False) -> Head:
        """Write the file, once, and return the new head.

        ``uploads``: also upload it to the checkpoint storage. If that fails, it counts as not
        written. Otherwise later states would build on a file that may be deleted.

        Raises:
            StateStorageError: when this capture or the one before it cannot be written. The
                next new capture contains the changes.
        """
        try:
            head = self._store(storage, self._predecessor())
            if uploads:
                storage.upload(file.name for file in head.all_files)
            self.head = head
        except BaseException:
            self.failed = True
            raise
        finally:
            # NB: otherwise each capture would keep the one before it in memory.
            self._before = None
            self._release()
        return head

    def drop(self) -> None:
        """Cancel the capture. A later `write` fails; one that has started continues."""
        self._release()

    @abstractmethod
    def _store(self, storage: StateStorage, head: Head) -> Head:
        """Write the file that follows that head."""

    @abstractmethod
    def _release(self) -> None:
        """Free the contents."""

    def _predecessor(self) -> Head:
        if self.head is not None or self.failed:
            message = f"the capture of epoch {self.epoch} is written a second time"
            raise InternalError(message)
        if self._before is None:
            return self._after
        if self._before.failed:
            message = (
                f"cannot write the state of epoch {self.epoch}: it builds on that of epoch "
                f"{self._before.epoch}, which could not be written; the next checkpoint has the "
                "changes of both"
            )
            raise StateStorageError(message)
        if self._before.head is None:
            message = (
                f"the capture of epoch {self.epoch} is written before that of epoch "
                f"{self._before.epoch}; captures are written in the order they were taken"
            )
            raise InternalError(message)
        return self._before.head


class Unchanged(Capture):
    """A capture without changes: nothing is written, and the head stays the same."""

    def _store(self, storage: StateStorage, head: Head) -> Head:
        return head

    def _release(self) -> None:
        pass


@dataclass(frozen=True)
class TakenTable:
    """A table that does not change until it is written, and which part of it to write.

    ``marks``: None for the whole table.
    """

    table: Table[Any]
    marks: Any | None
    share: KeyGroupShare

    def export(self) -> Section:
        """Return the table as a section of a file."""
        return export_section(self.table, self.marks, self.share.max_parallelism)


@dataclass(frozen=True)
class Picture:
    """The whole state, or its changes, at one moment.

    Attributes:
        unread: sections that are copied unchanged, each with the owner of its key groups.
    """

    tables: Sequence[TakenTable] = ()
    unread: Sequence[tuple[Section, KeyGroupShare]] = ()
    blobs: dict[BlobId, bytes | None] = field(default_factory=dict)

    def encode(self) -> StateFile:
        """Return the contents of the file."""
        sections = []
        for section, share in self._sections():
            _check_key_groups(section, share.key_groups)
            sections.append(section)
        return StateFile(sections, self.blobs)

    def _sections(self) -> Iterable[tuple[Section, KeyGroupShare]]:
        yield from self.unread
        for taken in self.tables:
            yield taken.export(), taken.share


class Placement(NamedTuple):
    """The position of a file in a head."""

    stamp: str
    #: the epoch after which it begins; -1 for a base
    since: int
    until: int
    #: the number of trailing files that it replaces
    fold: int
    #: when all entries were last checked for expiration
    swept: int

    @property
    def name(self) -> str:
        """Return the name of the file."""
        return f"{self.stamp}.state"

    def extend(self, head: Head, size: int) -> Head:
        """Return the head with the file of that size appended."""
        ref = FileRef(self.name, size, self.since, self.until)
        return head.extended(ref, self.stamp, self.swept, self.fold)


class FileCapture(Capture):
    """The tables of a backend at one moment, written as one file.

    Attributes:
        bytes_per_change: the average size of a change in the file; 0.0 until it is written.
    """

    def __init__(
        self,
        placement: Placement,
        picture: Picture,
        durable: bool,
        head: Head,
        last: Capture | None,
    ) -> None:
        super().__init__(placement.until, head, last)
        self.placement = placement
        self.bytes_per_change = 0.0
        self._picture: Picture | None = picture
        self._durable = durable

    def _store(self, storage: StateStorage, head: Head) -> Head:
        file = self._file()
        size = self._write(storage, file)
        self.bytes_per_change = size / max(file.count, 1)
        return self.placement.extend(head, size)

    def _file(self) -> StateFile:
        # NB: read once, since another thread may free it
        picture = self._picture
        if picture is None:
            message = f"cannot write the state of epoch {self.epoch}: it was given up meanwhile"
            raise StateStorageError(message)
        return picture.encode()

    def _write(self, storage: StateStorage, file: StateFile) -> int:
        """Write a file, and return its size."""
        name = self.placement.name
        data = encode_file(file, name)
        storage.write(name, data, durable=self._durable)
        self.pickled = {s.id for s in file.sections if s.pickled}
        return len(data)

    def _release(self) -> None:
        self._picture = None


def _check_key_groups(section: Section, own: range) -> None:
    for chunk in section.chunks:
        if chunk.first not in own or chunk.last not in own:
            message = (
                f"{section.id} has keys of the key groups {chunk.first} to {chunk.last}; this "
                f"subtask owns {own.start} to {own.stop - 1}, so a record came to the wrong subtask"
            )
            raise InternalError(message)
