"""Errors of a file system, in the words of checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.checkpoint.errors import CheckpointStorageError

__all__ = ["errors"]


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
