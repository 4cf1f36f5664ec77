"""State files that are written to a local stage, and uploaded when a checkpoint needs them.

    <stage>/new/     files that are not in the storage yet
    <stage>/kept/    copies of files in the storage

An epoch without a barrier writes and reads in the stage only, so that it does not wait for another
machine. At a barrier each subtask uploads its own files to the storage; the driver only checks that
all of them are there.

Invariant: a file that was uploaded or synced is in the storage, and so is every file in ``kept``.
Consequence: the stage may be deleted with the job; its checkpoints remain complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from holdfast.filesystem import FileStatus, FileSystem, MissingFileError, check_scheme, join
from holdfast.filesystem.local import LOCAL
from holdfast.state.errors import StateStorageError
from holdfast.state.storage.directory import DirectoryStateStorage


class StagedStateStorage:
    """A storage with a stage that the driver and all workers can access.

    It can be pickled if the storage can.
    """

    def __init__(
        self,
        stage: str | os.PathLike[str],
        storage: DirectoryStateStorage,
        files: FileSystem = LOCAL,
    ) -> None:
        """Use these directories; ``files`` is the file system of the stage."""
        self._files = files
        self._new = DirectoryStateStorage(join(os.fspath(stage), "new"), files)
        self._kept = DirectoryStateStorage(join(os.fspath(stage), "kept"), files)
        self._storage = storage

    def make(self) -> None:
        """Create the directories of the stage."""
        for part in (self._new, self._kept):
            self._files.make_directories(str(part.directory))

    def write(self, name: str, data: bytes, durable: bool = False) -> None:
        """Write a file to the stage; only ``upload`` makes it durable."""
        self._new.write(name, data)

    def upload(self, names: Iterable[str]) -> None:
        """Upload the files that the storage does not have yet."""
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
        """Upload the files that the storage does not have yet; raise an error if one is missing."""
        wanted = list(names)
        self.upload(wanted)
        far = [name for name in wanted if not self._kept.exists(name)]
        # NB: one listing, since a call for each file takes too long in a job with many slots
        there = {file.name for file in self._storage.list()} if far else set()
        for name in far:
            if name not in there:
                where = f"neither in '{self._new.address}' nor in '{self._storage.address}'"
                raise StateStorageError(f"cannot sync state file {name!r}: it is {where}")

    def read(self, name: str) -> bytes:
        """Return the contents of a file; a file that had to be fetched is kept in the stage."""
        # NB: in the order in which a file is moved, which may happen concurrently
        for part in (self._new, self._kept):
            try:
                return self._files.read(self._place(part, name))
            except MissingFileError:
                continue
        data = self._storage.read(name)
        self._kept.write(name, data)
        return data

    def delete(self, name: str) -> None:
        """Delete a file in the stage and in the storage."""
        self.forget(name)
        self._storage.delete(name)

    def forget(self, name: str) -> None:
        """Delete a file in the stage, if it is there."""
        for part in (self._new, self._kept):
            part.delete(name)

    def exists(self, name: str) -> bool:
        return any(part.exists(name) for part in (self._new, self._kept, self._storage))

    def staged(self) -> list[FileStatus]:
        """Return the files in the stage."""
        return [*self._new.list(), *self._kept.list()]

    def elsewhere(self, directory: str) -> DirectoryStateStorage:
        return self._storage.elsewhere(directory)

    def _place(self, part: DirectoryStateStorage, name: str) -> str:
        return str(part.directory / name)


def state_storage(
    directory: str | os.PathLike[str],
    files: FileSystem,
    scratch: str | os.PathLike[str] | None,
) -> DirectoryStateStorage | StagedStateStorage:
    """Return the storage of a directory, with a stage in ``scratch`` if only that is local."""
    storage = DirectoryStateStorage(directory, files)
    address = os.fspath(scratch or "")
    if not address or not files.is_remote or check_scheme(address) != "file":
        return storage
    nearby, path = files.locate(address)
    return StagedStateStorage(join(path, "state"), storage, nearby)
