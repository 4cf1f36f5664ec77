"""HDFS by its own protocol (``hdfs://``, ``viewfs://``), without a JVM or Hadoop's ``libhdfs``.

The package ``hdfs-native`` speaks to name nodes and data nodes. Here it becomes a file system of
pyarrow, with HDFS's own rename, which replaces a file in one step.

hdfs-native waits forever for a name node that is connected but does not answer. So each call that
may ask the name node runs in a thread of its own, and is given up after a while.
"""

from __future__ import annotations

import getpass
import io
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

#: Hadoop's own default is 15, which takes minutes; a job repeats what has failed
_ATTEMPTS: Final = {"dfs.client.failover.max.attempts": "4"}
#: how long a call may take, in seconds: as long as Hadoop's own client waits for an answer
_LONGEST: Final = 120.0
#: bytes that are written by one call
_PIECE: Final = 1 << 20
_USER: Final = "HADOOP_USER_NAME"

_T = TypeVar("_T")


def connect_hdfs(root: str, options: Mapping[str, str], makes_parents: bool = False) -> Any:
    """Return pyarrow's view of a name node, or of a name service.

    Args:
        root: an address without a path, such as ``hdfs://node:8020`` or ``hdfs://cluster``.
        options: Hadoop's settings; they override those in ``HADOOP_CONF_DIR``.
        makes_parents: whether the directory of a new file is made if needed. Not for state: its
            writer must notice that the directory was deleted.

    Raises:
        ImportError: when ``hdfs-native`` is not installed.
        OSError, RuntimeError: when HDFS cannot be reached.
    """
    from hdfs_native import Client

    split = urlsplit(root)
    if split.username:
        message = f"{split.scheme}:// takes no user in the address; set {_USER}={split.username}"
        raise OSError(message)
    if not os.environ.get(_USER):
        # NB: hdfs-native asks the system who runs the process; in a container of YARN that is not
        # the user who has submitted the job. The system may have no name for that user.
        with suppress(KeyError, OSError):
            os.environ[_USER] = getpass.getuser()
    client = Client(root, {**(_ATTEMPTS if split.port else {}), **options})
    _in_time(client.get_file_info, "/")
    return fs.PyFileSystem(_HdfsHandler(client, split.scheme, makes_parents))


def _in_time(call: Callable[..., _T], *arguments: Any) -> _T:
    """Return what a call returns, or raise a TimeoutError if it takes too long."""
    result: Future[_T] = Future()

    def run() -> None:
        try:
            result.set_result(call(*arguments))
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="holdfast-hdfs", daemon=True).start()
    try:
        return result.result(_LONGEST)
    except TimeoutError:
        if result.done():
            raise
        message = f"HDFS has not answered for {_LONGEST:g} s"
        raise TimeoutError(message) from None


class _HdfsOutput(io.RawIOBase):
    """A file that is being written."""

    def __init__(self, writer: Any) -> None:
        #: None: a call took too long, and may still use it
        self._writer = writer

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        # NB: in pieces, since a large file takes longer than any single call may
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _PIECE):
            self._call("write", bytes(view[start : start + _PIECE]))
        return len(view)

    def close(self) -> None:
        if not self.closed and self._writer is not None:
            self._call("close")
        super().close()

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            _in_time(getattr(self._writer, name), *arguments)
        except TimeoutError:
            self._writer = None
            raise


class _HdfsHandler(fs.FileSystemHandler):  # type: ignore[misc]
    """What pyarrow calls."""

    def __init__(self, client: Any, scheme: str, makes_parents: bool) -> None:
        self._client = client
        self._scheme = scheme
        self._makes_parents = makes_parents

    def get_type_name(self) -> str:
        return self._scheme

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Iterable[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        try:
            found = _in_time(self._listed, selector.base_dir, selector.recursive)
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        return [_info(status.path, status) for status in found]

    def create_dir(self, path: str, recursive: bool) -> None:
        _in_time(partial(self._client.mkdirs, create_parent=recursive), path)

    def delete_dir(self, path: str) -> None:
        self._delete(path, recursive=True)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        selector = fs.FileSelector(path, allow_not_found=missing_dir_ok)
        for found in self.get_file_info_selector(selector):
            self._delete(found.path, recursive=True)

    def delete_root_dir_contents(self) -> None:
        self.delete_dir_contents("/")

    def delete_file(self, path: str) -> None:
        self._delete(path, recursive=False)

    def move(self, source: str, target: str) -> None:
        """Rename; replaces the target in one step."""
        _in_time(partial(self._client.rename, overwrite=True), source, target)

    def copy_file(self, source: str, target: str) -> None:
        with (
            _in_time(self._client.read, source) as read,
            self.open_output_stream(target, None) as out,
        ):
            for piece in read:
                out.write(piece)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(_in_time(self._client.read, path), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        from hdfs_native import WriteOptions

        options = WriteOptions(overwrite=True, create_parent=self._makes_parents)
        return pa.PythonFile(_HdfsOutput(_in_time(self._client.create, path, options)), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        return pa.PythonFile(_HdfsOutput(_in_time(self._client.append, path)), mode="w")

    def _listed(self, path: str, recursive: bool) -> list[Any]:
        return list(self._client.list_status(path, recursive))

    def _delete(self, path: str, recursive: bool) -> None:
        if not _in_time(self._client.delete, path, recursive):
            raise FileNotFoundError(2, "there is no such file")

    def _info(self, path: str) -> fs.FileInfo:
        try:
            return _info(path, _in_time(self._client.get_file_info, path))
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)


def _info(path: str, status: Any) -> fs.FileInfo:
    modified = status.modification_time * 1_000_000
    if status.isdir:
        return fs.FileInfo(path, fs.FileType.Directory, mtime_ns=modified)
    return fs.FileInfo(path, fs.FileType.File, size=status.length, mtime_ns=modified)
