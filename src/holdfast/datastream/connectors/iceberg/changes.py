"""What a commit of the sink does to the table: it adds files, or applies changes by key.

Changes are applied by copying: a data file with a row of a changed key is replaced by one without
it. That, and the new rows, is one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.common.plain_names import plain_path
from holdfast.datastream.connectors.iceberg.commit import Change
from holdfast.datastream.connectors.iceberg.data_files import RowPartitioner, make_data_file
from holdfast.datastream.connectors.iceberg.layout import file_schema
from holdfast.datastream.connectors.tables.files import FileSettings, TableFiles
from holdfast.datastream.connectors.tables.place import TablePlace, delete_files, delete_marks
from holdfast.datastream.connectors.tables.written import DELETED, WrittenFile
from holdfast.filesystem import join

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Transaction
    from pyiceberg.table.metadata import TableMetadata

#: more keys are not compared one by one with the bounds of files
_MOST_KEYS: Final = 200
_ROW: Final = "_holdfast_row"
_MERGES_MANIFESTS: Final = "commit.manifest-merge.enabled"


class Append(Change):
    """Adds files to the table."""

    def __init__(self, place: TablePlace, files: Sequence[WrittenFile]) -> None:
        """Take files that exist."""
        self._place = place
        self._files = files

    def stage(self, transaction: Transaction, summary: Mapping[str, str]) -> None:
        metadata = transaction.table_metadata
        _append(transaction, summary, as_data_files(metadata, self._place, self._files))


class Upsert(Change):
    """Applies the last change of each key."""

    def __init__(
        self,
        changes: pa.Table,
        key: Sequence[str],
        new_files: Callable[[pa.Schema, FileSettings], TableFiles],
        place: TablePlace,
        settings: FileSettings,
    ) -> None:
        """Take the changes, with the column `DELETED`."""
        self._key = list(key)
        self._keys = changes.select(self._key)
        self._rows = changes.filter(pc.invert(changes[DELETED])).drop_columns([DELETED])
        self._new_files = new_files
        self._place = place
        self._settings = settings
        #: what the last try has written
        self.written: list[WrittenFile] = []

    def stage(self, transaction: Transaction, summary: Mapping[str, str]) -> None:
        self.written = []
        metadata = transaction.table_metadata
        replaced: list[DataFile] = []
        new = self._write(metadata, self._rows) if len(self._rows) else []
        condition = self._condition()
        scan = transaction._table.scan(row_filter=condition)
        for task in scan.plan_files():
            kept = self._rows_to_keep(transaction, task)
            if kept is not None:
                replaced.append(task.file)
                new += self._write(metadata, kept) if len(kept) else []
        if not replaced:
            _append(transaction, summary, new)
            return
        with transaction.update_snapshot(
            snapshot_properties=dict(summary)
        ).overwrite() as overwrite:
            # NB: it decides which manifests are searched for the replaced files
            overwrite.delete_by_predicate(condition)
            for file in replaced:
                overwrite.delete_data_file(file)
            for file in new:
                overwrite.append_data_file(file)

    def undo(self) -> None:
        delete_files(self._place, [file.path for file in self.written])
        self.settle()
        self.written = []

    def settle(self) -> None:
        """Delete the marks of what the last try has written: nobody needs to look for it."""
        delete_marks(self._place, [file.mark for file in self.written])

    def _rows_to_keep(self, transaction: Transaction, task: FileScanTask) -> pa.Table | None:
        """Return the rows of a file without those of changed keys; None if it has none of them."""
        keys = read_rows(transaction, task, self._key)
        kept = _rows_without(keys, self._keys)
        if len(kept) == len(keys):
            return None
        return read_rows(transaction, task, None).take(kept) if len(kept) else keys.slice(0, 0)

    def _write(self, metadata: TableMetadata, rows: pa.Table) -> list[DataFile]:
        written = write_rows(metadata, [rows], self._new_files, self._settings)
        self.written += written
        return as_data_files(metadata, self._place, written)

    def _condition(self) -> BooleanExpression:
        """Return a condition that all rows of changed keys meet, and few others."""
        from pyiceberg.expressions import And

        conditions = [_bounds(name, self._keys[name]) for name in self._key]
        whole: BooleanExpression = reduce(And, conditions)
        return whole


def _bounds(name: str, column: pa.ChunkedArray) -> Any:
    """Return a condition that all values of a column meet."""
    from pyiceberg import expressions
    from pyiceberg.expressions.literals import literal

    conditions: Any = expressions
    try:
        distinct = pc.unique(column)
        if len(distinct) <= _MOST_KEYS:
            return conditions.In(name, [literal(value) for value in distinct.to_pylist()])
        low, high = (literal(pc.min_max(column)[end].as_py()) for end in ("min", "max"))
    except (pa.ArrowNotImplementedError, TypeError):  # values without an order, or without literals
        return conditions.AlwaysTrue()
    at_least = conditions.GreaterThanOrEqual(name, low)
    return conditions.And(at_least, conditions.LessThanOrEqual(name, high))


def write_rows(
    metadata: TableMetadata,
    tables: Iterable[pa.Table],
    new_files: Callable[[pa.Schema, FileSettings], TableFiles],
    settings: FileSettings,
) -> list[WrittenFile]:
    """Write rows to new files of a table."""
    partitioner = RowPartitioner(metadata.spec(), metadata.schema())
    files: TableFiles | None = None
    for rows in tables:
        schema = file_schema(metadata.schema(), rows.column_names)
        if files is None:
            files = new_files(schema, FileSettings(partitioner.names, settings.target_bytes))
        for batch in rows.cast(schema).to_batches():
            files.add(partitioner.with_partitions(batch))
    return [] if files is None else files.close()


def as_data_files(
    metadata: TableMetadata, place: TablePlace, files: Sequence[WrittenFile]
) -> list[DataFile]:
    """Return data files for files that a writer has written."""
    from pyiceberg.utils.concurrent import ExecutorFactory

    def one(file: WrittenFile) -> DataFile:
        return make_data_file(
            metadata, join(place.base, plain_path(file.path)), file.size, file.partition
        )

    return list(ExecutorFactory.get_or_create().map(one, files))


def _append(
    transaction: Transaction, summary: Mapping[str, str], files: Sequence[DataFile]
) -> None:
    merges = transaction.table_metadata.properties.get(_MERGES_MANIFESTS, "false").lower() == "true"
    update = transaction.update_snapshot(snapshot_properties=dict(summary))
    with update.merge_append() if merges else update.fast_append() as append:
        for file in files:
            append.append_data_file(file)


def read_rows(transaction: Transaction, task: FileScanTask, columns: list[str] | None) -> pa.Table:
    """Return the rows of a file that are not deleted."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    metadata = transaction.table_metadata
    schema = metadata.schema()
    chosen = schema if columns is None else schema.select(*columns)
    scan = ArrowScan(metadata, transaction._table.io, chosen, AlwaysTrue())
    return scan.to_table([task])


def _rows_without(there: pa.Table, keys: pa.Table) -> pa.Array:
    """Return the numbers of the rows whose keys are not among others, in order."""
    names = there.column_names
    numbered = there.append_column(_ROW, pa.array(range(len(there)), pa.int64()))
    others = keys.cast(there.select(keys.column_names).schema)
    left = numbered.join(others.select(names), keys=names, join_type="left anti")
    numbers = left[_ROW].combine_chunks()
    return numbers.take(pc.array_sort_indices(numbers))
