"""Whether a file can be written: found out before there is something to write."""

from __future__ import annotations

from holdfast.filesystem.base import FileSystem


def probe(system: FileSystem, path: str) -> None:
    """Write a small file and delete it again; its directory stays.

    Raises:
        FileSystemError: when that is not possible.
    """
    with system.errors("write", path), system.open_output(path) as stream:
        stream.write(b"-")
    system.delete(path)
