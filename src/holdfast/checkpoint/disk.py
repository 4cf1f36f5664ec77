"""What checkpoints do with a file system besides reading and writing, and how errors are told."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.checkpoint.errors import CheckpointStorageError
from holdfast.state.filesystem import FileSystem

__all__ = ["errors", "make_home"]


def make_home(files: FileSystem, directory: Path) -> None:
    """Make a directory that everything else is in, if it is not there; it is durable then.

    One that is there may have been made by a process that died before it was durable.
    """
    files.make_directories(str(directory))
    files.sync(str(directory))
    for above in directory.absolute().parents:
        # NB: not all of them are ours to open
        with contextlib.suppress(OSError):
            files.sync(str(above))


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
