"""The storage of state files: the protocol, and a directory of a file system."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Protocol

from holdfast.filesystem import FileStatus, FileSystem, FileSystemError, cause_of
from holdfast.filesystem.local import LOCAL
from holdfast.state.errors import StateStorageError


class ReadableStorage(Protocol):
    """Read access to files by name."""

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""


class StateStorage(Protocol):
    """Files by name. All methods raise a `StateStorageError` that names the file and the cause."""

    def write(self, name: str, data: bytes, durable: bool = False) -> None:
        """Write a file atomically, even if the process dies.

        ``durable``: it also survives if the machine dies.
        """

    def upload(self, names: Iterable[str]) -> None:
        """Upload files to the checkpoint storage if they were written elsewhere (step 6).

        The subtask that wrote them does this at a barrier, so that the driver need not do it.
        """

    def sync(self, names: Iterable[str]) -> None:
        """Make files durable that were written without ``durable``, perhaps by another process."""

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""

    def exists(self, name: str) -> bool:
        """Return whether there is such a file."""

    def elsewhere(self, directory: str) -> StateStorage:
        """Return the state files of another directory, given its address, such as a savepoint's."""


class DirectoryStateStorage:
    """A directory, which must exist; can be pickled if its file system can."""

    def __init__(self, directory: str | os.PathLike[str], files: FileSystem = LOCAL) -> None:
        self.directory = PurePosixPath(directory)
        self.files = files

    @property
    def address(self) -> str:
        """Return the directory with its scheme."""
        return self.files.uri(str(self.directory))

    def write(self, name: str, data: bytes, durable: bool = False) -> None:
        path = self.directory / name
        with self._errors("write", path):
            self.files.write(str(path), data, durable)

    def upload(self, names: Iterable[str]) -> None:
        """Do nothing, since files are written to the storage directly."""

    def sync(self, names: Iterable[str]) -> None:
        for path in [*(self.directory / name for name in names), self.directory]:
            with self._errors("sync", path):
                self.files.sync(str(path))

    def read(self, name: str) -> bytes:
        path = self.directory / name
        with self._errors("read", path):
            return self.files.read(str(path))

    def delete(self, name: str) -> None:
        path = self.directory / name
        with self._errors("delete", path):
            self.files.delete(str(path))

    def exists(self, name: str) -> bool:
        path = self.directory / name
        with self._errors("look at", path):
            return self.files.exists(str(path))

    def list(self) -> list[FileStatus]:
        """Return the files of the directory, sorted by name."""
        with self._errors("list", self.directory):
            return self.files.list_directory(str(self.directory))

    def elsewhere(self, directory: str) -> DirectoryStateStorage:
        """Return the state files of another directory, on any file system."""
        files, path = self.files.locate(directory)
        return DirectoryStateStorage(path, files)

    def __repr__(self) -> str:
        return f"DirectoryStateStorage({self.address!r})"

    @contextmanager
    def _errors(self, action: str, path: PurePosixPath) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"cannot {action} state file '{self.files.uri(str(path))}'"
            message = f"{what}: {cause_of(error)}{self._where()}"
            raise StateStorageError(message) from error

    def _where(self) -> str:
        try:
            status = self.files.status(str(self.directory))
        except FileSystemError:
            return ""
        is_there = status is not None and status.is_directory
        return "" if is_there else f"; the directory {self.address!r} is missing"
