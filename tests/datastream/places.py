"""Where the tables of a test are: on this machine, in an object store, on HDFS.

A test gets its place from the fixture `place`, or from one that uses it. It is on this machine,
unless the test is marked with `everywhere`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.filesystem import FileSystem, file_system_of, join

HDFS = pytest.param("hdfs", marks=pytest.mark.spark)
everywhere = pytest.mark.parametrize("place", ["local", "s3", HDFS], indirect=True)


def files_below(uri: str) -> list[str]:
    """The paths of all files below an address, relative to it."""
    system, base = file_system_of(uri)
    return sorted(path.removeprefix(f"{base}/") for path in _files(system, base))


def _files(system: FileSystem, directory: str) -> Iterator[str]:
    for status in system.list_directory(directory):
        path = join(directory, status.name)
        if status.is_directory:
            yield from _files(system, path)
        else:
            yield path
