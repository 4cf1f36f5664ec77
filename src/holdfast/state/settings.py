"""`StateSettings`: a job's state backend and its options, sent to the workers with the job."""

from __future__ import annotations

import hashlib
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.common.leftovers import named, sweep
from holdfast.common.private import check_private, user_directory

DEFAULT_MEMORY: Final = 256 << 20


@dataclass(frozen=True)
class StateSettings:
    """The state backend of a job, and its options.

    Attributes:
        rocksdb: keep state in RocksDB. Otherwise it is in memory, and ``memory`` and ``threads``
            have no effect.
        directories: the directories for files that are local to a host; by default the user's own
            directory.
        memory: the approximate memory limit for the state of a worker process, in bytes.
        threads: how many tables are copied at a time.
        check_mutations: detect values of state that are changed in place, with any backend.
        from_local: keep copies of state files on the host, and restore from them.
    """

    rocksdb: bool = False
    directories: tuple[str, ...] = ()
    memory: int = DEFAULT_MEMORY
    threads: int = 4
    check_mutations: bool = False
    from_local: bool = True

    def roots(self) -> list[Path]:
        """Return the directories of a host for databases and copies of state files."""
        return [Path(path) for path in self.directories] or [user_directory()]

    def home(self, key: bytes, level: int, subtask: int) -> Path:
        """Return the directory of a subtask on its host; ``key`` is the key of its job.

        The name cannot be guessed without the key.
        """
        roots = self.roots()
        return roots[subtask % len(roots)] / _name(key) / f"{level}-{subtask}"

    def forget(self, key: bytes) -> None:
        """Delete all files of an ended job on this host, and leftovers of other jobs."""
        if self.rocksdb or self.from_local:
            for root in self.roots():
                with suppress(OSError):
                    check_private(root / _name(key))
                    shutil.rmtree(root / _name(key), ignore_errors=True)
                sweep(root)


def _name(key: bytes) -> str:
    return named("state", hashlib.blake2b(key, person=b"name").digest())
