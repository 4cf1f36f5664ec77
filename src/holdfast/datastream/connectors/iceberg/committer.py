"""`IcebergCommitter`: the files of a checkpoint as one snapshot of an Iceberg table."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.datastream.connectors.iceberg.changes import Append, Upsert
from holdfast.datastream.connectors.iceberg.commit import commit
from holdfast.datastream.connectors.iceberg.compaction import COMPACTION, IcebergCompaction
from holdfast.datastream.connectors.iceberg.history import (
    TRANSACTION,
    Marked,
    data_files,
    is_committed,
    later_transactions,
)
from holdfast.datastream.connectors.iceberg.settings import SinkSettings, place_of
from holdfast.datastream.connectors.tables.committer import (
    TableCommitter,
    TableError,
    TableTransaction,
)
from holdfast.datastream.connectors.tables.files import FileSettings, TableFiles
from holdfast.datastream.connectors.tables.later import LaterCommits, TableProgress
from holdfast.datastream.connectors.tables.merging import last_changes
from holdfast.datastream.connectors.tables.place import NO_ATTEMPT, TablePlace
from holdfast.datastream.functions import RuntimeContext
from holdfast.filesystem import join

if TYPE_CHECKING:
    from pyiceberg.table import Table

#: between the id of a table and its last sequence number when a transaction got its name
_AT: Final = "@"
#: clocks of machines differ by no more, in milliseconds
_CLOCKS: Final = 3_600_000


class IcebergCommitter(TableCommitter):
    """Adds files to an Iceberg table, or applies changes by key."""

    not_carried = TableCommitter.not_carried | {"_settings", "_table"}
    _table: Table

    def __init__(self, settings: SinkSettings) -> None:
        """Connect to nothing yet."""
        super().__init__(TablePlace("", settings.sink), settings.compaction)
        self._settings = settings

    @property
    def settings(self) -> SinkSettings:
        """Return what table the sink needs."""
        return self._settings

    def open(self, runtime_context: RuntimeContext) -> None:
        """Check the table, and create it if there is none and the sink may."""
        super().open(runtime_context)
        self._table = self._settings.layout.prepare(self._settings.address)
        self._place = place_of(self._table, self._settings.sink)

    def table_id(self) -> str:
        """Return the id of the table, and its sequence number before the transaction."""
        metadata = self._table.metadata
        return f"{metadata.table_uuid}{_AT}{self.table_version()}"

    def has_committed(self, transaction: TableTransaction) -> bool:
        with self._settings.address.errors("load the table"):
            self._table.refresh()
        return is_committed(self._settings.address, self._table, self._marked(transaction))

    def commit_files(self, transaction: TableTransaction) -> None:
        address, marked = self._settings.address, self._marked(transaction)
        if not self._settings.key:
            commit(address, self._table, marked, Append(transaction.place, transaction.files))
            return
        with address.errors("read the changes"):
            changes = last_changes(transaction, self._settings.key)
        place, settings = self._place, self._settings.files
        upsert = Upsert(changes, self._settings.key, self._new_files, place, settings)
        commit(address, self._table, marked, upsert)
        upsert.settle()

    def table_version(self) -> int:
        return self._table.metadata.next_sequence_number() - 1

    def later_commits(self, since: TableProgress, own: Collection[str]) -> LaterCommits | None:
        with self._settings.address.errors("load the table"):
            self._table.refresh()
        later, snapshot = later_transactions(
            self._table.metadata, since.lineage, since.version, own
        )
        remedy = "There is no snapshot before them"
        if snapshot is not None:
            remedy = (
                f"To undo them, stop the job, set the table back to the snapshot {snapshot}, and "
                "start from the same checkpoint again"
            )
        return LaterCommits(str(self._settings.address), later, remedy) if later else None

    def compact(self) -> None:
        compaction = self._settings.compaction
        assert compaction is not None
        IcebergCompaction(
            self._settings.address, self._place, compaction.target_bytes, self._compacted_files
        ).run()

    def find_referred(self, paths: Collection[str], since: int) -> Collection[str]:
        """Look for the files in the current snapshot, and in those since the files were begun."""
        table = self._settings.address.load()
        with self._settings.address.errors("list the files of the table"):
            found = {file.file_path for file in data_files(table, table.current_snapshot())}
            for snapshot in table.snapshots():
                ours = snapshot.summary is not None and (
                    TRANSACTION in snapshot.summary or COMPACTION in snapshot.summary
                )
                if ours and snapshot.timestamp_ms >= since - _CLOCKS:
                    added = data_files(table, snapshot, added_only=True)
                    found |= {file.file_path for file in added}
        return [path for path in paths if join(self._place.base, path) in found]

    def _new_files(self, schema: pa.Schema, settings: FileSettings) -> TableFiles:
        return TableFiles(self._place, schema, settings, False, self._attempt, 0)

    def _compacted_files(self, schema: pa.Schema, settings: FileSettings) -> TableFiles:
        return TableFiles(self._place, schema, settings, False, NO_ATTEMPT, 0)

    def _marked(self, transaction: TableTransaction) -> Marked:
        """Return what tells whether the table has a transaction, if it is for this table."""
        table, _, begun_at = transaction.table.partition(_AT)
        found = str(self._table.metadata.table_uuid)
        if table != found or transaction.place.base != self._place.base:
            raise TableError(
                f"{transaction!r} of the checkpoint is for the table with the id {table}, and "
                f"{self._settings.address} has the id {found}; nothing was committed. Restore the "
                "old table or the old name, or start without state"
            )
        return Marked(
            transaction.place.sink,
            transaction.token,
            transaction.number,
            int(begun_at),
            {join(transaction.place.base, file.path) for file in transaction.files},
            transaction.origin,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._settings,)
