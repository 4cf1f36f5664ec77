"""`FileSource`: text files, read line by line, and files of a bulk format, such as Parquet.

Whole files are assigned to the subtasks by size, so that each has about as many bytes to read. All
subtasks compute the same assignment, from the list of files that the driver has made, and keep it
in their positions: a file stays with its subtask, however long the files grow and whatever files
are added later. With another parallelism the remaining files are assigned again.

The position in a text file is the offset of the next line, and in another file the number of the
next record.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import urlparse
from zlib import crc32

from holdfast.common import Duration
from holdfast.datastream.columns.batch import count_rows, split_rows
from holdfast.datastream.connectors.base import EpochPlanner, Source, SourceReader
from holdfast.datastream.formats.bulk import BulkFormat
from holdfast.filesystem import FileSystem, MissingFileError, check_scheme, file_system_of, join

_READ_BYTES = 256 * 1024
#: the position in a file of a bulk format that was read to its end
_ALL_READ = 1 << 62

#: paths and their sizes in bytes
Files = Sequence[tuple[str, int]]


class StreamFormat:
    """How the bytes of a file are split into records."""

    def __init__(self, charset_name: str) -> None:
        """Use a factory method."""
        self.charset_name = charset_name

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """Return a format in which every line is a record, without its line break."""
        "".encode(charset_name)
        return StreamFormat(charset_name)


class FileSourceBuilder:
    """Builds a ``FileSource``."""

    def __init__(self, stream_format: StreamFormat | BulkFormat, paths: Sequence[str]) -> None:
        """Made by ``FileSource.for_record_stream_format`` and ``for_bulk_file_format``."""
        self._format = stream_format
        self._paths = tuple(paths)
        self._interval: float | None = None

    def monitor_continuously(self, discovery_interval: Duration) -> FileSourceBuilder:
        """Read forever: look for new files and new lines once per interval."""
        self._interval = discovery_interval.to_millis() / 1000
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the files that exist when the job starts, then end."""
        self._interval = None
        return self

    def build(self) -> FileSource:
        """Return the source."""
        return FileSource(self._format, self._paths, self._interval)


class FileSource(Source):
    """The records of files; a directory represents all files below it.

    Files and directories whose names begin with ``.`` or ``_`` are left out.
    """

    def __init__(
        self,
        stream_format: StreamFormat | BulkFormat,
        paths: Sequence[str],
        interval: float | None,
    ) -> None:
        """Use ``for_record_stream_format`` or ``for_bulk_file_format``."""
        self.format = stream_format
        if isinstance(stream_format, BulkFormat):
            self.batch_type = stream_format.batch_type
        resolve = _local_path if isinstance(stream_format, StreamFormat) else _checked_path
        self._paths = tuple(map(resolve, paths))
        self._interval = interval
        #: the files that exist when the job starts; None before they are listed, in the driver
        self.files: Files | None = None
        if interval is None and all(check_scheme(path) == "file" for path in self._paths):
            self.files = tuple(_list_files(self._paths))

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: str) -> FileSourceBuilder:
        """Read these files and directories in a format.

        Raises:
            FileNotFoundError: by ``build``, when a path does not exist.
        """
        return FileSourceBuilder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: BulkFormat, *paths: str) -> FileSourceBuilder:
        """Read files such as Parquet, on any file system.

        A file is read once, and must not change after that. It must be complete when it
        appears, as the part files of a ``FileSink`` are.

        Args:
            bulk_format: ``ParquetColumnarRowInputFormat(…)``, or one of your own.
            paths: local paths, or addresses: ``s3a://bucket/…``, ``hdfs://…``, ….

        Raises:
            FileNotFoundError: by ``build``, when a local path does not exist. Whether an address
                exists is found out when the job starts, with the job's settings of file systems.
            ValueError: by ``build``, when there is no file system for an address.
        """
        return FileSourceBuilder(bulk_format, paths)

    @property
    def monitors(self) -> bool:
        """Return whether it keeps looking for new files and lines."""
        return self._interval is not None

    def create_planner(self, restored: bool) -> EpochPlanner | None:
        """Return what lists the files: again and again, if it looks for new ones."""
        if self._interval is not None:
            return _FilePlanner(self._paths, self._interval)
        return None if self.files is not None else _FirstFiles(self)

    def list_files(self) -> Files:
        """Return the files of a source that does not look for new ones, all attempts the same."""
        if self.files is None:
            self.files = tuple(_list_files(self._paths))
        return self.files

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        if isinstance(self.format, StreamFormat):
            return _FileReader(self, self.format.charset_name, subtask, parallelism)
        return _BulkFileReader(self, self.format, subtask, parallelism)

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        """Give every subtask the offsets of all files; remaining files are assigned again."""
        offsets: dict[str, int] = {}
        for position in map(_decode, positions):
            for file, offset in position.offsets.items():
                # a subtask may have the offset of a file that another one has read since
                offsets[file] = max(offset, offsets.get(file, 0))
        return [tuple(_Position(offsets, False, {}))] * parallelism


class _FilePlanner(EpochPlanner):
    """Lists the files in the driver, so that all subtasks have the same list, with its sizes."""

    def __init__(self, paths: Sequence[str], interval: float) -> None:
        self._paths = paths
        self._interval = interval
        self._files: Files = ()
        self._next_look = 0.0

    def plan(self) -> Files:
        if time.monotonic() >= self._next_look:
            self._files = tuple(_list_files(self._paths))
            self._next_look = time.monotonic() + self._interval
        return self._files


class _FirstFiles(EpochPlanner):
    """Lists the files once."""

    def __init__(self, source: FileSource) -> None:
        self._source = source

    def plan(self) -> Files:
        return self._source.list_files()


class _Position(NamedTuple):
    """The position of a reader.

    Attributes:
        offsets: of the next byte, by file.
        ended: all files were read, and there will be no more.
        dealing: the subtask of each file; None in positions of older versions.
    """

    offsets: dict[str, int]
    ended: bool
    dealing: dict[str, int] | None = None


def _decode(position: Any) -> _Position:
    return _Position(*position)


class _SharingReader(SourceReader, ABC):
    """Reads the files that are assigned to its subtask, one after another."""

    def __init__(self, source: FileSource, subtask: int, parallelism: int) -> None:
        self._source = source
        self._subtask, self._parallelism = subtask, parallelism
        self._offsets: dict[str, int] = {}
        self._ended = False
        self._dealing: dict[str, int] | None = {}
        #: the files of this subtask that are left to read, with the sizes up to which they are
        #: read, once they are known
        self._share: dict[str, int] | None = None
        #: the plan of this share
        self._plan: Files | None = None

    def restore(self, position: Any) -> None:
        offsets, self._ended, dealing = _decode(position)
        self._offsets = dict(offsets)
        self._dealing = None if dealing is None else dict(dealing)
        self._share = self._plan = None

    def follow(self, plan: Files) -> None:
        if plan != self._plan:
            self._take(plan)
            self._plan = plan

    def _take(self, files: Files) -> None:
        """Take this subtask's share of the files."""
        if self._dealing is None:  # as in older versions
            self._dealing = {f: crc32(f.encode()) % self._parallelism for f, _ in files}
        self._dealing = dealing = deal(files, self._parallelism, self._dealing, self._offsets)
        self._share = {file: size for file, size in files if dealing[file] == self._subtask}
        own = {file for file, subtask in dealing.items() if subtask == self._subtask}
        self._offsets = {file: at for file, at in self._offsets.items() if file in own}

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        if self._share is None:
            self._take(self._source.list_files())
        share = self._share or {}
        for file, size in list(share.items()):
            for records in self._read_file(file, size, limit):
                limit -= count_rows(records)
                yield records
                if limit <= 0:
                    return
            del share[file]  # so that it is not opened again in vain
        self._ended = not self._source.monitors

    @abstractmethod
    def _read_file(self, file: str, size: int, limit: int) -> Iterator[Sequence[Any]]:
        """Yield the records of a file that are left, and advance its offset."""

    def position(self) -> Any:
        return tuple(_Position(self._offsets, self._ended, self._dealing))

    @property
    def finished(self) -> bool:
        return self._ended


class _FileReader(_SharingReader):
    """Reads lines."""

    def __init__(self, source: FileSource, charset: str, subtask: int, parallelism: int) -> None:
        super().__init__(source, subtask, parallelism)
        self._charset = charset

    def _read_file(self, file: str, size: int, limit: int) -> Iterator[list[str]]:
        end = size if self._source.monitors else sys.maxsize
        offset = self._offsets.get(file, 0)
        if offset >= end:
            return
        with Path(file).open("rb") as stream:
            stream.seek(offset)
            while limit > 0 and (raw := self._whole_lines(stream, end - offset)[:limit]):
                offset += sum(map(len, raw))
                limit -= len(raw)
                stream.seek(offset)
                self._offsets[file] = offset
                yield [line.decode(self._charset).rstrip("\r\n") for line in raw]

    def _whole_lines(self, stream: BinaryIO, most: int) -> list[bytes]:
        """Return the next lines; if files may grow, a last line without a line break waits.

        Lines written after the files were listed wait, too, so that a repeated epoch
        reads the same.
        """
        lines = stream.readlines(min(_READ_BYTES, most))
        if self._source.monitors:
            surplus = sum(map(len, lines)) - most
            while lines and (surplus > 0 or not lines[-1].endswith(b"\n")):
                surplus -= len(lines.pop())
        return lines


class _OpenFile:
    """A file of a bulk format that is read, and the number of its next record."""

    def __init__(self, file: str, bulk_format: BulkFormat, start: int) -> None:
        self.file = file
        self.next = start
        system, path = file_system_of(file)
        self._stack = ExitStack()
        stream = self._stack.enter_context(system.open_input(path))
        self._batches = self._read(system, path, bulk_format, stream)
        self._rest: Sequence[Any] = ()

    def take(self, limit: int) -> Sequence[Any]:
        """Return the next records, at most so many; none at the end."""
        batch = self._rest or next(self._batches, ())
        taken, self._rest = split_rows(batch, limit)
        self.next += count_rows(taken)
        return taken

    def close(self) -> None:
        self._batches.close()
        self._stack.close()

    def _read(
        self, system: FileSystem, path: str, bulk_format: BulkFormat, stream: BinaryIO
    ) -> Generator[Sequence[Any], None, None]:
        try:
            with system.errors("read", path):
                yield from filter(None, bulk_format.open(stream).read(self.next))
        except ValueError as error:
            message = (
                f"FileSource cannot read '{system.uri(path)}': {error}; files must be complete "
                "when they appear, and their columns must fit the type of the format"
            )
            raise ValueError(message) from error


class _BulkFileReader(_SharingReader):
    """Reads records of a bulk format. The file stays open while it is read in order."""

    def __init__(
        self, source: FileSource, bulk_format: BulkFormat, subtask: int, parallelism: int
    ) -> None:
        super().__init__(source, subtask, parallelism)
        self._format = bulk_format
        self._open: _OpenFile | None = None

    def _read_file(self, file: str, size: int, limit: int) -> Iterator[Sequence[Any]]:
        start = self._offsets.get(file, 0)
        if start >= _ALL_READ:
            return
        opened = self._opened(file, start)
        while limit > 0 and (records := opened.take(limit)):
            limit -= count_rows(records)
            self._offsets[file] = opened.next
            yield records
        if limit > 0:
            self._offsets[file] = _ALL_READ
            self.close()

    def _opened(self, file: str, start: int) -> _OpenFile:
        if self._open is None or (self._open.file, self._open.next) != (file, start):
            self.close()
            self._open = _OpenFile(file, self._format, start)
        return self._open

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def deal(
    files: Files, parallelism: int, dealing: Mapping[str, int], offsets: Mapping[str, int]
) -> dict[str, int]:
    """Return the subtask of each file; files that are already assigned stay.

    The others go, largest first, to the subtask with the least to read.

    Args:
        files: all files.
        parallelism: the number of subtasks.
        dealing: the subtasks of files that were assigned earlier.
        offsets: how far files were read. NB: except for assigned files, it may contain only what
            all subtasks know, because all must compute the same result.
    """
    sizes = dict(files)
    loads = [[0, 0, subtask] for subtask in range(parallelism)]
    for file, subtask in dealing.items():
        _add(loads[subtask], sizes.get(file, 0))
    result = dict(dealing)
    left = {file: size - offsets.get(file, 0) for file, size in files if file not in dealing}
    for file in sorted(left, key=lambda file: (-left[file], file)):
        least = min(loads)
        _add(least, left[file])
        result[file] = least[2]
    return result


def _add(load: list[int], size: int) -> None:
    """Add a file to the load of a subtask: bytes, files, its number."""
    load[0] += max(size, 0)
    load[1] += 1


def _local_path(path: str) -> str:
    """Return the path of a ``file:`` address, or the path itself.

    Raises:
        ValueError: for an address of another file system.
    """
    parsed = urlparse(path)
    if parsed.scheme in ("", "file"):
        return str(Path(parsed.path if parsed.scheme else path))
    message = f"only local paths and file: addresses can be used for text files; got {path!r}"
    raise ValueError(message)


def _checked_path(path: str) -> str:
    """Return an address, or the path of a local one."""
    return file_system_of(path)[1] if check_scheme(path) == "file" else path.rstrip("/")


def _list_files(paths: Sequence[str]) -> Iterator[tuple[str, int]]:
    for text in paths:
        system, path = file_system_of(text)
        status = system.status(path)
        if status is None:
            raise MissingFileError(f"FileSource: there is no file or directory {text}")
        if status.is_directory:
            yield from sorted(_list_below(system, path, text))
        else:
            yield text, status.size


def _list_below(system: FileSystem, path: str, address: str) -> Iterator[tuple[str, int]]:
    for status in system.list_directory(path):
        if not status.name.startswith((".", "_")):
            inner, name = join(path, status.name), join(address, status.name)
            if status.is_directory:
                yield from _list_below(system, inner, name)
            else:
                yield name, status.size
