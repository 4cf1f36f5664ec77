"""Compaction of an Iceberg table: small data files are replaced by larger ones with the same rows.

1. Choose small files, and write their rows to new files, which takes a while and which nobody sees.
2. Commit a snapshot that replaces the ones by the others (operation ``replace``), on the table as
   it is then, if it still has all of the old files, and no row of them was deleted meanwhile. If
   somebody else commits at the same time, that is looked at again.

Readers of appended rows pass such a snapshot over. The new files are not swept by the next attempt
of the job, because this one may be taken for dead and still commit them; they are swept after a
day, when it has given up.

Invariant: nothing that a try has written is deleted before the catalog has refused that try. If its
answer was lost, it may still be carried out. Consequence: no snapshot names a file that is gone.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.datastream.connectors.iceberg.catalog import TableAddress
from holdfast.datastream.connectors.iceberg.changes import as_data_files, read_rows, write_rows
from holdfast.datastream.connectors.iceberg.commit import (
    commit_once,
    delete_manifests,
    is_refused,
    pauses,
    will_pass,
)
from holdfast.datastream.connectors.tables.files import FileSettings, TableFiles
from holdfast.datastream.connectors.tables.place import TablePlace, delete_files, delete_marks
from holdfast.datastream.connectors.tables.written import WrittenFile
from holdfast.errors import InternalError
from holdfast.printable import get_logger

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table, Transaction

#: the id of a compaction, in the summary of its snapshot
COMPACTION: Final = "holdfast.compaction"
#: a compaction gives up after so many seconds: its files are swept when they are a day old
_LONGEST: Final = 12 * 3600
_logger = get_logger(__name__)


class IcebergCompaction:
    """One compaction."""

    def __init__(
        self,
        address: TableAddress,
        place: TablePlace,
        target_bytes: int,
        new_files: Callable[[pa.Schema, FileSettings], TableFiles],
    ) -> None:
        self._address = address
        self._place = place
        self._target = target_bytes
        self._new_files = new_files
        self._id = f"{place.sink}-{uuid.uuid4().hex}"
        self._old: list[DataFile] = []
        self._written: list[WrittenFile] = []
        #: whether the catalog may still carry out a try whose answer was lost
        self._may_land = False

    def run(self) -> None:
        """Compact the table, if there is something to compact."""
        begun = time.monotonic()
        table = self._address.load()
        try:
            self._rewrite(table)
            committed = bool(self._old) and self._commit(table, begun)
        except Exception:
            self._undo()
            raise
        if committed:
            delete_marks(self._place, [file.mark for file in self._written])
        else:
            self._undo()

    def _stage(self, transaction: Transaction) -> None:
        """Replace the old files by the new ones, in a transaction on the current state."""
        from pyiceberg.expressions import AlwaysTrue

        before = sum(file.record_count for file in self._old)
        after = sum(file.rows for file in self._written)
        if before != after:
            message = f"{before} rows would become {after}; nothing was changed"
            raise InternalError(message)
        metadata = transaction.table_metadata
        producer = _replace_files()(transaction, {COMPACTION: self._id})
        with producer as replace:
            replace.delete_by_predicate(AlwaysTrue())
            for file in self._old:
                replace.delete_data_file(file)
            for file in as_data_files(metadata, self._place, self._written):
                replace.append_data_file(file)

    def _undo(self) -> None:
        """Delete the new files, unless they may be committed: then they are swept after a day."""
        if self._may_land:
            return
        delete_files(self._place, [file.path for file in self._written])
        delete_marks(self._place, [file.mark for file in self._written])
        self._written = []

    def _rewrite(self, table: Table) -> None:
        """Write the rows of small files to new files."""
        transaction = table.transaction()
        spec = table.metadata.default_spec_id
        small = [
            task
            for task in table.scan().plan_files()
            if task.file.spec_id == spec and not task.delete_files
            if task.file.file_size_in_bytes < self._target
        ]
        settings = FileSettings(target_bytes=self._target)
        for group in _groups(small, self._target):
            rows = (read_rows(transaction, task, None) for task in group)
            self._written += write_rows(table.metadata, rows, self._new_files, settings)
            self._old += [task.file for task in group]

    def _commit(self, table: Table, begun: float) -> bool:
        """Replace the files; return whether the table has the new ones."""
        for pause in pauses():
            table.refresh()
            if self._is_committed(table):
                return True
            if not {file.file_path for file in self._old} <= _whole_files(table):
                _logger.info("%s: files changed during the compaction; later", self._address)
                return False
            if time.monotonic() - begun > _LONGEST:
                return False
            if self._try(table):
                return True
            time.sleep(pause)
        table.refresh()
        return self._is_committed(table)

    def _try(self, table: Table) -> bool:
        """Commit once; return False if the next try may succeed."""
        staged = table.transaction()
        self._stage(staged)
        try:
            commit_once(table, staged)
        except Exception as error:
            if is_refused(error):
                # NB: a look at the table, because the answer may be that to a repeated request
                table.refresh()
                delete_manifests(table, staged)
            else:
                self._may_land = True
            if not will_pass(error):
                raise
            return False
        return True

    def _is_committed(self, table: Table) -> bool:
        """Return whether a table, which was just loaded, has the snapshot."""
        found = (snapshot.summary for snapshot in table.snapshots())
        return any(each is not None and each.get(COMPACTION) == self._id for each in found)


def _whole_files(table: Table) -> set[str]:
    """Return the data files without deleted rows."""
    tasks = table.scan().plan_files()
    return {task.file.file_path for task in tasks if not task.delete_files}


def _groups(tasks: Iterable[FileScanTask], target: int) -> list[list[FileScanTask]]:
    """Group files of the same partition that become one file."""
    by_partition: dict[str, list[FileScanTask]] = {}
    for task in tasks:
        by_partition.setdefault(repr(task.file.partition), []).append(task)
    return [
        group
        for found in by_partition.values()
        for group in _filled(_worth(found), target)
        if len(group) > 1
    ]


def _worth(tasks: Sequence[FileScanTask]) -> list[FileScanTask]:
    """Leave out files that are larger than all smaller ones together.

    Or a row would be written again with every compaction, until its file is large enough.
    """
    found = sorted(tasks, key=lambda task: task.file.file_size_in_bytes)
    sizes = [task.file.file_size_in_bytes for task in found]
    while len(found) > 1 and sizes[len(found) - 1] > sum(sizes[: len(found) - 1]):
        found.pop()
    return found


def _filled(tasks: Sequence[FileScanTask], target: int) -> list[list[FileScanTask]]:
    groups: list[list[FileScanTask]] = [[]]
    size = 0
    for task in tasks:
        if size >= target:
            groups.append([])
            size = 0
        groups[-1].append(task)
        size += task.file.file_size_in_bytes
    return groups


def _replace_files() -> Callable[[Transaction, dict[str, str]], Any]:
    """Return what makes a snapshot that replaces files; pyiceberg itself only reads such ones."""
    from pyiceberg.table.snapshots import Operation, Summary
    from pyiceberg.table.update.snapshot import _OverwriteFiles

    class ReplaceFiles(_OverwriteFiles):
        def _summary(self, snapshot_properties: dict[str, str] = {}) -> Summary:  # noqa: B006
            summary = super()._summary(snapshot_properties)
            return Summary(Operation.REPLACE, **summary.additional_properties)

    def make(transaction: Transaction, summary: dict[str, str]) -> Any:
        return ReplaceFiles(
            Operation.OVERWRITE, transaction, transaction._table.io, snapshot_properties=summary
        )

    return make
