"""Files as sources and sinks, under PyFlink's names.

A ``FileSource`` reads text files line by line; its position is a byte offset per file. A
``FileSink`` writes part files into a directory, on any file system. What it has written is hidden
until the checkpoint that contains it is complete, and then appears, exactly once.
"""

from __future__ import annotations

import datetime
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from zlib import crc32
from zoneinfo import ZoneInfo

from holdfast.common import Duration, Encoder
from holdfast.datastream.connectors._file_sink import FileSinkFunction
from holdfast.datastream.connectors.base import Sink, Source, SourceReader
from holdfast.filesystem import check_scheme, file_system_of

__all__ = [
    "BucketAssigner",
    "DefaultRollingPolicy",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
]

_READ_BYTES = 256 * 1024


class StreamFormat:
    """How the bytes of a file are cut into records."""

    def __init__(self, charset_name: str) -> None:
        """Use a factory method."""
        self.charset_name = charset_name

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """Every line is a record, without its line break."""
        "".encode(charset_name)
        return StreamFormat(charset_name)


class FileSourceBuilder:
    """Builds a ``FileSource``."""

    def __init__(self, stream_format: StreamFormat, paths: Sequence[str]) -> None:
        """Made by ``FileSource.for_record_stream_format``."""
        self._format = stream_format
        self._paths = tuple(paths)
        self._monitors = False

    def monitor_continuously(self, discovery_interval: Duration) -> FileSourceBuilder:
        """Look for new files for ever; every epoch looks, whatever the interval."""
        self._monitors = True
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the files that are there when the job starts, then end."""
        self._monitors = False
        return self

    def build(self) -> FileSource:
        """The source."""
        return FileSource(self._format, self._paths, self._monitors)


class FileSource(Source):
    """The lines of files; a directory stands for the files in it and below."""

    def __init__(self, stream_format: StreamFormat, paths: Sequence[str], monitors: bool) -> None:
        """Use ``for_record_stream_format``."""
        self._format = stream_format
        self._paths = tuple(local_path(path) for path in paths)
        self._monitors = monitors
        self._files = () if monitors else tuple(_list_files(self._paths))

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: str) -> FileSourceBuilder:
        """Read these files and directories in a format.

        Raises:
            FileNotFoundError: by ``build``, when a path does not exist.
        """
        return FileSourceBuilder(stream_format, paths)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """Whole files are dealt out to the subtasks."""
        return _FileReader(self, subtask, parallelism)

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        """Every subtask knows how far each file was read, and goes on with its own files."""
        offsets: dict[str, int] = {}
        for file, offset in (place for read, _ in positions for place in read.items()):
            # a subtask that does not read a file may know of it from when another one did
            offsets[file] = max(offset, offsets.get(file, 0))
        return [(offsets, False)] * parallelism

    def share(self, subtask: int, parallelism: int) -> list[str]:
        """The files of a subtask, as of now."""
        files = _list_files(self._paths) if self._monitors else self._files
        return [file for file in files if crc32(file.encode()) % parallelism == subtask]


class _FileReader(SourceReader):
    def __init__(self, source: FileSource, subtask: int, parallelism: int) -> None:
        self._source = source
        self._place = (subtask, parallelism)
        self._offsets: dict[str, int] = {}
        self._ended = False

    def restore(self, position: Any) -> None:
        self._offsets, self._ended = dict(position[0]), position[1]

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        for file in self._source.share(*self._place):
            for lines in self._read_file(file, limit):
                limit -= len(lines)
                yield lines
                if limit <= 0:
                    return
        self._ended = not self._source._monitors

    def position(self) -> Any:
        return (self._offsets, self._ended)

    @property
    def finished(self) -> bool:
        return self._ended

    def _read_file(self, file: str, limit: int) -> Iterator[list[str]]:
        charset = self._source._format.charset_name
        offset = self._offsets.get(file, 0)
        with Path(file).open("rb") as stream:
            stream.seek(offset)
            while limit > 0 and (raw := self._whole_lines(stream.readlines(_READ_BYTES))[:limit]):
                offset += sum(map(len, raw))
                limit -= len(raw)
                stream.seek(offset)
                self._offsets[file] = offset
                yield [line.decode(charset).rstrip("\r\n") for line in raw]

    def _whole_lines(self, lines: list[bytes]) -> list[bytes]:
        """A last line without a line break waits for the rest of it while files may grow."""
        if lines and self._source._monitors and not lines[-1].endswith(b"\n"):
            lines.pop()
        return lines


class BucketAssigner(ABC):
    """Chooses the directory, below the sink's, for a record."""

    #: the bucket of all records, where there is only one: then nobody asks, nor for the time
    only_bucket: str | None = None

    @abstractmethod
    def bucket(self, record: Any, now_ms: int) -> str:
        """The relative path of the directory; empty for the sink's own."""

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Everything into the sink's own directory."""
        return _OneBucket()

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None
    ) -> BucketAssigner:
        """A directory per hour (or as the pattern says) of processing time."""
        return _TimeBuckets(format_str, timezone_id)


class _OneBucket(BucketAssigner):
    only_bucket = ""

    def bucket(self, record: Any, now_ms: int) -> str:
        return ""


class _TimeBuckets(BucketAssigner):
    _PATTERNS = (
        ("yyyy", "%Y"),
        ("MM", "%m"),
        ("dd", "%d"),
        ("HH", "%H"),
        ("mm", "%M"),
        ("ss", "%S"),
    )

    def __init__(self, pattern: str, timezone_id: str | None) -> None:
        for java, python in self._PATTERNS:
            pattern = pattern.replace(java, python)
        self._pattern = pattern
        self._zone = ZoneInfo(timezone_id) if timezone_id else None
        #: the second that the last bucket was worked out for, which is that of most records
        self._second = -1
        self._bucket = ""

    def bucket(self, record: Any, now_ms: int) -> str:
        second = now_ms // 1000
        if second != self._second:
            moment = datetime.datetime.fromtimestamp(second, tz=self._zone)
            self._second, self._bucket = second, moment.strftime(self._pattern)
        return self._bucket


@dataclass(frozen=True)
class RollingPolicy:
    """When a part file is closed. A checkpoint closes all of them, whatever the policy says."""

    def largest_part(self) -> int:
        """The number of bytes at which a part file is closed."""
        return sys.maxsize

    def rolls(self, size: int, age: int, idle: int) -> bool:
        """Whether a part file is closed before more is added to it.

        Args:
            size: its bytes so far.
            age: the time since it was begun, in milliseconds.
            idle: the time since something was added to it, in milliseconds.
        """
        return False

    @staticmethod
    def default_rolling_policy(
        part_size: int = 1024 * 1024 * 128,
        rollover_interval: int = 60 * 1000,
        inactivity_interval: int = 60 * 1000,
    ) -> DefaultRollingPolicy:
        """By size and age."""
        return DefaultRollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """With every checkpoint."""
        return OnCheckpointRollingPolicy()


@dataclass(frozen=True)
class DefaultRollingPolicy(RollingPolicy):
    """By size in bytes, and age and idle time in milliseconds."""

    part_size: int = 1024 * 1024 * 128
    rollover_interval: int = 60 * 1000
    inactivity_interval: int = 60 * 1000

    def largest_part(self) -> int:
        """The number of bytes at which a part file is closed."""
        return self.part_size

    def rolls(self, size: int, age: int, idle: int) -> bool:
        """Whether one of the limits is reached."""
        aged = age >= self.rollover_interval or idle >= self.inactivity_interval
        return aged or size >= self.part_size


@dataclass(frozen=True)
class OnCheckpointRollingPolicy(RollingPolicy):
    """With every checkpoint."""


@dataclass(frozen=True)
class OutputFileConfig:
    """What the names of part files begin and end with."""

    part_prefix: str = "part"
    part_suffix: str = ""

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        """Begin with Flink's defaults."""
        return OutputFileConfig.OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """What names begin with."""
        return self.part_prefix

    def get_part_suffix(self) -> str:
        """What names end with."""
        return self.part_suffix

    class OutputFileConfigBuilder:
        """Builds an ``OutputFileConfig``."""

        def __init__(self) -> None:
            """Begin with Flink's defaults."""
            self._prefix = "part"
            self._suffix = ""

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """What names begin with."""
            self._prefix = prefix
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """What names end with."""
            self._suffix = suffix
            return self

        def build(self) -> OutputFileConfig:
            """The settings."""
            return OutputFileConfig(self._prefix, self._suffix)


@dataclass(frozen=True)
class FileSink(Sink):
    """Writes each record as bytes into part files; use ``for_row_format``.

    Part files are named ``<prefix>-<token>-<subtask>-<n><suffix>``; the token is random, so jobs
    may share a directory. They appear when a checkpoint is complete, in jobs without checkpoints
    when an epoch is accepted, and what has appeared is never touched again: they may be read,
    moved and deleted at any time. Before that, records are in files below ``.holdfast-…``, which
    Spark, Hive and ``FileSource`` do not look into.
    """

    base_path: str
    encoder: Encoder
    buckets: BucketAssigner = field(default_factory=BucketAssigner.base_path_bucket_assigner)
    files: OutputFileConfig = field(default_factory=OutputFileConfig)
    rolling: RollingPolicy = field(default_factory=RollingPolicy.default_rolling_policy)

    name = "Sink: Files"

    def create_function(self) -> FileSinkFunction:
        """The function that writes the files."""
        return FileSinkFunction(self)

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> FileSink.RowFormatBuilder:
        """Encode record by record.

        Args:
            base_path: a local path, or an address: ``s3a://bucket/…``, ``hdfs://…``, ``gs://…``, ….
            encoder: makes bytes of a record.

        Raises:
            ValueError: when there is no file system for the address.
        """
        return FileSink.RowFormatBuilder(base_path, encoder)

    class RowFormatBuilder:
        """Builds a ``FileSink``."""

        def __init__(self, base_path: str, encoder: Encoder) -> None:
            """Made by ``for_row_format``; buckets by the hour unless told otherwise."""
            is_local = check_scheme(base_path) == "file"
            self._path = file_system_of(base_path)[1] if is_local else base_path
            self._encoder = encoder
            self._buckets = BucketAssigner.date_time_bucket_assigner()
            self._files = OutputFileConfig()
            self._rolling: RollingPolicy = RollingPolicy.default_rolling_policy()

        def with_bucket_assigner(
            self, bucket_assigner: BucketAssigner
        ) -> FileSink.RowFormatBuilder:
            """Which directory a record goes to."""
            self._buckets = bucket_assigner
            return self

        def with_bucket_check_interval(self, interval: int) -> FileSink.RowFormatBuilder:
            """Not needed here: files are closed with every epoch."""
            return self

        def with_output_file_config(
            self, output_file_config: OutputFileConfig
        ) -> FileSink.RowFormatBuilder:
            """How part files are named."""
            self._files = output_file_config
            return self

        def with_rolling_policy(self, rolling_policy: RollingPolicy) -> FileSink.RowFormatBuilder:
            """When part files are closed."""
            self._rolling = rolling_policy
            return self

        def build(self) -> FileSink:
            """The sink."""
            return FileSink(self._path, self._encoder, self._buckets, self._files, self._rolling)


def local_path(path: str) -> str:
    """The path of a ``file:`` address, or the path itself.

    Raises:
        ValueError: for an address of another file system.
    """
    parsed = urlparse(path)
    if parsed.scheme in ("", "file"):
        return parsed.path if parsed.scheme else path
    msg = f"only local paths and file: addresses can be used in this version; got {path!r}"
    raise ValueError(msg)


def _list_files(paths: Sequence[str]) -> Iterator[str]:
    for text in paths:
        path = Path(text)
        if path.is_dir():
            found = sorted(file for file in path.rglob("*") if file.is_file())
            yield from (str(file) for file in found if not _is_hidden(file.relative_to(path)))
        elif path.exists():
            yield str(path)
        else:
            msg = f"FileSource: there is no file or directory {text}"
            raise FileNotFoundError(msg)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)
