"""`HeapCapture`: tables as they were at a barrier, and the file that is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.errors import InternalError
from holdfast.state.capture import Capture
from holdfast.state.chain import Chain, FileRef
from holdfast.state.errors import StateStorageError
from holdfast.state.files import BlobId, Section, StateFile, encode_file
from holdfast.state.key_groups import KeyGroupShare
from holdfast.state.sections import export_section
from holdfast.state.storage import StateStorage
from holdfast.state.tables import Table

__all__ = ["Before", "HeapCapture", "Picture", "Placement", "Step", "TableId", "TakenTable"]

#: operator, state, namespaced
TableId = tuple[str, str, bool]


class Step:
    """What changed in some epochs: the marks of each table, and blobs."""

    __slots__ = ("blobs", "tables")

    def __init__(self) -> None:
        self.tables: dict[TableId, Any] = {}
        self.blobs: set[BlobId] = set()


@dataclass(frozen=True)
class TakenTable:
    """A table that nobody else changes until it is written, and what of it to write.

    ``marks``: None for all of it.
    """

    table: Table[Any]
    marks: Any | None
    share: KeyGroupShare

    def export(self) -> Section:
        """Return it as a section of a file."""
        return export_section(self.table, self.marks, self.share.max_parallelism)


@dataclass(frozen=True)
class Picture:
    """Everything, or what changed, at one moment.

    Attributes:
        unread: sections that are carried along as they are, each with who owns its key groups.
    """

    tables: Sequence[TakenTable] = ()
    unread: Sequence[tuple[Section, KeyGroupShare]] = ()
    blobs: dict[BlobId, bytes | None] = field(default_factory=dict)

    def encode(self) -> StateFile:
        """Return what is to be in the file."""
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
    """Where in a chain a file stands."""

    stamp: str
    #: after which epoch it begins; -1 for a base
    since: int
    until: int
    #: how many files at the end it replaces
    fold: int
    #: when all entries were last checked for expiration
    swept: int

    @property
    def name(self) -> str:
        """Return the name of the file."""
        return f"{self.stamp}.state"

    def extend(self, chain: Chain, size: int) -> Chain:
        """Return the chain with the file, which has that size."""
        ref = FileRef(self.name, size, self.since, self.until)
        return chain.extended(ref, self.stamp, self.swept, self.fold)


@dataclass
class Before:
    """What a backend has to know to take a capture back.

    Attributes:
        changed: the marks that the capture took.
        chain: what it builds on; its sizes are guesses until that is written.
        unread: sections that were not read, by table, each with the `until` of its file.
        stale: the states with a time-to-live of which files may have held expired entries.
        tables: the names of the chain's tables in the database, if there is one.
    """

    changed: Step
    chain: Chain
    steps: dict[int, Step]
    entries_in_base: int
    needs_base: bool
    unread: dict[TableId, list[tuple[int, Section]]]
    stale: Sequence[Any]
    tables: tuple[str, ...] = ()


class HeapCapture(Capture):
    """Tables of a heap backend at one moment.

    Attributes, once it is written:
        size: that of the file.
        changes: how many there are in it.
    """

    def __init__(
        self,
        placement: Placement,
        picture: Picture | None,
        durable: bool,
        before: Before,
        last: Capture | None,
    ) -> None:
        super().__init__(placement.until, before.chain, last)
        self.before = before
        self.size = self.changes = 0
        self.placement = placement
        self._picture = picture
        self._durable = durable

    def _store(self, storage: StateStorage, head: Chain) -> Chain:
        # NB: once, since another thread may let go of it
        picture = self._picture
        if picture is None:
            message = f"cannot write the state of epoch {self.epoch}: it was given up meanwhile"
            raise StateStorageError(message)
        self._write(storage, picture.encode())
        return self.placement.extend(head, self.size)

    def _write(self, storage: StateStorage, file: StateFile) -> None:
        name = self.placement.name
        data = encode_file(file, name)
        storage.write(name, data, durable=self._durable)
        self.size, self.changes = len(data), file.count
        self.pickled = {(s.operator, s.state, s.namespaced) for s in file.sections if s.pickled}

    def _release(self) -> None:
        self._picture = None


def _check_key_groups(section: Section, own: range) -> None:
    for chunk in section.chunks:
        if chunk.first not in own or chunk.last not in own:
            message = (
                f"state {section.state!r} of operator {section.operator!r} has keys of the key "
                f"groups {chunk.first} to {chunk.last}; this subtask owns {own.start} to "
                f"{own.stop - 1}, so a record came to the wrong subtask"
            )
            raise InternalError(message)
