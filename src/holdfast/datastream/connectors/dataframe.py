"""Spark DataFrames as sources, and Spark writers as sinks.

Only settings are here; the Spark side reads the rows and writes the output.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.connectors.base import Source, SourceReader

__all__ = ["DataFrameSink", "DataFrameSource"]

#: formats that are files in a directory, whatever wrote them
_FILE_FORMATS = ("parquet", "orc", "json", "csv", "text", "avro")
_MODES = ("append", "overwrite", "ignore", "error", "errorifexists")


class DataFrameSource(Source):
    """The rows of a streaming or a batch DataFrame, as ``Row`` records with its column names."""

    reads_rows = True

    def __init__(self, frame: Any, batch_type: BatchTypeInfo | None = None) -> None:
        """Take a ``pyspark.sql.DataFrame``, and the type of the batches, if it gives batches."""
        self.frame = frame
        self.batch_type = batch_type

    @property
    def parallelism_limit(self) -> int | None:
        """Return a number that is never used: Spark partitions the frame."""
        return 1

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the frame, which stays in the driver."""
        return {**vars(self), "frame": None}

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """Raise an error: Spark reads the rows."""
        raise NotImplementedError


class DataFrameSink:
    """Writes the records of each epoch with a Spark writer, in any format that Spark knows.

    Records are written from the workers' own files, not through the driver. An epoch that fails
    writes nothing. In a job with checkpoints, rows are written when their checkpoint is complete,
    exactly once, if the writer can do that: `at_least_once` says why not. Otherwise they are
    written with each epoch, and after a restart those since the last checkpoint are written again.
    """

    def __init__(
        self,
        format: str,
        path: str | None = None,
        mode: str = "append",
        options: Mapping[str, str] | None = None,
        schema: Any = None,
        partition_by: tuple[str, ...] | list[str] = (),
        table: str | None = None,
    ) -> None:
        """Describe the writer as on a DataFrame.

        Args:
            format: ``parquet``, ``delta``, ``json``, ``jdbc``, …
            path: where to, for formats that have a path.
            mode: the save mode; ``overwrite`` replaces the output of the previous epoch.
            options: the writer's options.
            schema: the columns, as a Spark DDL string or ``StructType``; by default from the
                stream's declared type, which must then be a named row or a dataclass.
            partition_by: columns to partition the output by.
            table: a table to write to instead of a path.
        """
        if mode not in _MODES:
            message = f"DataFrameSink: mode must be one of {', '.join(_MODES)}; got {mode!r}"
            raise ValueError(message)
        self.format = format
        self.path = path
        self.mode = mode
        self.options = dict(options or {})
        self.schema = schema
        self.partition_by = tuple(partition_by)
        self.table = table
        self.type_info: Any = None

    @property
    def at_least_once(self) -> str:
        """Return why rows may be written twice, even with checkpoints; empty if they are not."""
        if self.mode != "append":
            return f"the mode is '{self.mode}', and only 'append' can be exactly once"
        if self.is_delta:
            return ""
        if self.table is not None or self.path is None:
            return "the writer has no path: Spark cannot tell whether a table has some rows"
        if self.format.lower() not in _FILE_FORMATS:
            formats = ", ".join(_FILE_FORMATS)
            return f"the format is '{self.format}'; these can be exactly once: {formats}, delta"
        return ""

    @property
    def is_delta(self) -> bool:
        """Return whether it writes a Delta table."""
        return self.format.lower() == "delta"

    def with_type(self, type_info: Any) -> DataFrameSink:
        """Return this sink with the stream's declared type for the columns, unless it has a schema.

        Raises:
            TypeError: when there is neither.
        """
        if self.schema is None and type_info is None:
            message = (
                f"DataFrameSink('{self.format}') needs to know the columns: declare the stream's "
                "type (output_type=Types.ROW_NAMED(...) or a dataclass), or give schema=..."
            )
            raise TypeError(message)
        sink = copy.copy(self)
        sink.type_info = type_info
        return sink
