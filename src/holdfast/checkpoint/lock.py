"""The lock of a checkpoint directory: one live job at a time."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.checkpoint import disk
from holdfast.checkpoint.errors import DirectoryInUseError
from holdfast.state.filesystem import LOCAL, FileSystem

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

    def __init__(self, directory: Path, files: FileSystem = LOCAL) -> None:
        self._path = directory / _NAME
        self._files = files
        self._let_go: Callable[[], None] | None = None

    def acquire(self, job_name: str = "") -> None:
        """Take the lock, or raise a DirectoryInUseError that names who has it."""
        if self._let_go is not None:
            return
        owner = _Owner(job_name, os.getpid(), socket.gethostname())
        with disk.errors("lock checkpoint directory", self._path.parent):
            try:
                self._let_go = self._files.lock(str(self._path), msgspec.json.encode(owner))
            except BlockingIOError:
                raise self._in_use(self._owner()) from None

    def release(self) -> None:
        """Let go of the lock, if it is held."""
        if self._let_go is not None:
            self._let_go()
            self._let_go = None

    def _in_use(self, owner: _Owner | None) -> DirectoryInUseError:
        who = "another live job"
        if owner is not None:
            who += f": {owner.job!r}, process {owner.pid} on host {owner.host!r}"
        return DirectoryInUseError(
            f"checkpoint directory {str(self._path.parent)!r} is in use by {who}; stop that job, "
            "or give this one another directory or job name"
        )

    def _owner(self) -> _Owner | None:
        try:
            return msgspec.json.decode(self._files.read(str(self._path)), type=_Owner)
        except (OSError, msgspec.MsgspecError):
            return None
