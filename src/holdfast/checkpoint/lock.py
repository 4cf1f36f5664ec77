"""The lock of a checkpoint directory: one live job at a time."""

from __future__ import annotations

import os
import socket
from pathlib import PurePosixPath

import msgspec

from holdfast.checkpoint import disk
from holdfast.checkpoint.errors import DirectoryInUseError
from holdfast.filesystem import FileLock, FileSystem, LockedError

_NAME = "lock"


class _Owner(msgspec.Struct, frozen=True):
    job: str
    pid: int
    host: str


class DirectoryLock:
    """A lock that ends with the process; its file names the holder.

    On a local file system the operating system releases it, and only the lock counts, not the file.
    Elsewhere it is a lease (`holdfast.filesystem.lease`), which a live process can lose.
    """

    def __init__(self, directory: PurePosixPath, files: FileSystem) -> None:
        self._directory = directory
        self._files = files
        self._lock: FileLock | None = None

    def acquire(self, job_name: str = "") -> None:
        """Acquire the lock, or raise a DirectoryInUseError that names the holder."""
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

        ``ask``: also read the file, which another job may have taken over.
        """
        if self._lock is not None and self._lock.is_lost:
            raise DirectoryInUseError(
                f"this job has lost its lock of the checkpoint directory '{self._where}', and "
                "another one may have taken it; this one must not continue. Start it again if no "
                "other job uses the directory"
            )
        if self._lock is None or not ask:
            return
        with disk.errors(self._files, "lock checkpoint directory", self._directory):
            if not self._lock.is_held():
                raise DirectoryInUseError(
                    f"another job has taken the checkpoint directory '{self._where}' from this "
                    "one, which had not renewed its lock in time; this one must not continue"
                )

    def release(self) -> None:
        """Release the lock, if it is held."""
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
