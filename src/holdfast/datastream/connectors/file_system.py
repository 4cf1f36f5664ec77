"""Files as sources and sinks, under PyFlink's names.

A ``FileSource`` reads text files line by line (`holdfast.datastream.connectors.files.source`), or
files of a bulk format such as Parquet. A ``FileSink`` writes part files into a directory, on any
file system. Its output is hidden until the checkpoint that contains it is complete, and then
appears, exactly once.
"""

from __future__ import annotations

import datetime
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Self
from urllib.parse import quote
from zoneinfo import ZoneInfo

from holdfast.common import Encoder, Row
from holdfast.datastream.columns.fitting import fits
from holdfast.datastream.columns.splitting import can_split_by
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.connectors.base import Sink
from holdfast.datastream.connectors.files.bulk_sink import (
    BatchFileSinkFunction,
    BulkFileSinkFunction,
)
from holdfast.datastream.connectors.files.compacting import (
    Compaction,
    FileCompactor,
    FileCompactStrategy,
)
from holdfast.datastream.connectors.files.sink import FileSinkFunction
from holdfast.datastream.connectors.files.source import (
    FileSource,
    FileSourceBuilder,
    StreamFormat,
)
from holdfast.datastream.formats.bulk import BulkFormat, BulkReader, BulkWriter, BulkWriterFactory
from holdfast.filesystem import check_scheme, file_system_of

__all__ = [
    "BucketAssigner",
    "BulkFormat",
    "BulkReader",
    "BulkWriter",
    "BulkWriterFactory",
    "DefaultRollingPolicy",
    "FileCompactStrategy",
    "FileCompactor",
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

    #: the bucket of all records if there is only one; then ``bucket`` is not called
    only_bucket: str | None = None
    #: the columns that decide on the bucket; None if ``bucket`` needs the whole record. If it is
    #: set, ``bucket`` may be called with a dict of these fields, once for all rows that have them.
    bucket_columns: Sequence[str] | None = None

    @abstractmethod
    def bucket(self, record: Any, now_ms: int) -> str:
        """Return the relative path of the directory; empty for the sink's own."""

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Return an assigner that puts all records into the sink's own directory."""
        return _OneBucket()

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None
    ) -> BucketAssigner:
        """Return an assigner with a directory per hour (or by the pattern) of processing time."""
        return _TimeBuckets(format_str, timezone_id)

    @staticmethod
    def field_bucket_assigner(*fields: str) -> BucketAssigner:
        """Return an assigner with a directory per value of each field, as in Hive: ``country=CH``.

        Spark, DuckDB, pyarrow and others read the directories as columns. PyFlink does not have
        this assigner.

        Args:
            fields: names of fields of the records; each is a level of directories.
        """
        return _FieldBuckets(fields)


class _OneBucket(BucketAssigner):
    only_bucket = ""
    bucket_columns = ()

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
    bucket_columns = ()

    def __init__(self, pattern: str, timezone_id: str | None) -> None:
        for java, python in self._PATTERNS:
            pattern = pattern.replace(java, python)
        self._pattern = pattern
        self._zone = ZoneInfo(timezone_id) if timezone_id else None
        #: the second of the last computed bucket, which most records share
        self._second = -1
        self._bucket = ""

    def bucket(self, record: Any, now_ms: int) -> str:
        second = now_ms // 1000
        if second != self._second:
            moment = datetime.datetime.fromtimestamp(second, tz=self._zone)
            self._second, self._bucket = second, moment.strftime(self._pattern)
        return self._bucket


class _FieldBuckets(BucketAssigner):
    """Directories as in Hive: what is not plain in a value is escaped."""

    _NULL = "__HIVE_DEFAULT_PARTITION__"

    def __init__(self, fields: Sequence[str]) -> None:
        if not fields:
            message = "field_bucket_assigner needs the name of at least one field"
            raise ValueError(message)
        self._fields = self.bucket_columns = tuple(fields)

    def bucket(self, record: Any, now_ms: int) -> str:
        by_name = isinstance(record, Row | Mapping)
        values = [record[name] if by_name else getattr(record, name) for name in self._fields]
        return "/".join(map(self._directory, self._fields, values))

    def _directory(self, name: str, value: Any) -> str:
        text = str(value.value if isinstance(value, Enum) else value)
        return f"{name}={self._NULL if value is None or not text else quote(text, safe=' ')}"


@dataclass(frozen=True)
class RollingPolicy:
    """When a part file is closed. A checkpoint closes all of them, whatever the policy."""

    def largest_part(self) -> int:
        """Return the number of bytes at which a part file is closed."""
        return sys.maxsize

    def rolls(self, size: int, age: int, idle: int) -> bool:
        """Return whether to close a part file before more is added to it.

        Args:
            size: its bytes so far.
            age: the time since it was started, in milliseconds.
            idle: the time since something was added to it, in milliseconds.
        """
        return False

    @staticmethod
    def default_rolling_policy(
        part_size: int = 1024 * 1024 * 128,
        rollover_interval: int = 60 * 1000,
        inactivity_interval: int = 60 * 1000,
    ) -> DefaultRollingPolicy:
        """Return a policy by size and age."""
        return DefaultRollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """With every checkpoint."""
        return OnCheckpointRollingPolicy()


@dataclass(frozen=True)
class DefaultRollingPolicy(RollingPolicy):
    """A policy by size in bytes, and age and idle time in milliseconds."""

    part_size: int = 1024 * 1024 * 128
    rollover_interval: int = 60 * 1000
    inactivity_interval: int = 60 * 1000

    def largest_part(self) -> int:
        """Return the number of bytes at which a part file is closed."""
        return self.part_size

    def rolls(self, size: int, age: int, idle: int) -> bool:
        """Return whether one of the limits is reached."""
        aged = age >= self.rollover_interval or idle >= self.inactivity_interval
        return aged or size >= self.part_size


@dataclass(frozen=True)
class OnCheckpointRollingPolicy(RollingPolicy):
    """With every checkpoint."""


@dataclass(frozen=True)
class OutputFileConfig:
    """Prefix and suffix of the names of part files."""

    part_prefix: str = "part"
    part_suffix: str = ""

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        """Start with Flink's defaults."""
        return OutputFileConfig.OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """Return the prefix of file names."""
        return self.part_prefix

    def get_part_suffix(self) -> str:
        """Return the suffix of file names."""
        return self.part_suffix

    class OutputFileConfigBuilder:
        """Builds an ``OutputFileConfig``."""

        def __init__(self) -> None:
            """Start with Flink's defaults."""
            self._prefix = "part"
            self._suffix = ""

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Set the prefix of file names."""
            self._prefix = prefix
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Set the suffix of file names."""
            self._suffix = suffix
            return self

        def build(self) -> OutputFileConfig:
            """Return the settings."""
            return OutputFileConfig(self._prefix, self._suffix)


class _FormatBuilder:
    """What the builders of both kinds of sinks have in common."""

    def __init__(self, base_path: str) -> None:
        is_local = check_scheme(base_path) == "file"
        self._path = file_system_of(base_path)[1] if is_local else base_path
        self._buckets = BucketAssigner.date_time_bucket_assigner()
        self._files = OutputFileConfig()
        self._rolling: RollingPolicy = RollingPolicy.on_checkpoint_rolling_policy()
        self._compaction: Compaction | None = None

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
        """Set what chooses the directory of a record."""
        self._buckets = bucket_assigner
        return self

    def with_bucket_check_interval(self, interval: int) -> Self:
        """Do nothing: files are closed with every epoch."""
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
        """Set how part files are named."""
        self._files = output_file_config
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
        """Set when part files are closed."""
        self._rolling = rolling_policy
        return self

    def enable_compact(self, strategy: FileCompactStrategy, compactor: FileCompactor) -> Self:
        """Write the output of several checkpoints as one file; needs checkpoints.

        Records appear when their file is compacted, and their checkpoint is complete. At the end
        of the job, all of them do. Each subtask compacts its own files.

        Args:
            strategy: when the files of a bucket are compacted.
            compactor: joins files; ``concat_file_compactor`` for row formats, and
                ``record_wise_file_compactor`` for bulk formats.
        """
        self._compaction = Compaction(strategy, compactor)
        return self

    def disable_compact(self) -> Self:
        """Write a file with every checkpoint; the default."""
        self._compaction = None
        return self

    def _check_compactor(self, is_bulk: bool, remedy: str) -> None:
        compaction = self._compaction
        if compaction is not None and compaction.compactor.is_record_wise != is_bulk:
            kind = "bulk" if is_bulk else "row"
            message = f"enable_compact: it cannot join files of a {kind} format: {remedy}"
            raise ValueError(message)


@dataclass(frozen=True)
class FileSink(Sink):
    """Writes records into part files; use ``for_row_format`` or ``for_bulk_format``.

    Part files are named ``<prefix>-<token>-<subtask>-<n><suffix>``; the token is random, so jobs
    may share a directory. They appear when a checkpoint is complete, in jobs without checkpoints
    when an epoch is accepted, and are never changed after that: they may be read,
    moved and deleted at any time. Before that, records are in files below ``.holdfast-…``, which
    Spark, Hive and ``FileSource`` ignore.
    """

    base_path: str
    encoder: Encoder | None
    buckets: BucketAssigner = field(default_factory=BucketAssigner.base_path_bucket_assigner)
    files: OutputFileConfig = field(default_factory=OutputFileConfig)
    rolling: RollingPolicy = field(default_factory=RollingPolicy.default_rolling_policy)
    bulk: BulkWriterFactory | None = None
    compaction: Compaction | None = None
    batch_type: BatchTypeInfo | None = None

    name = "Sink: Files"

    def for_batches(self, batch_type: BatchTypeInfo) -> FileSink | None:
        """Return the sink for batches, if the format has columns and a column has the bucket."""
        schema = None if self.bulk is None else self.bulk.batch_schema
        names = self.buckets.bucket_columns
        if schema is None or names is None or not fits(batch_type, schema):
            return None
        by_columns = can_split_by(batch_type.schema, names)
        return replace(self, batch_type=batch_type) if by_columns else None

    def create_function(self) -> FileSinkFunction:
        """Return the function that writes the files."""
        if self.batch_type is not None:
            return BatchFileSinkFunction(self)
        return FileSinkFunction(self) if self.bulk is None else BulkFileSinkFunction(self)

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> FileSink.RowFormatBuilder:
        """Encode record by record.

        Args:
            base_path: a local path, or an address: ``s3a://bucket/…``, ``hdfs://…``, ``gs://…``, ….
            encoder: converts a record to bytes.

        Raises:
            ValueError: when there is no file system for the address.
        """
        return FileSink.RowFormatBuilder(base_path, encoder)

    @staticmethod
    def for_bulk_format(
        base_path: str, writer_factory: BulkWriterFactory
    ) -> FileSink.BulkFormatBuilder:
        """Collect records, and write them in a format such as Parquet.

        A part file has the records of one subtask and one bucket between two checkpoints, unless
        the rolling policy splits them.

        Args:
            base_path: a local path, or an address: ``s3a://bucket/…``, ``hdfs://…``, ``gs://…``, ….
            writer_factory: ``ParquetBulkWriters.for_row_type(…)``, or one of your own.

        Raises:
            ValueError: when there is no file system for the address.
        """
        return FileSink.BulkFormatBuilder(base_path, writer_factory)

    class RowFormatBuilder(_FormatBuilder):
        """Builds a ``FileSink`` that encodes record by record."""

        def __init__(self, base_path: str, encoder: Encoder) -> None:
            """Use ``for_row_format``; the default is a bucket per hour."""
            super().__init__(base_path)
            self._encoder = encoder
            self._rolling = RollingPolicy.default_rolling_policy()

        def build(self) -> FileSink:
            """Return the sink."""
            self._check_compactor(
                is_bulk=False, remedy="use concat_file_compactor, which joins files by their bytes"
            )
            return FileSink(
                *(self._path, self._encoder, self._buckets, self._files, self._rolling),
                compaction=self._compaction,
            )

    class BulkFormatBuilder(_FormatBuilder):
        """Builds a ``FileSink`` that collects records."""

        def __init__(self, base_path: str, writer_factory: BulkWriterFactory) -> None:
            """Use ``for_bulk_format``; the default is a bucket per hour, as in Flink."""
            super().__init__(base_path)
            self._bulk = writer_factory

        def build(self) -> FileSink:
            """Return the sink."""
            suffix = self._files.part_suffix or self._bulk.suffix
            files = OutputFileConfig(self._files.part_prefix, suffix)
            self._check_compactor(
                is_bulk=True, remedy="use record_wise_file_compactor, which writes records again"
            )
            return FileSink(
                *(self._path, None, self._buckets, files, self._rolling, self._bulk),
                compaction=self._compaction,
            )
