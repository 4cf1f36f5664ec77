"""State as DataFrames, and DataFrames as state: the code that Spark's executors run.

This module imports Spark, so it is imported only when a DataFrame is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import IntegerType, StructField, StructType

from holdfast.filesystem import configure, configured, file_system_of
from holdfast.savepoint.arrow_columns import RowTypes
from holdfast.savepoint.made_states import KeyedLayout, PartWriter, WrittenPart
from holdfast.savepoint.readers import HeadPart, Reader, batches_of
from holdfast.savepoint.sources import KeyedState, Timers
from holdfast.spark.hadoop import hadoop_settings
from holdfast.spark.session import check_classic, prepare_workers
from holdfast.state.storage.directory import DirectoryStateStorage

#: the column with the number of a row's part
_PART = "holdfast part"
#: more parts than cores, since a part is in memory while it is written
_PARTS_PER_CORE = 4
_WRITTEN = "part int, name string, size long, entries long, pickled boolean"


def read_frame(
    spark: SparkSession, address: str, reader: Reader, parts: Sequence[HeadPart], types: RowTypes
) -> DataFrame:
    """Return rows of state as a DataFrame; each part is read by its own task."""
    schema = from_arrow_schema(types.schema, True)
    place = _place(spark, address)
    numbers = spark.range(0, len(parts), 1, max(len(parts), 1))
    return numbers.mapInArrow(_ReadParts(place, reader, list(parts), types), schema)


def number_of_parts(frame: DataFrame, max_parallelism: int) -> int:
    """Return the number of parts in which the state of a DataFrame is written."""
    check_classic(frame.sparkSession)
    cores = frame.sparkSession.sparkContext.defaultParallelism
    return min(_PARTS_PER_CORE * cores, max_parallelism)


def write_frame(
    state: KeyedState | Timers, layout: KeyedLayout, parts: int, address: str
) -> list[WrittenPart]:
    """Write the state of a DataFrame; each part is written by a task.

    Rows are distributed by the key groups of their keys, so all rows of a key are in one part.
    """
    frame: DataFrame = state.data.select(*state.columns)
    place = _place(frame.sparkSession, address)
    dealt = StructType([StructField(_PART, IntegerType()), *frame.schema.fields])
    rows = (
        frame.mapInArrow(_DealOut(state, layout, parts, to_arrow_schema(dealt)), dealt)
        .repartition(parts, _PART)
        .mapInArrow(_WriteParts(place, state, layout, parts), _WRITTEN)
        .collect()
    )
    return [WrittenPart(*row) for row in rows]


class _StateDirectory:
    """A directory of state files that tasks can open."""

    def __init__(self, address: str, options: dict[str, str]) -> None:
        self._address = address
        self._options = options

    def open(self) -> DirectoryStateStorage:
        """Return the storage of the directory."""
        configure({**configured(), **self._options})
        files, path = file_system_of(self._address)
        return DirectoryStateStorage(path, files)


def _place(session: SparkSession, address: str) -> _StateDirectory:
    prepare_workers(session)
    return _StateDirectory(address, hadoop_settings(session.sparkContext))


class _ReadParts:
    """Converts numbers of parts to their rows."""

    def __init__(
        self, place: _StateDirectory, reader: Reader, parts: list[HeadPart], types: RowTypes
    ) -> None:
        self._place, self._reader, self._parts, self._types = place, reader, parts, types

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = self._place.open()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                part = self._parts[number]
                found = batches_of(self._reader, storage, part, self._types.place)
                yield from map(self._types.batch, found)


class _DealOut:
    """Adds the number of its part to each row."""

    def __init__(
        self, state: KeyedState | Timers, layout: KeyedLayout, parts: int, schema: pa.Schema
    ) -> None:
        self._state, self._layout = _without_data(state), layout
        self._parts, self._schema = parts, schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys = self._layout.keys(self._state.keys(batch))
            numbers = pa.array(self._layout.parts(keys, self._parts), pa.int32())
            yield pa.RecordBatch.from_arrays([numbers, *batch.columns], schema=self._schema)


class _WriteParts:
    """Writes rows with the numbers of their parts, and returns the written files."""

    def __init__(
        self, place: _StateDirectory, state: KeyedState | Timers, layout: KeyedLayout, parts: int
    ) -> None:
        self._place, self._parts = place, parts
        self._state, self._layout = _without_data(state), layout

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writers: dict[int, PartWriter] = {}
        for batch in batches:
            entries = list(self._state.entries(self._layout, batch))
            for part, some in self._layout.dealt(entries, self._parts).items():
                writers.setdefault(part, PartWriter(self._layout, part)).add(some)
        storage = self._place.open()
        written = [writer.finish(storage) for writer in writers.values()]
        rows: dict[str, list[Any]] = {
            name: [getattr(part, name) for part in written]
            for name in WrittenPart.__struct_fields__
        }
        types = [pa.int32(), pa.string(), pa.int64(), pa.int64(), pa.bool_()]
        yield pa.RecordBatch.from_pydict(rows, pa.schema(list(zip(rows, types, strict=True))))


def _without_data(state: KeyedState | Timers) -> Any:
    """Return the state without its data, so that it can be sent to a task."""
    return replace(state, data=None)
