"""Parquet files, for `FileSink.for_bulk_format` and `FileSource.for_bulk_file_format`.

The columns come from a type (`holdfast.datastream.formats.columns.schema_of`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.datastream.formats.bulk import BulkFormat, BulkReader, BulkWriter, BulkWriterFactory
from holdfast.datastream.formats.columns import Columns, schema_of
from holdfast.datastream.formats.records import Maker, maker_of

__all__ = ["ParquetBulkWriters", "ParquetColumnarRowInputFormat"]

#: records that are converted to columns at a time
_BATCH: Final = 4096
#: columns in memory, in bytes, at which a row group is written however few rows it has
_ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
_ROW_GROUP_ROWS: Final = 128 * 1024
_COMPRESSIONS: Final = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")


class ParquetBulkWriters:
    """Creates factories of Parquet writers."""

    @staticmethod
    def for_row_type(
        row_type: Any,
        *,
        compression: str = "zstd",
        row_group_size: int = _ROW_GROUP_ROWS,
    ) -> BulkWriterFactory:
        """Return a factory for files with the columns of a type.

        Args:
            row_type: a dataclass, a msgspec ``Struct``, a row type with names, or a
                ``pyarrow.Schema``.
            compression: ``zstd``, ``snappy``, ``gzip``, ``lz4``, ``brotli`` or ``none``.
            row_group_size: the largest number of rows in a row group. A row group is kept in
                memory until it is written; it is written earlier if it has 64 MB.

        Raises:
            TypeError: when there is no column type for a field.
            ValueError: for a compression that does not exist, or a row group without rows.
        """
        if compression not in _COMPRESSIONS:
            allowed = ", ".join(_COMPRESSIONS)
            message = f"compression must be one of {allowed}; got {compression!r}"
            raise ValueError(message)
        if row_group_size < 1:
            message = f"row_group_size must be at least 1; got {row_group_size}"
            raise ValueError(message)
        return _ParquetWriters(Columns(schema_of(row_type)), compression, row_group_size)


@dataclass(frozen=True)
class _ParquetWriters(BulkWriterFactory):
    columns: Columns
    compression: str
    row_group_size: int

    suffix = ".parquet"

    @property
    def batch_schema(self) -> pa.Schema:
        return self.columns.schema

    def create(self, stream: BinaryIO) -> BulkWriter:
        return _ParquetWriter(self, stream)

    def merge(self, files: Sequence[BinaryIO], stream: BinaryIO) -> None:
        writer = _ParquetWriter(self, stream)
        for file in files:
            for batch in pq.ParquetFile(file).iter_batches():
                writer.add_batch(batch.cast(self.columns.schema))
        writer.finish()

    def open_file(self, stream: BinaryIO) -> pq.ParquetWriter:
        return pq.ParquetWriter(stream, self.columns.schema, compression=self.compression)


class _ParquetWriter(BulkWriter):
    """Collects records, then columns, then writes a row group."""

    def __init__(self, settings: _ParquetWriters, stream: BinaryIO) -> None:
        self._settings = settings
        self._stream = stream
        self._batch_size = min(_BATCH, settings.row_group_size)
        self._file: pq.ParquetWriter | None = None
        self._records: list[Any] = []
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add_element(self, element: Any) -> None:
        self._records.append(element)
        if len(self._records) >= self._batch_size:
            self._convert()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add rows that are columns already."""
        size = self._settings.row_group_size
        while self._rows + batch.num_rows >= size:
            head = size - self._rows
            self._keep(batch.slice(0, head))
            self._write_row_group()
            batch = batch.slice(head)
        self._keep(batch)
        if self._bytes >= _ROW_GROUP_BYTES:
            self._write_row_group()

    def flush(self) -> None:
        self._convert()
        self._write_row_group()

    def finish(self) -> None:
        self.flush()
        self._opened().close()

    def _convert(self) -> None:
        records, self._records = self._records, []
        if records:
            self.add_batch(self._settings.columns.batch(records))

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes

    def _write_row_group(self) -> None:
        if self._rows:
            table = pa.Table.from_batches(self._batches, self._settings.columns.schema)
            self._opened().write_table(table, row_group_size=self._rows)
        self._batches, self._rows, self._bytes = [], 0, 0

    def _opened(self) -> pq.ParquetWriter:
        if self._file is None:
            self._file = self._settings.open_file(self._stream)
        return self._file


class ParquetColumnarRowInputFormat(BulkFormat):
    """Reads Parquet files by row groups; only the columns of the type are read.

    A column that a file does not have is None in all its records, if the type allows None.
    """

    def __init__(self, row_type: Any = None, *, batch_size: int = _BATCH) -> None:
        """Say what the records are.

        Args:
            row_type: a dataclass, a msgspec ``Struct`` or a ``NamedTuple``: its objects; a row type
                with names or a ``pyarrow.Schema``: rows with these columns; ``dict``: dicts with
                all columns of the file; None: rows with all columns of the file; a
                ``BatchTypeInfo``: batches with these columns.
            batch_size: how many records are read at a time.

        Raises:
            TypeError: when there is no column type for a field.
            ValueError: for a batch without records.
        """
        if batch_size < 1:
            message = f"batch_size must be at least 1; got {batch_size}"
            raise ValueError(message)
        self._batch_size = batch_size
        self._maker = maker_of(row_type)
        self.batch_type = row_type if getattr(row_type, "columnar", False) else None

    def open(self, stream: BinaryIO) -> BulkReader:
        """Read the foot of a file."""
        return _ParquetReader(pq.ParquetFile(stream), self._maker, self._batch_size)


class _ParquetReader(BulkReader):
    def __init__(self, file: pq.ParquetFile, maker: Maker, batch_size: int) -> None:
        self._file = file
        self._maker = maker
        self._batch_size = batch_size

    def read(self, start: int) -> Iterator[Sequence[Any]]:
        groups, skipped = self._groups_from(start)
        batches = (
            self._file.iter_batches(self._batch_size, groups, self._columns()) if groups else ()
        )
        for batch in batches:
            if skipped >= batch.num_rows:
                skipped -= batch.num_rows
                continue
            yield self._maker.records(batch.slice(skipped))
            skipped = 0

    def _columns(self) -> list[str] | None:
        """Return the columns to read; None for all of them."""
        wanted = self._maker.schema
        if wanted is None:
            return None
        return [name for name in self._file.schema_arrow.names if name in wanted.names]

    def _groups_from(self, start: int) -> tuple[list[int], int]:
        """Return the row groups from a row on, and the number of rows in the first before it."""
        found = self._file.metadata
        for group in range(found.num_row_groups):
            rows = found.row_group(group).num_rows
            if start < rows:
                return list(range(group, found.num_row_groups)), start
            start -= rows
        return [], 0
