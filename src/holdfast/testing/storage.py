"""State files in memory."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.filesystem import file_system_of
from holdfast.state.errors import StateStorageError
from holdfast.state.storage.directory import DirectoryStateStorage, StateStorage


class MemoryStateStorage:
    """A ``StateStorage`` in a dict.

    Attributes:
        files: the contents of all files, by name.
    """

    def __init__(self, *others: MemoryStateStorage) -> None:
        """Start with the files of these storages."""
        self.files: dict[str, bytes] = {}
        for other in others:
            self.files.update(other.files)

    def write(self, name: str, data: bytes, durable: bool = False) -> None:
        """Keep a file in memory."""
        self.files[name] = bytes(data)

    def upload(self, names: Iterable[str]) -> None:
        """Do nothing: the files are there."""

    def sync(self, names: Iterable[str]) -> None:
        """Check that the files are there."""
        for name in names:
            self.read(name)

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""
        try:
            return self.files[name]
        except KeyError:
            message = f"cannot read state file {name!r}: there is no such file"
            raise StateStorageError(message) from None

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        self.files.pop(name, None)

    def exists(self, name: str) -> bool:
        """Return whether there is such a file."""
        return name in self.files

    def elsewhere(self, directory: str) -> StateStorage:
        """Return the state files of a savepoint, which are in a directory."""
        files, path = file_system_of(directory)
        return DirectoryStateStorage(path, files)
