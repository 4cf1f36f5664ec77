"""What a file system is here: a few methods over paths, and the errors they raise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeVar

from holdfast.errors import HoldfastError

__all__ = [
    "FileLock",
    "FileStatus",
    "FileSystem",
    "FileSystemError",
    "LockedError",
    "MissingFileError",
    "cause_of",
    "join",
]


_T = TypeVar("_T")


class FileSystemError(HoldfastError, OSError):
    """A file cannot be read or written: says what could not be done, to which file, and why."""


class MissingFileError(FileSystemError, FileNotFoundError):
    """There is no such file."""


class LockedError(FileSystemError, BlockingIOError):
    """Somebody has locked the file.

    Attributes:
        holder: what they wrote into it.
    """

    def __init__(self, message: str, holder: bytes = b"") -> None:
        super().__init__(message)
        self.holder = holder


class FileLock(Protocol):
    """A file that this process has locked."""

    @property
    def is_lost(self) -> bool:
        """Whether this process knows that it has lost the lock; asks nobody."""

    def is_held(self) -> bool:
        """Whether nobody else has taken it meanwhile; asks the file system, if that can happen."""

    def release(self) -> None:
        """Let go of it."""


@dataclass(frozen=True)
class FileStatus:
    """What is known of a file without opening it.

    Attributes:
        name: the last part of its path.
        modified: when it was last written, in milliseconds; 0 where nobody knows.
    """

    name: str
    size: int
    modified: int
    is_directory: bool = False


class FileSystem(ABC):
    """Files by path, ``/`` between the parts; can be pickled.

    All methods, and reading and writing within ``errors``, raise a ``FileSystemError`` that names
    the file and the cause.

    Attributes:
        is_remote: whether every call goes to another machine, and takes its time.
    """

    is_remote: bool = False

    @abstractmethod
    def uri(self, path: str) -> str:
        """The address of a path, with its scheme; ``locate`` finds back from it."""

    def locate(self, uri: str) -> tuple[FileSystem, str]:
        """Where an address leads, seen from here: a file system, and the path in it."""
        from holdfast.filesystem.schemes import file_system_of

        return file_system_of(uri)

    @abstractmethod
    def open_output(self, path: str) -> BinaryIO:
        """A stream to write a file anew; closed, it is there. Makes its directory, if need be.

        Before that it is there in part, or not at all; after a failure anything may be. So whoever
        must not show a half-written file writes under another name and moves it.
        """

    @abstractmethod
    def open_input(self, path: str) -> BinaryIO:
        """A stream to read a file; can seek."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The contents of a file."""

    @abstractmethod
    def write(self, path: str, data: bytes, durable: bool = False) -> None:
        """Write a file: whole or not at all, even if the process dies; replaces one of that name.

        Its directory must be there, where directories are real: what writes state into a directory
        that somebody deleted must hear of it. ``durable``: it also survives if the machine dies. If
        this raises, no file of that name is there.
        """

    @abstractmethod
    def move(self, source: str, target: str) -> None:
        """Give a file another path, where it replaces what is there. Makes the directory.

        One step on a local file system, and on HDFS if there is nothing to replace. On an object
        store the target appears whole, and the source goes after that.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""

    @abstractmethod
    def delete_tree(self, path: str) -> None:
        """Delete a directory with everything below it, if it is there."""

    @abstractmethod
    def delete_if_empty(self, path: str) -> None:
        """Delete a directory that has nothing in it.

        Does nothing if there is something in it, and where the two cannot be one step.
        """

    @abstractmethod
    def list_directory(self, path: str) -> list[FileStatus]:
        """What is in a directory, by name; nothing if the directory is not there."""

    @abstractmethod
    def status(self, path: str) -> FileStatus | None:
        """What is known of a file or directory; None if it is not there."""

    @abstractmethod
    def make_directories(self, path: str) -> None:
        """Make a directory, and those above it, durably, so that it is listed.

        An object store has none, but keeps an object that stands for the directory.
        """

    def make_private(self, path: str) -> None:
        """Make a directory as `make_directories` does.

        On a local file system only this user can read it, unless it was there before.
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
        """Lock a file, and write into it who has it; the process's end lets go of it.

        Raises:
            LockedError: when somebody has locked it.
        """

    def for_each(self, call: Callable[[_T], object], items: Iterable[_T]) -> None:
        """Call for each; where a call takes its time, for several at a time.

        Raises what the first that fails does.
        """
        for item in items:
            call(item)

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        return self.status(path) is not None

    @contextmanager
    def errors(self, action: str, path: str, target: str | None = None) -> Iterator[None]:
        """Turn an error of the system into one that says what could not be done, where, and why."""
        try:
            yield
        except FileSystemError:
            raise
        except self._failures as error:
            kind = MissingFileError if isinstance(error, FileNotFoundError) else FileSystemError
            told = kind(self._message(action, path, target, error))
            told.errno = getattr(error, "errno", None)
            raise told from error

    #: what the system raises
    _failures: tuple[type[Exception], ...] = (OSError,)

    def _message(self, action: str, path: str, target: str | None, error: Exception) -> str:
        to = "" if target is None else f" to '{self.uri(target)}'"
        return f"cannot {action} '{self.uri(path)}'{to}: {cause_of(error)}"


def cause_of(error: BaseException) -> str:
    """What the system itself said, in few words."""
    if isinstance(error, FileSystemError) and error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {getattr(error, 'strerror', None) or error}"


def join(path: str, *names: str) -> str:
    """A path below a path; empty names are left out."""
    parts = [path.rstrip("/"), *(name.strip("/") for name in names)]
    return "/".join(part for number, part in enumerate(parts) if part or not number)
