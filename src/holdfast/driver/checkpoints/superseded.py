"""Deletes what newer checkpoints supersede: checkpoints, state files, a claimed savepoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from holdfast.checkpoint.errors import CheckpointError, DirectoryInUseError
from holdfast.checkpoint.savepoints import dispose_savepoint
from holdfast.checkpoint.store import CheckpointStore
from holdfast.filesystem import FileSystem, FileSystemError
from holdfast.printable import get_logger
from holdfast.state.errors import StateStorageError

#: the errors that writing and deleting files may raise
STORAGE_ERRORS: Final = (CheckpointError, StateStorageError, FileSystemError)

_logger = get_logger(__name__)


class Superseded:
    """What is to be deleted because a newer checkpoint is complete (step 10).

    Attributes:
        checkpoints: the ids of checkpoints that are not retained any more.
        savepoint: the savepoint that the job claimed; it is deleted with the next checkpoint.
    """

    def __init__(self, store: CheckpointStore, files: FileSystem) -> None:
        """Start with nothing to delete; ``files`` finds the file systems of addresses."""
        self.checkpoints: list[int] = []
        self.savepoint: str | None = None
        self._store = store
        self._files = files

    def discard(self) -> None:
        """Delete the checkpoints."""
        while self.checkpoints:
            self._store.discard(self.checkpoints[0])
            del self.checkpoints[0]

    def delete(self, live: set[str], since: int | None) -> None:
        """Delete everything; a failure is a warning, because the new checkpoint is complete.

        ``live``: the state files that are needed besides those of checkpoints. ``since``: as in
        `CheckpointStore.collect`.
        """
        with _tolerated("the next checkpoint will try again"):
            self.discard()
            self._store.collect(live, since=since)
        savepoint, self.savepoint = self.savepoint, None
        if savepoint is not None:
            with _tolerated("delete the savepoint yourself"):
                dispose_savepoint(savepoint, self._files)


@contextmanager
def _tolerated(remedy: str) -> Iterator[None]:
    """Log a warning if files cannot be deleted."""
    try:
        yield
    except DirectoryInUseError:
        raise
    except STORAGE_ERRORS as error:
        _logger.warning("%s; %s", error, remedy)
