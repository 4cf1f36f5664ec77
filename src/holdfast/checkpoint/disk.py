"""Files that are whole or not there, and stay: the few system calls that checkpoints need."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.checkpoint.errors import CheckpointStorageError
from holdfast.state.storage import sync_path

__all__ = ["errors", "make_directory", "remove_directory", "write_file"]


def write_file(path: Path, data: bytes) -> None:
    """Write a file, durably, and rename it into place; if that fails, it is not there."""
    left = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with left.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(left, path)
        left = path
        sync_path(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            left.unlink()
        raise


def make_directory(path: Path) -> None:
    """Make a directory, and the ones above it, durably, if it is not there."""
    if not path.is_dir():
        if path.exists():
            raise NotADirectoryError(errno.ENOTDIR, f"{str(path)!r} is a file")
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        sync_path(path.parent)


def remove_directory(path: Path) -> None:
    """Remove a directory with the files in it, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        for file in path.iterdir():
            file.unlink(missing_ok=True)
        path.rmdir()


@contextmanager
def errors(action: str, path: Path) -> Iterator[None]:
    """Turn an error of the system into one that says what could not be done, where, and why."""
    try:
        yield
    except CheckpointStorageError:
        raise
    except OSError as error:
        cause = f"{type(error).__name__}: {error.strerror or error}"
        message = f"cannot {action} {str(path)!r}: {cause}; complete checkpoints are untouched"
        raise CheckpointStorageError(message) from error
