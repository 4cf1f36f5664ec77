"""The directory that a host keeps the state of a subtask in.

    holdfast-rocksdb-<job>/origin          the directory of the job's state files
    holdfast-rocksdb-<job>/<level>-<subtask>/
        tables/        tables of bases, under the names of their state files
        0/, 1/, …      databases, each used by one process at a time
        0.lock, …      locked by that process for as long as it uses the database

Spark runs a subtask in any worker process of any host, so there is a database for each process of
a host that it ran in. They are made of hard links to the same tables; what else they hold is what
changed since. A process that ends leaves its database to the next one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Container, Iterator
from itertools import count
from pathlib import Path

from holdfast.state.errors import StateStorageError
from holdfast.state.settings import ORIGIN, sweep

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

    def wipe(self) -> None:
        """Delete the database."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()

    def release(self) -> None:
        """Let others have it."""
        os.close(self._lock)


class Home:
    """The local files of one subtask; nothing is made before a slot is asked for."""

    def __init__(self, path: Path, origin: str = "") -> None:
        """Be in that directory; ``origin`` is the directory of the job's state files, if any."""
        self.path = path
        self.tables = path / "tables"
        self._origin = origin

    def free_slots(self) -> Iterator[Slot]:
        """Yield places that no process uses, in their order, without an end; each is locked."""
        try:
            self._make()
            for number in count():
                lock = os.open(self.path / f"{number}.lock", os.O_RDWR | os.O_CREAT, 0o644)
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
        job = self.path.parent
        if not job.exists():
            sweep(job.parent)
        self.tables.mkdir(parents=True, exist_ok=True)
        (job / ORIGIN).write_text(self._origin)

    def delete(self) -> None:
        """Delete everything, and what is of the whole job with the last subtask: it has ended."""
        shutil.rmtree(self.path, ignore_errors=True)
        job = self.path.parent
        if job.exists() and [path.name for path in job.iterdir()] == [ORIGIN]:
            shutil.rmtree(job, ignore_errors=True)

    def has_table(self, name: str) -> bool:
        """Return whether a table is here."""
        return (self.tables / name).exists()

    def keep_tables(self, names: Container[str]) -> None:
        """Delete all other tables; databases that are made of them keep theirs."""
        for path in self.tables.glob("[!.]*"):
            if path.name not in names:
                path.unlink(missing_ok=True)
