"""Where state files are: the protocol, and a directory of a file system."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from holdfast.state.errors import StateStorageError
from holdfast.state.filesystem import LOCAL, FileSystem

__all__ = ["LocalStateStorage", "StateStorage"]


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

    def elsewhere(self, directory: str) -> StateStorage:
        """Return the state files of another directory: those of a savepoint."""


class LocalStateStorage:
    """A directory, which must exist; can be pickled if its file system can."""

    def __init__(self, directory: str | os.PathLike[str], files: FileSystem = LOCAL) -> None:
        self.directory = Path(directory)
        self._files = files

    def write(self, name: str, data: bytes, durable: bool = False) -> None:
        """Write a file; whole or not at all."""
        path = self.directory / name
        with self._errors("write", path):
            self._files.write(str(path), data, durable)

    def sync(self, names: Iterable[str]) -> None:
        """Make files durable, and their names."""
        for path in [*(self.directory / name for name in names), self.directory]:
            with self._errors("sync", path):
                self._files.sync(str(path))

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""
        path = self.directory / name
        with self._errors("read", path):
            return self._files.read(str(path))

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        path = self.directory / name
        with self._errors("delete", path):
            self._files.delete(str(path))

    def exists(self, name: str) -> bool:
        """Return whether there is such a file."""
        return self._files.status(str(self.directory / name)) is not None

    def elsewhere(self, directory: str) -> LocalStateStorage:
        """Return the state files of another directory of this file system."""
        return LocalStateStorage(directory, self._files)

    def __repr__(self) -> str:
        return f"LocalStateStorage({str(self.directory)!r})"

    @contextmanager
    def _errors(self, action: str, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            cause = f"{type(error).__name__}: {error.strerror or error}"
            message = f"cannot {action} state file {str(path)!r}: {cause}{self._where(path)}"
            raise StateStorageError(message) from error

    def _where(self, path: Path) -> str:
        parent = self._files.status(str(path.parent))
        is_there = parent is not None and parent.is_directory
        return "" if is_there else f"; the directory {str(path.parent)!r} is missing"
