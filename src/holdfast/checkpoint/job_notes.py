"""Notes in a checkpoint directory about the job itself: where it was told to start, and its end."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.checkpoint.directory import CheckpointDirectory
from holdfast.checkpoint.errors import CheckpointCorruptionError
from holdfast.filesystem import MissingFileError

_FINISHED: Final = "finished"
_TOLD: Final = "told"


class _Told(msgspec.Struct, frozen=True):
    """Where a job was told to start, and the id of the first checkpoint that it takes then."""

    where: str
    first: int


class JobNotes:
    """The notes about a job in its checkpoint directory. Each is a file of its own."""

    def __init__(self, directory: CheckpointDirectory) -> None:
        """Use a directory, which may not exist yet."""
        self._directory = directory
        self._system = directory.files
        self._told_path = directory.path / _TOLD
        self._finished_path = directory.path / _FINISHED

    def told_to_begin(self, where: str | None) -> list[int]:
        """Record where the job was told to start; return the checkpoints it has taken since then.

        There are some if a job with the same setting died before it came to a regular end. If such
        a job is started again with the same settings, the user wants it to continue.
        """
        directory = self._directory
        with directory.errors("write", self._told_path):
            told = self._told()
            if told is not None and told.where == where:
                return [number for number in directory.completed() if number >= told.first]
            if where is not None:
                note = msgspec.json.encode(_Told(where, directory.next_id()))
                self._system.write(str(self._told_path), note, durable=True)
            elif told is not None:
                self.forget_beginning()
            return []

    def forget_beginning(self) -> None:
        """Delete the record of the start, because the job has ended or continues without it."""
        with self._directory.errors("remove", self._told_path):
            if self._system.exists(str(self._told_path)):
                self._system.delete(str(self._told_path))
                self._directory.sync()

    def _told(self) -> _Told | None:
        path = str(self._told_path)
        try:
            return msgspec.json.decode(self._system.read(path), type=_Told)
        except MissingFileError:
            return None
        except msgspec.MsgspecError as error:
            where = self._system.uri(path)
            message = f"file '{where}' cannot be used: {error}; delete it to start as configured"
            raise CheckpointCorruptionError(message) from error

    def is_finished(self) -> bool:
        """Return whether the job has finished."""
        return self._directory.exists(self._finished_path)

    def finish(self) -> None:
        """Note that the job has finished: there is nothing to restore from."""
        with self._directory.errors("write", self._finished_path):
            self._system.write(str(self._finished_path), b"", durable=True)

    def forget_finish(self) -> None:
        """Delete the note that the job has finished, once its checkpoints are discarded."""
        with self._directory.errors("remove", self._finished_path):
            # NB: once it is gone, a crash must not bring back the checkpoints it stands for.
            for checkpoint in self._directory.ids():
                self._system.sync(str(self._directory.of(checkpoint)))
            self._directory.sync()
            self._system.delete(str(self._finished_path))
            self._directory.sync()
