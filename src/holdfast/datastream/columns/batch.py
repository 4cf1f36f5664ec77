"""`Batch`: many records of a stream as columns, the item that travels instead of the records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.printable import counted

#: how many rows a source gives at once, at most
AT_ONCE: Final = 65536
_MILLIS: Final = pa.timestamp("ms")


class Batch:
    """Rows, and the event timestamp of each of them, if they have timestamps.

    Attributes:
        rows: the records, as columns.
        timestamps: milliseconds as int64, one for each row; None if no row has one.
    """

    __slots__ = ("rows", "timestamps")

    def __init__(self, rows: pa.RecordBatch, timestamps: pa.Array | None = None) -> None:
        self.rows = rows
        self.timestamps = timestamps

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.rows.num_rows  # type: ignore[no-any-return]

    def slice(self, first: int, count: int) -> Batch:
        """Return consecutive rows, without a copy."""
        stamps = self.timestamps
        return Batch(
            self.rows.slice(first, count), None if stamps is None else stamps.slice(first, count)
        )

    def take(self, places: Any) -> Batch:
        """Return the rows at these places, in their order."""
        stamps = self.timestamps
        return Batch(self.rows.take(places), None if stamps is None else stamps.take(places))

    def split(self, targets: np.ndarray, count: int) -> list[tuple[int, Batch]]:
        """Return the rows of each of ``count`` targets that has some; rows keep their order."""
        sizes = np.bincount(targets, minlength=count)
        found = np.flatnonzero(sizes).tolist()
        if len(found) == 1:
            return [(found[0], self)]
        order = self.take(pa.array(np.argsort(targets, kind="stable")))
        firsts = np.concatenate(([0], np.cumsum(sizes)))
        return [(at, order.slice(int(firsts[at]), int(sizes[at]))) for at in found]

    def __repr__(self) -> str:
        """Show the size and the first row, for messages about failures."""
        first = self.rows.slice(0, 1).to_pylist()
        return (
            f"<batch of {counted(len(self), 'row')}, the first is {first[0]!r}>"
            if first
            else "<no rows>"
        )


class BatchList(list[Batch]):
    """Batches in place of records: its length is the number of batches, not of records."""

    @property
    def rows(self) -> int:
        """Return the number of records."""
        return sum(map(len, self))


def count_rows(records: Sequence[Any]) -> int:
    """Return the number of records, which may be rows of batches."""
    return records.rows if isinstance(records, BatchList) else len(records)


def split_rows(records: Sequence[Any], count: int) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the first so many records, which may be rows of batches, and the others."""
    if not isinstance(records, BatchList):
        return records[:count], records[count:]
    first, rest = BatchList(), BatchList()
    for batch in records:
        if count > 0:
            first.append(batch if len(batch) <= count else batch.slice(0, count))
        if len(batch) > count:
            rest.append(batch.slice(max(count, 0), len(batch)))
        count -= len(batch)
    return first, rest


def merged(batches: Sequence[Batch]) -> Batch:
    """Return one batch with the rows of all of them; there must be at least one."""
    if len(batches) == 1:
        return batches[0]
    parts = pa.Table.from_batches([batch.rows for batch in batches]).combine_chunks().to_batches()
    if len(parts) > 1:  # Arrow divides columns of texts that exceed 2 GB
        message = f"batches of {sum(map(len, batches))} rows are too large; make smaller ones"
        raise ValueError(message)
    rows = parts[0]
    if all(batch.timestamps is None for batch in batches):
        return Batch(rows)
    stamps = [
        pa.nulls(len(batch), pa.int64()) if batch.timestamps is None else batch.timestamps
        for batch in batches
    ]
    return Batch(rows, pa.concat_arrays(stamps))


def millis_of(column: pa.Array) -> pa.Array:
    """Return a column of times as milliseconds since 1970: integers are milliseconds already.

    Raises:
        TypeError: for a column of another type.
        ValueError: when a time is missing.
    """
    if column.null_count:
        message = f"{column.null_count} of {len(column)} values are null"
        raise ValueError(message)
    if pa.types.is_integer(column.type):
        return column if column.type == pa.int64() else column.cast(pa.int64())
    if pa.types.is_timestamp(column.type):
        zone = column.type.tz
        millis = pc.cast(column, pa.timestamp("ms", zone) if zone else _MILLIS, safe=False)
        return millis.view(pa.int64())
    message = f"it is a column of {column.type}"
    raise TypeError(message)
