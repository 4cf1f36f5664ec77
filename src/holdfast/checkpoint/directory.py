"""The checkpoint directory of a job: its layout, and what is in it.

<directory>/chk-7/_metadata   a checkpoint is complete when this file exists
<directory>/chk-8/            a checkpoint in progress
<directory>/state/            the state files of all checkpoints, and of the epochs in between
<directory>/staged/           what sinks have written but not committed
<directory>/lock              held by the live job
<directory>/told              where the live job was told to start, if it was
<directory>/finished          the job has finished and cannot be restored
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from pathlib import PurePosixPath
from typing import Final

from holdfast.checkpoint import disk
from holdfast.filesystem import FileSystem

METADATA: Final = "_metadata"
STATE: Final = "state"
_STAGED: Final = "staged"
_NAME: Final = re.compile(r"chk-(\d+)")


def number_of(name: str) -> int | None:
    """Return the number of the checkpoint with a directory of this name; None if it has none."""
    named = _NAME.fullmatch(name)
    return None if named is None else int(named.group(1))


class CheckpointDirectory:
    """The names in a checkpoint directory, and errors about them.

    Attributes:
        path: the directory.
        files: its file system.
    """

    def __init__(self, path: PurePosixPath, files: FileSystem) -> None:
        """Use a directory, which may not exist yet."""
        self.path = path
        self.files = files

    def of(self, checkpoint: int) -> PurePosixPath:
        """Return the directory of a checkpoint."""
        return self.path / f"chk-{checkpoint}"

    def metadata_of(self, checkpoint: int) -> PurePosixPath:
        """Return the metadata file of a checkpoint."""
        return self.of(checkpoint) / METADATA

    def ids(self) -> list[int]:
        """Return the ids of all checkpoints, complete or not, oldest first."""
        with self.errors("list", self.path):
            listed = self.files.list_directory(str(self.path))
        numbers = (number_of(status.name) for status in listed)
        return sorted(number for number in numbers if number is not None)

    def next_id(self) -> int:
        """Return an id larger than all that were started or written here."""
        return max(self.ids(), default=0) + 1

    def completed(self) -> list[int]:
        """Return the ids of all complete checkpoints, oldest first."""
        return [number for number in self.ids() if self.exists(self.metadata_of(number))]

    def exists(self, path: PurePosixPath) -> bool:
        """Return whether there is such a file or directory."""
        with self.errors("read", path):
            return self.files.exists(str(path))

    def sync(self) -> None:
        """Make the names in the directory durable."""
        self.files.sync(str(self.path))

    def address_of(self, path: PurePosixPath) -> str:
        """Return a path in the directory, with its scheme."""
        return self.files.uri(str(path))

    @property
    def address(self) -> str:
        """Return the directory, with its scheme."""
        return self.address_of(self.path)

    @property
    def staging(self) -> str:
        """Return the address of the directory for what sinks keep until a checkpoint completes."""
        return self.address_of(self.path / _STAGED)

    def errors(self, action: str, path: PurePosixPath) -> AbstractContextManager[None]:
        """Turn a system error into one that says which action failed, where, and why."""
        return disk.errors(self.files, action, path)
