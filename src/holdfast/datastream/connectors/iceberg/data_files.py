"""Parquet files as data files of a table: their statistics and their partitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast.filesystem import file_system_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata

#: what the names of the columns begin with that hold the partitions of rows until they are written
_PREFIX: Final = "p-"


class RowPartitioner:
    """Computes the partitions of rows by the partition spec of a table.

    The value of a partition field is text, so that it can travel and be saved.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        """Prepare the transforms of the spec."""
        self._fields = [_prepared(field, schema) for field in spec.fields]
        self.names = tuple(_PREFIX + field.name for field in spec.fields)

    def with_partitions(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with one more column for each field of the partition."""
        import pyarrow as pa

        for name, (column, text) in zip(self.names, self._fields, strict=True):
            values = pa.array(_distinct(_column(batch, column), text), pa.string())
            batch = batch.append_column(name, values)
        return batch


def _prepared(field: Any, schema: Schema) -> tuple[str, Callable[[Any], str | None]]:
    source = schema.find_field(field.source_id).field_type
    transform = field.transform.transform(source)
    result = field.transform.result_type(source)
    column = str(schema.find_column_name(field.source_id))
    return column, partial(_text, source, transform, result)


def partition_record(
    spec: PartitionSpec, schema: Schema, partition: Mapping[str, str | None]
) -> Any:
    """Return the values of a partition, for pyiceberg.

    Raises:
        ValueError: when it is not a partition of this spec.
    """
    from pyiceberg.typedef import Record

    names = [_PREFIX + field.name for field in spec.fields]
    if sorted(partition) != sorted(names):
        written = ", ".join(name.removeprefix(_PREFIX) for name in partition)
        message = (
            f"files are partitioned by {written or 'nothing'}, and the table by "
            f"{', '.join(field.name for field in spec.fields) or 'nothing'} now; somebody has "
            "changed its partition spec. Change it back and start the job again, or stop a job "
            "with a savepoint before such a change"
        )
        raise ValueError(message)
    return Record(
        *(
            _value(field, schema.find_field(field.source_id).field_type, partition[name])
            for field, name in zip(spec.fields, names, strict=True)
        )
    )


def make_data_file(
    metadata: TableMetadata, path: str, size: int, partition: Mapping[str, str | None]
) -> DataFile:
    """Return the data file for a Parquet file, with the statistics of its footer.

    The field ids in the file decide which column is which: the table's columns may have been
    renamed since it was written.
    """
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
        pyarrow_to_schema,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    system, there = file_system_of(path)
    with system.open_input(there) as stream, system.errors("read", there):
        footer = pq.read_metadata(stream)
    written = pyarrow_to_schema(footer.schema.to_arrow_schema())
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(written, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(written),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition_record(metadata.spec(), metadata.schema(), partition),
        file_size_in_bytes=size,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column, or a field of a struct: ``address.country``."""
    import pyarrow.compute as pc

    first, *rest = [name] if name in batch.schema.names else name.split(".")
    column = batch.column(first)
    return pc.struct_field(column, rest) if rest else column


def _distinct(column: pa.Array, value: Callable[[Any], Any]) -> Iterable[Any]:
    """Return a value computed from each element of a column, once for equal ones."""
    encoded = column.dictionary_encode()
    values = [value(each) for each in encoded.dictionary.to_pylist()]
    indices: list[int | None] = encoded.indices.to_pylist()
    return [None if index is None else values[index] for index in indices]


def _text(source: Any, transform: Callable[[Any], Any], result: Any, value: Any) -> str | None:
    """Return the value of a partition field as text."""
    from pyiceberg.conversions import to_json

    computed = None if value is None else transform(_internal(source, value))
    if computed is None:
        return None
    shown: Any = to_json(result, computed)
    return shown if isinstance(shown, str) else json.dumps(shown)


def _value(field: Any, source: Any, text: str | None) -> Any:
    """Return the value of a partition field from its text."""
    from pyiceberg.conversions import from_json
    from pyiceberg.types import BooleanType, DoubleType, FloatType, IntegerType, LongType

    if text is None:
        return None
    kind = field.transform.result_type(source)
    in_json = isinstance(kind, BooleanType | IntegerType | LongType | FloatType | DoubleType)
    return _internal(kind, from_json(kind, json.loads(text) if in_json else text))


def _internal(kind: Any, value: Any) -> Any:
    """Return a value as pyiceberg computes with it: dates and times are numbers."""
    from pyiceberg.partitioning import _to_partition_representation

    return _to_partition_representation(kind, value)
