"""What a sink for an Iceberg table is told, for its writers and its committer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.connectors.iceberg.catalog import TableAddress
from holdfast.datastream.connectors.iceberg.data_files import RowPartitioner
from holdfast.datastream.connectors.iceberg.layout import TableLayout
from holdfast.datastream.connectors.tables.changes import IsDeletion, Sorted
from holdfast.datastream.connectors.tables.compacting import TableCompaction
from holdfast.datastream.connectors.tables.files import FileSettings
from holdfast.datastream.connectors.tables.place import TablePlace
from holdfast.datastream.connectors.tables.writer import RowSettings, TableRows
from holdfast.datastream.output_tag import OutputTag
from holdfast.filesystem import join

if TYPE_CHECKING:
    from pyiceberg.table import Table

_DATA: Final = "data"


@dataclass(frozen=True)
class SinkSettings:
    """The settings of a sink.

    Attributes:
        sink: the id of the sink: the name of its hidden directory.
        key: the names of the key columns; records are changes then.
        is_deletion: tells whether a record deletes the row of its key.
        misfits: the side output for records that do not fit.
        files: how files are written.
        compaction: when small files are put together; None for never.
        batch_type: the type of the batches that are written; None if records are.
    """

    address: TableAddress
    layout: TableLayout
    sink: str = ""
    key: tuple[str, ...] = ()
    is_deletion: IsDeletion = None
    misfits: OutputTag | None = None
    files: FileSettings = field(default_factory=FileSettings)
    compaction: TableCompaction | None = None
    batch_type: BatchTypeInfo | None = None

    def rows(self, schema: pa.Schema, partitioner: RowPartitioner | None = None) -> RowSettings:
        """Return how records become rows of files with these columns."""
        return IcebergRows(
            *(schema, self.key, self.is_deletion, self.misfits, self.batch_type, partitioner)
        )


@dataclass(frozen=True)
class IcebergRows(RowSettings):
    """How records become rows, and to which partitions they belong."""

    partitioner: RowPartitioner | None = None

    def new_rows(self) -> TableRows:
        rows = super().new_rows()
        if self.key or self.partitioner is None:
            return rows
        return _PartitionedRows(rows, self.partitioner)


class _PartitionedRows:
    """Rows with columns for their partitions, which are not written."""

    is_changes = False

    def __init__(self, rows: TableRows, partitioner: RowPartitioner) -> None:
        self._rows = rows
        self._partitioner = partitioner
        self.schema = rows.schema
        self.waiting, self.add = rows.waiting, rows.add

    def take(self, sorts_out: bool) -> Sorted:
        batch, errors = self._rows.take(sorts_out)
        return self._partitioner.with_partitions(batch), errors


def place_of(table: Table, sink: str) -> TablePlace:
    """Return where a sink writes the data files of a table."""
    return TablePlace(join(table.location(), _DATA), sink)
