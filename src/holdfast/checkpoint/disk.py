"""Directories of checkpoints in a file system, and errors about them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

from holdfast.checkpoint.errors import CheckpointStorageError
from holdfast.filesystem import FileSystem, cause_of


def make_home(files: FileSystem, directory: PurePosixPath, inner: str = "") -> None:
    """Create a top-level directory and one in it, if they do not exist, and make them durable.

    On a local file system only this user can read them. An existing directory is made durable too,
    because the process that created it may have died before it did so.
    """
    files.make_private(str(directory))
    lowest = directory / inner
    files.make_directories(str(lowest))
    files.sync(str(lowest))
    for above in lowest.parents:
        # NB: some of them may not be accessible
        with contextlib.suppress(OSError):
            files.sync(str(above))


@contextmanager
def errors(files: FileSystem, action: str, path: PurePosixPath) -> Iterator[None]:
    """Turn a system error into one that says which action failed, where, and why."""
    try:
        yield
    except CheckpointStorageError:
        raise
    except OSError as error:
        where = f"cannot {action} '{files.uri(str(path))}'"
        message = f"{where}: {cause_of(error)}; complete checkpoints are untouched"
        raise CheckpointStorageError(message) from error
