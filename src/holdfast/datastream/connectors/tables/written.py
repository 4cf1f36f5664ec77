"""What a writer tells the committer about a file: plain values, which are saved in checkpoints."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

#: the column of a file of changes that says whether a row is a deletion
DELETED: Final = "_holdfast_deleted"
#: the bytes of files of changes that are read into memory at a time, and applied in one commit
MOST_CHANGES: Final = 64 * 1024 * 1024
#: bounds are kept for the first columns only, as Delta and Iceberg do
_MOST_COLUMNS: Final = 32
#: a longer text is no bound: it would be in every checkpoint and in the table's metadata
_LONGEST_TEXT: Final = 64


@dataclass(frozen=True)
class ColumnStatistics:
    """What is known about a column of a file.

    Attributes:
        nulls: how many values are null.
        low: the smallest value, as `text_of` writes it; None if it is not known.
        high: the largest value.
    """

    nulls: int
    low: str | None = None
    high: str | None = None


@dataclass(frozen=True)
class WrittenFile:
    """A Parquet file that a writer has closed, and that no reader of the table sees yet.

    Attributes:
        path: relative to the directory of the table. It may come from a checkpoint, so
            callers check that it is a plain path.
        mark: the name of its mark, which is deleted when the file is in the table; empty for
            a file of changes, which never is.
        writer: the subtask that wrote it. Files of one writer are in the order of its records.
        rows: the number of records.
        partition: the values of the partition columns, as `text_of` writes them; None for null.
        statistics: by column; not for columns without any.
        is_changes: whether its rows are changes by key, with a column `DELETED`.
    """

    path: str
    size: int
    rows: int
    mark: str = ""
    writer: int = 0
    partition: dict[str, str | None] = field(default_factory=dict)
    statistics: dict[str, ColumnStatistics] = field(default_factory=dict)
    is_changes: bool = False


def statistics_of(metadata: parquet.FileMetaData, schema: pa.Schema) -> dict[str, ColumnStatistics]:
    """Return what the footer of a file says about its columns; not about nested ones."""
    chosen = [name for name in schema.names if _has_order(schema.field(name).type)][:_MOST_COLUMNS]
    places = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    found = ((name, _of_column(metadata, places[name])) for name in chosen)
    return {name: statistics for name, statistics in found if statistics is not None}


def text_of(value: Any) -> str:
    """Return a value of a column as text.

    >>> text_of(datetime.date(2026, 3, 1)), text_of(True), text_of(1.5)
    ('2026-03-01', 'true', '1.5')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _has_order(column: pa.DataType) -> bool:
    """Return whether bounds are kept: not for floats, whose NaN is in no bounds, nor for bytes."""
    return bool(
        pa.types.is_integer(column)
        or pa.types.is_string(column)
        or pa.types.is_date(column)
        or pa.types.is_decimal(column)
        or (pa.types.is_timestamp(column) and column.unit == "us")
    )


def _of_column(metadata: parquet.FileMetaData, at: int) -> ColumnStatistics | None:
    groups = [metadata.row_group(g).column(at).statistics for g in range(metadata.num_row_groups)]
    if not all(each is not None and each.has_null_count for each in groups):
        return None
    nulls = sum(each.null_count for each in groups)
    # NB: a group of nulls has no bounds, and changes none
    known = [each for each in groups if each.null_count < each.num_values + each.null_count]
    if not known or not all(each.has_min_max for each in known):
        return ColumnStatistics(nulls)
    low, high = min(each.min for each in known), max(each.max for each in known)
    texts = text_of(low), text_of(high)
    if max(map(len, texts)) > _LONGEST_TEXT:
        return ColumnStatistics(nulls)
    return ColumnStatistics(nulls, *texts)


def partition_values(columns: Sequence[str], values: Sequence[Any]) -> dict[str, str | None]:
    """Return the values of the partition columns of a file, as text.

    Raises:
        ValueError: for an empty text, which tables cannot tell from null.
    """
    found = dict(zip(columns, values, strict=True))
    for name, value in found.items():
        if value == "":
            message = (
                f"the partition column '{name}' has an empty text, which would be read as null; "
                "replace it by another value before the sink"
            )
            raise ValueError(message)
    return {name: None if value is None else text_of(value) for name, value in found.items()}
