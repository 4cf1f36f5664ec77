"""Files by path, wherever they are: local or mounted, S3, Google Cloud, Azure, HDFS.

``file_system_of("s3a://bucket/output")`` returns the file system of an address and the path in
it. Sinks, checkpoints and state files all go through the few methods of ``FileSystem``, so what
works on one scheme works on the others. Hadoop's own settings (``fs.s3a.endpoint``, …) say how
to connect; ``configure`` sets them for a process.
"""

from holdfast.filesystem.base import (
    FileLock,
    FileStatus,
    FileSystem,
    FileSystemError,
    LockedError,
    MissingFileError,
    cause_of,
    join,
)
from holdfast.filesystem.local import LocalFileSystem
from holdfast.filesystem.options import configure, configured, hadoop_options
from holdfast.filesystem.schemes import check_scheme, file_system_of, mount, unmount

__all__ = [
    "FileLock",
    "FileStatus",
    "FileSystem",
    "FileSystemError",
    "LocalFileSystem",
    "LockedError",
    "MissingFileError",
    "cause_of",
    "check_scheme",
    "configure",
    "configured",
    "file_system_of",
    "hadoop_options",
    "join",
    "mount",
    "unmount",
]
