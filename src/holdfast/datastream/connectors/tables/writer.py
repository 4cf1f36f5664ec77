"""`TableWriter`: records into Parquet files of a table that no reader sees yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.datastream.connectors.tables.changes import Appended, Changes, KeyOf
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
        is_deletion: tells whether a record deletes the row of its key; by default, whether it is
            a row of the kind ``RowKind.DELETE``.
        misfits: the side output for records that do not fit; without one they fail the job.
    """

    schema: pa.Schema
    key: tuple[str, ...] = ()
    is_deletion: Callable[[Any], bool] | None = None
    misfits: OutputTag | None = None

    def key_of(self) -> KeyOf | None:
        """Return the function that finds the key of a record; None without a key."""
        return KeyOf(self.schema, self.key) if self.key else None

    def new_rows(self) -> Appended | Changes:
        """Return what collects records."""
        if self.key:
            return Changes(self.schema, self.key, self.is_deletion)
        return Appended(self.schema)


class TableWriter(SinkWriter):
    """Collects rows, writes them to Parquet files, and tells the committer which files."""

    _rows: Appended | Changes
    #: None before ``open`` has come to its end
    _files: TableFiles | None = None

    def __init__(self, place: TablePlace, rows: RowSettings, files: FileSettings) -> None:
        self._place = place
        self._row_settings = rows
        self._file_settings = files
        self._most = _CHANGES if rows.key else _BATCH

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
