"""Batches as rows of a table: appended, or as changes by key."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.datastream.columns.batch import Batch, merged
from holdfast.datastream.columns.fitting import BatchColumns
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.connectors.tables.changes import Changes, Sorted
from holdfast.datastream.connectors.tables.merging import last_of_each
from holdfast.datastream.formats.columns import RowError


class AppendedBatches:
    """Rows of batches that are added to the table, as `Appended` has records."""

    is_changes = False

    def __init__(self, schema: pa.Schema, kind: BatchTypeInfo) -> None:
        """Take the columns of the table, and the type of the batches."""
        self.schema = schema
        self._columns = BatchColumns(schema, kind)
        self.waiting: list[Batch] = []
        self.add: Callable[[Batch], None] = self.waiting.append

    def take(self, sorts_out: bool) -> Sorted:
        """Return the rows in the columns of the table, and forget them.

        Raises:
            RowError: for the first that does not fit, unless they are sorted out.
        """
        return _fitted(self._columns, _taken(self.waiting), sorts_out)


class BatchChanges:
    """Changes by key in batches, as `Changes` has records."""

    is_changes = True

    def __init__(
        self, schema: pa.Schema, key: Sequence[str], deleted: str | None, kind: BatchTypeInfo
    ) -> None:
        """Take the columns of the table, its key, and the type of the batches.

        ``deleted``: the column that says whether a row is a deletion; None if none is.
        """
        changes = Changes(schema, key)
        self.schema = changes.schema
        self._key = list(key)
        self._deleted = deleted
        self._complete = changes.complete
        self._upserts = BatchColumns(changes.upsert_schema, kind)
        self._deletions = BatchColumns(changes.deletion_schema, kind)
        self.waiting: list[Batch] = []
        self.add: Callable[[Batch], None] = self.waiting.append

    def take(self, sorts_out: bool) -> Sorted:
        """Return the last change of each key, and forget them.

        If rows are sorted out, the last one that fits.

        Raises:
            RowError: for the first row that does not fit, unless they are sorted out.
        """
        taken = _taken(self.waiting)
        rows, misfits = self._sort_out(taken) if sorts_out else (taken, [])
        last = last_of_each(pa.Table.from_batches([rows]), self._key).combine_chunks()
        upserts, deletions = self._split((last.to_batches() or [rows])[0])
        kept, gone = self._upserts.batch(upserts), self._deletions.batch(deletions)
        both = [self._complete(kept, False), self._complete(gone, True)]
        table = pa.Table.from_batches(both).combine_chunks()
        return (table.to_batches() or both)[0], misfits

    def _split(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the rows that replace others, and those that are deletions."""
        if self._deleted is None:
            return rows, rows.slice(0, 0)
        is_deletion = pc.fill_null(rows.column(self._deleted), False)
        return rows.filter(pc.invert(is_deletion)), rows.filter(is_deletion)

    def _sort_out(self, rows: pa.RecordBatch) -> Sorted:
        """Return the rows that fit, and an error for each of the others."""
        errors = self._errors_of(rows)
        if not errors:
            return rows, []
        fit = [not self._errors_of(rows.slice(at, 1)) for at in range(rows.num_rows)]
        return rows.filter(pa.array(fit, pa.bool_())), errors

    def _errors_of(self, rows: pa.RecordBatch) -> list[RowError]:
        upserts, deletions = self._split(rows)
        return [*self._upserts.sort_out(upserts)[1], *self._deletions.sort_out(deletions)[1]]


def _taken(waiting: list[Batch]) -> pa.RecordBatch:
    rows = merged(waiting).rows
    waiting.clear()
    return rows


def _fitted(columns: BatchColumns, rows: pa.RecordBatch, sorts_out: bool) -> Sorted:
    return columns.sort_out(rows) if sorts_out else (columns.batch(rows), [])
