"""The directory in which a host keeps the state of a subtask.

    holdfast-state-<job>/lock          held by every process with state of the job
    holdfast-state-<job>/<level>-<subtask>/
        files/         copies of state files (`holdfast.state.local_copies`)
        tables/        tables of bases, under the names of their state files
        0/, 1/, …      databases, each used by one process at a time
        0.lock, …      locked by that process for as long as it uses the database

Spark may run a subtask in any worker process of any host, so there is a database for each process
of the host in which it ran. The databases consist of hard links to the same tables, and of what
changed since. When a process ends, the next one of the same job can use its database.

A job has a key, which is stored in no file here and changes with each start of the program. The
name of the directory is derived from it, and a database is used again only if its standing is
sealed with it. The directory and each file must belong to this user, and must not be writable by
others.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Container, Iterator
from itertools import count
from pathlib import Path

from holdfast.common.leftovers import SharedDirectory, remove_left_over
from holdfast.common.private import is_private_file, make_private, open_private
from holdfast.state.errors import StateStorageError


class DatabasePlace:
    """A place for a database, locked."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @property
    def is_used(self) -> bool:
        """Return whether there is a database."""
        return (self.path / "CURRENT").exists()

    @property
    def is_private(self) -> bool:
        """Return whether it contains only files that no other user can have written."""
        return all(is_private_file(path) for path in self.path.iterdir())

    def wipe(self) -> None:
        """Delete the database."""
        shutil.rmtree(self.path, ignore_errors=True)
        make_private(self.path)

    def release(self) -> None:
        """Unlock it."""
        os.close(self._lock)


class LocalHome:
    """The local files of one subtask; nothing is created before a place is requested."""

    def __init__(self, path: Path, key: bytes) -> None:
        """Use that directory; ``key``: the key of the job."""
        self.path = path
        self.key = key
        self.tables = path / "tables"
        self._job: SharedDirectory | None = None

    def free_places(self) -> Iterator[DatabasePlace]:
        """Yield unused places in order, without end; each one is locked."""
        try:
            self._make()
            for number in count():
                lock = open_private(self.path / f"{number}.lock", os.O_RDWR | os.O_CREAT)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(lock)
                    continue
                yield DatabasePlace(self.path / str(number), lock)
        except OSError as error:
            message = (
                f"cannot keep state in {str(self.path)!r}: {error.strerror or error}; set "
                "state.backend.rocksdb.localdir to a directory that can be written to"
            )
            raise StateStorageError(message) from error

    def _make(self) -> None:
        if self._job is None:
            self._job = SharedDirectory(self.path.parent)
        make_private(self.path)
        make_private(self.tables)

    def release(self) -> None:
        """Record that this process has no state of the subtask here any more."""
        if self._job is not None:
            self._job.release()
            self._job = None

    def delete(self) -> None:
        """Delete everything after the end of the job, the last subtask also the job's directory."""
        self.release()
        shutil.rmtree(self.path, ignore_errors=True)
        remove_left_over(self.path.parent)

    def has_table(self, name: str) -> bool:
        """Return whether a table exists and can be used."""
        return is_private_file(self.tables / name)

    def keep_tables(self, names: Container[str]) -> None:
        """Delete all other tables; databases keep their own links."""
        for path in self.tables.glob("[!.]*"):
            if path.name not in names:
                path.unlink(missing_ok=True)
