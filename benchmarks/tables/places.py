"""The tables that the jobs write to: how to make a sink, and how to look at what is there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.datastream.connectors.base import Sink
from holdfast.datastream.connectors.delta import DeltaSink
from holdfast.datastream.connectors.file_system import BucketAssigner, FileSink
from holdfast.datastream.connectors.iceberg import IcebergSink
from holdfast.datastream.formats.parquet import ParquetBulkWriters

__all__ = ["PLACES", "Place"]


class Place(ABC):
    """A table in a directory."""

    def __init__(self, directory: str, schema: pa.Schema) -> None:
        self._path = str(Path(directory) / "table")
        self._schema = schema

    @abstractmethod
    def sink(self) -> Sink:
        """Return a sink that appends to it."""

    @abstractmethod
    def files(self) -> set[str]:
        """Return the data files that a reader sees now."""

    def rows(self) -> int:
        """Return how many rows a reader sees."""
        return sum(pq.ParquetFile(path).metadata.num_rows for path in self.files())

    def megabytes(self) -> float:
        """Return the size of the data files."""
        return sum(Path(path).stat().st_size for path in self.files()) / 1e6


class ParquetPlace(Place):
    """A directory of Parquet files."""

    def sink(self) -> Sink:
        writers = ParquetBulkWriters.for_row_type(self._schema)
        assigner = BucketAssigner.base_path_bucket_assigner()
        return FileSink.for_bulk_format(self._path, writers).with_bucket_assigner(assigner).build()

    def files(self) -> set[str]:
        return {str(path) for path in Path(self._path).glob("part-*")}


class DeltaPlace(Place):
    """A Delta table."""

    def sink(self) -> Sink:
        return DeltaSink.for_table(self._path, self._schema).build()

    def files(self) -> set[str]:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self._path):
            return set()
        return set(DeltaTable(self._path).file_uris())


class IcebergPlace(Place):
    """An Iceberg table with a catalog in SQLite."""

    _TABLE = "benchmarks.rows"

    def sink(self) -> Sink:
        self._catalog().create_namespace_if_not_exists("benchmarks")
        builder = IcebergSink.builder().set_catalog("benchmarks", self._properties())
        return builder.set_table(self._TABLE).set_schema(self._schema).create_if_absent().build()

    def files(self) -> set[str]:
        catalog = self._catalog()
        if not catalog.table_exists(self._TABLE):
            return set()
        found = catalog.load_table(self._TABLE).inspect.files()
        return {path.removeprefix("file://") for path in found["file_path"].to_pylist()}

    def _properties(self) -> dict[str, str]:
        Path(self._path).mkdir(parents=True, exist_ok=True)
        uri = f"sqlite:///{self._path}/catalog.db"
        return {"type": "sql", "uri": uri, "warehouse": f"file://{self._path}"}

    def _catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("benchmarks", **self._properties())


PLACES: dict[str, type[Place]] = {
    "parquet": ParquetPlace,
    "delta": DeltaPlace,
    "iceberg": IcebergPlace,
}
