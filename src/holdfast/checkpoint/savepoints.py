"""Savepoints: complete, self-contained, movable copies of a checkpoint.

<target>/savepoint-<job>-<id>-<random>/_metadata   a savepoint is complete when this file exists
<target>/savepoint-<job>-<id>-<random>/state/      all state files that it needs, and no others
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from pathlib import PurePosixPath

import msgspec

from holdfast.checkpoint import disk
from holdfast.checkpoint.directory import METADATA, STATE
from holdfast.checkpoint.errors import (
    CheckpointCorruptionError,
    CheckpointError,
    CheckpointStorageError,
)
from holdfast.checkpoint.metadata import CheckpointMetadata, encode
from holdfast.checkpoint.replaced import CheckpointFiles, unless_replaced
from holdfast.checkpoint.saved_image import SavedImage, read_metadata, verify_files
from holdfast.filesystem import FileSystem
from holdfast.filesystem.local import LOCAL
from holdfast.state.errors import StateCorruptionError
from holdfast.state.format.files import decode_file
from holdfast.state.storage.directory import DirectoryStateStorage, StateStorage


def copy_savepoint(
    metadata: CheckpointMetadata,
    storage: StateStorage,
    target: str | os.PathLike[str],
    files: FileSystem = LOCAL,
) -> str:
    """Write a savepoint of this checkpoint below an address, and return the savepoint's address.

    The metadata is written last, after every state file was read, verified and copied. If this
    raises, nothing is left of the savepoint.
    """
    files, above = files.locate(os.fspath(target))
    name = f"savepoint-{_slug(metadata.job_name)}-{metadata.id}-{uuid.uuid4().hex[:8]}"
    directory = PurePosixPath(above) / name
    with disk.errors(files, "write savepoint", directory):
        try:
            disk.make_home(files, directory)
            _write(msgspec.structs.replace(metadata, savepoint=True), storage, directory, files)
        except Exception:
            with contextlib.suppress(OSError):
                files.delete_tree(str(directory))
            raise
    return files.uri(str(directory))


def read_savepoint(address: str | os.PathLike[str], files: FileSystem = LOCAL) -> SavedImage:
    """Return a savepoint or retained checkpoint, by its directory or its metadata file.

    Verify that every state file exists and has the right size.

    Raises:
        CheckpointReplacedError: if the job has deleted it, because newer checkpoints are complete.
    """
    files, directory = _directory(address, files)
    with unless_replaced(files, directory):
        return _read_image(files, directory)


def _read_image(files: FileSystem, directory: PurePosixPath) -> SavedImage:
    with disk.errors(files, "read checkpoint", directory):
        status = files.status(str(directory / METADATA))
    where = files.uri(str(directory))
    if status is None or status.is_directory:
        message = f"there is no savepoint or checkpoint in '{where}': no file {METADATA!r}"
        raise CheckpointStorageError(message)
    metadata = read_metadata(directory / METADATA, files)
    if metadata.savepoint:
        storage = DirectoryStateStorage(directory / STATE, files)
    else:
        storage = CheckpointFiles(directory.parent / STATE, files, directory)
    verify_files(metadata, storage, deep=False)
    return SavedImage(where, metadata, storage)


def dispose_savepoint(address: str | os.PathLike[str], files: FileSystem = LOCAL) -> None:
    """Delete a savepoint; raise a CheckpointError if it is not a savepoint."""
    files, directory = _directory(address, files)
    metadata = read_metadata(directory / METADATA, files)
    if not metadata.savepoint:
        where = files.uri(str(directory))
        message = f"'{where}' is a checkpoint of a job, not a savepoint; nothing is deleted"
        raise CheckpointError(message)
    with disk.errors(files, "dispose of savepoint", directory):
        # NB: the metadata first: without it the savepoint does not exist.
        files.delete(str(directory / METADATA))
        files.delete_tree(str(directory))


def _directory(
    address: str | os.PathLike[str], files: FileSystem
) -> tuple[FileSystem, PurePosixPath]:
    files, path = files.locate(os.fspath(address))
    directory = PurePosixPath(path)
    return files, directory.parent if directory.name == METADATA else directory


def _write(
    metadata: CheckpointMetadata, storage: StateStorage, directory: PurePosixPath, files: FileSystem
) -> None:
    copies = DirectoryStateStorage(directory / STATE, files)
    files.make_directories(str(copies.directory))
    sizes = metadata.file_sizes()

    def copy(name: str) -> None:
        copies.write(name, _checked(storage.read(name), name, sizes[name]))

    files.for_each(copy, sizes)
    copies.sync(metadata.files())
    files.write(str(directory / METADATA), encode(metadata), durable=True)


def _checked(data: bytes, name: str, size: int) -> bytes:
    if len(data) != size:
        problem = f"expected {size} bytes, found {len(data)}"
        raise CheckpointCorruptionError(f"state file {name!r} cannot be saved: {problem}")
    try:
        decode_file(data, name)
    except StateCorruptionError as error:
        raise CheckpointCorruptionError(str(error)) from error
    return data


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.") or "job"
