"""The interface of a file system: a few methods on paths, and the errors they raise."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeVar

from holdfast.errors import HoldfastError
from holdfast.tracebacks import without_java_stack

_T = TypeVar("_T")


class FileSystemError(HoldfastError, OSError):
    """A file cannot be read or written; the message has the action, the file and the cause.

    Attributes:
        cause: the last part of the message; empty if it has no such part.
    """

    cause: str = ""


class MissingFileError(FileSystemError, FileNotFoundError):
    """There is no such file."""


class LockedError(FileSystemError, BlockingIOError):
    """Another process has locked the file.

    Attributes:
        holder: the holder's name, as written in the file.
    """

    def __init__(self, message: str, holder: bytes = b"") -> None:
        super().__init__(message)
        self.holder = holder


class FileLock(Protocol):
    """A file that this process has locked."""

    @property
    def is_lost(self) -> bool:
        """Return whether this process knows that it has lost the lock; makes no request."""

    def is_held(self) -> bool:
        """Return whether the lock is still held; asks the file system if it can be lost."""

    def release(self) -> None:
        """Release the lock."""


@dataclass(frozen=True)
class FileStatus:
    """What is known of a file without opening it.

    Attributes:
        name: the last part of its path.
        modified: when it was last written, in milliseconds; 0 if unknown.
    """

    name: str
    size: int
    modified: int
    is_directory: bool = False


#: finds the file system of an address; `find_with` sets it
_finder: list[Callable[[str], tuple[FileSystem, str]]] = []


def find_with(finder: Callable[[str], tuple[FileSystem, str]]) -> None:
    """Set what finds the file system of an address: it knows all of them, which know only this."""
    _finder[:] = [finder]


class FileSystem(ABC):
    """Files by path, ``/`` between the parts; can be pickled.

    All methods, and reading and writing within ``errors``, raise a ``FileSystemError`` that names
    the file and the cause.

    Attributes:
        is_remote: whether every call goes to another machine, and is slow.
    """

    is_remote: bool = False

    @abstractmethod
    def uri(self, path: str) -> str:
        """Return the address of a path, with its scheme; the inverse of ``locate``."""

    def locate(self, uri: str) -> tuple[FileSystem, str]:
        """Return the file system and the path that an address refers to."""
        return _finder[0](uri)

    @abstractmethod
    def open_output(self, path: str) -> BinaryIO:
        """Open a new file for writing; it exists when closed. Creates its directory if needed.

        Before that, it may exist in part or not at all; after a failure, either. So a caller that
        must not show a half-written file writes under another name and moves it.
        """

    @abstractmethod
    def open_input(self, path: str) -> BinaryIO:
        """Open a file for reading; the stream can seek."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return the contents of a file."""

    @abstractmethod
    def write(self, path: str, data: bytes, durable: bool = False) -> None:
        """Write a file: whole or not at all, even if the process dies; replaces one of that name.

        Its directory must exist, if the file system has directories: a writer of state must notice
        that somebody deleted the directory. ``durable``: it also survives if the machine dies. If
        this raises, no file of that name exists.
        """

    @abstractmethod
    def move(self, source: str, target: str) -> None:
        """Move a file, replacing what is there. Creates the target's directory.

        One step on a local file system and on HDFS; over WebHDFS only if there is nothing to
        replace. On an object store the target appears complete, and the source is deleted after
        that.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file if it exists."""

    @abstractmethod
    def delete_tree(self, path: str) -> None:
        """Delete a directory with everything below it, if it exists."""

    @abstractmethod
    def delete_if_empty(self, path: str) -> None:
        """Delete a directory that is empty.

        Does nothing if it is not empty, or if checking and deleting cannot be one step.
        """

    @abstractmethod
    def list_directory(self, path: str) -> list[FileStatus]:
        """List a directory, by name; empty if it does not exist."""

    @abstractmethod
    def status(self, path: str) -> FileStatus | None:
        """Return the status of a file or directory; None if it does not exist."""

    @abstractmethod
    def make_directories(self, path: str) -> None:
        """Make a directory, and those above it, durably, so that it is listed.

        An object store has no directories, but keeps an object that represents one.
        """

    def make_private(self, path: str) -> None:
        """Make a directory as `make_directories` does.

        On a local file system only this user can read it, unless it existed before.
        """
        self.make_directories(path)

    @abstractmethod
    def sync(self, path: str) -> None:
        """Make the contents of a file durable, or the names in a directory."""

    def sync_files(self, paths: Iterable[str]) -> None:
        """Make files durable, and their names; another process may have written or moved them."""
        folders: dict[str, None] = {}
        for path in paths:
            self.sync(path)
            folders[path.rpartition("/")[0] or "/"] = None
        for folder in folders:
            self.sync(folder)

    @abstractmethod
    def lock(self, path: str, contents: bytes) -> FileLock:
        """Lock a file, and write the holder into it; the lock ends with the process.

        Raises:
            LockedError: when another process has locked it.
        """

    def for_each(self, call: Callable[[_T], object], items: Iterable[_T]) -> None:
        """Call a function for each item; for several at a time if calls are slow.

        Raises the error of the first call that fails.
        """
        for item in items:
            call(item)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        return self.status(path) is not None

    @contextmanager
    def errors(self, action: str, path: str, target: str | None = None) -> Iterator[None]:
        """Turn a system error into one that says what could not be done, where, and why."""
        try:
            yield
        except FileSystemError:
            raise
        except self._failures as error:
            kind = MissingFileError if isinstance(error, FileNotFoundError) else FileSystemError
            cause = self._cause(error)
            told = kind(self._message(action, path, target, cause))
            told.cause = cause
            told.errno = getattr(error, "errno", None)
            raise told from error

    #: what the system raises
    _failures: tuple[type[Exception], ...] = (OSError,)

    def _cause(self, error: Exception) -> str:
        """Return the system's own error message, and what to do about it if that is known."""
        return cause_of(error)

    def _message(self, action: str, path: str, target: str | None, cause: str) -> str:
        to = "" if target is None else f" to '{self.uri(target)}'"
        return f"cannot {action} '{self.uri(path)}'{to}: {cause}"


def draft_of(name: str) -> str:
    """Return a new name for an unfinished file, which gets its own name when it is complete."""
    return f".{name}.{uuid.uuid4().hex}.tmp"


def is_draft(name: str) -> bool:
    """Return whether it is the name of an unfinished file."""
    return name.startswith(".") and name.endswith(".tmp")


def cause_of(error: BaseException) -> str:
    """Return the system's own error message, shortened."""
    if isinstance(error, FileSystemError):
        if error.cause:
            return error.cause
        if error.__cause__ is not None:
            error = error.__cause__
    message = f"{type(error).__name__}: {getattr(error, 'strerror', None) or error}"
    return without_java_stack(message)


def join(path: str, *names: str) -> str:
    """Join a path and names; empty names are left out."""
    parts = [path.rstrip("/"), *(name.strip("/") for name in names)]
    return "/".join(part for number, part in enumerate(parts) if part or not number)
