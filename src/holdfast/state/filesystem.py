"""What state files and checkpoints need of a file system, and the local one."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

__all__ = ["LOCAL", "FileStatus", "FileSystem", "LocalFileSystem"]


@dataclass(frozen=True)
class FileStatus:
    """What is known of a file without opening it.

    Attributes:
        name: the last part of its path.
        modified: when it was last written, in milliseconds.
    """

    name: str
    size: int
    modified: int
    is_directory: bool = False


class FileSystem(Protocol):
    """Files by path, ``/`` between the parts. All methods raise the system's own ``OSError``."""

    def read(self, path: str) -> bytes:
        """Return the contents of a file."""

    def write(self, path: str, data: bytes, durable: bool = False) -> None:
        """Write a file: whole or not at all, even if the process dies; replaces one of that name.

        Its directory must be there. ``durable``: it also survives if the machine dies. If this
        raises, no file of that name is there.
        """

    def sync(self, path: str) -> None:
        """Make the contents of a file durable, or the names in a directory."""

    def move(self, source: str, target: str) -> None:
        """Give a file or a directory another name, in one step; not over a directory with files."""

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""

    def delete_tree(self, path: str) -> None:
        """Delete a directory with everything below it, if it is there."""

    def status(self, path: str) -> FileStatus | None:
        """Return what is known of a file or directory; None if it is not there."""

    def list_directory(self, path: str) -> list[FileStatus]:
        """Return what is in a directory, by name; nothing if it is not there."""

    def make_directories(self, path: str) -> None:
        """Make a directory, and the ones above it, durably, if it is not there."""

    def lock(self, path: str, contents: bytes) -> Callable[[], None]:
        """Lock a file, and write into it; return what lets go of it, as the process's end does.

        Raises:
            BlockingIOError: when somebody has locked it.
        """


class LocalFileSystem:
    """The file system of this machine, or one that is mounted there."""

    def read(self, path: str) -> bytes:
        """Return the contents of a file."""
        return Path(path).read_bytes()

    def write(self, path: str, data: bytes, durable: bool = False) -> None:
        """Write a file under a hidden name and rename it."""
        target = Path(path)
        left = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            _write(left, data, durable)
            os.replace(left, target)
            left = target
            if durable:
                self.sync(str(target.parent))
        except BaseException:
            with contextlib.suppress(OSError):
                left.unlink()
            raise

    def sync(self, path: str) -> None:
        """Make the contents of a file durable, or the names in a directory."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def move(self, source: str, target: str) -> None:
        """Rename a file or a directory."""
        os.rename(source, target)

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        Path(path).unlink(missing_ok=True)

    def delete_tree(self, path: str) -> None:
        """Delete a directory with everything below it, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def status(self, path: str) -> FileStatus | None:
        """Return what is known of a file or directory."""
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _status(os.path.basename(path), found)

    def list_directory(self, path: str) -> list[FileStatus]:
        """Return what is in a directory; what vanishes meanwhile is left out."""
        listed = []
        with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    listed.append(_status(entry.name, entry.stat()))
        return sorted(listed, key=lambda status: status.name)

    def make_directories(self, path: str) -> None:
        """Make a directory, and the ones above it, durably."""
        status = self.status(path)
        if status is None:
            parent = os.path.dirname(path)
            self.make_directories(parent or ".")
            Path(path).mkdir(exist_ok=True)
            self.sync(parent or ".")
        elif not status.is_directory:
            raise NotADirectoryError(errno.ENOTDIR, f"{path!r} is a file")

    def lock(self, path: str, contents: bytes) -> Callable[[], None]:
        """Lock a file by the system's own means, which end with the process."""
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
            os.write(file, contents)
        except BaseException:
            os.close(file)
            raise
        return lambda: os.close(file)


#: the one that is used where none is given
LOCAL: Final[FileSystem] = LocalFileSystem()


def _write(path: Path, data: bytes, durable: bool) -> None:
    with path.open("wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def _status(name: str, found: os.stat_result) -> FileStatus:
    modified = found.st_mtime_ns // 1_000_000
    return FileStatus(name, found.st_size, modified, stat.S_ISDIR(found.st_mode))
