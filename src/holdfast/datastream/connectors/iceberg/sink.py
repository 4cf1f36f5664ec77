"""`IcebergSink` and its builder."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from holdfast.datastream.columns.keys import ColumnKey
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.connectors.base import CommittingSink
from holdfast.datastream.connectors.iceberg.catalog import TableAddress, check_address
from holdfast.datastream.connectors.iceberg.committer import IcebergCommitter
from holdfast.datastream.connectors.iceberg.layout import TableLayout, parse_partition
from holdfast.datastream.connectors.iceberg.settings import SinkSettings
from holdfast.datastream.connectors.iceberg.writer import IcebergWriter
from holdfast.datastream.connectors.tables.changes import IsDeletion, KeyOf
from holdfast.datastream.connectors.tables.compacting import TableCompaction
from holdfast.datastream.connectors.tables.evolution import SchemaEvolution
from holdfast.datastream.connectors.tables.files import FileSettings
from holdfast.datastream.formats.columns import schema_of
from holdfast.datastream.output_tag import OutputTag


@dataclass(frozen=True)
class IcebergSink(CommittingSink):
    """Writes rows to an Iceberg table, exactly once; use ``builder``.

    Subtasks write data files in parallel. When a checkpoint is complete, one commit adds the files
    of all of them to the table. With a key, records are changes: the last one of a key replaces
    its row, or deletes it.
    """

    settings: SinkSettings

    name = "Sink: Iceberg"

    def for_stream(self) -> IcebergSink:
        """Return a sink with a hidden directory of its own."""
        return IcebergSink(replace(self.settings, sink=uuid.uuid4().hex[:16]))

    def for_batches(self, batch_type: BatchTypeInfo) -> IcebergSink | None:
        settings = self.settings
        takes = settings.rows(settings.layout.schema).takes(batch_type)
        return IcebergSink(replace(settings, batch_type=batch_type)) if takes else None

    def key_selector(self) -> KeyOf | ColumnKey | None:
        """Return what finds the key of a record: all changes of a key go to one writer."""
        return self.settings.rows(self.settings.layout.schema).key_of()

    def create_writer(self) -> IcebergWriter:
        return IcebergWriter(self.settings)

    def create_function(self) -> IcebergCommitter:
        return IcebergCommitter(self.settings)

    @staticmethod
    def builder() -> IcebergSinkBuilder:
        """Start with a table that must exist, to which rows are appended."""
        return IcebergSinkBuilder()


class IcebergSinkBuilder:
    """Builds an ``IcebergSink``; needs a catalog, a table and a schema."""

    def __init__(self) -> None:
        """Start with a table that must exist, to which rows are appended."""
        self._catalog: tuple[str, dict[str, str]] | None = None
        self._table = ""
        self._schema: pa.Schema | None = None
        self._partitions: tuple[str, ...] | None = None
        self._properties: dict[str, str] = {}
        self._creates = False
        self._evolution = SchemaEvolution.REFUSE
        self._key: tuple[str, ...] = ()
        self._is_deletion: IsDeletion = None
        self._misfits: OutputTag | None = None
        self._files = FileSettings()
        self._compaction: TableCompaction | None = None

    def set_catalog(self, name: str, properties: Mapping[str, str]) -> IcebergSinkBuilder:
        """Set the catalog: its name, and pyiceberg's properties (``type``, ``uri``, …).

        Storage needs no properties if the job has settings for it (``fs.s3a.endpoint``, …).
        """
        self._catalog = (name, {key: str(value) for key, value in properties.items()})
        return self

    def set_table(self, identifier: str) -> IcebergSinkBuilder:
        """Set the table: ``namespace.name``."""
        self._table = identifier
        return self

    def set_schema(self, schema: Any) -> IcebergSinkBuilder:
        """Set the columns: a dataclass, a named row type, or a ``pyarrow.Schema``."""
        self._schema = schema_of(schema)
        return self

    def create_if_absent(
        self, table_properties: Mapping[str, str] | None = None
    ) -> IcebergSinkBuilder:
        """Create the table if it does not exist; its namespace must exist."""
        self._creates = True
        self._properties = dict(table_properties or {})
        return self

    def partition_by(self, *fields: str) -> IcebergSinkBuilder:
        """Set the partition fields: ``country``, ``day(at)``, ``bucket(16, customer)``, ….

        A table that exists must have them. Without this call, the table's own are used.
        """
        self._partitions = fields
        return self

    def set_schema_evolution(self, schema_evolution: SchemaEvolution) -> IcebergSinkBuilder:
        """Set what happens if the table lacks columns; by default the job fails when it starts."""
        if not isinstance(schema_evolution, SchemaEvolution):
            message = f"set_schema_evolution: expected a SchemaEvolution; got {schema_evolution!r}"
            raise TypeError(message)
        self._evolution = schema_evolution
        return self

    def upsert_by(
        self, *key: str, is_deletion: Callable[[Any], bool] | str | None = None
    ) -> IcebergSinkBuilder:
        """Set the key: a record replaces the row with its key, or deletes it.

        Args:
            key: the names of columns.
            is_deletion: tells whether a record deletes the row of its key: a function, or the name
                of a field or column that is true then. By default, rows of the kind
                ``RowKind.DELETE`` do.
        """
        self._key = key
        self._is_deletion = is_deletion
        return self

    def side_output_misfits(self, output_tag: OutputTag) -> IcebergSinkBuilder:
        """Send records that do not fit into the columns to a side output; else they fail the job.

        Read them with ``stream.sink_to(sink).get_side_output(output_tag)``.
        """
        self._misfits = output_tag
        return self

    def set_target_file_size(self, size: int) -> IcebergSinkBuilder:
        """Set the size in bytes at which a file is closed; a checkpoint closes all of them."""
        if size <= 0:
            message = f"set_target_file_size: expected a positive number of bytes; got {size}"
            raise ValueError(message)
        self._files = replace(self._files, target_bytes=size)
        return self

    def compact_every(
        self, commits: int, target_file_size: int | None = None
    ) -> IcebergSinkBuilder:
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

    def build(self) -> IcebergSink:
        """Return the sink. Nothing is connected to before the job starts.

        Raises:
            ValueError: when the catalog, the table or the schema is missing, or the key or a
                partition field is not a column.
        """
        address = check_address("IcebergSink", self._catalog, self._table)
        if self._schema is None:
            message = "an IcebergSink needs to know the columns: call set_schema"
            raise ValueError(message)
        self._check_columns(self._schema)
        return IcebergSink(self._settings(address, self._schema))

    def _settings(self, address: TableAddress, schema: pa.Schema) -> SinkSettings:
        layout = TableLayout(
            schema,
            None if self._partitions is None else tuple(map(parse_partition, self._partitions)),
            self._properties,
            self._creates,
            self._evolution is SchemaEvolution.ADD_COLUMNS,
        )
        return SinkSettings(
            address,
            layout,
            key=self._key,
            is_deletion=self._is_deletion,
            misfits=self._misfits,
            files=self._files,
            compaction=self._compaction,
        )

    def _check_columns(self, schema: pa.Schema) -> None:
        used = {"upsert_by": self._key}
        used["partition_by"] = tuple(parse_partition(f).column for f in self._partitions or ())
        for method, names in used.items():
            for name in names:
                if name.split(".")[0] not in schema.names:
                    message = (
                        f"{method}: '{name}' is not a column of the schema; the columns are: "
                        f"{', '.join(schema.names)}"
                    )
                    raise ValueError(message)
