"""Reads the files of a Delta table in a worker, in columns, without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from holdfast.common.types import Row
from holdfast.datastream.connectors.base import SourceReader
from holdfast.datastream.connectors.delta.log import AddedFile, DeltaLogEntry
from holdfast.datastream.connectors.delta.planner import (
    DeltaPlan,
    chosen_columns,
    schema_from_json,
)
from holdfast.datastream.connectors.delta.position import Share, ShareCursor, decode, encode
from holdfast.datastream.connectors.delta.table import DeltaAddress
from holdfast.datastream.connectors.tables.committer import TableError
from holdfast.filesystem import MissingFileError, file_system_of, join

#: columns to records
Make = Callable[[pa.Table], list[Any]]


def to_rows(table: pa.Table) -> list[Any]:
    """Return rows with names."""
    make = Row(*table.column_names)
    return [make(*values) for values in zip(*_values(table), strict=True)]


def to_dicts(table: pa.Table) -> list[Any]:
    """Return dicts by the names of columns."""
    return list(table.to_pylist())


class ToObjects:
    """Makes objects of a class whose constructor takes the columns by name."""

    def __init__(self, kind: type) -> None:
        """Take the class."""
        self._kind = kind

    def __call__(self, table: pa.Table) -> list[Any]:
        """Return the objects."""
        return [self._kind(**values) for values in table.to_pylist()]


def _values(table: pa.Table) -> list[list[Any]]:
    return [column.to_pylist() for column in table.columns]


class DeltaReader(SourceReader):
    """Reads the share of one subtask, version by version."""

    def __init__(
        self,
        address: DeltaAddress,
        subtask: int,
        parallelism: int,
        make: Make,
        is_bounded: bool,
        skips_changes: bool,
    ) -> None:
        self._address = address
        self._subtask, self._parallelism = subtask, parallelism
        self._make = make
        self._is_bounded = is_bounded
        self._versions = _Versions(address, skips_changes)
        self._files = _OpenFiles(address.uri)
        self._plan: DeltaPlan | None = None
        self._shares: list[Share] | None = None

    def restore(self, position: Any) -> None:
        self._shares = decode(position)

    def follow(self, plan: DeltaPlan) -> None:
        self._plan = plan
        self._versions.schema = plan.schema
        if self._shares is None:
            until = plan.beginning.version if self._is_bounded else None
            self._shares = [Share(self._subtask, self._parallelism, plan.beginning, until)]

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        assert self._plan is not None
        assert self._shares is not None
        shares, waiting = self._shares, 0
        while limit > 0 and waiting < len(shares):
            share = shares[waiting]
            if share.is_done:
                del shares[waiting]
            elif share.cursor.version > self._plan.until:
                waiting += 1
            else:
                rows, cursor = self._next(share, limit, self._plan.schema)
                shares[waiting] = share._replace(cursor=cursor)
                if rows is not None:
                    limit -= len(rows)
                    yield self._make(rows)
        shares[:] = [share for share in shares if not share.is_done]

    def position(self) -> Any:
        return encode(self._shares or ())

    @property
    def finished(self) -> bool:
        return self._is_bounded and self._shares == []

    def close(self) -> None:
        self._files.close()

    def _next(
        self, share: Share, limit: int, schema: pa.Schema
    ) -> tuple[pa.Table | None, ShareCursor]:
        """Return the next rows, and the position after them; None at the end of something."""
        at = share.cursor
        files = share.of(self._versions.files(at.version, at.is_snapshot), at.version)
        if at.file >= len(files):
            return None, ShareCursor(at.version + 1)
        file = files[at.file]
        groups, group = self._files.read(file, at.group, schema)
        if group is None:
            return None, ShareCursor(at.version, at.is_snapshot, at.file + 1)
        rows = group.slice(at.row, limit)
        if at.row + len(rows) < len(group):
            return rows, at._replace(row=at.row + len(rows))
        if at.group + 1 < groups:
            return rows, at._replace(group=at.group + 1, row=0)
        return rows, ShareCursor(at.version, at.is_snapshot, at.file + 1)


class _Versions:
    """The files of versions, the last one of them from memory."""

    def __init__(self, address: DeltaAddress, skips_changes: bool) -> None:
        self._address = address
        self._skips_changes = skips_changes
        #: the columns that are read
        self.schema = pa.schema([])
        self._known: tuple[int, bool] | None = None
        self._files: Sequence[AddedFile] = ()

    def files(self, version: int, is_snapshot: bool) -> Sequence[AddedFile]:
        if self._known != (version, is_snapshot):
            self._files = self._snapshot(version) if is_snapshot else self._added(version)
            self._known = (version, is_snapshot)
        return self._files

    def _snapshot(self, version: int) -> Sequence[AddedFile]:
        table = self._address.load(version)
        if table is None:
            raise TableError(f"the Delta table '{self._address.uri}' is gone")
        found = pa.table(table.get_add_actions()).to_pylist()
        files = [
            AddedFile(unquote(each["path"]), each.get("partition") or {}, each["size_bytes"])
            for each in found
        ]
        return sorted(files, key=lambda file: (-file.size, file.path))

    def _added(self, version: int) -> Sequence[AddedFile]:
        entry, uri = self._address.log.read(version), self._address.uri
        if entry is None:
            raise TableError(
                f"version {version} of the Delta table '{uri}' is not in its log any more, and the "
                "source has not read it; keep the log longer (delta.logRetentionDuration), and "
                "start the source without state"
            )
        if entry.maps_columns:
            raise TableError(
                f"version {version} of the Delta table '{uri}' gives columns other names in its "
                "files (columnMapping), which DeltaSource cannot read; read it with Spark"
            )
        if entry.schema:
            chosen_columns(uri, schema_from_json(entry.schema), self.schema)
        if entry.removes_rows:
            return () if self._skips_changes else self._refuse(entry)
        return entry.added

    def _refuse(self, entry: DeltaLogEntry) -> Sequence[AddedFile]:
        raise TableError(
            f"version {entry.version} of the Delta table '{self._address.uri}' deletes or rewrites "
            "rows, which a stream of new rows cannot show; read only tables that are appended to, "
            "or leave such versions out (skip_change_commits)"
        )


class _OpenFiles:
    """The file that is read, with one row group of it in memory."""

    def __init__(self, uri: str) -> None:
        self._system, self._base = file_system_of(uri)
        self._path: str | None = None
        self._stream: BinaryIO | None = None
        self._parquet: parquet.ParquetFile | None = None
        self._group: tuple[int, pa.Table] | None = None

    def read(self, file: AddedFile, number: int, schema: pa.Schema) -> tuple[int, pa.Table | None]:
        """Return the number of row groups, and one of them; None if there are no more."""
        opened = self._open(file.path)
        groups: int = opened.num_row_groups
        if number >= groups:
            return groups, None
        if self._group is None or self._group[0] != number:
            path = join(self._base, file.path)
            with self._system.errors("read", path):
                self._group = number, _read_group(opened, number, file, schema)
        return groups, self._group[1]

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._path = self._stream = self._parquet = self._group = None

    def _open(self, name: str) -> parquet.ParquetFile:
        if self._path != name or self._parquet is None:
            self.close()
            path = join(self._base, name)
            try:
                self._stream = self._system.open_input(path)
            except MissingFileError as error:
                raise TableError(
                    f"{error}; the source has not read it, and somebody has deleted it, perhaps a "
                    "vacuum; keep files longer (delta.deletedFileRetentionDuration)"
                ) from error
            with self._system.errors("read", path):
                self._parquet = parquet.ParquetFile(self._stream)
            self._path = name
        return self._parquet


def _read_group(
    opened: parquet.ParquetFile, number: int, file: AddedFile, schema: pa.Schema
) -> pa.Table:
    names = [
        field.name
        for field in schema
        if field.name not in file.partition and field.name in opened.schema_arrow.names
    ]
    found = opened.read_row_group(number, columns=names)
    rows = opened.metadata.row_group(number).num_rows
    columns = [_column(field, file, found, rows) for field in schema]
    return pa.table(columns, names=schema.names)


def _column(field: pa.Field, file: AddedFile, found: pa.Table, rows: int) -> Any:
    """Return a column of the table: from the file, of the partition, or nulls if it came later."""
    if field.name in file.partition:
        value = file.partition[field.name]
        if isinstance(value, str):
            value = _parsed(value, field.type)
        return pa.array([value] * rows, field.type)
    if field.name in found.column_names:
        return found.column(field.name).cast(field.type)
    return pa.nulls(rows, field.type)


def _parsed(text: str, column: pa.DataType) -> Any:
    """Return the value of a partition column from the log; an empty text is null."""
    if not text:
        return None
    if pa.types.is_timestamp(column) and column.tz:
        plain = pc.cast(pa.scalar(text.removesuffix("Z").replace("T", " ")), pa.timestamp("us"))
        return pc.assume_timezone(plain, "UTC").as_py()
    return pc.cast(pa.scalar(text), column).as_py()
