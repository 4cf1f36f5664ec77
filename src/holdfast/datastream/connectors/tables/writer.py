"""`TableWriter`: records into Parquet files of a table that no reader sees yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from holdfast.datastream.columns.fitting import fits
from holdfast.datastream.columns.keys import ColumnKey
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.connectors.tables.batches import AppendedBatches, BatchChanges
from holdfast.datastream.connectors.tables.changes import (
    Appended,
    Changes,
    IsDeletion,
    KeyOf,
    Sorted,
)
from holdfast.datastream.connectors.tables.files import FileSettings, TableFiles
from holdfast.datastream.connectors.tables.place import TablePlace, delete_files, delete_marks
from holdfast.datastream.formats.columns import RowError
from holdfast.datastream.functions import RuntimeContext, SinkFunction, SinkWriter
from holdfast.datastream.output_tag import OutputTag

#: records that are converted to columns at a time
_BATCH = 8192
#: changes that wait for a later one of the same key
_CHANGES = 65536


@dataclass(frozen=True)
class RowSettings:
    """How records become rows.

    Attributes:
        schema: the columns of the table.
        key: the names of the key columns; records are changes then.
        is_deletion: tells whether a record deletes the row of its key, or names the field that
            does; by default, whether it is a row of the kind ``RowKind.DELETE``.
        misfits: the side output for records that do not fit; without one they fail the job.
        batch_type: the type of the batches that are written; None if records are.
    """

    schema: pa.Schema
    key: tuple[str, ...] = ()
    is_deletion: IsDeletion = None
    misfits: OutputTag | None = None
    batch_type: BatchTypeInfo | None = None

    def takes(self, batch_type: BatchTypeInfo) -> bool:
        """Return whether batches of a type can be written without making records of them."""
        deleted = self.is_deletion
        if not fits(batch_type, self.schema):
            return False
        if not self.key or deleted is None:
            return True
        columns = batch_type.schema
        return (
            isinstance(deleted, str)
            and deleted in columns.names
            and pa.types.is_boolean(columns.field(deleted).type)
        )

    def key_of(self) -> KeyOf | ColumnKey | None:
        """Return the function that finds the key of a record; None without a key."""
        if not self.key:
            return None
        return KeyOf(self.schema, self.key) if self.batch_type is None else ColumnKey(self.key)

    def new_rows(self) -> TableRows:
        """Return what collects records."""
        deleted, kind = self.is_deletion, self.batch_type
        if kind is None:
            if not self.key:
                return Appended(self.schema)
            return Changes(self.schema, self.key, deleted, self.misfits is not None)
        if not self.key:
            return AppendedBatches(self.schema, kind)
        assert not callable(deleted)
        return BatchChanges(self.schema, self.key, deleted, kind)


class TableRows(Protocol):
    """Collects records, or batches, until they are written.

    Attributes:
        is_changes: whether they are changes by key.
        schema: the columns of what ``take`` returns.
        waiting: what was added and not taken yet.
    """

    is_changes: bool
    schema: pa.Schema

    @property
    def waiting(self) -> Collection[Any]: ...

    @property
    def add(self) -> Callable[[Any], None]: ...

    def take(self, sorts_out: bool) -> Sorted:
        """Return the rows as columns, and the errors of those that do not fit."""


class TableWriter(SinkWriter):
    """Collects rows, writes them to Parquet files, and tells the committer which files."""

    _rows: TableRows
    #: None before ``open`` has come to its end
    _files: TableFiles | None = None

    def __init__(self, place: TablePlace, rows: RowSettings, files: FileSettings) -> None:
        self._place = place
        self._row_settings = rows
        self._file_settings = files
        self._most = _CHANGES if rows.key else _BATCH
        if self.takes_batches:
            self._most = 1

    @property
    def takes_batches(self) -> bool:
        """Return whether it is called with batches, and not with records."""
        return self._row_settings.batch_type is not None

    def open(self, runtime_context: RuntimeContext) -> None:
        self._begin_rows()
        rows = self._rows
        self._files = TableFiles(
            self._place,
            rows.schema,
            self._file_settings,
            rows.is_changes,
            runtime_context.get_attempt_number(),
            runtime_context.get_index_of_this_subtask(),
        )

    def write(self, value: Any, context: SinkFunction.Context) -> Iterable[Any] | None:
        self._add(value)
        return None if len(self._waiting) < self._most else self._flush()

    def prepare_commit(self) -> Iterable[Any]:
        """Close all files; the committer gets a `WrittenFile` for each."""
        aside = self._flush() if self._waiting else []
        assert self._files is not None
        return [*aside, *self._files.close()]

    def abandon(self) -> None:
        """Delete the files that were begun: no checkpoint will ever contain them."""
        if self._files is None:
            return
        begun = self._files.discard()
        self._begin_rows()
        delete_files(self._place, [file.path for file in begun])
        delete_marks(self._place, [file.mark for file in begun if file.mark])

    def _begin_rows(self) -> None:
        self._rows = rows = self._row_settings.new_rows()
        self._add, self._waiting = rows.add, rows.waiting

    def _flush(self) -> list[tuple[OutputTag, Any]]:
        tag = self._row_settings.misfits
        try:
            batch, errors = self._rows.take(sorts_out=tag is not None)
        except RowError as error:
            error.add_note(
                "to go on without such records, give the sink an OutputTag "
                "(side_output_misfits), and read them from get_side_output"
            )
            raise
        assert self._files is not None
        self._files.add(batch)
        return [] if tag is None else [(tag, error.record) for error in errors]

    def __getstate__(self) -> dict[str, Any]:
        """Carry nothing from epoch to epoch: the committer knows the files."""
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._place, self._row_settings, self._file_settings)
