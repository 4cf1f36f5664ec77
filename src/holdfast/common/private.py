"""Private directories and files, which only this user can access.

All files that Holdfast creates outside of directories that the user sets are in one directory:

    $HOLDFAST_RUNTIME_DIR, or <temporary directory>/holdfast-<user id>

Other users can write to the temporary directory, so they can create that directory first, or put a
link or a pipe in its place. Nothing in it is used before it has been checked: a directory must
belong to this user and have mode 0700, a file must be a regular file, and links are not followed.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.errors import HoldfastError

__all__ = [
    "NotPrivateError",
    "check_private",
    "is_private_file",
    "make_private",
    "open_private",
    "open_regular",
    "read_private",
    "user_directory",
]

_PLACE: Final = "HOLDFAST_RUNTIME_DIR"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_WRITING: Final = stat.S_IWGRP | stat.S_IWOTH
#: no link is followed, and a pipe does not block
_CAREFUL: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotPrivateError(HoldfastError, OSError):
    """Another user could read or change a file or directory that must be private."""


def user_directory() -> Path:
    """Return this user's directory; create it if it does not exist.

    If another user has created that name in the temporary directory, it is below the home directory
    instead.

    Raises:
        NotPrivateError: if there is no place that other users cannot change.
    """
    named = os.environ.get(_PLACE)
    if named:
        return make_private(Path(named))
    path = Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"
    try:
        return make_private(path)
    except NotPrivateError:
        # NB: a directory of this user that is not private is reported, not avoided
        if os.path.lexists(path) and path.lstat().st_uid == os.getuid():
            raise
        return make_private(Path("~/.cache/holdfast").expanduser())


def make_private(path: Path) -> Path:
    """Create a directory that only this user can access; if it exists, check that it is private.

    Missing parent directories are created in the same way.

    Raises:
        NotPrivateError: if it belongs to another user, others have permissions, or it is a link.
    """
    while True:
        try:
            if not path.parent.exists():
                make_private(path.parent)
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
        except NotPrivateError:
            raise
        except OSError as error:
            raise _refused(path, f"cannot be created: {error.strerror or error}") from error
        # NB: another process of this user may remove it meanwhile
        with suppress(FileNotFoundError):
            check_private(path)
            return path


def check_private(path: Path) -> None:
    """Check that a directory belongs to this user, and that others have no permissions.

    Raises:
        NotPrivateError: if that is not so.
        OSError: if its status cannot be read.
    """
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise _refused(path, "is not a directory")
    _check_owner(path, status)
    if status.st_mode & _OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise _refused(path, f"has mode {mode:04o}, so other users can read or change it")


def is_private_file(path: Path) -> bool:
    """Return whether the path is a regular file of this user that others cannot write to."""
    try:
        status = path.lstat()
    except OSError:
        return False
    safe = stat.S_ISREG(status.st_mode) and not status.st_mode & _WRITING
    return safe and status.st_uid == os.getuid()


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file; flags may request to create it, with mode 0600.

    Raises:
        NotPrivateError: if it is a link, a pipe or a directory.
        OSError: as `os.open`.
    """
    try:
        file = os.open(path, flags | _CAREFUL, 0o600)
    except OSError as error:
        _refuse_irregular(path, error)
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _refused(path, "is not a regular file")
    return file


def _refuse_irregular(path: Path, error: OSError) -> None:
    """Raise an error if the path could not be opened because it is not a regular file."""
    try:
        # NB: a single call, since another process may remove it between two
        mode = path.lstat().st_mode
    except OSError:
        return
    if stat.S_ISLNK(mode):
        raise _refused(path, "is a link") from error
    # NB: a pipe that is opened for writing, and a socket
    if not stat.S_ISREG(mode):
        raise _refused(path, "is not a regular file") from error


def open_private(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file of this user; flags may request to create it, with mode 0600.

    Raises:
        NotPrivateError: if it is a link, a pipe or a directory, or belongs to another user.
        OSError: as `os.open`.
    """
    file = open_regular(path, flags)
    try:
        # NB: a file that was just created is ours, whatever user id a network file system reports
        if not flags & os.O_EXCL:
            _check_owner(path, os.fstat(file))
    except BaseException:
        os.close(file)
        raise
    return file


def read_private(path: Path, limit: int) -> bytes:
    """Return the contents of a file of this user, which has at most that many bytes.

    Raises:
        NotPrivateError: as `open_private`, and if the file is larger.
        OSError: as `os.open`.
    """
    with open(open_private(path), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise _refused(path, f"has more than {limit} bytes")
    return data


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.getuid():
        raise _refused(path, f"belongs to user {status.st_uid}, not to user {os.getuid()}")


def _refused(path: Path, problem: str) -> NotPrivateError:
    return NotPrivateError(
        f"'{path}' {problem}; it must be private to this user (mode 0700): remove it, or use "
        f"another directory (set the variable {_PLACE}, unless a setting names this one)"
    )
