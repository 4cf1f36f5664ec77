"""`IcebergWriter`: records into data files of an Iceberg table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.datastream.connectors.iceberg.data_files import RowPartitioner
from holdfast.datastream.connectors.iceberg.layout import file_schema
from holdfast.datastream.connectors.iceberg.settings import SinkSettings, place_of
from holdfast.datastream.connectors.tables.place import TablePlace
from holdfast.datastream.connectors.tables.probe import check_writable
from holdfast.datastream.connectors.tables.writer import TableWriter
from holdfast.datastream.functions import RuntimeContext


class IcebergWriter(TableWriter):
    """Writes files that carry Iceberg's field ids, each with rows of one partition.

    Only the catalog knows where the table is and what ids its columns have. So most settings are
    made when the writer is opened.
    """

    def __init__(self, settings: SinkSettings) -> None:
        """Connect to nothing yet."""
        rows = settings.rows(settings.layout.schema)
        super().__init__(TablePlace("", settings.sink), rows, settings.files)
        self._settings = settings

    @property
    def settings(self) -> SinkSettings:
        """Return what table the sink needs."""
        return self._settings

    def open(self, runtime_context: RuntimeContext) -> None:
        """Check the table, and create it if there is none and the sink may."""
        settings = self._settings
        table = settings.layout.prepare(settings.address)
        schema = table.schema()
        partitioner = RowPartitioner(table.spec(), schema)
        columns = file_schema(schema, settings.layout.schema.names)
        self._place = place_of(table, settings.sink)
        if runtime_context.get_index_of_this_subtask() == 0:
            check_writable(self._place.base, str(settings.address))
        self._row_settings = settings.rows(columns, partitioner)
        self._file_settings = replace(settings.files, partition_by=partitioner.names)
        super().open(runtime_context)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._settings,)
