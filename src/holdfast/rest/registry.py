"""How the command line finds this user's running jobs: a small file for each server.

    <runtime directory>/<process>-<random>.json   {"url": ..., "token": ..., "process": ...}

The runtime directory is the user's own, and nobody else can look into it. A server has its file
locked for as long as its process lives; one that is not locked is left over, and is removed.

The token in it proves to the server that who asks is the user that its jobs belong to.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import uuid
from pathlib import Path
from typing import Final

import msgspec

from holdfast.errors import HoldfastError

__all__ = ["Entry", "Registration", "RegistryError", "registered", "runtime_directory"]

_PLACE: Final = "HOLDFAST_RUNTIME_DIR"
_ENDING: Final = ".json"


class RegistryError(HoldfastError):
    """The runtime directory cannot be used."""


class Entry(msgspec.Struct, frozen=True):
    """Where a server is, and the token of its owner."""

    url: str
    token: str
    process: int


def runtime_directory() -> Path:
    """Return the directory, which is made if need be, and is this user's alone.

    Raises:
        RegistryError: when somebody else could write there.
    """
    told = os.environ.get(_PLACE)
    run = os.environ.get("XDG_RUNTIME_DIR")
    if told:
        path = Path(told)
    elif run and os.path.isdir(run):
        path = Path(run) / "holdfast"
    else:
        path = Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise RegistryError(f"cannot make '{path}': {error}; set {_PLACE}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        message = (
            f"'{path}' must be a directory that belongs to user {os.getuid()} and that nobody else "
            f"can write to; remove it, or set {_PLACE}"
        )
        raise RegistryError(message)
    return path


class Registration:
    """The file of a server of this process."""

    def __init__(self, url: str, token: str) -> None:
        """Write it; nobody else may read it."""
        self._path = runtime_directory() / f"{os.getpid()}-{uuid.uuid4().hex[:8]}{_ENDING}"
        draft = self._path.with_suffix(".tmp")
        self._file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        os.write(self._file, msgspec.json.encode(Entry(url, token, os.getpid())))
        # NB: locked and written before it has the name by which others look for it
        draft.rename(self._path)

    def remove(self) -> None:
        """The server ends."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)


def registered() -> list[Entry]:
    """Return the servers that live; files of others are removed."""
    found = []
    for path in sorted(runtime_directory().glob(f"*{_ENDING}")):
        with contextlib.suppress(OSError, msgspec.MsgspecError), path.open("rb") as file:
            if _is_left_over(file.fileno()):
                path.unlink(missing_ok=True)
            else:
                found.append(msgspec.json.decode(file.read(), type=Entry))
    return found


def _is_left_over(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
