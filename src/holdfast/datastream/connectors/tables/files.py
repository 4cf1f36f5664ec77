"""Parquet files while they are written: one per partition, in bounded memory."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import parquet

from holdfast.datastream.columns.splitting import split_by
from holdfast.datastream.connectors.tables.place import (
    NewFile,
    TablePlace,
    folder_of,
    new_changes_file,
    new_data_file,
)
from holdfast.datastream.connectors.tables.written import (
    MOST_CHANGES,
    WrittenFile,
    partition_values,
    statistics_of,
)
from holdfast.filesystem import join

#: rows of a partition become a row group when they have this many bytes
_GROUP_BYTES = 16 * 1024 * 1024
#: the bytes of rows of all partitions that wait to become row groups
_WAITING_BYTES = 64 * 1024 * 1024
#: more partitions than this are not written at a time: their files are closed
_MOST_OPEN = 64

#: the values of a partition
Partition = tuple[Any, ...]


@dataclass(frozen=True)
class FileSettings:
    """How files are written.

    Attributes:
        partition_by: the columns that files are split by.
        target_bytes: the size at which a file is closed.
        keeps_partition_columns: whether files contain the partition columns, as in Iceberg.
    """

    partition_by: tuple[str, ...] = ()
    target_bytes: int = 128 * 1024 * 1024
    compression: str = "zstd"
    keeps_partition_columns: bool = False


@dataclass
class _UnfinishedFile:
    new: NewFile
    stream: BinaryIO
    writer: parquet.ParquetWriter
    partition: dict[str, str | None]
    #: where the writer puts what the footer says
    footer: list[parquet.FileMetaData] = field(default_factory=list)
    rows: int = 0


class TableFiles:
    """The files of one writer between two barriers."""

    def __init__(
        self,
        place: TablePlace,
        schema: pa.Schema,
        settings: FileSettings,
        is_changes: bool,
        attempt: int | str,
        subtask: int,
    ) -> None:
        self._place = place
        self._system, self._base, _ = place.resolve()
        self._settings = settings
        self._is_changes = is_changes
        # NB: a commit reads whole files of changes
        most = MOST_CHANGES // 2 if is_changes else settings.target_bytes
        self._most_bytes = min(most, settings.target_bytes)
        self._partition_by = () if is_changes else settings.partition_by
        left_out = () if is_changes or settings.keeps_partition_columns else settings.partition_by
        self._schema = pa.schema([each for each in schema if each.name not in left_out])
        self._attempt, self._subtask = attempt, subtask
        self._waiting: dict[Partition, list[pa.RecordBatch]] = {}
        self._bytes: dict[Partition, int] = {}
        self._open: dict[Partition, _UnfinishedFile] = {}
        self._closed: list[WrittenFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        for partition, rows in split_by(batch, self._partition_by):
            self._waiting.setdefault(partition, []).append(rows.select(self._schema.names))
            self._bytes[partition] = self._bytes.get(partition, 0) + rows.nbytes
            if self._bytes[partition] >= _GROUP_BYTES:
                self._write(partition)
        while sum(self._bytes.values()) > _WAITING_BYTES:
            self._write(max(self._bytes, key=self._bytes.__getitem__))

    def close(self) -> list[WrittenFile]:
        """Close all files, make them durable, and return what was written since the last time."""
        for partition in list(self._waiting):
            self._write(partition)
        for partition in list(self._open):
            self._close(partition)
        closed, self._closed = self._closed, []
        self._system.sync_files([join(self._base, file.path) for file in closed])
        return closed

    def discard(self) -> list[NewFile]:
        """Let go of everything, and return the files that were begun."""
        begun = [NewFile(file.path, file.mark) for file in self._closed]
        for each in self._open.values():
            with contextlib.suppress(Exception):
                each.writer.close()
                each.stream.close()
            begun.append(each.new)
        self._waiting, self._bytes, self._open, self._closed = {}, {}, {}, []
        return begun

    def _write(self, partition: Partition) -> None:
        """Write the waiting rows of a partition as a row group."""
        batches = self._waiting.pop(partition)
        del self._bytes[partition]
        file = self._open.get(partition) or self._begin(partition)
        rows = pa.Table.from_batches([batch.cast(self._schema) for batch in batches], self._schema)
        with self._system.errors("write", join(self._base, file.new.path)):
            file.writer.write_table(rows)
            is_full = file.stream.tell() >= self._most_bytes
        file.rows += len(rows)
        if is_full:
            self._close(partition)

    def _begin(self, partition: Partition) -> _UnfinishedFile:
        if len(self._open) >= _MOST_OPEN:
            self._close(next(iter(self._open)))
        values = partition_values(self._partition_by, partition)
        if self._is_changes:
            new = new_changes_file(self._place, self._attempt, self._subtask)
        else:
            new = new_data_file(self._place, self._attempt, self._subtask, folder_of(values))
        footer: list[parquet.FileMetaData] = []
        stream = self._system.open_output(join(self._base, new.path))
        writer = parquet.ParquetWriter(
            stream,
            self._schema,
            compression=self._settings.compression,
            metadata_collector=footer,
        )
        self._open[partition] = file = _UnfinishedFile(new, stream, writer, values, footer)
        return file

    def _close(self, partition: Partition) -> None:
        file = self._open.pop(partition)
        path = join(self._base, file.new.path)
        with self._system.errors("write", path):
            file.writer.close()
            size = file.stream.tell()
            file.stream.close()
        statistics = {} if self._is_changes else statistics_of(file.footer[0], self._schema)
        self._closed.append(
            WrittenFile(
                *(file.new.path, size, file.rows, file.new.mark, self._subtask),
                *(file.partition, statistics, self._is_changes),
            )
        )
