"""Copies of state files on the host's disk, so that a restart does not fetch them again.

    holdfast-state-<job>/lock                      held by every process that has state of the job
    holdfast-state-<job>/<level>-<subtask>/files/  the files of one subtask, under their names

A file is copied after it was written to the checkpoint storage, by the thread that wrote it. A
restore reads the copy if it is intact, and otherwise the file in the storage. So nothing depends on
a copy: one that is missing, damaged or not writable only costs the time to fetch the file.

Tables of RocksDB are not copied, because the backend keeps them next to its databases.

The name of the directory is derived from the job's key (see
`holdfast.state.backends.rocksdb.home`), and everything in it must be owned by this user.
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
from holdfast.common.options.recovery import FROM_LOCAL
from holdfast.common.private import make_private, open_private
from holdfast.printable import get_logger
from holdfast.state.errors import StateCorruptionError
from holdfast.state.format.files import check_file
from holdfast.state.format.table_files import TABLE
from holdfast.state.settings import StateSettings
from holdfast.state.storage.directory import StateStorage

_logger = get_logger(__name__)


class Copies:
    """A host's copies of one subtask's state files; directories are created with the first copy."""

    def __init__(self, home: Path) -> None:
        """Use the directory of the subtask (`StateSettings.home`)."""
        self._home = home
        self._path = home / "files"
        self._job: SharedDirectory | None = None
        self._opening = threading.Lock()
        #: state that is still being written when its attempt has ended is not copied
        self._closed = False
        self._warned = False

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file; None if there is no copy.

        Raises:
            OSError: if it cannot be read, or is not private.
            StateCorruptionError: if the copy is damaged.
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
        """Store a copy of a file; if that fails, log a warning once."""
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
                "cannot store a copy of state file '%s' in '%s': %s; a restart reads it from the "
                "checkpoint storage; free space in this directory, or set '%s' to false",
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
                raise FileNotFoundError(errno.ENOENT, "the attempt has ended")
            if self._job is None:
                self._job = SharedDirectory(self._home.parent)
                make_private(self._home)
                make_private(self._path)

    def close(self, ended: bool = False) -> None:
        """Release the copies; with ``ended`` delete them, because no process will use them."""
        with self._opening:
            self._closed = True
            if self._job is not None:
                self._job.release()
                self._job = None
        if ended:
            shutil.rmtree(self._path, ignore_errors=True)
            remove_left_over(self._home.parent)


def copies_of(settings: StateSettings, key: bytes, level: int, subtask: int) -> Copies | None:
    """Return the copies of a subtask; None if copies are disabled, or not possible.

    ``key`` is the key of the job.
    """
    if not settings.from_local:
        return None
    try:
        return Copies(settings.home(key, level, subtask))
    except OSError as error:
        _logger.warning("no local copies of state files are stored: %s", error)
        return None


class Reads:
    """Thread-safe counters of the bytes of state files that were read, by origin.

    Attributes:
        stored: bytes from the storage.
        local: bytes from copies on the host.
        damaged: the number of copies that could not be used.
    """

    def __init__(self) -> None:
        """Start all counters at zero."""
        self.stored = self.local = self.damaged = 0
        self._lock = threading.Lock()

    def count(self, stored: int = 0, local: int = 0, damaged: int = 0) -> None:
        """Add to the counters."""
        with self._lock:
            self.stored += stored
            self.local += local
            self.damaged += damaged


class HostStorage:
    """A `StateStorage` that reads from the host's copies first, if there are any.

    Attributes:
        reads: counts the reads of this storage, and of the storages that `elsewhere` returns.
    """

    def __init__(
        self, storage: StateStorage, copies: Copies | None = None, reads: Reads | None = None
    ) -> None:
        """Read files from ``copies`` where possible, otherwise from ``storage``."""
        self.reads = reads or Reads()
        self._storage = storage
        self._copies = copies
        #: the files that are copied when they are read
        self._wanted: Container[str] = ()

    def write(self, name: str, data: bytes, durable: bool = False) -> None:
        """Write a file to the storage, and then store a copy of it."""
        self._storage.write(name, data, durable)
        self._copy(name, data)

    def read(self, name: str) -> bytes:
        """Return the contents of a file, from the storage if there is no intact copy."""
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
        """Keep copies of these files only, and of those that are written from now on.

        A file in ``names`` without a copy is copied when it is read.
        """
        self._wanted = names
        if self._copies is not None:
            try:
                self._copies.keep(names)
            except OSError as error:
                _logger.debug("copies of state files could not be deleted: %s", error)

    def upload(self, names: Iterable[str]) -> None:
        self._storage.upload(names)

    def sync(self, names: Iterable[str]) -> None:
        self._storage.sync(names)

    def delete(self, name: str) -> None:
        self._storage.delete(name)

    def exists(self, name: str) -> bool:
        return self._storage.exists(name)

    def elsewhere(self, directory: str) -> StateStorage:
        """Return the state files of another directory, which are not copied."""
        return HostStorage(self._storage.elsewhere(directory), None, self.reads)

    def close(self, ended: bool = False) -> None:
        """Release the copies; with ``ended`` delete them, because the job has ended."""
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
