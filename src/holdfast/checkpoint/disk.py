"""What checkpoints do with a file system besides reading and writing, and how errors are told."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

from holdfast.checkpoint.errors import CheckpointStorageError
from holdfast.filesystem import FileSystem, cause_of

__all__ = ["errors", "make_home"]


def make_home(files: FileSystem, directory: PurePosixPath, inner: str = "") -> None:
    """Make a directory that everything else is in, and one in it, if they are not there.

    They are durable then. On a local file system only this user can read them. One that is there
    may have been made by a process that died before it was durable.
    """
    files.make_private(str(directory))
    lowest = directory / inner
    files.make_directories(str(lowest))
    files.sync(str(lowest))
    for above in lowest.parents:
        # NB: not all of them are ours to open
        with contextlib.suppress(OSError):
            files.sync(str(above))


@contextmanager
def errors(files: FileSystem, action: str, path: PurePosixPath) -> Iterator[None]:
    """Turn an error of the system into one that says what could not be done, where, and why."""
    try:
        yield
    except CheckpointStorageError:
        raise
    except OSError as error:
        where = f"cannot {action} '{files.uri(str(path))}'"
        message = f"{where}: {cause_of(error)}; complete checkpoints are untouched"
        raise CheckpointStorageError(message) from error
