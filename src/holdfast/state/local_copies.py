"""Copies of state files on the disk of the host, so that a restart does not fetch them again.

    holdfast-state-<job>/lock                      held by every process with state of the job
    holdfast-state-<job>/<level>-<subtask>/files/  the files of one subtask, under their names

A file is copied when it is in the checkpoint storage, by the thread that wrote it there. A restore
reads the copy if it is whole, and otherwise the file in the storage. So nothing depends on a copy:
one that is missing or damaged, or cannot be written, costs the time to fetch the file.

Tables of RocksDB are not copied, because the backend keeps them beside its databases.

The name of the directory comes from the job's key (see `holdfast.state.rocksdb_home`), and all that
is in it must be this user's.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import uuid
from collections.abc import Container, Iterable
from contextlib import suppress
from pathlib import Path

from holdfast.common.leftovers import SharedDirectory, remove_left_over
from holdfast.common.private import make_private, open_private
from holdfast.common.recovery_options import FROM_LOCAL
from holdfast.printable import get_logger
from holdfast.state.errors import StateCorruptionError
from holdfast.state.files import check_file
from holdfast.state.settings import StateSettings
from holdfast.state.storage import StateStorage
from holdfast.state.table_files import TABLE

__all__ = ["Copies", "HostStorage", "Reads", "copies_of"]

_logger = get_logger(__name__)


class Copies:
    """The copies that a host has of one subtask's state files; nothing is made before the first."""

    def __init__(self, home: Path) -> None:
        """Be in the directory of the subtask (`StateSettings.home`)."""
        self._home = home
        self._path = home / "files"
        self._job: SharedDirectory | None = None
        self._opening = threading.Lock()
        #: a state that is still being written when its attempt is over is not copied
        self._closed = False
        self._warned = False

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file; None if there is no copy.

        Raises:
            OSError: when it cannot be read, or is not private.
            StateCorruptionError: when the copy is damaged.
        """
        if not self._path.exists():
            return None
        self._open()
        try:
            file = open_private(self._path / name)
        except FileNotFoundError:
            return None
        with open(file, "rb") as copy:
            data = copy.read()
        check_file(data, name)
        return data

    def write(self, name: str, data: bytes) -> None:
        """Keep a copy of a file; if that is not possible, there is none, and one warning."""
        draft = self._path / f".{name}.{uuid.uuid4().hex}.tmp"
        try:
            self._open()
            with open(open_private(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.write(data)
            draft.replace(self._path / name)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            self._warn(name, error)

    def _warn(self, name: str, error: OSError) -> None:
        if not (self._warned or self._closed):
            self._warned = True
            _logger.warning(
                "cannot keep a copy of state file '%s' in '%s': %s; a restart reads it from the "
                "checkpoint storage: free space there, or set '%s' to false",
                name,
                self._path,
                error.strerror or error,
                FROM_LOCAL,
            )

    def keep(self, names: Container[str]) -> None:
        """Delete the copies of all other files."""
        if self._path.exists():
            for path in list(self._path.iterdir()):
                if path.name not in names:
                    path.unlink(missing_ok=True)

    def _open(self) -> None:
        with self._opening:
            if self._closed:
                raise FileNotFoundError(errno.ENOENT, "the attempt is over")
            if self._job is None:
                self._job = SharedDirectory(self._home.parent)
                make_private(self._home)
                make_private(self._path)

    def close(self, ended: bool = False) -> None:
        """Say that this process does not use them any more; ``ended``: nor will any other."""
        with self._opening:
            self._closed = True
            if self._job is not None:
                self._job.release()
                self._job = None
        if ended:
            shutil.rmtree(self._path, ignore_errors=True)
            remove_left_over(self._home.parent)


def copies_of(settings: StateSettings, key: bytes, level: int, subtask: int) -> Copies | None:
    """Return the copies of a subtask; None if its host is to keep none, or cannot.

    ``key`` is that of the job.
    """
    if not settings.from_local:
        return None
    try:
        return Copies(settings.home(key, level, subtask))
    except OSError as error:
        _logger.warning("no copies of state files are kept: %s", error)
        return None


class Reads:
    """How many bytes of state files were read, and from where; any thread may count.

    Attributes:
        stored: from the storage.
        local: from copies on the host.
        damaged: how many copies could not be used.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        self.stored = self.local = self.damaged = 0
        self._lock = threading.Lock()

    def count(self, stored: int = 0, local: int = 0, damaged: int = 0) -> None:
        """Add to the counts."""
        with self._lock:
            self.stored += stored
            self.local += local
            self.damaged += damaged


class HostStorage:
    """A `StateStorage` as a host sees it: with copies of its own before it, if it keeps any.

    Attributes:
        reads: what was read through it, and through what `elsewhere` returns.
    """

    def __init__(
        self, storage: StateStorage, copies: Copies | None = None, reads: Reads | None = None
    ) -> None:
        """Read from the copies what is there."""
        self.reads = reads or Reads()
        self._storage = storage
        self._copies = copies
        #: the files that are copied when they are read
        self._wanted: Container[str] = ()

    def write(self, name: str, data: bytes, durable: bool = False) -> None:
        """Write a file to the storage, and then keep a copy of it."""
        self._storage.write(name, data, durable)
        self._copy(name, data)

    def read(self, name: str) -> bytes:
        """Return the contents of a file; the storage is asked if there is no whole copy."""
        data = self._read_copy(name)
        if data is not None:
            self.reads.count(local=len(data))
            return data
        data = self._storage.read(name)
        self.reads.count(stored=len(data))
        if name in self._wanted:
            self._copy(name, data)
        return data

    def keep(self, names: Container[str]) -> None:
        """Have copies of these files only, and of those that are written from now on.

        Those of these files that have no copy get one when they are read.
        """
        self._wanted = names
        if self._copies is not None:
            try:
                self._copies.keep(names)
            except OSError as error:
                _logger.debug("copies of state files could not be deleted: %s", error)

    def upload(self, names: Iterable[str]) -> None:
        """Bring files to where checkpoints are."""
        self._storage.upload(names)

    def sync(self, names: Iterable[str]) -> None:
        """Make files durable."""
        self._storage.sync(names)

    def delete(self, name: str) -> None:
        """Delete a file in the storage."""
        self._storage.delete(name)

    def exists(self, name: str) -> bool:
        """Return whether the storage has such a file."""
        return self._storage.exists(name)

    def elsewhere(self, directory: str) -> StateStorage:
        """Return the state files of another directory, of which there are no copies."""
        return HostStorage(self._storage.elsewhere(directory), None, self.reads)

    def close(self, ended: bool = False) -> None:
        """Let go of the copies; ``ended``: the job has ended, and nobody needs them."""
        if self._copies is not None:
            self._copies.close(ended)

    def _read_copy(self, name: str) -> bytes | None:
        if self._copies is None:
            return None
        try:
            return self._copies.read(name)
        except (OSError, StateCorruptionError) as error:
            _logger.debug("the copy of state file '%s' cannot be used: %s", name, error)
            self.reads.count(damaged=1)
            return None

    def _copy(self, name: str, data: bytes) -> None:
        if self._copies is not None and not name.endswith(TABLE):
            self._copies.write(name, data)
