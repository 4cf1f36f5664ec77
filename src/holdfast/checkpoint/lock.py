"""The lock of a checkpoint directory: one live job at a time."""

from __future__ import annotations

import os
import socket
from pathlib import PurePosixPath

import msgspec

from holdfast.checkpoint import disk
from holdfast.checkpoint.errors import DirectoryInUseError
from holdfast.filesystem import FileLock, FileSystem, LockedError

__all__ = ["DirectoryLock"]

_NAME = "lock"


class _Owner(msgspec.Struct, frozen=True):
    job: str
    pid: int
    host: str


class DirectoryLock:
    """A lock that ends with the process; the file says who holds it.

    On a local file system the system lets go of it, and only the lock counts, not the file. On
    others it is a lease (`holdfast.filesystem.lease`), which can be lost while the process lives.
    """

    def __init__(self, directory: PurePosixPath, files: FileSystem) -> None:
        self._directory = directory
        self._files = files
        self._lock: FileLock | None = None

    def acquire(self, job_name: str = "") -> None:
        """Take the lock, or raise a DirectoryInUseError that names who has it."""
        if self._lock is not None:
            return
        owner = msgspec.json.encode(_Owner(job_name, os.getpid(), socket.gethostname()))
        with disk.errors(self._files, "lock checkpoint directory", self._directory):
            try:
                self._lock = self._files.lock(str(self._directory / _NAME), owner)
            except LockedError as error:
                raise self._in_use(_decode(error.holder)) from None

    def check(self, ask: bool = True) -> None:
        """Raise a DirectoryInUseError if the lock was lost.

        ``ask``: look at the file, which another job may have taken.
        """
        if self._lock is not None and self._lock.is_lost:
            raise DirectoryInUseError(
                f"this job has lost its lock of the checkpoint directory '{self._where}', and "
                "another one may have taken it; this one must not go on. Start it again if no "
                "other job uses the directory"
            )
        with disk.errors(self._files, "lock checkpoint directory", self._directory):
            if ask and self._lock is not None and not self._lock.is_held():
                raise DirectoryInUseError(
                    f"another job has taken the checkpoint directory '{self._where}' from this "
                    "one, which had not renewed its lock in time; this one must not go on"
                )

    def release(self) -> None:
        """Let go of the lock, if it is held."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def _where(self) -> str:
        return self._files.uri(str(self._directory))

    def _in_use(self, owner: _Owner | None) -> DirectoryInUseError:
        who = "another live job"
        if owner is not None:
            who += f": {owner.job!r}, process {owner.pid} on host {owner.host!r}"
        return DirectoryInUseError(
            f"checkpoint directory '{self._where}' is in use by {who}; stop that job, "
            "or give this one another directory or job name"
        )


def _decode(owner: bytes) -> _Owner | None:
    try:
        return msgspec.json.decode(owner, type=_Owner)
    except msgspec.MsgspecError:
        return None
