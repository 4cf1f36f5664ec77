"""The lock of a checkpoint directory: one live job at a time."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

import msgspec

from holdfast.checkpoint import disk
from holdfast.checkpoint.errors import DirectoryInUseError

__all__ = ["DirectoryLock"]

_NAME = "lock"


class _Owner(msgspec.Struct, frozen=True):
    job: str
    pid: int
    host: str


class DirectoryLock:
    """A lock that the system lets go of with the process; the file says who holds it.

    The file stays when the lock is released: only the lock counts. A lock that is neither released
    nor referred to any more is held nevertheless.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / _NAME
        self._file: int | None = None

    def acquire(self, job_name: str = "") -> None:
        """Take the lock, or raise a DirectoryInUseError that names who has it."""
        if self._file is not None:
            return
        with disk.errors("lock checkpoint directory", self._path.parent):
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _write_owner(file, job_name)
            except BlockingIOError:
                owner = _read_owner(file)
                os.close(file)
                raise self._in_use(owner) from None
            except BaseException:
                os.close(file)
                raise
        self._file = file

    def release(self) -> None:
        """Let go of the lock, if it is held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _in_use(self, owner: _Owner | None) -> DirectoryInUseError:
        who = "another live job"
        if owner is not None:
            who += f": {owner.job!r}, process {owner.pid} on host {owner.host!r}"
        return DirectoryInUseError(
            f"checkpoint directory {str(self._path.parent)!r} is in use by {who}; stop that job, "
            "or give this one another directory or job name"
        )


def _write_owner(file: int, job_name: str) -> None:
    os.ftruncate(file, 0)
    os.write(file, msgspec.json.encode(_Owner(job_name, os.getpid(), socket.gethostname())))


def _read_owner(file: int) -> _Owner | None:
    try:
        return msgspec.json.decode(os.read(file, 1 << 16), type=_Owner)
    except (OSError, msgspec.MsgspecError):
        return None
