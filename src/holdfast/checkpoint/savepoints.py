"""Savepoints: complete, self-contained, movable copies of a checkpoint.

<target>/savepoint-<job>-<id>/_metadata
<target>/savepoint-<job>-<id>/state/   all state files that it needs, and no others
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import uuid
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import msgspec

from holdfast.checkpoint import disk
from holdfast.checkpoint.errors import (
    CheckpointCorruptionError,
    CheckpointError,
    CheckpointStorageError,
)
from holdfast.checkpoint.metadata import CheckpointMetadata, encode
from holdfast.checkpoint.store import METADATA, STATE, read_metadata, verify_files
from holdfast.state.errors import StateCorruptionError
from holdfast.state.files import decode_file
from holdfast.state.filesystem import LOCAL, FileSystem
from holdfast.state.storage import LocalStateStorage, StateStorage

__all__ = ["SavedImage", "copy_savepoint", "dispose_savepoint", "read_savepoint"]


@dataclass(frozen=True)
class SavedImage:
    """A savepoint, or a retained checkpoint, to start a job from."""

    path: Path
    metadata: CheckpointMetadata
    storage: LocalStateStorage


def copy_savepoint(
    metadata: CheckpointMetadata,
    storage: StateStorage,
    target_dir: str | os.PathLike[str],
    files: FileSystem = LOCAL,
) -> Path:
    """Write a savepoint of this checkpoint and return its directory.

    It appears whole, with every state file read and found right, or not at all. If there is one of
    that name, of another run of the job, this one's name gets a number.
    """
    target = Path(target_dir)
    name = f"savepoint-{_slug(metadata.job_name)}-{metadata.id}"
    draft = target / f".{name}.{uuid.uuid4().hex}.tmp"
    with disk.errors("write savepoint", target / name):
        try:
            disk.make_home(files, target)
            _write(msgspec.structs.replace(metadata, savepoint=True), storage, draft, files)
            return _rename(draft, target, name, files)
        finally:
            with contextlib.suppress(OSError):
                files.delete_tree(str(draft))


def read_savepoint(path: str | os.PathLike[str], files: FileSystem = LOCAL) -> SavedImage:
    """Return a savepoint, by its directory or its metadata file; a retained checkpoint likewise.

    Every state file is there and has the right size.
    """
    directory = Path(path)
    if directory.name == METADATA:
        directory = directory.parent
    with disk.errors("read checkpoint", directory):
        status = files.status(str(directory / METADATA))
    if status is None or status.is_directory:
        message = f"there is no savepoint or checkpoint in {str(directory)!r}: no file {METADATA!r}"
        raise CheckpointStorageError(message)
    metadata = read_metadata(directory / METADATA, files)
    state = (directory if metadata.savepoint else directory.parent) / STATE
    storage = LocalStateStorage(state, files)
    verify_files(metadata, storage, files, deep=False)
    return SavedImage(directory, metadata, storage)


def dispose_savepoint(path: str | os.PathLike[str], files: FileSystem = LOCAL) -> None:
    """Delete a savepoint; raise a CheckpointError if that is none."""
    directory = Path(path)
    if directory.name == METADATA:
        directory = directory.parent
    metadata = read_metadata(directory / METADATA, files)
    if not metadata.savepoint:
        message = (
            f"{str(directory)!r} is a checkpoint of a job, not a savepoint; nothing is deleted"
        )
        raise CheckpointError(message)
    with disk.errors("dispose of savepoint", directory):
        # NB: the metadata first: without it there is no savepoint.
        files.delete(str(directory / METADATA))
        files.delete_tree(str(directory))


def _write(
    metadata: CheckpointMetadata, storage: StateStorage, draft: Path, files: FileSystem
) -> None:
    copies = LocalStateStorage(draft / STATE, files)
    files.make_directories(str(copies.directory))
    for name, size in metadata.file_sizes().items():
        copies.write(name, _checked(storage.read(name), name, size))
    copies.sync(metadata.files())
    files.write(str(draft / METADATA), encode(metadata), durable=True)


def _checked(data: bytes, name: str, size: int) -> bytes:
    if len(data) != size:
        problem = f"expected {size} bytes, found {len(data)}"
        raise CheckpointCorruptionError(f"state file {name!r} cannot be saved: {problem}")
    try:
        decode_file(data, name)
    except StateCorruptionError as error:
        raise CheckpointCorruptionError(str(error)) from error
    return data


def _rename(draft: Path, target: Path, name: str, files: FileSystem) -> Path:
    for number in count(1):
        path = target / (name if number == 1 else f"{name}-{number}")
        try:
            files.move(str(draft), str(path))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        else:
            files.sync(str(target))
            return path
    raise AssertionError("unreachable")


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.") or "job"
