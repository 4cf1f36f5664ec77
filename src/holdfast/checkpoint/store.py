"""The checkpoint directory of a job.

    <directory>/chk-7/_metadata   a checkpoint is complete when this file exists
    <directory>/chk-8/            a checkpoint in progress
    <directory>/state/            the state files of all checkpoints, and of the epochs in between
    <directory>/staged/           what sinks have written but not committed
    <directory>/lock              held by the live job
    <directory>/told              where the live job was told to start, if it was
    <directory>/finished          the job has finished and cannot be restored

Invariant: when a metadata file exists, it and every file that it names are complete and durable.

Invariant: a state file is deleted only when no complete checkpoint and no live head names it.
Consequence: checkpoints share increments, and a file is deleted after the last that needs it.

Invariant: the directory of the highest id is kept. Consequence: an id is never used again, even if
the driver dies.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
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
from holdfast.state.format.stored_files import read_file
from holdfast.state.storage.directory import DirectoryStateStorage
from holdfast.state.storage.staged import StagedStateStorage, state_storage

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


@dataclass(frozen=True)
class SavedImage:
    """A checkpoint or a savepoint, which a job starts from or which is read without a job.

    Attributes:
        address: the address of its directory.
        own: whether it is a checkpoint of the job itself, which continues with its files.
        trusted: whether pickled values in its files may be unpickled.
    """

    address: str
    metadata: CheckpointMetadata
    storage: DirectoryStateStorage
    own: bool = False
    trusted: bool = True

    @property
    def directory(self) -> str | None:
        """Return the address of its state files; None if they are the job's own."""
        return None if self.own else self.storage.address


class CheckpointStore:
    """The checkpoints of one job in a directory of a file system.

    All methods raise a `CheckpointError`, or a `StateStorageError` about a state file, that names
    the file and the cause. Call `acquire` first: it creates the directory.

    Attributes:
        state: the state files in this directory.
        storage: the same, as the subtasks use it. They write to a stage first if the directory is
            on other machines. It can be pickled if the file system can.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        files: FileSystem = LOCAL,
        scratch: str | os.PathLike[str] | None = None,
    ) -> None:
        """Use a directory; ``scratch`` is the directory for a stage, if there is one."""
        self.directory = PurePosixPath(directory)
        self.state = DirectoryStateStorage(self.directory / STATE, files)
        self.storage = state_storage(self.state.directory, files, scratch)
        self._system = files
        self._lock = DirectoryLock(self.directory, files)
        #: the state files of complete checkpoints, by id, as far as they were read
        self._files: dict[int, frozenset[str]] = {}
        #: the state files of the last checkpoint, which are known to be durable
        self._durable: frozenset[str] = frozenset()

    def acquire(self, job_name: str = "") -> None:
        """Create the directory if needed, and lock it, or raise a DirectoryInUseError."""
        with self._errors("make checkpoint directory", self.directory):
            disk.make_home(self._system, self.directory, STATE)
            if isinstance(self.storage, StagedStateStorage):
                self.storage.make()
        self._lock.acquire(job_name)
        self._sweep_drafts()

    def _sweep_drafts(self) -> None:
        """Delete the unfinished files of a driver that died."""
        with self._errors("clean up", self.directory):
            for status in self._system.list_directory(str(self.directory)):
                if status.name.startswith(".") and status.name.endswith(".tmp"):
                    self._system.delete(str(self.directory / status.name))

    def release(self) -> None:
        """Release the lock. The end of the process does that too."""
        self._lock.release()

    def check_lock(self, ask: bool = True) -> None:
        """Raise a DirectoryInUseError if another job has taken over the directory.

        ``ask``: read the lock file, which takes a call to the file system. Otherwise only what is
        known already counts.
        """
        self._lock.check(ask)

    # Writing

    def next_id(self) -> int:
        """Return an id larger than all that were started or written here."""
        return max(self._ids(), default=0) + 1

    def begin(self, checkpoint: int) -> None:
        """Record an id that is assigned to a barrier (step 1)."""
        self._lock.check()
        path = self._directory_of(checkpoint)
        with self._errors("make", path):
            self._system.make_directories(str(path))

    def write(self, metadata: CheckpointMetadata) -> None:
        """Write a checkpoint (step 9).

        Its state files are durable before its metadata exists. If this raises, it does not exist.
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
        """Delete the remains of earlier checkpoints that were never completed."""
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
        """Return the metadata of a complete checkpoint."""
        metadata = read_metadata(self._directory_of(checkpoint) / METADATA, self._system)
        self._files[checkpoint] = metadata.files()
        return metadata

    def latest(
        self, deep: bool = False, among: Iterable[int] | None = None
    ) -> CheckpointMetadata | None:
        """Return the newest intact checkpoint; None if there is none to restore from.

        Intact: every state file exists and has the right size, and with ``deep`` the right
        checksum. ``among``: consider only these. A newer checkpoint that is damaged is skipped with
        a warning. If all are damaged, or the storage does not respond, raise: only the user may
        decide to start from scratch.
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

    def image(self, metadata: CheckpointMetadata) -> SavedImage:
        """Return a checkpoint of this directory as the start of its own job."""
        return SavedImage(self.address_of(metadata.id), metadata, self.state, own=True)

    # Discarding

    def discard(self, checkpoint: int) -> None:
        """Discard a checkpoint (step 10); its state files are kept while they are needed."""
        self._lock.check()
        path = self._directory_of(checkpoint)
        with self._errors("discard checkpoint", path):
            # NB: the metadata first: without it the checkpoint does not exist. Its deletion must
            # be durable before state files are deleted. Otherwise a crash could bring the
            # checkpoint back without them.
            self._system.delete(str(path / METADATA))
            if checkpoint < max(self._ids(), default=0):
                self._system.delete_tree(str(path))
                self._system.sync(str(self.directory))
            elif self._exists(path):
                self._system.sync(str(path))
        self._files.pop(checkpoint, None)

    def unreferenced(self, keep: Iterable[str], since: int | None = None) -> set[str]:
        """Return the names of state files that neither ``keep`` nor a complete checkpoint names.

        ``keep`` are the files of the live heads. The files that a running epoch writes are not
        named anywhere yet, so call this between epochs. ``since``: files of this epoch and later
        ones are still being written, and are not returned. If the metadata of a complete checkpoint
        cannot be read, its files are unknown. Then nothing is returned until it is discarded.
        """
        needed = set(keep)
        for checkpoint in self.completed():
            try:
                needed |= self._files_of(checkpoint)
            except CheckpointError as error:
                _logger.warning("no state file is deleted until this is resolved: %s", error)
                return set()
        files = self.state.list()
        return {f.name for f in files if f.name not in needed and _is_older(f, since)}

    def collect(self, keep: Iterable[str], since: int | None = None) -> set[str]:
        """Delete the files that `unreferenced` returns, and return their names.

        Staged files are needed for the live heads only.
        """
        self._lock.check()
        live = set(keep)
        names = self.unreferenced(live, since)
        self._system.for_each(self.storage.delete, sorted(names))
        if isinstance(self.storage, StagedStateStorage):
            for file in self.storage.staged():
                if file.name not in live and _is_older(file, since):
                    self.storage.forget(file.name)
        return names

    def _files_of(self, checkpoint: int) -> frozenset[str]:
        if checkpoint not in self._files:
            self.read(checkpoint)
        return self._files[checkpoint]

    # The start of the job

    def told_to_begin(self, where: str | None) -> list[int]:
        """Record where the job was told to start; return the checkpoints it has taken since then.

        There are some if a job with the same setting died before it came to a regular end. If such
        a job is started again with the same settings, the user wants it to continue.
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
        """Delete the record of the start, because the job has ended or continues without it."""
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
            message = f"file '{where}' cannot be used: {error}; delete it to start as configured"
            raise CheckpointCorruptionError(message) from error

    # The end of the job

    def mark_finished(self) -> None:
        """Mark the job as finished: there is nothing to restore from."""
        self._lock.check()
        with self._errors("write", self.directory / _FINISHED):
            self._system.write(str(self.directory / _FINISHED), b"", durable=True)

    def clear_finished(self) -> None:
        """Remove the mark when the job is run again; first discard the remaining checkpoints."""
        if not self.is_finished():
            return
        for checkpoint in self.completed():
            self.discard(checkpoint)
        with self._errors("remove", self.directory / _FINISHED):
            # NB: once the mark is gone, a crash must not bring back the checkpoints it stands for.
            for checkpoint in self._ids():
                self._system.sync(str(self._directory_of(checkpoint)))
            self._system.sync(str(self.directory))
            self._system.delete(str(self.directory / _FINISHED))
            self._system.sync(str(self.directory))

    def is_finished(self) -> bool:
        """Return whether the job has finished."""
        return self._exists(self.directory / _FINISHED)

    def _ids(self) -> list[int]:
        with self._errors("list", self.directory):
            listed = self._system.list_directory(str(self.directory))
        numbers = (number_of(status.name) for status in listed)
        return sorted(number for number in numbers if number is not None)

    def _exists(self, path: PurePosixPath) -> bool:
        with self._errors("read", path):
            return self._system.exists(str(path))

    def _directory_of(self, checkpoint: int) -> PurePosixPath:
        return self.directory / f"chk-{checkpoint}"

    def _errors(self, action: str, path: PurePosixPath) -> AbstractContextManager[None]:
        return disk.errors(self._system, action, path)

    @property
    def address(self) -> str:
        """Return the directory, with its scheme."""
        return self._system.uri(str(self.directory))

    @property
    def files(self) -> FileSystem:
        """Return the file system of the directory."""
        return self._system

    @property
    def staging(self) -> str:
        """Return the address of the directory for what sinks keep until a checkpoint completes."""
        return self._system.uri(str(self.directory / _STAGED))

    def address_of(self, checkpoint: int) -> str:
        """Return the directory of a checkpoint, with its scheme."""
        return self._system.uri(str(self._directory_of(checkpoint)))

    def __repr__(self) -> str:
        return f"CheckpointStore({self.address!r})"


class _Told(msgspec.Struct, frozen=True):
    """Where a job was told to start, and the id of the first checkpoint that it takes then."""

    where: str
    first: int


def number_of(name: str) -> int | None:
    """Return the number of the checkpoint with a directory of this name; None if it has none."""
    named = _NAME.fullmatch(name)
    return None if named is None else int(named.group(1))


def read_metadata(path: PurePosixPath, files: FileSystem) -> CheckpointMetadata:
    """Return the contents of a metadata file.

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
    """Check that all state files exist with the right size; ``deep``: also their checksums."""
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


def _is_older(file: FileStatus, since: int | None) -> bool:
    if file.is_directory:
        return False
    epoch = _OF_EPOCH.match(file.name)
    return since is None or epoch is None or int(epoch.group(1)) < since
