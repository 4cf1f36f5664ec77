"""`StateSettings`: which backend a job uses, and how; shipped to the workers with the job."""

from __future__ import annotations

import hashlib
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.common.leftovers import named, sweep
from holdfast.common.private import check_private, user_directory

__all__ = ["DEFAULT_MEMORY", "StateSettings"]

DEFAULT_MEMORY: Final = 256 << 20


@dataclass(frozen=True)
class StateSettings:
    """How the subtasks of a job keep their state.

    Attributes:
        rocksdb: in RocksDB; otherwise in memory, and ``memory`` and ``threads`` do not matter.
        directories: of what is local to a host; by default the user's own directory.
        memory: about how much memory the state of a worker process may take, in bytes.
        threads: how many tables are copied at a time.
        check_mutations: look for values of state that are changed in place; for any backend.
        from_local: keep copies of state files on the host, and restore from them.
    """

    rocksdb: bool = False
    directories: tuple[str, ...] = ()
    memory: int = DEFAULT_MEMORY
    threads: int = 4
    check_mutations: bool = False
    from_local: bool = True

    def roots(self) -> list[Path]:
        """Return the directories of a host that databases, and copies of state files, are in."""
        return [Path(path) for path in self.directories] or [user_directory()]

    def home(self, key: bytes, level: int, subtask: int) -> Path:
        """Return the directory of a subtask on its host; ``key`` is that of its job.

        The name cannot be guessed without the key.
        """
        roots = self.roots()
        return roots[subtask % len(roots)] / _name(key) / f"{level}-{subtask}"

    def forget(self, key: bytes) -> None:
        """Delete all that this host has of a job that has ended, and what others left there."""
        if self.rocksdb or self.from_local:
            for root in self.roots():
                with suppress(OSError):
                    check_private(root / _name(key))
                    shutil.rmtree(root / _name(key), ignore_errors=True)
                sweep(root)


def _name(key: bytes) -> str:
    return named("state", hashlib.blake2b(key, person=b"name").digest())
