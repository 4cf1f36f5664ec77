"""Compaction of a ``FileSink``: the output of several checkpoints as one part file.

With compaction, segments stay hidden after the checkpoint that contains them is complete. At a
later checkpoint the strategy decides that those of a bucket become one part file. The compactor
joins them into a new segment, which is published when that checkpoint is complete.

Invariant: a segment that a complete checkpoint contains is neither changed nor deleted before a
part file with its records is published. Consequence: a job can go back to any checkpoint, and each
record is either in a part file or in a segment that the checkpoint names.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

_COPY_BYTES: Final = 1024 * 1024


@dataclass(frozen=True)
class FileCompactStrategy:
    """When the files of a bucket are compacted; use ``builder()``.

    Attributes:
        size_threshold: the bytes that are enough for a file; None for no such limit.
        checkpoints: after how many checkpoints a file is written, whatever its size; None for no
            such limit.
    """

    size_threshold: int | None = None
    checkpoints: int | None = None

    @staticmethod
    def builder() -> FileCompactStrategy.Builder:
        """Start without a limit; at least one must be set."""
        return FileCompactStrategy.Builder()

    def is_due(self, size: int, checkpoints: int) -> bool:
        """Return whether files are compacted now.

        Args:
            size: their bytes in all.
            checkpoints: how many checkpoints were taken since the first of them was begun.
        """
        enough = self.size_threshold is not None and size >= self.size_threshold
        return enough or (self.checkpoints is not None and checkpoints >= self.checkpoints)

    class Builder:
        """Builds a ``FileCompactStrategy``."""

        def __init__(self) -> None:
            """Use ``FileCompactStrategy.builder()``."""
            self._size: int | None = None
            self._checkpoints: int | None = None

        def set_size_threshold(self, size_threshold: int) -> FileCompactStrategy.Builder:
            """Compact the files of a bucket when they have this many bytes in all."""
            if size_threshold < 1:
                message = f"set_size_threshold: expected at least 1 byte; got {size_threshold}"
                raise ValueError(message)
            self._size = size_threshold
            return self

        def enable_compaction_on_checkpoint(
            self, num_checkpoints_before_compaction: int
        ) -> FileCompactStrategy.Builder:
            """Compact the files of a bucket after this many checkpoints, whatever their size."""
            if num_checkpoints_before_compaction < 1:
                message = (
                    "enable_compaction_on_checkpoint: expected at least 1 checkpoint; got "
                    f"{num_checkpoints_before_compaction}"
                )
                raise ValueError(message)
            self._checkpoints = num_checkpoints_before_compaction
            return self

        def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategy.Builder:
            """Do nothing: each subtask compacts its own files, one after another."""
            return self

        def build(self) -> FileCompactStrategy:
            """Return the strategy.

            Raises:
                ValueError: when nothing would ever be compacted.
            """
            if self._size is None and self._checkpoints is None:
                message = (
                    "FileCompactStrategy: nothing would ever be compacted; call "
                    "set_size_threshold, enable_compaction_on_checkpoint, or both"
                )
                raise ValueError(message)
            return FileCompactStrategy(self._size, self._checkpoints)


class FileCompactor(ABC):
    """Joins files into one; picklable.

    Attributes:
        is_record_wise: whether the sink's bulk format reads the records and writes them again.
    """

    is_record_wise: bool = False

    @abstractmethod
    def compact(self, files: Sequence[BinaryIO], stream: BinaryIO) -> None:
        """Write the contents of several files, in order, as one file.

        The result may depend only on the files. Take one after another: if there are more than 128,
        those that were taken first are closed.
        """

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """Return a compactor for row formats, which joins files by their bytes.

        Args:
            file_delimiter: bytes that are written between two files.
        """
        return _Concatenation(file_delimiter or b"")

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """Return a compactor that copies a single file, and refuses to join several."""
        return _Copy()

    @staticmethod
    def record_wise_file_compactor() -> FileCompactor:
        """Return a compactor for bulk formats, which writes the records again.

        For Parquet it reads row groups as Arrow columns and writes larger ones. PyFlink does not
        have this compactor.
        """
        return _RecordWise()


@dataclass(frozen=True)
class _Concatenation(FileCompactor):
    delimiter: bytes = b""

    def compact(self, files: Sequence[BinaryIO], stream: BinaryIO) -> None:
        for number, file in enumerate(files):
            if number and self.delimiter:
                stream.write(self.delimiter)
            shutil.copyfileobj(file, stream, _COPY_BYTES)


@dataclass(frozen=True)
class _Copy(FileCompactor):
    def compact(self, files: Sequence[BinaryIO], stream: BinaryIO) -> None:
        if len(files) != 1:
            message = (
                f"identical_file_compactor only copies single files; got {len(files)} files for "
                "one: use concat_file_compactor, or record_wise_file_compactor for a bulk format"
            )
            raise ValueError(message)
        shutil.copyfileobj(files[0], stream, _COPY_BYTES)


@dataclass(frozen=True)
class _RecordWise(FileCompactor):
    is_record_wise = True

    def compact(self, files: Sequence[BinaryIO], stream: BinaryIO) -> None:
        raise NotImplementedError  # the bulk format does it


@dataclass(frozen=True)
class Compaction:
    """When and how a sink compacts its files."""

    strategy: FileCompactStrategy
    compactor: FileCompactor
