"""The directory that a host keeps the state of a subtask in.

    holdfast-state-<job>/lock          held by every process with state of the job
    holdfast-state-<job>/<level>-<subtask>/
        files/         copies of state files (`holdfast.state.local_copies`)
        tables/        tables of bases, under the names of their state files
        0/, 1/, …      databases, each used by one process at a time
        0.lock, …      locked by that process for as long as it uses the database

Spark runs a subtask in any worker process of any host, so there is a database for each process of
a host that it ran in. They are made of hard links to the same tables; what else they hold is what
changed since. A process that ends leaves its database to the next one of the same job.

A job has a key, which is in no file here and is another one with each start of the program. The
name of the directory comes from it, and a database is used again only if what it says of itself is
sealed with it. Besides, the directory and each file must be this user's, and not writable by
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

__all__ = ["Home", "Slot"]


class Slot:
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
        """Return whether all that is in it is files that only this user can have written."""
        return all(is_private_file(path) for path in self.path.iterdir())

    def wipe(self) -> None:
        """Delete the database."""
        shutil.rmtree(self.path, ignore_errors=True)
        make_private(self.path)

    def release(self) -> None:
        """Let others have it."""
        os.close(self._lock)


class Home:
    """The local files of one subtask; nothing is made before a slot is asked for."""

    def __init__(self, path: Path, key: bytes) -> None:
        """Be in that directory; ``key`` is that of the job."""
        self.path = path
        self.key = key
        self.tables = path / "tables"
        self._job: SharedDirectory | None = None

    def free_slots(self) -> Iterator[Slot]:
        """Yield places that no process uses, in their order, without an end; each is locked."""
        try:
            self._make()
            for number in count():
                lock = open_private(self.path / f"{number}.lock", os.O_RDWR | os.O_CREAT)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(lock)
                    continue
                yield Slot(self.path / str(number), lock)
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
        """Say that this process has no state of the subtask here any more."""
        if self._job is not None:
            self._job.release()
            self._job = None

    def delete(self) -> None:
        """Delete everything, and what is of the whole job with the last subtask: it has ended."""
        self.release()
        shutil.rmtree(self.path, ignore_errors=True)
        remove_left_over(self.path.parent)

    def has_table(self, name: str) -> bool:
        """Return whether a table is here, and can be used."""
        return is_private_file(self.tables / name)

    def keep_tables(self, names: Container[str]) -> None:
        """Delete all other tables; databases that are made of them keep theirs."""
        for path in self.tables.glob("[!.]*"):
            if path.name not in names:
                path.unlink(missing_ok=True)
