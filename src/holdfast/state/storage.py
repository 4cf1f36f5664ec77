"""Where state files are: the protocol, and a directory of the local (or a mounted) file system."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from holdfast.state.errors import StateStorageError

__all__ = ["LocalStateStorage", "StateStorage", "sync_path"]


class StateStorage(Protocol):
    """Files by name. All methods raise a `StateStorageError` that names the file and the cause."""

    def write(self, name: str, data: bytes, durable: bool = False) -> None:
        """Write a file: whole or not at all, even if the process dies.

        ``durable``: it also survives if the machine dies.
        """

    def sync(self, names: Iterable[str]) -> None:
        """Make files durable that were written without that, perhaps by another process."""

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""

    def exists(self, name: str) -> bool:
        """Return whether there is such a file."""


class LocalStateStorage:
    """A directory, which must exist; can be pickled."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def write(self, name: str, data: bytes, durable: bool = False) -> None:
        """Write a file under another name and rename it."""
        path = self.directory / name
        temporary = self.directory / f".{name}.{uuid.uuid4().hex}.tmp"
        with _errors("write", path):
            try:
                _write(temporary, data, durable)
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise
            if durable:
                sync_path(self.directory)

    def sync(self, names: Iterable[str]) -> None:
        """Make files durable, and their names."""
        for name in names:
            with _errors("sync", self.directory / name):
                sync_path(self.directory / name)
        with _errors("sync", self.directory):
            sync_path(self.directory)

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""
        path = self.directory / name
        with _errors("read", path):
            return path.read_bytes()

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        path = self.directory / name
        with _errors("delete", path):
            path.unlink(missing_ok=True)

    def exists(self, name: str) -> bool:
        """Return whether there is such a file."""
        return (self.directory / name).exists()

    def __repr__(self) -> str:
        return f"LocalStateStorage({str(self.directory)!r})"


def _write(path: Path, data: bytes, durable: bool) -> None:
    with path.open("wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def sync_path(path: Path) -> None:
    """Make a file durable, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _errors(action: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = "" if path.parent.is_dir() else f"; the directory {str(path.parent)!r} is missing"
        cause = f"{type(error).__name__}: {error.strerror or error}"
        message = f"cannot {action} state file {str(path)!r}: {cause}{where}"
        raise StateStorageError(message) from error
