"""Checkpoints of a running job: they are replaced, perhaps while somebody reads them.

A job deletes a checkpoint when enough newer ones are complete, its metadata first. What then cannot
be read any more was replaced, and is not damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath

from holdfast.checkpoint.directory import METADATA, number_of
from holdfast.checkpoint.errors import CheckpointError, CheckpointReplacedError
from holdfast.filesystem import FileSystem
from holdfast.state.errors import StateStorageError
from holdfast.state.storage.directory import DirectoryStateStorage


class CheckpointFiles(DirectoryStateStorage):
    """The state files of a checkpoint that is read while its job may delete it."""

    def __init__(
        self, directory: PurePosixPath, files: FileSystem, checkpoint: PurePosixPath
    ) -> None:
        """Take the directory of the state files, and that of the checkpoint."""
        super().__init__(directory, files)
        self._checkpoint = checkpoint

    @contextmanager
    def _errors(self, action: str, path: PurePosixPath) -> Iterator[None]:
        with unless_replaced(self.files, self._checkpoint), super()._errors(action, path):
            yield


@contextmanager
def unless_replaced(files: FileSystem, checkpoint: PurePosixPath) -> Iterator[None]:
    """Name the newer checkpoint if one cannot be read because it was replaced.

    Raises:
        CheckpointReplacedError: instead of an error about its files.
    """
    try:
        yield
    except (CheckpointError, StateStorageError) as error:
        newest = _newest(files, checkpoint)
        if newest is None or isinstance(error, CheckpointReplacedError):
            raise
        where = files.uri(str(checkpoint.with_name(f"chk-{newest}")))
        message = (
            f"checkpoint {number_of(checkpoint.name)} was replaced by checkpoint {newest}: a "
            f"running job deletes old checkpoints; read '{where}', or take a savepoint, which stays"
        )
        raise CheckpointReplacedError(message) from error


def _newest(files: FileSystem, checkpoint: PurePosixPath) -> int | None:
    """Return the newest checkpoint beside one that is gone; None if it is there, or none is."""
    number = number_of(checkpoint.name)
    if number is None:
        return None
    with suppress(OSError):
        if files.exists(str(checkpoint / METADATA)):
            return None
        found = [number_of(status.name) for status in files.list_directory(str(checkpoint.parent))]
        newer = sorted((one for one in found if one is not None and one > number), reverse=True)
        for one in newer:
            if files.exists(str(checkpoint.with_name(f"chk-{one}") / METADATA)):
                return one
    return None
