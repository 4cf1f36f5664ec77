"""The checkpoint directory of a job.

    <directory>/chk-7/_metadata   a checkpoint is complete when this file is there
    <directory>/chk-8/            one that was begun
    <directory>/state/            the state files of all of them, and of the epochs in between
    <directory>/staged/           what sinks have written and not committed
    <directory>/lock              held by the live job
    <directory>/told              where the live job was told to begin, if it was
    <directory>/finished          there is nothing to go on from

Invariant: when a metadata file is there, it and every file that it names are whole and durable.

Invariant: a state file is deleted only when no complete checkpoint and no live chain names it.
Consequence: increments are shared; what a checkpoint needs goes after the last one that needs it.

Invariant: the directory of the highest id stays. Consequence: an id that was given is never given
again, even if the driver dies.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import PurePosixPath
from typing import Final

import msgspec

from holdfast.checkpoint import disk
from holdfast.checkpoint.errors import (
    CheckpointCorruptionError,
    CheckpointError,
    CheckpointStorageError,
)
from holdfast.checkpoint.lock import DirectoryLock
from holdfast.checkpoint.metadata import CheckpointMetadata, decode, encode
from holdfast.filesystem import FileStatus, FileSystem, MissingFileError
from holdfast.filesystem.local import LOCAL
from holdfast.printable import get_logger
from holdfast.state.errors import StateCorruptionError
from holdfast.state.interface import read_file
from holdfast.state.staging import StagedStateStorage, state_storage
from holdfast.state.storage import DirectoryStateStorage

__all__ = ["METADATA", "CheckpointStore", "read_metadata", "verify_files"]

METADATA: Final = "_metadata"
STATE: Final = "state"
_STAGED: Final = "staged"
_FINISHED: Final = "finished"
_TOLD: Final = "told"
_NAME: Final = re.compile(r"chk-(\d+)")
#: the name of a state file that a subtask wrote begins with its epoch
_OF_EPOCH: Final = re.compile(r"(\d+)-")
_SAVEPOINT_NAME: Final = re.compile(r"savepoint-.*-(\d+)-[0-9a-f]{8}", re.DOTALL)

_logger = get_logger(__name__)


class CheckpointStore:
    """The checkpoints of one job in a directory of a file system.

    All methods raise a `CheckpointError`, or a `StateStorageError` about a state file, that names
    the file and the cause. `acquire` comes first: it makes the directory.

    Attributes:
        state: the state files that are here.
        storage: the same as the subtasks see them, who write to a stage first if this is on other
            machines; can be pickled if the file system can.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        files: FileSystem = LOCAL,
        scratch: str | os.PathLike[str] | None = None,
    ) -> None:
        """Look at a directory; ``scratch`` is one for the stage, if there is to be any."""
        self.directory = PurePosixPath(directory)
        self.state = DirectoryStateStorage(self.directory / STATE, files)
        self.storage = state_storage(self.state.directory, files, scratch)
        self._system = files
        self._lock = DirectoryLock(self.directory, files)
        #: the state files of complete checkpoints, by id; not all of them need be here
        self._files: dict[int, frozenset[str]] = {}
        #: state files that are known to be durable
        self._durable: frozenset[str] = frozenset()

    def acquire(self, job_name: str = "") -> None:
        """Make the directory, if need be, and lock it; raise a DirectoryInUseError if it is."""
        with self._errors("make checkpoint directory", self.directory):
            disk.make_home(self._system, self.directory, STATE)
            if isinstance(self.storage, StagedStateStorage):
                self.storage.make()
        self._lock.acquire(job_name)
        self._sweep_drafts()

    def _sweep_drafts(self) -> None:
        """Remove what a driver had begun to write when it died."""
        with self._errors("clean up", self.directory):
            for status in self._system.list_directory(str(self.directory)):
                if status.name.startswith(".") and status.name.endswith(".tmp"):
                    self._system.delete(str(self.directory / status.name))

    def release(self) -> None:
        """Let go of the lock; the process's end does that too."""
        self._lock.release()

    def check_lock(self, ask: bool = True) -> None:
        """Raise a DirectoryInUseError if another job has taken the directory from this one.

        ``ask``: ask the file system, which takes a call; otherwise what is known already counts.
        """
        self._lock.check(ask)

    # Writing

    def next_id(self) -> int:
        """Return one more than any id that was begun or written here."""
        return max(self._ids(), default=0) + 1

    def begin(self, checkpoint: int) -> None:
        """Take note of an id that is given to a barrier (step 1)."""
        self._lock.check()
        path = self._directory_of(checkpoint)
        with self._errors("make", path):
            self._system.make_directories(str(path))

    def write(self, metadata: CheckpointMetadata) -> None:
        """Write a checkpoint (step 9).

        Its state files are durable before its metadata is there. If this raises, it is not there.
        """
        self._lock.check()
        path = self._directory_of(metadata.id)
        if self._exists(path / METADATA):
            where = self._system.uri(str(path))
            message = f"cannot write checkpoint {metadata.id}: '{where}' is complete already"
            raise CheckpointStorageError(message)
        files = metadata.files()
        self.storage.sync(sorted(files - self._durable))
        with self._errors("write checkpoint", path / METADATA):
            self._system.make_directories(str(path))
            self._system.write(str(path / METADATA), encode(metadata), durable=True)
        self._files[metadata.id] = self._durable = files
        self._sweep(metadata.id)

    def _sweep(self, checkpoint: int) -> None:
        """Remove what is left of checkpoints before this one that never became complete."""
        for number in self._ids():
            path = self._directory_of(number)
            if number < checkpoint and not self._exists(path / METADATA):
                with contextlib.suppress(OSError):
                    self._system.delete_tree(str(path))

    # Reading

    def completed(self) -> list[int]:
        """Return the ids of all complete checkpoints, oldest first."""
        return [n for n in self._ids() if self._exists(self._directory_of(n) / METADATA)]

    def read(self, checkpoint: int) -> CheckpointMetadata:
        """Return a complete checkpoint's metadata."""
        metadata = read_metadata(self._directory_of(checkpoint) / METADATA, self._system)
        self._files[checkpoint] = metadata.files()
        return metadata

    def latest(
        self, deep: bool = False, among: Iterable[int] | None = None
    ) -> CheckpointMetadata | None:
        """Return the newest checkpoint that is whole; None if there is none to go on from.

        Every state file that it names is there and has the right size; ``deep``: and the right
        checksum. ``among``: only these are looked at. A newer one that is damaged is passed over
        with a warning. If all are damaged, or the storage does not answer, raise: to begin anew is
        for the user to decide.
        """
        if self.is_finished():
            return None
        damaged: list[CheckpointCorruptionError] = []
        candidates = self.completed() if among is None else sorted(among)
        for checkpoint in reversed(candidates):
            try:
                metadata = self.read(checkpoint)
                verify_files(metadata, self.state, deep)
            except CheckpointCorruptionError as error:
                damaged.append(error)
                continue
            for problem in damaged:
                _logger.warning("%s; going back to checkpoint %d instead", problem, checkpoint)
            return metadata
        if damaged:
            problems = "".join(f"\n  {error}" for error in damaged)
            message = f"no checkpoint in '{self.address}' can be used:{problems}"
            raise CheckpointCorruptionError(message) from damaged[0]
        return None

    # Letting go

    def discard(self, checkpoint: int) -> None:
        """Let go of a checkpoint (step 10); its state files stay until nobody needs them."""
        self._lock.check()
        path = self._directory_of(checkpoint)
        with self._errors("discard checkpoint", path):
            # NB: the metadata first: without it there is no checkpoint. That is to be durable
            # before its state files go, or a crash would bring it back without them.
            self._system.delete(str(path / METADATA))
            if checkpoint < max(self._ids(), default=0):
                self._system.delete_tree(str(path))
                self._system.sync(str(self.directory))
            elif self._exists(path):
                self._system.sync(str(path))
        self._files.pop(checkpoint, None)

    def unreferenced(
        self, keep: Iterable[str], before: float | None = None, since: int | None = None
    ) -> set[str]:
        """Return the names of state files that neither ``keep`` nor a complete checkpoint names.

        ``keep`` are those of the live chains. Files that a running epoch writes are named by
        nobody yet: call this between epochs, or with ``before``, to see only files that were last
        changed before that time, in seconds. ``since``: files of that epoch and of later ones are
        still being written, and are not returned. If the metadata of a complete checkpoint cannot
        be read, nobody knows what it needs, and nothing is returned until it is discarded.
        """
        needed = set(keep)
        for checkpoint in self.completed():
            try:
                needed |= self._files_of(checkpoint)
            except CheckpointError as error:
                _logger.warning("no state file is deleted while this is so: %s", error)
                return set()
        files = self.state.list()
        return {f.name for f in files if f.name not in needed and _is_older(f, before, since)}

    def collect(
        self, keep: Iterable[str], before: float | None = None, since: int | None = None
    ) -> set[str]:
        """Delete the files that `unreferenced` returns, and return them.

        What is on the stage is there for the live chains only.
        """
        self._lock.check()
        live = set(keep)
        names = self.unreferenced(live, before, since)
        self._system.for_each(self.storage.delete, sorted(names))
        if isinstance(self.storage, StagedStateStorage):
            for file in self.storage.staged():
                if file.name not in live and _is_older(file, before, since):
                    self.storage.forget(file.name)
        return names

    def _files_of(self, checkpoint: int) -> frozenset[str]:
        if checkpoint not in self._files:
            self.read(checkpoint)
        return self._files[checkpoint]

    # The beginning of the job

    def told_to_begin(self, where: str | None) -> list[int]:
        """Take note where the job was told to begin; return the checkpoints it has made since.

        There are some if a job that was told the same died before it came to an end that somebody
        wanted: whoever starts a dead job again with the settings it had wants it to go on.
        """
        path = self.directory / _TOLD
        with self._errors("write", path):
            told = self._told()
            if told is not None and told.where == where:
                return [number for number in self.completed() if number >= told.first]
            if where is not None:
                note = msgspec.json.encode(_Told(where, self.next_id()))
                self._system.write(str(path), note, durable=True)
            elif told is not None:
                self.forget_beginning()
            return []

    def forget_beginning(self) -> None:
        """The job has come to an end, or goes on: where it was told to begin is of no account."""
        path = self.directory / _TOLD
        with self._errors("remove", path):
            if self._system.exists(str(path)):
                self._system.delete(str(path))
                self._system.sync(str(self.directory))

    def _told(self) -> _Told | None:
        path = self.directory / _TOLD
        try:
            return msgspec.json.decode(self._system.read(str(path)), type=_Told)
        except MissingFileError:
            return None
        except msgspec.MsgspecError as error:
            where = self._system.uri(str(path))
            message = f"file '{where}' cannot be used: {error}; delete it to start as told"
            raise CheckpointCorruptionError(message) from error

    # The end of the job

    def mark_finished(self) -> None:
        """Say that the job came to its end: there is nothing to go on from."""
        self._lock.check()
        with self._errors("write", self.directory / _FINISHED):
            self._system.write(str(self.directory / _FINISHED), b"", durable=True)

    def clear_finished(self) -> None:
        """Take the mark away, when the job is run anew; what it left behind goes first."""
        if not self.is_finished():
            return
        for checkpoint in self.completed():
            self.discard(checkpoint)
        with self._errors("remove", self.directory / _FINISHED):
            # NB: once the mark is gone, a crash must not bring back what it stands for.
            for checkpoint in self._ids():
                self._system.sync(str(self._directory_of(checkpoint)))
            self._system.sync(str(self.directory))
            self._system.delete(str(self.directory / _FINISHED))
            self._system.sync(str(self.directory))

    def is_finished(self) -> bool:
        """Return whether the job came to its end."""
        return self._exists(self.directory / _FINISHED)

    def _ids(self) -> list[int]:
        with self._errors("list", self.directory):
            listed = self._system.list_directory(str(self.directory))
        matches = (_NAME.fullmatch(status.name) for status in listed)
        return sorted(int(match.group(1)) for match in matches if match)

    def _exists(self, path: PurePosixPath) -> bool:
        with self._errors("read", path):
            return self._system.exists(str(path))

    def _directory_of(self, checkpoint: int) -> PurePosixPath:
        return self.directory / f"chk-{checkpoint}"

    def _errors(self, action: str, path: PurePosixPath) -> AbstractContextManager[None]:
        return disk.errors(self._system, action, path)

    @property
    def address(self) -> str:
        """The directory, with its scheme."""
        return self._system.uri(str(self.directory))

    @property
    def files(self) -> FileSystem:
        """The file system that the directory is on."""
        return self._system

    @property
    def staging(self) -> str:
        """The address of the directory for what sinks keep until a checkpoint is complete."""
        return self._system.uri(str(self.directory / _STAGED))

    def address_of(self, checkpoint: int) -> str:
        """The directory of a checkpoint, with its scheme."""
        return self._system.uri(str(self._directory_of(checkpoint)))

    def __repr__(self) -> str:
        return f"CheckpointStore({self.address!r})"


class _Told(msgspec.Struct, frozen=True):
    """Where a job was told to begin, and the id of the first checkpoint that it makes then."""

    where: str
    first: int


def read_metadata(path: PurePosixPath, files: FileSystem) -> CheckpointMetadata:
    """Return what a metadata file holds.

    Raises:
        CheckpointCorruptionError: when it is damaged, or its directory is that of another
            checkpoint. (A savepoint may have a directory of any name.)
    """
    with disk.errors(files, "read checkpoint", path):
        data = files.read(str(path))
    where = files.uri(str(path))
    metadata = decode(data, where)
    named = _NAME.fullmatch(path.parent.name) or _SAVEPOINT_NAME.fullmatch(path.parent.name)
    if named is not None and int(named.group(1)) != metadata.id:
        what = f"expected checkpoint {named.group(1)}, found checkpoint {metadata.id}"
        raise CheckpointCorruptionError(f"checkpoint file '{where}' cannot be used: {what}")
    return metadata


def verify_files(metadata: CheckpointMetadata, state: DirectoryStateStorage, deep: bool) -> None:
    """Check that all state files are there with the right size; ``deep``: and checksum."""
    sizes = metadata.file_sizes()
    found = {file.name: file.size for file in state.list()}
    for name, size in sorted(sizes.items()):
        if name not in found:
            raise _unusable(metadata, state, name, f"expected {size} bytes, found no such file")
        if found[name] != size:
            raise _unusable(metadata, state, name, f"expected {size} bytes, found {found[name]}")

    def read(name: str) -> None:
        try:
            read_file(state, name, sizes[name])
        except StateCorruptionError as error:
            raise _unusable(metadata, state, name, str(error)) from error

    if deep:
        state.files.for_each(read, sorted(sizes))


def _unusable(
    metadata: CheckpointMetadata, state: DirectoryStateStorage, name: str, problem: str
) -> CheckpointCorruptionError:
    path = state.files.uri(str(state.directory / name))
    what = "savepoint" if metadata.savepoint else "checkpoint"
    return CheckpointCorruptionError(
        f"{what} {metadata.id} cannot be used: its state file '{path}': {problem}"
    )


def _is_older(file: FileStatus, before: float | None, since: int | None) -> bool:
    if file.is_directory or (before is not None and file.modified >= 1000 * before):
        return False
    epoch = _OF_EPOCH.match(file.name)
    return since is None or epoch is None or int(epoch.group(1)) < since
