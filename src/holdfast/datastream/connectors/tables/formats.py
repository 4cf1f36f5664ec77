"""Which format the table in a directory has, found out without the library of that format."""

from __future__ import annotations

from typing import Final

from holdfast.filesystem import FileSystem, join

#: the directory that makes the one above it a Delta table
DELTA_LOG: Final = "_delta_log"


def is_delta_table(system: FileSystem, path: str) -> bool:
    """Return whether there is a Delta table in a directory.

    Raises:
        FileSystemError: when it cannot be looked at.
    """
    return system.exists(join(path, DELTA_LOG))
