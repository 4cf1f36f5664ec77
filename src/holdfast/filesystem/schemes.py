"""From an address to its file system."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from holdfast.errors import ConfigurationError
from holdfast.filesystem.base import FileSystem, find_with
from holdfast.filesystem.local import LOCAL

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

#: file systems that only this process knows, by what their addresses begin with
_mounted: dict[str, FileSystem] = {}


def mount(root: str, system: FileSystem) -> None:
    """Map addresses that begin with ``root`` to a file system, in this process."""
    _mounted[root] = system


def unmount(root: str) -> None:
    """Undo `mount`."""
    _mounted.pop(root, None)


def file_system_of(uri: str, options: Mapping[str, str] | None = None) -> tuple[FileSystem, str]:
    """Return the file system of an address, and the path of the address in it.

    Args:
        uri: a local path, or an address such as ``file:///x`` or ``s3a://bucket/x``.
        options: Hadoop's settings (``fs.s3a.endpoint``, …); by default those of ``configure``.

    Raises:
        ConfigurationError: when the scheme is none of ``SCHEMES``.
        FileSystemError: when the file system cannot be reached.
    """
    for root, mounted in list(_mounted.items()):
        if uri.startswith(f"{root}/"):
            return mounted, uri.removeprefix(root)
    if check_scheme(uri) == "file":
        is_address = uri.startswith("file:")
        return LOCAL, os.path.abspath(unquote(urlsplit(uri).path) if is_address else uri)
    return _remote(uri, options)


def _remote(uri: str, options: Mapping[str, str] | None) -> tuple[FileSystem, str]:
    from holdfast.filesystem.arrow import ArrowFileSystem, connected
    from holdfast.filesystem.azure import AzureFileSystem
    from holdfast.filesystem.google import GoogleFileSystem

    split = urlsplit(uri)
    kinds = {"gs": GoogleFileSystem, "abfs": AzureFileSystem, "abfss": AzureFileSystem}
    kind = kinds.get(split.scheme, ArrowFileSystem)
    system = connected(kind, f"{split.scheme}://{split.netloc}", options)
    return system, system.path_of(split.path)


def check_scheme(uri: str) -> str:
    """Return the scheme of an address, ``file`` for a path.

    Raises:
        ConfigurationError: when it is none of ``SCHEMES``.
    """
    scheme = uri.split(":", 1)[0] if "://" in uri or uri.startswith("file:") else "file"
    if scheme not in SCHEMES:
        known = ", ".join(SCHEMES)
        message = f"there is no file system for '{uri}'; a path begins with / or {known}"
        raise ConfigurationError(message)
    return scheme


find_with(file_system_of)
