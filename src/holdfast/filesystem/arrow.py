"""File systems of other machines, through ``pyarrow.fs``: S3 and HDFS.

HDFS is reached by its own protocol (``hdfs://``, see ``hdfs.py``), or over HTTP (``webhdfs://``,
``swebhdfs://``), for which fsspec is enough. ``google.py`` and ``azure.py`` have the differences of
other stores.
"""

from __future__ import annotations

import contextlib
import getpass
import io
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

import pyarrow as pa
from pyarrow import fs

from holdfast.filesystem.arrow_errors import FAILURES, S3_ERRORS, StoreErrors, unless_missing
from holdfast.filesystem.base import FileLock, FileStatus, FileSystem, FileSystemError, draft_of
from holdfast.filesystem.hdfs import connect_hdfs
from holdfast.filesystem.lease import Lease
from holdfast.filesystem.options import configured, s3_arguments

_T = TypeVar("_T")
_BUFFER = 256 * 1024
#: the number of concurrent calls
_AT_A_TIME = 8
#: whether pyarrow can put a small file to S3 in one request, instead of in three
_CAN_DELAY = int(pa.__version__.split(".")[0]) >= 21
#: schemes with real directories, where a file exists as soon as it is opened; the others are object
#: stores, where a file appears complete
_WITH_RENAME = ("hdfs", "viewfs", "webhdfs", "swebhdfs", "file")
#: schemes where a rename does not replace a file
_OVER_HTTP = ("webhdfs", "swebhdfs")
_S3 = ("s3", "s3a")
#: schemes where a path begins with the authority, or the part of it before an ``@``
_IN_PATH = (*_S3, "gs", "abfs", "abfss")


class ArrowFileSystem(FileSystem):
    """One scheme and authority: a bucket, a container, a name node.

    When unpickled, it is created again from its address and its options.
    """

    is_remote = True
    _failures = FAILURES
    _errors = StoreErrors()
    #: what making a directory raises if the one above is missing
    _missing: tuple[type[Exception], ...] = _failures

    def __init__(self, root: str, options: Mapping[str, str] | None = None) -> None:
        """Connect to an address like ``s3a://bucket``; the default options are the process's own.

        Raises:
            FileSystemError: when that is not possible.
        """
        split = urlsplit(root)
        self._root = root
        self._options = options
        self._scheme = split.scheme
        self._renames = split.scheme in _WITH_RENAME
        self._over_http = split.scheme in _OVER_HTTP
        if split.scheme in _S3:
            self._errors = S3_ERRORS
        #: the path of the root
        self._top = split.netloc.split("@")[0] if split.scheme in _IN_PATH else ""
        with self.errors("connect to", self._top):
            self._client = self._connect(root, configured() if options is None else options)

    def path_of(self, path: str) -> str:
        """Return the path here for the path part of an address."""
        return (self._top + path.rstrip("/")) or "/"

    def uri(self, path: str) -> str:
        return self._root + path.removeprefix(self._top)

    def open_output(self, path: str) -> BinaryIO:
        """Open a buffered stream; in an object store the file exists once it is closed."""
        with self.errors("write", path):
            self._make_parent(path)
            return cast(BinaryIO, io.BufferedWriter(self._open(path), _BUFFER))

    def open_input(self, path: str) -> BinaryIO:
        """Open a stream that fetches only the parts that are read."""
        with self.errors("read", path):
            return cast(BinaryIO, self._arrow.open_input_file(path))

    def read(self, path: str) -> bytes:
        with self.errors("read", path), self._arrow.open_input_file(path) as file:
            return cast(bytes, file.read())

    def write(self, path: str, data: bytes, durable: bool = False) -> None:
        """Write directly, or, if readers could see a partial file, under a hidden name first."""
        if not self._renames:
            self._write(path, data)
            return
        folder, _, name = path.rpartition("/")
        left = f"{folder}/{draft_of(name)}"
        try:
            self._write(left, data)
            self._rename(left, path)
        except BaseException:
            with contextlib.suppress(FileSystemError):
                self.delete(left)
            raise

    def move(self, source: str, target: str) -> None:
        """Rename; in an object store, copy and delete."""
        with self.errors("move", source, target):
            if self._renames and self.exists(source):
                self._make_parent(target)
            self._rename(source, target)

    def _rename(self, source: str, target: str) -> None:
        with self.errors("move", source, target):
            if self._over_http:
                if not self.exists(source):
                    raise FileNotFoundError(2, "there is no such file")
                self.delete(target)
            try:
                self._move(source, target)
            except self._failures as error:
                if self.exists(source):
                    raise
                raise FileNotFoundError(2, "there is no such file") from error
            if self._over_http and self.exists(source):  # the answer only says so
                message = "the file system has not renamed it"
                raise OSError(message)

    def delete(self, path: str) -> None:
        with self.errors("delete", path):
            unless_missing(self._arrow.delete_file, path, self.exists)

    def delete_tree(self, path: str) -> None:
        """Delete everything below, and the directory itself if there is one."""
        with self.errors("delete", path):
            unless_missing(self._arrow.delete_dir, path, self.exists)

    def delete_if_empty(self, path: str) -> None:
        """Do nothing: this cannot be done in one step."""

    def list_directory(self, path: str) -> list[FileStatus]:
        with self.errors("list", path):
            found = self._arrow.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(map(status_of, found), key=lambda status: status.name)

    def status(self, path: str) -> FileStatus | None:
        with self.errors("look at", path):
            found = self._arrow.get_file_info(path)
        return None if found.type == fs.FileType.NotFound else status_of(found)

    def make_directories(self, path: str) -> None:
        """Make a directory; in an object store, an empty object that represents it.

        There, only if it is missing, because parents may not be writable. Makes no bucket.
        """
        with self.errors("make directory", path):
            if self._renames:
                self._arrow.create_dir(path or "/", recursive=True)
                return
            if path == self._top:
                self._make_top()
                return
            try:
                self._arrow.create_dir(path, recursive=False)
            except self._missing:
                self.make_directories(path.rpartition("/")[0])
                self._arrow.create_dir(path, recursive=False)

    def sync(self, path: str) -> None:
        """Do nothing: closed files are stored, replicated as configured."""

    def for_each(self, call: Callable[[_T], object], items: Iterable[_T]) -> None:
        """Call in threads; calls that were started are completed, whatever fails."""
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            for future in [pool.submit(call, item) for item in items]:
                future.result()

    def lock(self, path: str, contents: bytes) -> FileLock:
        """Take a `Lease`; see there what it guarantees."""
        with self.errors("lock", path):
            return Lease(self, path, contents)

    def _connect(self, root: str, options: Mapping[str, str]) -> Any:
        """Return pyarrow's file system."""
        return _connect(root, options)

    @property
    def _arrow(self) -> Any:
        """What is called, of pyarrow."""
        return self._client

    def _move(self, source: str, target: str) -> None:
        self._arrow.move(source, target)

    def _make_top(self) -> None:
        """Raise an error if there is no bucket of this name."""
        self._arrow.create_dir(self._top, recursive=False)

    def _look_at_top(self) -> Any:
        return self._arrow.get_file_info(self._top)

    def _cause(self, error: Exception) -> str:
        return self._errors.explain(error)

    def _write(self, path: str, data: bytes) -> None:
        with self.errors("write", path), self._open(path) as file:
            file.write(data)

    def _make_parent(self, path: str) -> None:
        """Make the parent directory; in an object store it is only a prefix of names."""
        if self._renames:
            self.make_directories(path.rpartition("/")[0])

    def _open(self, path: str) -> Any:
        # NB: left to itself, pyarrow would compress a file by the end of its name
        return self._arrow.open_output_stream(path, compression=None)

    def __reduce__(self) -> tuple[Any, ...]:
        return connected, (type(self), self._root, self._options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._root!r})"


def connected(
    kind: type[ArrowFileSystem], root: str, options: Mapping[str, str] | None = None
) -> ArrowFileSystem:
    """Return the file system of a scheme and an authority; a process has one of each."""
    given = None if options is None else tuple(sorted(options.items()))
    # NB: a connection must not be used on the other side of a fork
    return _remembered(kind, root, given, tuple(sorted(configured().items())), os.getpid())


@lru_cache(maxsize=64)
def _remembered(
    kind: type[ArrowFileSystem],
    root: str,
    options: tuple[tuple[str, str], ...] | None,
    configured: tuple[tuple[str, str], ...],
    process: int,
) -> ArrowFileSystem:
    return kind(root, None if options is None else dict(options))


def made(name: str, **arguments: Any) -> Any:
    """Make one of pyarrow's file systems, or raise an OSError if this pyarrow cannot."""
    try:
        return getattr(fs, name)(**arguments)
    except (ImportError, AttributeError, TypeError) as error:
        message = f"pyarrow {pa.__version__} cannot make a {name}: {error}"
        raise OSError(message) from error


def _connect(root: str, options: Mapping[str, str]) -> Any:
    split = urlsplit(root)
    if split.scheme in _OVER_HTTP:
        return _connect_webhdfs(split, secure=split.scheme == "swebhdfs")
    if split.scheme in _S3:
        return _connect_s3(split.netloc, s3_arguments(options, split.netloc))
    if split.scheme in ("hdfs", "viewfs"):
        return _connect_hdfs(root, options)
    return fs.LocalFileSystem()


def _connect_hdfs(root: str, options: Mapping[str, str]) -> Any:
    try:
        return connect_hdfs(root, options)
    except ImportError as error:
        scheme = urlsplit(root).scheme
        message = f"{scheme}:// needs hdfs-native: pip install 'holdfast[hdfs]'"
        raise OSError(message) from error


def _connect_webhdfs(split: SplitResult, secure: bool) -> Any:
    """Connect to HDFS over HTTP, through fsspec, as the user of Hadoop's own tools."""
    try:
        from fsspec.implementations.webhdfs import WebHDFS
    except ImportError as error:
        message = "webhdfs:// needs fsspec and requests: pip install 'holdfast[webhdfs]'"
        raise OSError(message) from error
    user = split.username or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    port = split.port or (9871 if secure else 9870)
    connected = WebHDFS(
        split.hostname or "localhost", port, user=user, use_https=secure, skip_instance_cache=True
    )
    connected.info("/")
    return fs.PyFileSystem(fs.FSSpecHandler(connected))


def _connect_s3(bucket: str, arguments: dict[str, Any]) -> Any:
    if "region" not in arguments and "endpoint_override" not in arguments:
        # NB: asks AWS where the bucket is, unless the environment says so
        query = "?allow_delayed_open=true" if _CAN_DELAY else ""
        found = fs.FileSystem.from_uri(f"s3://{bucket}{query}")[0]
        if not arguments:
            return found
        arguments["region"] = found.region
    if _CAN_DELAY:
        arguments["allow_delayed_open"] = True
    return fs.S3FileSystem(**arguments)


def status_of(found: Any) -> FileStatus:
    """Return what pyarrow has found out about a file."""
    is_directory = found.type == fs.FileType.Directory
    modified = (found.mtime_ns or 0) // 1_000_000
    return FileStatus(found.base_name, found.size or 0, modified, is_directory)
