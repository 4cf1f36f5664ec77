"""Rows of state: to iterate over, as an Arrow table, as a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.savepoint.arrow_columns import TEXT, ArrowColumn, inferred_column, window_column
from holdfast.savepoint.readers import Batch, Part, Reader, batches_of
from holdfast.state.storage import DirectoryStateStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["RowTypes", "StateData"]

#: how many batches are looked at for the types of a DataFrame that nobody has declared
_SAMPLE: Final = 4


@dataclass(frozen=True)
class RowTypes:
    """The columns of rows, each with its type."""

    place: str
    columns: dict[str, ArrowColumn]

    @property
    def schema(self) -> pa.Schema:
        """The same for Arrow."""
        return pa.schema([(name, column.type) for name, column in self.columns.items()])

    def batch(self, values: Batch) -> pa.RecordBatch:
        """Return rows for Arrow."""
        arrays = [
            column.array(part, f"{self.place}, column '{name}'")
            for (name, column), part in zip(self.columns.items(), values, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class StateData:
    """The rows of a keyed state, of windows, timers or operator state.

    Nothing is read before it is asked for.
    """

    def __init__(
        self, place: str, storage: DirectoryStateStorage, reader: Reader, parts: Sequence[Part]
    ) -> None:
        """Made by `Savepoint`."""
        self._place = place
        self._storage = storage
        self._reader = reader
        self._parts = parts

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return list(self._reader.columns)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows, with plain values: exactly what was saved."""
        names = self.column_names
        for batch in self._batches():
            for row in zip(*batch, strict=True):
                yield dict(zip(names, row, strict=True))

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return all rows."""
        return list(self)

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""
        batches = list(self._batches())
        types = self._types(batches)
        return pa.Table.from_batches(map(types.batch, batches), types.schema)

    def to_batches(self) -> pa.RecordBatchReader:
        """Return all rows as a stream of Arrow batches, of which one is in memory at a time.

        Where a type was not declared, its values decide, and all rows are in memory.
        """
        if None in self._reader.columns.values():
            return self.to_arrow().to_reader()
        types = self._types([])
        return pa.RecordBatchReader.from_batches(types.schema, map(types.batch, self._batches()))

    def to_dataframe(self, spark: SparkSession, text: bool = False) -> DataFrame:
        """Return the rows as a DataFrame, which Spark's executors read when it is used.

        Types that were not declared are those of the first rows. If others come later, reading
        fails; with ``text`` such columns are strings that show the values as Python does.
        """
        from holdfast.spark.state_frames import read_frame

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
