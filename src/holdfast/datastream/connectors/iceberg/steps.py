"""The steps of a source: which snapshots are read after which, and what files they have."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from holdfast.datastream.connectors.iceberg.catalog import TableAddress
from holdfast.datastream.connectors.iceberg.history import ancestors_of, data_files
from holdfast.datastream.connectors.iceberg.row_groups import read_from
from holdfast.datastream.connectors.iceberg.shares import StepFile
from holdfast.datastream.connectors.tables.committer import TableError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table import DataScan, FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot

#: kinds of snapshots: with new files only, and with the same rows in other files
_APPEND: Final = "append"
_REPLACE: Final = "replace"
_PARQUET: Final = "PARQUET"


#: the rows of a file; to be closed
Batches = Generator["pa.RecordBatch", None, None]


class ChangedRows(Enum):
    """What a source that follows a table does with snapshots that change or delete rows."""

    FAIL = "fail"
    IGNORE = "ignore"


@dataclass(frozen=True)
class TableReading:
    """What is read of a table.

    Attributes:
        columns: None for all.
        row_filter: a condition as pyiceberg writes it; empty for all rows.
        changed_rows: what to do with snapshots that change or delete rows.
    """

    address: TableAddress
    columns: tuple[str, ...] | None = None
    row_filter: str = ""
    changed_rows: ChangedRows = ChangedRows.FAIL


class TableSteps:
    """Lists and reads the files of steps, in a worker."""

    def __init__(self, reading: TableReading) -> None:
        """Connect to nothing yet."""
        self._reading = reading
        self._table: Table | None = None

    def order(self, head: int) -> dict[int, int]:
        """Return the places of snapshots in the history up to one, the oldest first."""
        table = self._load(head)
        snapshots = [each.snapshot_id for each in ancestors_of(table.metadata, head)]
        return {snapshot: place for place, snapshot in enumerate(reversed(snapshots))}

    def parts(self, snapshot: int, is_scan: bool) -> list[StepFile[FileScanTask]]:
        """Return the files of a step, in an order that never changes."""
        from pyiceberg.table import FileScanTask

        with self._reading.address.errors("list the files of the table"):
            if is_scan:
                tasks = list(self._scan(snapshot).plan_files())
            else:
                tasks = [FileScanTask(file) for file in self._appended(snapshot)]
        tasks.sort(key=lambda task: task.file.file_path)
        return [
            StepFile(number, task, task.file.file_size_in_bytes)
            for number, task in enumerate(tasks)
        ]

    def batches(self, snapshot: int, part: StepFile[FileScanTask]) -> Batches:
        """Yield the rows of a file from a row on, without those that are deleted."""
        task = part.file
        with self._reading.address.errors(f"read {task.file.file_path}"):
            is_plain = not task.delete_files and not self._reading.row_filter
            if is_plain and task.file.file_format == _PARQUET:
                table = self._load(snapshot)
                yield from read_from(table, task.file, self._projected(table), part.row)
            else:
                yield from self._remaining(snapshot, task, part.row)

    def _remaining(self, snapshot: int, task: FileScanTask, skipped: int) -> Batches:
        """Yield the rows that are not deleted and meet the condition, but the first ones."""
        from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files

        table, scan = self._load(snapshot), self._scan(snapshot)
        columns = self._projected(table)
        reading = ArrowScan(table.metadata, table.io, columns, scan.row_filter)
        deletes = _read_all_delete_files(table.io, [task])
        for batch in reading._record_batches_from_scan_tasks_and_deletes([task], deletes):
            if skipped < batch.num_rows:
                yield batch.slice(skipped)
            skipped = max(0, skipped - batch.num_rows)

    def _scan(self, snapshot: int) -> DataScan:
        options: dict[str, Any] = {}
        if self._reading.row_filter:
            options["row_filter"] = self._reading.row_filter
        return self._load(snapshot).scan(snapshot_id=snapshot, **options)

    def _projected(self, table: Table) -> Schema:
        """Return the columns to read, as the table has them now, also for earlier snapshots."""
        columns, schema = self._reading.columns, table.schema()
        return schema if columns is None else schema.select(*columns)

    def _appended(self, number: int) -> Sequence[Any]:
        table = self._load(number)
        snapshot = table.snapshot_by_id(number)
        assert snapshot is not None
        kind = operation_of(snapshot)
        if kind == _APPEND:
            return data_files(table, snapshot, added_only=True)
        if kind != _REPLACE and self._reading.changed_rows is ChangedRows.FAIL:
            raise TableError(
                f"{self._reading.address}: the snapshot {number} changes or deletes rows "
                f"({kind}), and the source reads only what is appended; call "
                "set_changed_rows(ChangedRows.IGNORE) to leave such snapshots out"
            )
        return ()

    def _load(self, snapshot: int) -> Table:
        """Return the table with a snapshot."""
        table, address = self._table, self._reading.address
        if table is None:
            table = self._table = address.load()
        if table.snapshot_by_id(snapshot) is None:
            with address.errors("load the table"):
                table.refresh()
        if table.snapshot_by_id(snapshot) is None:
            raise expired(address, snapshot)
        return table


def operation_of(snapshot: Snapshot) -> str:
    """Return what a snapshot has done to the table."""
    return _APPEND if snapshot.summary is None else str(snapshot.summary.operation.value)


def next_snapshot(order: Mapping[int, int], snapshot: int) -> int | None:
    """Return the snapshot after one; None if there is none yet."""
    place = order[snapshot] + 1
    return next((each for each, there in order.items() if there == place), None)


def expired(address: TableAddress, snapshot: int) -> TableError:
    """Return the error for a snapshot that is gone before it was read."""
    return TableError(
        f"{address} does not have the snapshot {snapshot}, at which the source is: it has expired, "
        "or the table was set back. Start without state, and let snapshots expire later than the "
        "job may stand still"
    )
