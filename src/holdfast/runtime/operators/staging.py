"""Records for a Spark writer: columns in a Parquet file that a subtask stages.

Only files named in an accepted epoch are passed to the writer. Others are left by failed runs. They
are deleted with the job's directory, or when the job starts the next time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.datastream.formats.columns import Columns
from holdfast.filesystem import file_system_of

#: how the names of staged files end
SUFFIX: Final = ".parquet"


@dataclass(frozen=True)
class StagedColumns:
    """What the workers need to know about a Spark writer: its columns."""

    schema: pa.Schema


@dataclass(frozen=True)
class StagedFile:
    """A file that a subtask wrote in an epoch, by its address."""

    address: str
    records: int


class StagingWriter:
    """Writes the records of one run of a subtask into one file, in batches."""

    def __init__(self, columns: StagedColumns, address: str) -> None:
        """Take the columns and the address; the first batch creates the file."""
        self._columns = Columns(columns.schema)
        self._address = address
        self._stack = ExitStack()
        self._writer: pq.ParquetWriter | None = None
        self._records = 0

    def write(self, records: list[Any]) -> None:
        """Add a batch."""
        if self._writer is None:
            files, path = file_system_of(self._address)
            file = self._stack.enter_context(files.open_output(path))
            self._writer = self._stack.enter_context(pq.ParquetWriter(file, self._columns.schema))
        self._writer.write_batch(self._columns.batch(records))
        self._records += len(records)

    def finish(self) -> StagedFile | None:
        """Close the file; return None if nothing was written."""
        if self._writer is None:
            return None
        self._stack.close()
        return StagedFile(self._address, self._records)


def read_staged(address: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches."""
    files, path = file_system_of(address)
    with files.open_input(path) as file:
        yield from pq.ParquetFile(file).iter_batches()
