"""Reads a Parquet file of a table from a row on, without the row groups before it.

pyiceberg reads a data file from its beginning. That is needed if rows are deleted or filtered,
because a position then counts the rows that are left. For other files this reads only what comes
after the position, so that a large file can be read in many epochs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table


def read_from(
    table: Table, file: DataFile, projected: Schema, first_row: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file, in the columns that are asked for."""
    from pyiceberg.io.pyarrow import _to_requested_schema, pyarrow_to_schema
    from pyiceberg.schema import prune_columns

    metadata = table.metadata
    with table.io.new_input(file.file_path).open() as stream, pq.ParquetFile(stream) as parquet:
        written = pyarrow_to_schema(
            parquet.schema_arrow, metadata.name_mapping(), metadata.format_version <= 2
        )
        there = prune_columns(written, _leaves(projected), select_full_types=False)
        given = _values_of_partition(table, file, projected, written)
        groups, skipped = _groups_from(parquet.metadata, first_row)
        names = [column.name for column in there.columns]
        for batch in parquet.iter_batches(row_groups=groups, columns=names):
            rows = batch.slice(min(skipped, batch.num_rows))
            skipped -= batch.num_rows - rows.num_rows
            if rows.num_rows:
                yield _to_requested_schema(
                    projected,
                    there,
                    rows,
                    downcast_ns_timestamp_to_us=metadata.format_version <= 2,
                    projected_missing_fields=given,
                    allow_timestamp_tz_mismatch=True,
                )


def _leaves(schema: Schema) -> set[int]:
    """Return the field ids that select columns: not those of lists and maps themselves."""
    from pyiceberg.types import ListType, MapType

    return {
        number
        for number in schema.field_ids
        if not isinstance(schema.find_type(number), MapType | ListType)
    }


def _values_of_partition(
    table: Table, file: DataFile, projected: Schema, written: Schema
) -> dict[int, Any]:
    """Return values of columns that the file lacks, because its partition has them."""
    from pyiceberg.io.pyarrow import _get_column_projection_values

    spec = table.metadata.specs().get(file.spec_id)
    return _get_column_projection_values(
        file, projected, table.metadata.schema(), spec, written.field_ids
    )


def _groups_from(metadata: pq.FileMetaData, row: int) -> tuple[list[int], int]:
    """Return the row groups from that of a row on, and the place of the row in the first one."""
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if row < rows:
            return list(range(group, metadata.num_row_groups)), row
        row -= rows
    return [], 0
