"""The checkpoints of a job, in its checkpoint directory.

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
from pathlib import PurePosixPath
from typing import Final

from holdfast.checkpoint import disk
from holdfast.checkpoint.directory import METADATA, STATE, CheckpointDirectory
from holdfast.checkpoint.errors import (
    CheckpointCorruptionError,
    CheckpointError,
    CheckpointStorageError,
)
from holdfast.checkpoint.job_notes import JobNotes
from holdfast.checkpoint.lock import DirectoryLock
from holdfast.checkpoint.metadata import CheckpointMetadata, encode
from holdfast.checkpoint.saved_image import SavedImage, read_metadata, verify_files
from holdfast.filesystem import FileStatus, FileSystem
from holdfast.filesystem.base import is_draft
from holdfast.filesystem.local import LOCAL
from holdfast.printable import get_logger
from holdfast.state.storage.directory import DirectoryStateStorage
from holdfast.state.storage.staged import StagedStateStorage, state_storage

#: the name of a state file that a subtask wrote begins with its epoch, after a dot if it is a draft
_OF_EPOCH: Final = re.compile(r"\.?(\d+)-")

_logger = get_logger(__name__)


class CheckpointStore:
    """The checkpoints of one job in a directory of a file system.

    All methods raise a `CheckpointError`, or a `StateStorageError` about a state file, that names
    the file and the cause. Call `acquire` first: it creates the directory.

    Attributes:
        state: the state files in this directory.
        storage: the same, as the subtasks use it. They write to a stage first if the directory is
            on other machines. It can be pickled if the file system can.
        notes: where the job was told to start, and whether it has finished.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        files: FileSystem = LOCAL,
        scratch: str | os.PathLike[str] | None = None,
    ) -> None:
        """Use a directory; ``scratch`` is the directory for a stage, if there is one."""
        self.directory = PurePosixPath(directory)
        self._place = CheckpointDirectory(self.directory, files)
        self.state = DirectoryStateStorage(self.directory / STATE, files)
        self.storage = state_storage(self.state.directory, files, scratch)
        self.notes = JobNotes(self._place)
        self._system = files
        self._lock = DirectoryLock(self.directory, files)
        #: the state files of complete checkpoints, by id, as far as they were read
        self._files: dict[int, frozenset[str]] = {}
        #: the state files of the last checkpoint, which are known to be durable
        self._durable: frozenset[str] = frozenset()

    def acquire(self, job_name: str = "") -> None:
        """Create the directory if needed, and lock it, or raise a DirectoryInUseError."""
        with self._place.errors("make checkpoint directory", self.directory):
            disk.make_home(self._system, self.directory, STATE)
            if isinstance(self.storage, StagedStateStorage):
                self.storage.make()
        self._lock.acquire(job_name)
        self._sweep_drafts()

    def _sweep_drafts(self) -> None:
        """Delete the unfinished files of a driver that died."""
        with self._place.errors("clean up", self.directory):
            for status in self._system.list_directory(str(self.directory)):
                if is_draft(status.name):
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
        return self._place.next_id()

    def begin(self, checkpoint: int) -> None:
        """Record an id that is assigned to a barrier (step 1)."""
        self._lock.check()
        path = self._place.of(checkpoint)
        with self._place.errors("make", path):
            self._system.make_directories(str(path))

    def write(self, metadata: CheckpointMetadata) -> None:
        """Write a checkpoint (step 9).

        Its state files are durable before its metadata exists. If this raises, it does not exist.
        """
        self._lock.check()
        path = self._place.of(metadata.id)
        if self._place.exists(path / METADATA):
            where = self._system.uri(str(path))
            message = f"cannot write checkpoint {metadata.id}: '{where}' is complete already"
            raise CheckpointStorageError(message)
        files = metadata.files()
        self.storage.sync(sorted(files - self._durable))
        with self._place.errors("write checkpoint", path / METADATA):
            self._system.make_directories(str(path))
            self._system.write(str(path / METADATA), encode(metadata), durable=True)
        self._files[metadata.id] = self._durable = files
        self._sweep(metadata.id)

    def _sweep(self, checkpoint: int) -> None:
        """Delete the remains of earlier checkpoints that were never completed."""
        for number in self._place.ids():
            path = self._place.of(number)
            if number < checkpoint and not self._place.exists(path / METADATA):
                with contextlib.suppress(OSError):
                    self._system.delete_tree(str(path))

    # Reading

    def completed(self) -> list[int]:
        """Return the ids of all complete checkpoints, oldest first."""
        return self._place.completed()

    def read(self, checkpoint: int) -> CheckpointMetadata:
        """Return the metadata of a complete checkpoint."""
        metadata = read_metadata(self._place.metadata_of(checkpoint), self._system)
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
        if self.notes.is_finished():
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
        path = self._place.of(checkpoint)
        with self._place.errors("discard checkpoint", path):
            # NB: the metadata first: without it the checkpoint does not exist. Its deletion must
            # be durable before state files are deleted. Otherwise a crash could bring the
            # checkpoint back without them.
            self._system.delete(str(path / METADATA))
            if checkpoint < max(self._place.ids(), default=0):
                self._system.delete_tree(str(path))
                self._place.sync()
            elif self._place.exists(path):
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

    # The end of the job

    def mark_finished(self) -> None:
        """Mark the job as finished: there is nothing to restore from."""
        self._lock.check()
        self.notes.finish()

    def clear_finished(self) -> None:
        """Remove the mark when the job is run again; first discard the remaining checkpoints."""
        if not self.notes.is_finished():
            return
        for checkpoint in self.completed():
            self.discard(checkpoint)
        self.notes.forget_finish()

    @property
    def address(self) -> str:
        """Return the directory, with its scheme."""
        return self._place.address

    @property
    def files(self) -> FileSystem:
        """Return the file system of the directory."""
        return self._system

    @property
    def staging(self) -> str:
        """Return the address of the directory for what sinks keep until a checkpoint completes."""
        return self._place.staging

    def address_of(self, checkpoint: int) -> str:
        """Return the directory of a checkpoint, with its scheme."""
        return self._place.address_of(self._place.of(checkpoint))

    def __repr__(self) -> str:
        return f"CheckpointStore({self.address!r})"


def _is_older(file: FileStatus, since: int | None) -> bool:
    # NB: a draft may be a directory in an object store
    if file.is_directory and not is_draft(file.name):
        return False
    epoch = _OF_EPOCH.match(file.name)
    return since is None or epoch is None or int(epoch.group(1)) < since
