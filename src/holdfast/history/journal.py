"""The journal: a history in a file, with one line of JSON for each event.

One process writes it as events occur, without waiting for the disk. What a killed process has
written is kept; its last line may be incomplete, and is then ignored. When the file exceeds its
maximum size, the events that the history still contains are written to a new file, which replaces
it.

The process that writes a file holds a lock on it, so that others see whether the job still runs.

A job's directory may be in a file system that cannot append to files. The file is then local, and
is copied there once a minute and when the job has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from holdfast.common.private import open_regular
from holdfast.filesystem import FileSystem, join
from holdfast.filesystem.local import LocalFileSystem
from holdfast.history.events import Event
from holdfast.history.job import ENDED, JobHistory
from holdfast.printable import get_logger

SUFFIX: Final = ".history.jsonl"
_DRAFT: Final = ".tmp"
#: maximum size in bytes, even for a job that runs for years
_LARGEST: Final = 4_000_000
#: seconds between two copies, if the job's directory is in another file system
_PUBLISH: Final = 60.0
#: how many starts of a job are kept
_STARTS: Final = 20

_logger = get_logger(__name__)
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
_decode: Final = msgspec.json.Decoder(Event).decode


class Journal:
    """The file of a running job.

    If the file cannot be written, it is abandoned with a warning, and the job continues.
    """

    def __init__(
        self,
        path: Path,
        history: JobHistory,
        largest: int = _LARGEST,
        publish: Callable[[bytes], None] | None = None,
        directory: str | None = None,
    ) -> None:
        """Create the file and its directory.

        ``publish`` copies it to another file system. ``directory``: the address of the job's
        directory, for `holdfast history`.
        """
        self.path = path
        self.directory = directory
        self._history = history
        self._largest = largest
        self._publish = publish
        self._published = time.monotonic()
        self._size = 0
        self._file: int | None = None
        with self._or_without():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open(path, os.O_EXCL)

    def tell(self, event: Event) -> None:
        """Append an event, which is already in the history."""
        with self._or_without():
            if self._file is not None:
                self._write(self._file, _encode(event) + b"\n")
                if self._size > self._largest:
                    self._fold()
                if time.monotonic() - self._published > _PUBLISH:
                    self._copy()

    def close(self) -> None:
        """Close the file. Nothing is written after this."""
        with self._or_without():
            if self._file is not None:
                self._copy()
        self._unlock()

    def _copy(self) -> None:
        self._published = time.monotonic()
        if self._publish is not None:
            self._publish(self.path.read_bytes())

    def _unlock(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self, path: Path, flags: int) -> int:
        file = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | flags)
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

    def _write(self, file: int, line: bytes) -> None:
        self._size += len(line)
        while line:
            line = line[os.write(file, line) :]

    def _fold(self) -> None:
        """Replace the file by one with only the events that the history still contains."""
        draft = self.path.with_name(f".{self.path.name}{_DRAFT}")
        file = self._open(draft, os.O_TRUNC)
        self._size = 0
        self._write(file, b"".join(_encode(event) + b"\n" for event in self._history.remembered()))
        # NB: a history that is larger than the limit must not be written again at every event
        self._largest = max(self._largest, 2 * self._size)
        os.replace(draft, self.path)
        self._unlock()
        self._file = file

    @contextlib.contextmanager
    def _or_without(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._unlock()
            _logger.warning(
                "the history of the job is not recorded: cannot write %s: %s", self.path, error
            )


def read_journal(path: Path) -> JobHistory:
    """Return the history in a file; ignore lines that are incomplete or not understood."""
    history = JobHistory()
    with open(open_regular(path), "rb") as file:
        for line in file:
            with contextlib.suppress(msgspec.MsgspecError):
                history.tell(_decode(line))
    if history.status not in ENDED and not _is_locked(path):
        # the process was killed; the job continues if the program is started again
        history.status = "SUSPENDED"
        history.timestamps["SUSPENDED"] = history.modified = round(path.stat().st_mtime * 1000)
    return history


def open_journal(
    files: FileSystem, directory: str, job_id: str, history: JobHistory, scratch: Path
) -> Journal:
    """Create a journal in a job's directory, which keeps those of the last starts.

    ``scratch``: a local directory for the file if the file system cannot append to files.
    """
    home, name = join(directory, "history"), f"{job_id}{SUFFIX}"
    try:
        _forget(files, home)
    except OSError as error:
        _logger.warning("old histories in '%s' could not be deleted: %s", home, error)
    if isinstance(files, LocalFileSystem):
        return Journal(Path(home) / name, history, directory=directory)

    def publish(data: bytes) -> None:
        files.make_directories(home)
        files.write(join(home, name), data)

    return Journal(scratch / name, history, publish=publish, directory=files.uri(directory))


def _forget(files: FileSystem, home: str) -> None:
    """Delete the oldest journals, to make room for one, and files left by killed processes.

    Only one driver at a time uses a job's directory.
    """
    for status in files.list_directory(home):
        if status.name.endswith(f"{SUFFIX}{_DRAFT}"):
            files.delete(join(home, status.name))
    told = [status for status in files.list_directory(home) if status.name.endswith(SUFFIX)]
    told.sort(key=lambda status: status.modified)
    for status in told[: max(0, len(told) - _STARTS + 1)]:
        files.delete(join(home, status.name))


def _is_locked(path: Path) -> bool:
    with open(open_regular(path), "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
