"""A checkpoint or savepoint that was written: how it is read and verified."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from holdfast.checkpoint import disk
from holdfast.checkpoint.directory import number_of
from holdfast.checkpoint.errors import CheckpointCorruptionError
from holdfast.checkpoint.metadata import CheckpointMetadata, decode
from holdfast.filesystem import FileSystem
from holdfast.state.errors import StateCorruptionError
from holdfast.state.format.stored_files import read_file
from holdfast.state.storage.directory import DirectoryStateStorage

_SAVEPOINT_NAME: Final = re.compile(r"savepoint-.*-(\d+)-[0-9a-f]{8}", re.DOTALL)


@dataclass(frozen=True)
class SavedImage:
    """A checkpoint or a savepoint, which a job starts from or which is read without a job.

    Attributes:
        address: the address of its directory.
        own: whether it is a checkpoint of the job itself, which continues with its files.
        trusted: whether pickled values in its files may be unpickled.
    """

    address: str
    metadata: CheckpointMetadata
    storage: DirectoryStateStorage
    own: bool = False
    trusted: bool = True

    @property
    def directory(self) -> str | None:
        """Return the address of its state files; None if they are the job's own."""
        return None if self.own else self.storage.address


def read_metadata(path: PurePosixPath, files: FileSystem) -> CheckpointMetadata:
    """Return the contents of a metadata file.

    Raises:
        CheckpointCorruptionError: when it is damaged, or its directory is that of another
            checkpoint. (A savepoint may have a directory of any name.)
    """
    with disk.errors(files, "read checkpoint", path):
        data = files.read(str(path))
    where = files.uri(str(path))
    metadata = decode(data, where)
    number = _number_in(path.parent.name)
    if number is not None and number != metadata.id:
        what = f"expected checkpoint {number}, found checkpoint {metadata.id}"
        raise CheckpointCorruptionError(f"checkpoint file '{where}' cannot be used: {what}")
    return metadata


def _number_in(name: str) -> int | None:
    """Return the number in the name of a directory; None if it has none."""
    named = _SAVEPOINT_NAME.fullmatch(name)
    return number_of(name) if named is None else int(named.group(1))


def verify_files(metadata: CheckpointMetadata, state: DirectoryStateStorage, deep: bool) -> None:
    """Check that all state files exist with the right size; ``deep``: also their checksums."""
    sizes = metadata.file_sizes()
    found = {file.name: file.size for file in state.list()}
    for name, size in sorted(sizes.items()):
        if name not in found:
            raise _unusable(metadata, state, name, f"expected {size} bytes, found no such file")
        if found[name] != size:
            raise _unusable(metadata, state, name, f"expected {size} bytes, found {found[name]}")

    def read(name: str) -> None:
        try:
            read_file(state, name, sizes[name])
        except StateCorruptionError as error:
            raise _unusable(metadata, state, name, str(error)) from error

    if deep:
        state.files.for_each(read, sorted(sizes))


def _unusable(
    metadata: CheckpointMetadata, state: DirectoryStateStorage, name: str, problem: str
) -> CheckpointCorruptionError:
    path = state.files.uri(str(state.directory / name))
    what = "savepoint" if metadata.savepoint else "checkpoint"
    return CheckpointCorruptionError(
        f"{what} {metadata.id} cannot be used: its state file '{path}': {problem}"
    )
