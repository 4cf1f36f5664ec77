"""The local file system, or one that is mounted, through the system's own calls."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from holdfast.common.private import open_regular
from holdfast.filesystem.base import FileLock, FileStatus, FileSystem, LockedError, draft_of

_T = TypeVar("_T")
_BUFFER = 256 * 1024
_TRIES = 20
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT)


class LocalFileSystem(FileSystem):
    """Paths of this machine."""

    def uri(self, path: str) -> str:
        """Return the path itself."""
        return path

    def open_output(self, path: str) -> BinaryIO:
        with self.errors("write", path):
            return _into(path, lambda: open(path, "wb", buffering=_BUFFER))

    def open_input(self, path: str) -> BinaryIO:
        with self.errors("read", path):
            return _open_regular(path)

    def read(self, path: str) -> bytes:
        with self.errors("read", path), _open_regular(path) as file:
            return file.read()

    def write(self, path: str, data: bytes, durable: bool = False) -> None:
        """Write under a hidden name, and rename."""
        target = Path(path)
        left = target.with_name(draft_of(target.name))
        with self.errors("write", path):
            try:
                _write(left, data, durable)
                os.replace(left, target)
                left = target
                if durable:
                    _sync(target.parent)
            except BaseException:
                with contextlib.suppress(OSError):
                    left.unlink()
                raise

    def move(self, source: str, target: str) -> None:
        """Rename, in one step."""
        with self.errors("move", source, target):
            _into(target, lambda: os.replace(source, target), lambda: os.path.lexists(source))

    def delete(self, path: str) -> None:
        with self.errors("delete", path):
            Path(path).unlink(missing_ok=True)

    def delete_tree(self, path: str) -> None:
        """Delete from the leaves up; ignore files that disappear meanwhile."""
        with self.errors("delete", path):
            if os.path.lexists(path) and not os.path.isdir(path):
                raise NotADirectoryError(errno.ENOTDIR, f"{path!r} is a file")
            _delete_tree(Path(path))

    def delete_if_empty(self, path: str) -> None:
        """Let the system decide whether the directory is empty."""
        with self.errors("delete", path):
            try:
                os.rmdir(path)
            except OSError as error:
                if error.errno not in _NOT_EMPTY:
                    raise

    def list_directory(self, path: str) -> list[FileStatus]:
        found = []
        with self.errors("list", path):
            for name in _names(path):
                status = self.status(os.path.join(path, name))
                if status is not None:  # not deleted meanwhile
                    found.append(status)
        return sorted(found, key=lambda status: status.name)

    def status(self, path: str) -> FileStatus | None:
        with self.errors("look at", path):
            try:
                found = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            return _status(os.path.basename(path), found)

    def make_directories(self, path: str) -> None:
        with self.errors("make directory", path):
            _make_directories(Path(path))

    def make_private(self, path: str) -> None:
        """Make a directory with mode 0700; an existing one must not belong to a third user.

        A user who creates the directory before the job, in a place that others can write to, could
        put anything into it. A directory of the owner of that place is accepted.
        """
        with self.errors("make directory", path):
            _make_directories(Path(path), 0o700)
            owner = os.lstat(path).st_uid
            if owner not in (os.getuid(), 0, Path(path).parent.stat().st_uid):
                told = f"it belongs to user {owner}, not to user {os.getuid()}; use another one"
                raise PermissionError(errno.EPERM, told)

    def sync(self, path: str) -> None:
        with self.errors("sync", path):
            _sync(Path(path))

    def lock(self, path: str, contents: bytes) -> FileLock:
        """Lock with the system's file locks, which end with the process; the file stays."""
        with self.errors("lock", path):
            file = open_regular(Path(path), os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(file, 0)
                os.write(file, contents)
            except BlockingIOError as error:
                os.close(file)
                raise LockedError(f"'{path}' is locked", Path(path).read_bytes()) from error
            except BaseException:
                os.close(file)
                raise
        return _FileLock(file)

    def __repr__(self) -> str:
        return "LocalFileSystem()"


#: the one that is used where none is given
LOCAL: Final[FileSystem] = LocalFileSystem()


class _FileLock:
    """A locked file; without `release` the lock is held until the process ends."""

    def __init__(self, file: int) -> None:
        self._file: int | None = file

    @property
    def is_lost(self) -> bool:
        return False

    def is_held(self) -> bool:
        return self._file is not None

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _into(path: str, call: Callable[[], _T], has_source: Callable[[], bool] = lambda: True) -> _T:
    """Make a file, and the directories above it if they are missing or were just deleted."""
    for _ in range(_TRIES):
        try:
            return call()
        except FileNotFoundError:
            if not has_source():
                raise
            with contextlib.suppress(FileNotFoundError):
                _make_directories(Path(path).parent)
    return call()


def _open_regular(path: str) -> BinaryIO:
    """Open a regular file for reading; a pipe would block, and a device may have no end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, "it is not a regular file")
    return os.fdopen(descriptor, "rb")


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


def _make_directories(path: Path, mode: int = 0o777) -> None:
    if not path.is_dir():
        if _is_file(path):
            raise NotADirectoryError(errno.ENOTDIR, f"{str(path)!r} is a file")
        _make_directories(path.parent)
        with contextlib.suppress(FileExistsError):  # another process was faster
            path.mkdir(mode)
        _sync(path.parent)


def _is_file(path: Path) -> bool:
    # NB: one call, because others may create and delete it meanwhile
    try:
        return not stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


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
