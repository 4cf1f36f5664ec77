"""Rows of state, as an iterable, an Arrow table or a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from holdfast.savepoint.arrow_columns import (
    TEXT,
    ArrowColumn,
    RowTypes,
    inferred_column,
    window_column,
)
from holdfast.savepoint.readers import Batch, HeadPart, Reader, batches_of
from holdfast.state.storage.directory import DirectoryStateStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: how many batches are read to infer undeclared types of a DataFrame
_SAMPLE: Final = 4


class RowPlace(NamedTuple):
    """Where a page of rows begins: a part of the state, and a row in it."""

    part: int = 0
    row: int = 0


class StateData:
    """The rows of a keyed state, of windows, timers or operator state.

    State is read on demand.
    """

    def __init__(
        self, place: str, storage: DirectoryStateStorage, reader: Reader, parts: Sequence[HeadPart]
    ) -> None:
        """Use the methods of `Savepoint`."""
        self._place = place
        self._storage = storage
        self._reader = reader
        self._parts = parts

    @property
    def column_names(self) -> list[str]:
        """Return the names of the columns."""
        return list(self._reader.columns)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows with plain values, exactly as saved."""
        names = self.column_names
        for batch in self._batches():
            for row in zip(*batch, strict=True):
                yield dict(zip(names, row, strict=True))

    def part_size(self, number: int) -> int:
        """Return how many bytes must be read for a part; 0 if there is no such part."""
        return self._parts[number].head.size if number < len(self._parts) else 0

    def page(
        self, place: RowPlace, most: int, most_bytes: int
    ) -> tuple[list[dict[str, Any]], RowPlace | None]:
        """Return rows from a place on, and the place after them; None at the end.

        Rows have always the same order. State files are read up to ``most_bytes``, but at least
        those of one part; there may be fewer rows than ``most`` for that reason.
        """
        names, rows, size = self.column_names, list[dict[str, Any]](), 0
        for number in range(place.part, len(self._parts)):
            part = self._parts[number]
            size += part.head.size
            if number > place.part and size > most_bytes:
                return rows, RowPlace(number, 0)
            found = chain.from_iterable(
                zip(*batch, strict=True)
                for batch in batches_of(self._reader, self._storage, part, self._place)
            )
            first = place.row if number == place.part else 0
            for at, row in enumerate(islice(found, first, None), first):
                if len(rows) == most:
                    return rows, RowPlace(number, at)
                rows.append(dict(zip(names, row, strict=True)))
        return rows, None

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return all rows."""
        return list(self)

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""
        batches = list(self._batches())
        types = self._types(batches)
        return pa.Table.from_batches(map(types.batch, batches), types.schema)

    def to_batches(self) -> pa.RecordBatchReader:
        """Return all rows as a stream of Arrow batches, with one batch in memory at a time.

        If a type was not declared, it is inferred from the values, and all rows are in memory.
        """
        if None in self._reader.columns.values():
            return self.to_arrow().to_reader()
        types = self._types([])
        return pa.RecordBatchReader.from_batches(types.schema, map(types.batch, self._batches()))

    def to_dataframe(self, spark: SparkSession, text: bool = False) -> DataFrame:
        """Return the rows as a DataFrame; Spark's executors read them when it is used.

        Undeclared types are inferred from the first rows. If later rows have other types, reading
        fails; with ``text`` such columns are strings with Python's ``repr`` of the values.
        """
        from holdfast.savepoint.frames import read_frame

        sample = [] if text else list(islice(self._batches(), _SAMPLE))
        types = self._types(sample, as_text=text)
        return read_frame(spark, self._storage.address, self._reader, self._parts, types)

    def _batches(self) -> Iterator[Batch]:
        for part in self._parts:
            yield from batches_of(self._reader, self._storage, part, self._place)

    def _types(self, batches: Sequence[Batch], as_text: bool = False) -> RowTypes:
        columns = {}
        for number, (name, declared) in enumerate(self._reader.columns.items()):
            values = chain.from_iterable(batch[number] for batch in batches)
            columns[name] = declared or (TEXT if as_text else _inferred(name, values))
        return RowTypes(self._place, columns)

    def __repr__(self) -> str:
        return f"StateData({self._place!r}, columns={self.column_names})"


def _inferred(name: str, values: Iterable[Any]) -> ArrowColumn:
    return window_column(values) if name == "window" else inferred_column(values)
