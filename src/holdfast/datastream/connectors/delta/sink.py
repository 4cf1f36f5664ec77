"""`DeltaSink` and its builder."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from holdfast.datastream.columns.keys import ColumnKey
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.connectors.base import CommittingSink
from holdfast.datastream.connectors.delta.committer import DeltaCommitter
from holdfast.datastream.connectors.delta.table import (
    DeltaAddress,
    TableSettings,
    canonical_schema,
    check_address,
)
from holdfast.datastream.connectors.tables.changes import IsDeletion, KeyOf
from holdfast.datastream.connectors.tables.compacting import TableCompaction
from holdfast.datastream.connectors.tables.evolution import SchemaEvolution
from holdfast.datastream.connectors.tables.files import FileSettings
from holdfast.datastream.connectors.tables.place import TablePlace
from holdfast.datastream.connectors.tables.writer import RowSettings, TableWriter
from holdfast.datastream.formats.columns import schema_of
from holdfast.datastream.functions import RuntimeContext
from holdfast.datastream.output_tag import OutputTag

_COMPRESSIONS: Final = ("zstd", "snappy", "gzip", "lz4", "none")


class DeltaWriter(TableWriter):
    """Checks the table before the first record, and writes files for it."""

    def __init__(
        self, place: TablePlace, rows: RowSettings, files: FileSettings, table: TableSettings
    ) -> None:
        super().__init__(place, rows, files)
        self._table = table

    @property
    def table(self) -> TableSettings:
        """Return what table the sink needs."""
        return self._table

    def into(self, uri: str) -> DeltaWriter:
        """Return a writer for a table at another path."""
        place = self._place._replace(base=uri)
        return DeltaWriter(place, self._row_settings, self._file_settings, self._table.at(uri))

    def open(self, runtime_context: RuntimeContext) -> None:
        """Check the table in one subtask; no subtask writes before there is one."""
        if runtime_context.get_index_of_this_subtask() == 0:
            self._table.ensure()
        else:
            self._table.ensure_exists()
        super().open(runtime_context)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._place, self._row_settings, self._file_settings, self._table)


@dataclass(frozen=True)
class DeltaSink(CommittingSink):
    """Writes records into a Delta table, exactly once; use ``for_table``.

    All rows of a checkpoint appear in one version of the table, when the checkpoint is complete.
    With a key, each record replaces the row of its key, and deletions remove it.

    Attributes:
        table: the table that is written to.
        rows: how records become rows.
        files: how files are written.
        sink_id: names the hidden directory for what is not in the table yet.
    """

    table: TableSettings
    rows: RowSettings
    files: FileSettings = field(default_factory=FileSettings)
    sink_id: str = ""

    name = "Sink: Delta"

    @staticmethod
    def for_table(table_uri: str, record_type: Any) -> DeltaSinkBuilder:
        """Start with a table that is created if there is none, and to which rows are appended.

        Args:
            table_uri: a local path, or an address: ``s3a://bucket/…``, ``gs://…``, ….
            record_type: a dataclass, ``Types.ROW_NAMED(…)`` or a ``pyarrow.Schema``: its fields
                are the columns.

        Raises:
            JobDefinitionError: when ``deltalake`` is not installed, or Delta cannot have the table.
            TypeError: when there is no column type for a field.
        """
        return DeltaSinkBuilder(table_uri, record_type)

    def for_stream(self) -> DeltaSink:
        """Return the sink with an id that no other stream has."""
        return replace(self, sink_id=uuid.uuid4().hex[:16])

    def for_batches(self, batch_type: BatchTypeInfo) -> DeltaSink | None:
        takes = self.rows.takes(batch_type)
        return replace(self, rows=replace(self.rows, batch_type=batch_type)) if takes else None

    def key_selector(self) -> KeyOf | ColumnKey | None:
        return self.rows.key_of()

    def create_writer(self) -> DeltaWriter:
        return DeltaWriter(self._place, self.rows, self.files, self.table)

    def create_function(self) -> DeltaCommitter:
        return DeltaCommitter(self._place, self.table)

    @property
    def _place(self) -> TablePlace:
        return TablePlace(self.table.address.uri, self.sink_id or uuid.uuid4().hex[:16])


class DeltaSinkBuilder:
    """Builds a ``DeltaSink``."""

    def __init__(self, table_uri: str, record_type: Any) -> None:
        """Use ``DeltaSink.for_table``."""
        self._uri = check_address(table_uri)
        self._schema = canonical_schema(schema_of(record_type))
        self._options: dict[str, str] = {}
        self._properties: dict[str, str] = {}
        self._partition_by: tuple[str, ...] = ()
        self._key: tuple[str, ...] = ()
        self._is_deletion: IsDeletion = None
        self._misfits: OutputTag | None = None
        self._evolution = SchemaEvolution.REFUSE
        self._files = FileSettings()
        self._compaction: TableCompaction | None = None

    def partition_by(self, *columns: str) -> DeltaSinkBuilder:
        """Split the table by the values of these columns."""
        self._check_columns("partition_by", columns)
        for name in columns:
            if not _can_partition(self._schema.field(name).type):
                message = (
                    f"partition_by: a table cannot be split by '{name}', which is "
                    f"{self._schema.field(name).type}; use texts, whole numbers, dates or times"
                )
                raise ValueError(message)
        if set(columns) >= set(self._schema.names):
            message = (
                "partition_by: a table cannot be split by all of its columns, because those are "
                "not in the files; leave one out"
            )
            raise ValueError(message)
        self._partition_by = columns
        return self

    def upsert_by(
        self, *key: str, is_deletion: Callable[[Any], bool] | str | None = None
    ) -> DeltaSinkBuilder:
        """Let each record replace the row that has the same values in these columns.

        Rows of the kind ``RowKind.DELETE`` remove it, those of the kind ``RowKind.UPDATE_BEFORE``
        are ignored. Records of one key keep their order: the sink partitions the stream by it.

        Args:
            key: the names of the columns; they cannot be null.
            is_deletion: tells, instead of the kind, whether a record removes the row: a function,
                or the name of a field or column that is true then.
        """
        if not key:
            message = "upsert_by: name at least one column"
            raise ValueError(message)
        self._check_columns("upsert_by", key)
        self._key, self._is_deletion = key, is_deletion
        return self

    def set_schema_evolution(self, evolution: SchemaEvolution) -> DeltaSinkBuilder:
        """Set what happens if the table lacks columns; by default the job does not start."""
        if not isinstance(evolution, SchemaEvolution):
            message = f"set_schema_evolution: expected a SchemaEvolution; got {evolution!r}"
            raise TypeError(message)
        self._evolution = evolution
        return self

    def set_table_property(self, key: str, value: str) -> DeltaSinkBuilder:
        """Set a property of the table, ``delta.…``, for the case that the sink creates it."""
        self._properties[key] = value
        return self

    def set_storage_option(self, key: str, value: str) -> DeltaSinkBuilder:
        """Set an option of ``deltalake``, in addition to those from the job's ``fs.*`` settings."""
        self._options[key] = value
        return self

    def set_target_file_size(self, size: int) -> DeltaSinkBuilder:
        """Set the bytes at which a file is closed; a checkpoint closes all, whatever their size."""
        if size < 1:
            message = f"set_target_file_size: expected at least 1 byte; got {size}"
            raise ValueError(message)
        self._files = replace(self._files, target_bytes=size)
        return self

    def compact_every(self, commits: int, target_file_size: int | None = None) -> DeltaSinkBuilder:
        """Put small files together, beside the commits; not by default.

        It changes no row. If somebody else changes the files at the same time, or it fails, the
        next one tries again.

        Args:
            commits: after how many commits of the sink, which are its checkpoints with rows.
            target_file_size: smaller files are put together, up to this many bytes; by default
                that of ``set_target_file_size``.

        Raises:
            ValueError: when there are no commits, or no bytes.
        """
        size = self._files.target_bytes if target_file_size is None else target_file_size
        self._compaction = TableCompaction.every(commits, size)
        return self

    def set_compression(self, compression: str) -> DeltaSinkBuilder:
        """Set how files are compressed: zstd (the default), snappy, gzip, lz4 or none."""
        if compression not in _COMPRESSIONS:
            known = ", ".join(_COMPRESSIONS)
            message = f"set_compression: expected one of {known}; got {compression!r}"
            raise ValueError(message)
        self._files = replace(self._files, compression=compression)
        return self

    def side_output_misfits(self, output_tag: OutputTag) -> DeltaSinkBuilder:
        """Send records that do not fit into the columns to a side output.

        ``stream.sink_to(sink).get_side_output(tag)`` has them. Without this they fail the job.
        """
        if not isinstance(output_tag, OutputTag):
            message = f"side_output_misfits: expected an OutputTag; got {output_tag!r}"
            raise TypeError(message)
        self._misfits = output_tag
        return self

    def build(self) -> DeltaSink:
        """Return the sink. The table itself is checked when the job starts."""
        adds = self._evolution is SchemaEvolution.ADD_COLUMNS
        address = DeltaAddress(self._uri, dict(self._options))
        table = TableSettings(
            *(address, self._schema, self._partition_by, self._key, adds),
            properties=dict(self._properties),
            compaction=self._compaction,
        )
        rows = RowSettings(self._schema, self._key, self._is_deletion, self._misfits)
        return DeltaSink(table, rows, replace(self._files, partition_by=self._partition_by))

    def _check_columns(self, method: str, names: Sequence[str]) -> None:
        for name in names:
            if name not in self._schema.names:
                known = ", ".join(self._schema.names)
                message = f"{method}: there is no column {name!r}; the columns are {known}"
                raise ValueError(message)


def _can_partition(column: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(column)
        or pa.types.is_integer(column)
        or pa.types.is_boolean(column)
        or pa.types.is_date(column)
        or pa.types.is_decimal(column)
        or pa.types.is_timestamp(column)
    )
