"""Bulk formats: files that are written and read as a whole, such as Parquet.

A row format encodes one record at a time, and two files can be joined by their bytes. A bulk format
collects records, and has a head or a foot. So it is written by a `BulkWriter`, read by a
`BulkReader`, and several files are merged by reading and writing them again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

__all__ = ["BulkFormat", "BulkReader", "BulkWriter", "BulkWriterFactory"]


class BulkWriter(ABC):
    """Writes one file."""

    @abstractmethod
    def add_element(self, element: Any) -> None:
        """Add a record; it may be kept in memory until ``flush``."""

    @abstractmethod
    def flush(self) -> None:
        """Write what is in memory to the stream."""

    @abstractmethod
    def finish(self) -> None:
        """Write the rest, and the foot of the file. The caller closes the stream."""


class BulkWriterFactory(ABC):
    """Creates the writers of a ``FileSink``; picklable.

    Attributes:
        suffix: the default suffix of part files.
        batch_schema: the ``pyarrow.Schema`` of the files, if the writers have a method
            ``add_batch`` for batches with these columns; None if they only take records.
    """

    suffix: str = ""
    batch_schema: Any = None

    @abstractmethod
    def create(self, stream: BinaryIO) -> BulkWriter:
        """Return a writer for a new file."""

    @abstractmethod
    def merge(self, files: Sequence[BinaryIO], stream: BinaryIO) -> None:
        """Write the records of several files, in order, as one file.

        The result may depend only on the files. Take one after another: if there are more than 128,
        those that were taken first are closed.
        """


class BulkReader(ABC):
    """Reads one file."""

    @abstractmethod
    def read(self, start: int) -> Iterator[Sequence[Any]]:
        """Yield batches of the records from number ``start`` on, in the order of the file."""


class BulkFormat(ABC):
    """Opens the files of a ``FileSource``; picklable.

    Attributes:
        batch_type: the type of the batches that its readers give; None if they give records.
    """

    batch_type: Any = None

    @abstractmethod
    def open(self, stream: BinaryIO) -> BulkReader:
        """Return a reader for a file. The caller closes the stream."""
