"""`StateSettings`: which backend a job uses, and how; shipped to the workers with the job."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["DEFAULT_MEMORY", "ORIGIN", "StateSettings", "sweep"]

DEFAULT_MEMORY: Final = 256 << 20
#: the file in the directory of a job that says where its state files are
ORIGIN: Final = "origin"
#: what the names of the directories of jobs begin with
_PREFIX: Final = "holdfast-rocksdb-"


@dataclass(frozen=True)
class StateSettings:
    """How the subtasks of a job keep their state.

    Attributes:
        rocksdb: in RocksDB; otherwise in memory, and the next three do not matter.
        directories: where the databases are, of each host; none is the temporary directory.
        memory: about how much memory the state of a worker process may take, in bytes.
        threads: how many tables are copied at a time.
        check_mutations: look for values of state that are changed in place; for any backend.
    """

    rocksdb: bool = False
    directories: tuple[str, ...] = ()
    memory: int = DEFAULT_MEMORY
    threads: int = 4
    check_mutations: bool = False

    def roots(self) -> list[Path]:
        """Return the directories of a host that databases are in."""
        return [Path(path) for path in self.directories or (tempfile.gettempdir(),)]

    def home(self, job: str, level: int, subtask: int) -> Path:
        """Return the directory of a subtask on its host.

        ``job`` is the same for all runs that may find each other's state, and for no others: the
        directory of its state files.
        """
        roots = self.roots()
        return roots[subtask % len(roots)] / _name(job) / f"{level}-{subtask}"

    def forget(self, job: str) -> None:
        """Delete all that this host has of a job."""
        for root in self.roots():
            shutil.rmtree(root / _name(job), ignore_errors=True)


def _name(job: str) -> str:
    return f"{_PREFIX}{hashlib.sha256(job.encode()).hexdigest()[:16]}"


def sweep(root: Path) -> None:
    """Delete what jobs have left whose state files are gone, so that they can never go on."""
    for job in root.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            origin = (job / ORIGIN).read_text()
            if os.path.isabs(origin) and not os.path.exists(origin):
                shutil.rmtree(job, ignore_errors=True)
