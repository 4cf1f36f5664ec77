"""Whether a table already contains a transaction of the sink.

Every snapshot of the sink has the id of its transaction in its summary. A transaction also knows
the last sequence number of the table when it got its id, so the snapshots with later ones decide.
Snapshots expire. If one of these is gone, a property of the table decides, which has the last
transaction of the sink, or the data files that the table has now. If those do not decide either,
the user does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from holdfast.datastream.connectors.iceberg.catalog import TableAddress
from holdfast.datastream.connectors.tables.committer import TableError
from holdfast.datastream.connectors.tables.later import SINK

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

#: the id of the transaction in the summary of a snapshot
TRANSACTION: Final = "holdfast.transaction"
#: not the id of a snapshot
_NO_SNAPSHOT: Final = 0
#: a property by which the user answers what the history does not: this and the transaction's id
_ANSWER: Final = "holdfast.transaction."


@dataclass(frozen=True)
class Marked:
    """What identifies a transaction in the history of a table.

    Attributes:
        sink: the id of the sink.
        token: of the attempt that began the transaction.
        number: within the token.
        begun_at: the last sequence number of the table before the transaction.
        paths: the data files that it adds.
        origin: what else the summary of its snapshot says: its job and its checkpoint.
    """

    sink: str
    token: str
    number: int
    begun_at: int
    paths: Collection[str]
    origin: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the id of the transaction."""
        return f"{self.token}-{self.number}"

    @property
    def last_key(self) -> str:
        """Return the table property that has the last transaction of the sink."""
        return f"holdfast.last-transaction.{self.sink}"


class History(Enum):
    """What the snapshots of a table tell about a transaction."""

    COMMITTED = "committed"
    MISSING = "missing"
    #: snapshots that would tell have expired
    UNKNOWN = "unknown"


def look_up(metadata: TableMetadata, token: str, number: int, begun_at: int) -> History:
    """Look for a transaction in the snapshots after the sequence number at which it began.

    Transactions of one token are committed in the order of their numbers, so a later one tells that
    an earlier one is there. Only ancestors of the current snapshot count: after the table was
    rolled back behind a transaction, it is missing and can be committed again.
    """
    oldest = begun_at + 1
    for snapshot in ancestors_of(metadata):
        oldest = snapshot.sequence_number or 0
        if oldest <= begun_at:
            return History.MISSING
        if snapshot.summary is not None and _covers(
            snapshot.summary.get(TRANSACTION), token, number
        ):
            return History.COMMITTED
    # NB: when a snapshot expires, some engines also delete its id from the next one
    return History.MISSING if oldest == begun_at + 1 else History.UNKNOWN


def is_committed(address: TableAddress, table: Table, marked: Marked) -> bool:
    """Return whether a table, which was just loaded, contains a transaction.

    Raises:
        TableError: when it cannot be known.
    """
    found = look_up(table.metadata, marked.token, marked.number, marked.begun_at)
    if found is not History.UNKNOWN:
        return found is History.COMMITTED
    if _covers(table.properties.get(marked.last_key), marked.token, marked.number):
        return True
    answer = table.properties.get(_ANSWER + marked.name)
    if answer in (History.COMMITTED.value, History.MISSING.value):
        return answer == History.COMMITTED.value
    if any(file.file_path in marked.paths for file in data_files(table, table.current_snapshot())):
        return True
    raise TableError(
        f"{address}: snapshots since the transaction {marked.name} began (sequence number "
        f"{marked.begun_at}) have expired, and the table has none of its files now, so it cannot "
        "be known whether it was committed. Nothing is lost: the checkpoint has the transaction. "
        f"Find out whether the table has the rows of {_shown(marked.paths)}, set the table "
        f"property '{_ANSWER}{marked.name}' to 'committed' or 'missing', and start the job again"
    )


def later_transactions(
    metadata: TableMetadata, lineage: str, since: int, own: Collection[str]
) -> tuple[int, int | None]:
    """Return how many transactions of a sink a table got since, and the snapshot before them.

    Args:
        metadata: of the table.
        lineage: the id of the sink in the history.
        since: a sequence number.
        own: the names of transactions that do not count.
    """
    later: set[str] = set()
    before = None
    for snapshot in ancestors_of(metadata):
        if (snapshot.sequence_number or 0) <= since:
            break
        summary = snapshot.summary
        if summary is None or summary.get(SINK) != lineage:
            continue
        name = str(summary.get(TRANSACTION))
        if name not in own:
            later.add(name)
            before = snapshot.parent_snapshot_id
    return len(later), before


def ancestors_of(metadata: TableMetadata, snapshot_id: int | None = None) -> Iterator[Snapshot]:
    """Yield a snapshot, by default the current one, and those before it that have not expired."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    current = metadata.current_snapshot()
    snapshot = current if snapshot_id is None else by_id.get(snapshot_id)
    while snapshot is not None:
        yield snapshot
        snapshot = by_id.get(snapshot.parent_snapshot_id or _NO_SNAPSHOT)


def data_files(table: Table, snapshot: Snapshot | None, added_only: bool = False) -> list[DataFile]:
    """Return the data files of a snapshot, or those that it has added to the one before it."""
    from pyiceberg.manifest import ManifestContent, ManifestEntryStatus

    if snapshot is None:
        return []
    added = ManifestEntryStatus.ADDED
    return [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        if manifest.content == ManifestContent.DATA
        if not added_only or manifest.added_snapshot_id == snapshot.snapshot_id
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if not added_only or (entry.status, entry.snapshot_id) == (added, snapshot.snapshot_id)
    ]


def _covers(found: str | None, token: str, number: int) -> bool:
    """Return whether an id is of this transaction or of a later one of the same token."""
    there, _, last = (found or "").rpartition("-")
    return there == token and last.isdigit() and int(last) >= number


def _shown(paths: Collection[str]) -> str:
    first = sorted(paths)[:3]
    more = len(paths) - len(first)
    return ", ".join(first) + (f" and {more} more files" if more else "")
