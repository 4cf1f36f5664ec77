"""Makes batches of a declared type out of what sources read as columns."""

from __future__ import annotations

import pyarrow as pa

from holdfast.datastream.columns.batch import Batch, BatchList


class BatchMaker:
    """Makes batches, as ``RecordMaker`` makes records.

    Attributes:
        schema: the columns of the batches.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def __call__(self, table: pa.Table) -> BatchList:
        """Return the rows of a table as batches."""
        return BatchList(batch for part in table.to_batches() for batch in self.records(part))

    def records(self, found: pa.RecordBatch) -> BatchList:
        """Return the columns of the type; one that is missing is null, if it can be.

        Raises:
            ValueError: when a column is missing that cannot be null, or a value does not fit the
                type of its column.
        """
        if not found.num_rows:
            return BatchList()
        if found.schema.equals(self.schema):
            return BatchList([Batch(found)])
        columns = [self._column(found, field) for field in self.schema]
        return BatchList([Batch(pa.RecordBatch.from_arrays(columns, schema=self.schema))])

    def _column(self, found: pa.RecordBatch, field: pa.Field) -> pa.Array:
        at = found.schema.get_field_index(field.name)
        if at >= 0:
            column = found.column(at)
            return column if column.type == field.type else column.cast(field.type)
        if field.nullable:
            return pa.nulls(found.num_rows, field.type)
        message = (
            f"there is no column '{field.name}', and it cannot be null; the columns are "
            f"{', '.join(found.schema.names)}; let it be null, or leave it out of the type"
        )
        raise ValueError(message)
