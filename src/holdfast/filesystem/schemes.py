"""From an address to its file system."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from holdfast.filesystem.base import FileSystem
from holdfast.filesystem.local import LOCAL
from holdfast.filesystem.options import configured

if TYPE_CHECKING:
    from holdfast.filesystem.arrow import ArrowFileSystem

__all__ = ["SCHEMES", "check_scheme", "file_system_of", "remote_file_system"]

#: what an address may begin with; a path without a scheme is local
SCHEMES: Final = (
    "file",
    "s3",
    "s3a",
    "gs",
    "abfs",
    "abfss",
    "hdfs",
    "viewfs",
    "webhdfs",
    "swebhdfs",
)


def file_system_of(uri: str, options: Mapping[str, str] | None = None) -> tuple[FileSystem, str]:
    """The file system of an address, and the path of the address in it.

    Args:
        uri: a local path, or an address such as ``file:///x`` or ``s3a://bucket/x``.
        options: Hadoop's settings (``fs.s3a.endpoint``, …); by default those of ``configure``.

    Raises:
        ValueError: when the scheme is none of ``SCHEMES``.
        FileSystemError: when the file system cannot be reached.
    """
    if check_scheme(uri) == "file":
        is_address = uri.startswith("file:")
        return LOCAL, os.path.abspath(unquote(urlsplit(uri).path) if is_address else uri)
    split = urlsplit(uri)
    system = remote_file_system(f"{split.scheme}://{split.netloc}", options)
    return system, system.path_of(split.path)


def check_scheme(uri: str) -> str:
    """The scheme of an address, ``file`` for a path.

    Raises:
        ValueError: when it is none of ``SCHEMES``.
    """
    scheme = uri.split(":", 1)[0] if "://" in uri or uri.startswith("file:") else "file"
    if scheme not in SCHEMES:
        msg = f"there is no file system for '{uri}'; a path begins with / or {', '.join(SCHEMES)}"
        raise ValueError(msg)
    return scheme


def remote_file_system(root: str, options: Mapping[str, str] | None = None) -> ArrowFileSystem:
    """The file system of a scheme and an authority; a process has one of each."""
    given = None if options is None else tuple(sorted(options.items()))
    # NB: a connection must not be used on the other side of a fork
    return _connect(root, given, tuple(sorted(configured().items())), os.getpid())


@lru_cache(maxsize=64)
def _connect(
    root: str,
    options: tuple[tuple[str, str], ...] | None,
    configured: tuple[tuple[str, str], ...],
    process: int,
) -> ArrowFileSystem:
    from holdfast.filesystem.arrow import ArrowFileSystem

    return ArrowFileSystem(root, None if options is None else dict(options))
