"""Files as sources and sinks, under PyFlink's names.

A ``FileSource`` reads text files line by line (`holdfast.datastream.connectors._file_source`). A
``FileSink`` writes part files into a directory, on any file system. What it has written is hidden
until the checkpoint that contains it is complete, and then appears, exactly once.
"""

from __future__ import annotations

import datetime
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from holdfast.common import Encoder
from holdfast.datastream.connectors._file_sink import FileSinkFunction
from holdfast.datastream.connectors._file_source import (
    FileSource,
    FileSourceBuilder,
    StreamFormat,
)
from holdfast.datastream.connectors.base import Sink
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
