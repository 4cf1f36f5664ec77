"""State files that are written nearby, and brought to a far storage when a checkpoint needs them.

    <stage>/new/     not in the storage yet
    <stage>/kept/    copies of what is there

An epoch without a barrier writes and reads here only, so that it does not wait for another machine.
With a barrier each subtask brings its own files to the storage; the driver only looks whether all
are there.

Invariant: a file that was uploaded or synced is in the storage, and so is every file in ``kept``.
Consequence: the stage may go with the job; its checkpoints stay whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from holdfast.filesystem import FileStatus, FileSystem, MissingFileError, join
from holdfast.filesystem.local import LOCAL
from holdfast.state.errors import StateStorageError
from holdfast.state.storage import DirectoryStateStorage

__all__ = ["StagedStateStorage", "state_storage"]


class StagedStateStorage:
    """A stage that the driver and all workers see, before a storage; can be pickled as that can."""

    def __init__(
        self,
        stage: str | os.PathLike[str],
        storage: DirectoryStateStorage,
        files: FileSystem = LOCAL,
    ) -> None:
        """Take the places; ``files`` is the file system of the stage."""
        self._files = files
        self._new = DirectoryStateStorage(join(os.fspath(stage), "new"), files)
        self._kept = DirectoryStateStorage(join(os.fspath(stage), "kept"), files)
        self._storage = storage

    def make(self) -> None:
        """Make the stage."""
        for part in (self._new, self._kept):
            self._files.make_directories(str(part.directory))

    def write(self, name: str, data: bytes, durable: bool = False) -> None:
        """Write a file nearby; it is ``upload`` that makes it durable."""
        self._new.write(name, data)

    def upload(self, names: Iterable[str]) -> None:
        """Bring those to the storage that are not there yet."""
        new = [name for name in names if self._new.exists(name)]
        self._storage.files.for_each(self._upload, new)

    def _upload(self, name: str) -> None:
        try:
            self._storage.write(name, self._files.read(self._place(self._new, name)), durable=True)
            self._files.move(self._place(self._new, name), self._place(self._kept, name))
        except MissingFileError as error:
            if not self._kept.exists(name):  # or else another process was faster
                message = f"cannot upload state file {name!r}: {error}"
                raise StateStorageError(message) from error

    def sync(self, names: Iterable[str]) -> None:
        """Bring those to the storage that are not there yet; raise if one is nowhere."""
        wanted = list(names)
        self.upload(wanted)
        far = [name for name in wanted if not self._kept.exists(name)]
        # NB: one listing, since a call for each file takes too long in a job of many slots
        there = {file.name for file in self._storage.list()} if far else set()
        for name in far:
            if name not in there:
                where = f"neither in '{self._new.address}' nor in '{self._storage.address}'"
                raise StateStorageError(f"cannot sync state file {name!r}: it is {where}")

    def read(self, name: str) -> bytes:
        """Return the contents of a file; what had to be fetched is kept nearby."""
        # NB: in the order in which a file moves; it may do so meanwhile
        for part in (self._new, self._kept):
            try:
                return self._files.read(self._place(part, name))
            except MissingFileError:
                continue
        data = self._storage.read(name)
        self._kept.write(name, data)
        return data

    def delete(self, name: str) -> None:
        """Delete a file everywhere."""
        self.forget(name)
        self._storage.delete(name)

    def forget(self, name: str) -> None:
        """Delete a file nearby, if it is there."""
        for part in (self._new, self._kept):
            part.delete(name)

    def exists(self, name: str) -> bool:
        """Return whether there is such a file."""
        return any(part.exists(name) for part in (self._new, self._kept, self._storage))

    def staged(self) -> list[FileStatus]:
        """Return what is nearby."""
        return [*self._new.list(), *self._kept.list()]

    def elsewhere(self, directory: str) -> DirectoryStateStorage:
        """Return the state files of another directory, on any file system."""
        return self._storage.elsewhere(directory)

    def _place(self, part: DirectoryStateStorage, name: str) -> str:
        return str(part.directory / name)


def state_storage(
    directory: str | os.PathLike[str],
    files: FileSystem,
    scratch: str | os.PathLike[str] | None,
) -> DirectoryStateStorage | StagedStateStorage:
    """The state files of a directory: with a stage in ``scratch``, if it is on other machines."""
    storage = DirectoryStateStorage(directory, files)
    if scratch is None or not files.is_remote:
        return storage
    nearby, path = files.locate(os.fspath(scratch))
    return StagedStateStorage(join(path, "state"), storage, nearby)
