"""The local file system, or one that is mounted, through the system's own calls."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, TypeVar

from holdfast.filesystem.base import FileStatus, FileSystem

__all__ = ["LocalFileSystem"]

_T = TypeVar("_T")
_BUFFER = 256 * 1024
_TRIES = 20
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT)


class LocalFileSystem(FileSystem):
    """Paths of this machine."""

    def uri(self, path: str) -> str:
        """The path itself."""
        return path

    def open_output(self, path: str) -> BinaryIO:
        """A buffered stream."""
        with self.errors("write", path):
            return _into(path, lambda: open(path, "wb", buffering=_BUFFER))

    def open_input(self, path: str) -> BinaryIO:
        """A buffered stream."""
        with self.errors("read", path):
            return open(path, "rb")

    def read(self, path: str) -> bytes:
        """The contents of a file."""
        with self.errors("read", path):
            return Path(path).read_bytes()

    def write(self, path: str, data: bytes, durable: bool = False) -> None:
        """Write under a hidden name, and rename."""
        target = Path(path)
        left = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        with self.errors("write", path):
            try:
                _into(path, lambda: _write(left, data, durable))
                os.replace(left, target)
            except BaseException:
                with contextlib.suppress(OSError):
                    left.unlink()
                raise
            if durable:
                _sync(target.parent)

    def move(self, source: str, target: str) -> None:
        """Rename, in one step."""
        with self.errors("move", source, target):
            _into(target, lambda: os.replace(source, target))

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        with self.errors("delete", path):
            Path(path).unlink(missing_ok=True)

    def delete_tree(self, path: str) -> None:
        """Delete from the leaves up; what vanishes meanwhile is fine."""
        with self.errors("delete", path):
            _delete_tree(Path(path))

    def delete_if_empty(self, path: str) -> None:
        """Leave it to the system to say whether the directory is empty."""
        with self.errors("delete", path):
            try:
                os.rmdir(path)
            except OSError as error:
                if error.errno not in _NOT_EMPTY:
                    raise

    def list_directory(self, path: str) -> list[FileStatus]:
        """What is in a directory, by name."""
        found = []
        with self.errors("list", path):
            for name in _names(path):
                status = self.status(os.path.join(path, name))
                if status is not None:  # not deleted meanwhile
                    found.append(status)
        return sorted(found, key=lambda status: status.name)

    def status(self, path: str) -> FileStatus | None:
        """What is known of a file or directory."""
        with self.errors("look at", path):
            try:
                found = os.stat(path)
            except FileNotFoundError:
                return None
            return _status(os.path.basename(path), found)

    def make_directories(self, path: str) -> None:
        """Make a directory, and those above it, durably."""
        with self.errors("make directory", path):
            _make_directories(Path(path))

    def sync(self, paths: Iterable[str]) -> None:
        """Make files durable, and then their names."""
        folders: dict[Path, None] = {}
        for path in paths:
            with self.errors("sync", path):
                _sync(Path(path))
            folders[Path(path).parent] = None
        for folder in folders:
            with self.errors("sync", str(folder)):
                _sync(folder)

    def __repr__(self) -> str:
        return "LocalFileSystem()"


def _into(path: str, call: Callable[[], _T]) -> _T:
    """Make a file; the directories above it where they are missing, or were just deleted."""
    for turn in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):
            if turn:
                _make_directories(Path(path).parent)
            return call()
    return call()


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


def _status(name: str, found: os.stat_result) -> FileStatus:
    is_directory = stat.S_ISDIR(found.st_mode)
    return FileStatus(name, found.st_size, found.st_mtime_ns // 1_000_000, is_directory)


def _write(path: Path, data: bytes, durable: bool) -> None:
    with path.open("wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def _make_directories(path: Path) -> None:
    if not path.is_dir():
        _make_directories(path.parent)
        try:
            path.mkdir()
        except FileExistsError:  # another process was faster, and may have deleted it again
            if path.exists() and not path.is_dir():
                raise
        _sync(path.parent)


def _delete_tree(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        with contextlib.suppress(FileNotFoundError):
            for child in path.iterdir():
                _delete_tree(child)
            path.rmdir()
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
