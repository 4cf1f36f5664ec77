"""Directories that belong to the processes that use them, and are removed after those have ended.

    <parent>/holdfast-<kind>-<random>/lock    locked by every process that uses the directory

The system releases the lock when a process ends, also when it is killed. So a directory whose lock
no process holds is left over. A process that creates or removes a directory also removes the
leftovers next to it (`sweep`). Nothing else in the parent directory is changed.

Invariant: a directory is removed only with an exclusive lock on the lock file that is in it now.
Consequence: a process owns a new directory once it holds its lock and the lock file is still there.
Before that a sweep may remove it; then another directory is created.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.common.private import check_private, make_private, open_private

__all__ = ["OwnDirectory", "SharedDirectory", "named", "remove_left_over", "sweep"]

_LOCK: Final = "lock"
_RANDOM_BYTES: Final = 10
_NAME: Final = re.compile(rf"holdfast-[a-z]+-[0-9a-f]{{{2 * _RANDOM_BYTES}}}")


def named(kind: str, number: bytes) -> str:
    """Return the name of a directory; ``number`` should be random, or hard to guess."""
    return f"holdfast-{kind}-{number[:_RANDOM_BYTES].hex()}"


class OwnDirectory:
    """A new directory of this process, mode 0700, removed at the latest when the process ends.

    As a context manager it returns its path, and is removed at the end of the block.
    """

    def __init__(self, parent: Path, kind: str) -> None:
        """Create it in a directory that exists.

        Raises:
            OSError: when it cannot be made.
        """
        sweep(parent)
        self.path, lock = _make(parent, kind)
        self._removal = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def remove(self) -> None:
        """Delete it with its contents, and leftovers next to it."""
        self._removal()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


class SharedDirectory:
    """A directory that several processes use under one name; the first one creates it."""

    def __init__(self, path: Path) -> None:
        """Use or create it; the name must be a result of `named`.

        Raises:
            NotPrivateError: if it belongs to another user, or others have permissions.
            OSError: when it cannot be made.
        """
        if not path.exists():
            sweep(path.parent)
        lock = None
        while lock is None:
            lock = _hold(make_private(path), os.O_CREAT)
        self.path = path
        self._release = weakref.finalize(self, os.close, lock)

    def release(self) -> None:
        """Release the lock of this process; nothing is deleted."""
        self._release()


def sweep(parent: Path) -> None:
    """Delete this user's directories in ``parent`` that no process uses any more."""
    with suppress(OSError):
        for path in list(parent.iterdir()):
            remove_left_over(path)


def remove_left_over(path: Path) -> None:
    """Delete a directory, unless a process uses it or it was not created by this module."""
    if not _NAME.fullmatch(path.name):
        return
    with suppress(OSError):
        check_private(path)
        # NB: a directory without a lock file may be left over, or new: the first to lock it owns it
        lock = open_private(path / _LOCK, os.O_RDWR | os.O_CREAT)
        with open(lock, "rb"):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(lock, path):
                return
            doomed = _delete(path)
        shutil.rmtree(doomed, ignore_errors=True)


def _make(parent: Path, kind: str) -> tuple[Path, int]:
    while True:
        path = parent / named(kind, secrets.token_bytes(_RANDOM_BYTES))
        path.mkdir(mode=0o700)
        lock = _hold(path, os.O_CREAT | os.O_EXCL)
        if lock is not None:
            return path, lock


def _hold(path: Path, flags: int) -> int | None:
    """Lock a directory against its removal; None if it is being removed."""
    try:
        lock = open_private(path / _LOCK, os.O_RDWR | flags)
    except (FileNotFoundError, FileExistsError):
        return None
    try:
        # NB: waits for a sweep that has just started
        fcntl.flock(lock, fcntl.LOCK_SH)
        if _is_at(lock, path):
            return lock
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def _is_at(lock: int, path: Path) -> bool:
    """Return whether an open lock file is the one in the directory."""
    try:
        return os.path.samestat(os.fstat(lock), (path / _LOCK).lstat())
    except FileNotFoundError:
        return False


def _remove(path: Path, lock: int, process: int) -> None:
    # NB: not in a child process that has inherited the object
    if os.getpid() == process:
        doomed = _delete(path)
        os.close(lock)
        shutil.rmtree(doomed, ignore_errors=True)
        sweep(path.parent)


def _delete(path: Path) -> Path:
    """Delete a locked directory; return its new path, where some files may be left.

    On NFS a file that is deleted while it is open, such as the lock, stays until it is closed.
    """
    doomed = path.with_name(named("deleted", secrets.token_bytes(_RANDOM_BYTES)))
    # NB: renamed in one step, so that no process starts to use a directory that is being deleted
    with suppress(OSError):
        path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
    return doomed
