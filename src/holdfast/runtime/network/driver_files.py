"""Access to files in the driver's directory from other hosts, through the driver's desk.

For a job without a storage that all hosts share. Every byte goes through the driver, which is fine
for small state. A job with much state needs a checkpoint directory.
"""

from __future__ import annotations

import io
from typing import Any, BinaryIO

from holdfast.filesystem import FileLock, FileStatus, FileSystem
from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.desk import ask
from holdfast.runtime.network.handshake import PeerError


def driver_root(desk: Address) -> str:
    """Return the prefix of the addresses of a driver's files; the paths are those of the driver."""
    host = f"[{desk.host}]" if ":" in desk.host else desk.host
    return f"driver://{host}:{desk.port}"


class DriverFileSystem(FileSystem):
    """The files of the driver. Each call has its own connection, so none must be kept alive."""

    is_remote = True
    _failures = (OSError, EOFError, PeerError)

    def __init__(self, desk: Address, certificate: bytes = b"") -> None:
        """Send requests to the desk at this address."""
        self._desk = desk
        self._certificate = certificate

    def uri(self, path: str) -> str:
        """Return the address of a path, for processes of this job."""
        return driver_root(self._desk) + path

    def open_output(self, path: str) -> BinaryIO:
        """Return a stream whose contents are written when it is closed."""
        return _DriverOutput(self, path)

    def open_input(self, path: str) -> BinaryIO:
        """Return a stream over the whole contents."""
        return io.BytesIO(self.read(path))

    def read(self, path: str) -> bytes:
        return self._call("read", path)  # type: ignore[no-any-return]

    def write(self, path: str, data: bytes, durable: bool = False) -> None:
        self._call("write", path, bytes(data), durable)

    def move(self, source: str, target: str) -> None:
        """Rename, atomically."""
        self._call("move", source, target)

    def delete(self, path: str) -> None:
        self._call("delete", path)

    def delete_tree(self, path: str) -> None:
        self._call("delete_tree", path)

    def delete_if_empty(self, path: str) -> None:
        self._call("delete_if_empty", path)

    def list_directory(self, path: str) -> list[FileStatus]:
        return self._call("list_directory", path)  # type: ignore[no-any-return]

    def status(self, path: str) -> FileStatus | None:
        return self._call("status", path)  # type: ignore[no-any-return]

    def make_directories(self, path: str) -> None:
        self._call("make_directories", path)

    def sync(self, path: str) -> None:
        self._call("sync", path)

    def lock(self, path: str, contents: bytes) -> FileLock:
        """Raise an error: only the driver itself locks its files."""
        with self.errors("lock", path):
            message = "only the driver locks its files"
            raise OSError(message)

    def _call(self, method: str, path: str, *arguments: Any) -> Any:
        with self.errors(method.replace("_", " "), path):
            result, error = ask(self._desk, self._certificate, "call", method, path, *arguments)
            if error is not None:
                raise error
            return result

    def __repr__(self) -> str:
        return f"DriverFileSystem({driver_root(self._desk)!r})"


class _DriverOutput(io.BytesIO):
    """The contents of a file, which is written when this is closed."""

    def __init__(self, files: DriverFileSystem, path: str) -> None:
        super().__init__()
        self._files = files
        self._path = path

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._files.make_directories(self._path.rpartition("/")[0])
            self._files.write(self._path, data)
