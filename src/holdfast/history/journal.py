"""A history in a file: a line of JSON for each event.

Written as things happen, by one process, without waiting for the disk: what a killed process has
written stays. Its last line may be torn then, and is not read. When the file has grown past its
bound, what is remembered is written into a new one, which takes its place.

The process that writes a file has it locked, so that others see whether the job still runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from holdfast.history.events import Event
from holdfast.history.job import ENDED, JobHistory

__all__ = ["SUFFIX", "Journal", "journal_path", "read_journal"]

SUFFIX: Final = ".history.jsonl"
#: in bytes; a job that runs for years has no more
_LARGEST: Final = 4_000_000

_logger = logging.getLogger(__name__)
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
_decode: Final = msgspec.json.Decoder(Event).decode


class Journal:
    """The file of a running job.

    A file that cannot be written is given up, with a warning: the job goes on.
    """

    def __init__(self, path: Path, history: JobHistory, largest: int = _LARGEST) -> None:
        """Write into a new file; its directory is made."""
        self.path = path
        self._history = history
        self._largest = largest
        self._size = 0
        self._file: int | None = None
        with self._or_without():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open(path, os.O_EXCL)

    def tell(self, event: Event) -> None:
        """Add an event, which the history knows already."""
        with self._or_without():
            if self._file is not None:
                self._write(self._file, _encode(event) + b"\n")
                if self._size > self._largest:
                    self._fold()

    def close(self) -> None:
        """Unlock the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self, path: Path, flags: int) -> int:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | flags, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

    def _write(self, file: int, line: bytes) -> None:
        self._size += len(line)
        while line:
            line = line[os.write(file, line) :]

    def _fold(self) -> None:
        """Put what is remembered in place of what was told."""
        draft = self.path.with_name(f".{self.path.name}.tmp")
        file = self._open(draft, os.O_TRUNC)
        self._size = 0
        self._write(file, b"".join(_encode(event) + b"\n" for event in self._history.remembered()))
        # NB: a memory that is larger than the bound must not be written with every event
        self._largest = max(self._largest, 2 * self._size)
        os.replace(draft, self.path)
        self.close()
        self._file = file

    @contextlib.contextmanager
    def _or_without(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.close()
            _logger.warning(
                "the history of the job is not kept: cannot write %s: %s", self.path, error
            )


def read_journal(path: Path) -> JobHistory:
    """Return what a file tells; lines that are torn or not understood are left out."""
    history = JobHistory()
    with path.open("rb") as file:
        for line in file:
            with contextlib.suppress(msgspec.MsgspecError):
                history.tell(_decode(line))
    if history.status not in ENDED and not _is_locked(path):
        # the process was killed; the job goes on if the program is started again
        history.status = "SUSPENDED"
        history.timestamps["SUSPENDED"] = history.modified = round(path.stat().st_mtime * 1000)
    return history


def journal_path(directory: os.PathLike[str], job_id: str) -> Path:
    """Where the history of a job goes, below its directory."""
    return Path(directory) / "history" / f"{job_id}{SUFFIX}"


def _is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
