"""The jobs that a server shows: those that run in this process, or those of files."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from holdfast.common import CompletableFuture
from holdfast.errors import HoldfastError
from holdfast.history.job import ENDED, JobHistory
from holdfast.history.journal import SUFFIX, read_journal

__all__ = ["ActionRefusedError", "EndedJob", "Files", "LiveJobs", "ServedJob", "Site"]

#: jobs of this process that have ended and are still shown
_ENDED_SHOWN: Final = 50


class ActionRefusedError(HoldfastError):
    """What was asked for cannot be done to this job."""


class ServedJob(Protocol):
    """A job, as the API needs it. Any thread may call any of it."""

    @property
    def history(self) -> JobHistory:
        """What is known of it."""

    @property
    def savepoint_directory(self) -> str | None:
        """Where its savepoints go, if nobody says where."""

    def cancel(self) -> None:
        """Ask it to end."""

    def checkpoint(self) -> CompletableFuture[int]:
        """Ask for a checkpoint; the future is done with its id."""

    def savepoint(
        self, directory: str | None, stop: bool = False, drain: bool = False
    ) -> CompletableFuture[str]:
        """Ask for a savepoint; the future is done with its path."""

    def rescale(self, parallelism: int | Mapping[str, int]) -> CompletableFuture[None]:
        """Ask for another parallelism; the future is done when the job runs with it.

        A number is for all operators for which the program says none; a mapping is by uid.

        Raises:
            HoldfastError: when the job cannot run like that.
        """

    def query_state(self, operator: str, state: str, key: Any, window: Any) -> Any:
        """What a key has in a state; None for nothing."""


class Site(Protocol):
    """What a server shows.

    Attributes:
        acts: whether there are jobs that something can be done to.
    """

    acts: bool

    def jobs(self) -> list[ServedJob]:
        """All jobs, the newest first."""

    def job(self, job_id: str) -> ServedJob | None:
        """The job of that id."""


class LiveJobs:
    """The jobs of this process; the last that have ended stay for as long as another one runs."""

    acts = True

    def __init__(self) -> None:
        """Begin without jobs."""
        self._jobs: dict[str, ServedJob] = {}
        self._lock = threading.Lock()

    def add(self, job: ServedJob) -> None:
        """Show a job."""
        with self._lock:
            self._jobs[job.history.id] = job

    def end(self, job: ServedJob) -> None:
        """A job has ended: only its history is kept, and only as one of the last."""
        with self._lock:
            self._jobs[job.history.id] = EndedJob(job.history)
            ended = [key for key, one in self._jobs.items() if isinstance(one, EndedJob)]
            for key in ended[:-_ENDED_SHOWN]:
                del self._jobs[key]

    def jobs(self) -> list[ServedJob]:
        """All jobs, the newest first."""
        with self._lock:
            return sorted(self._jobs.values(), key=lambda job: -job.history.started)

    def job(self, job_id: str) -> ServedJob | None:
        """The job of that id."""
        return self._jobs.get(job_id)


class EndedJob:
    """A job that a file tells of; nothing can be done to it."""

    savepoint_directory = None

    def __init__(self, history: JobHistory) -> None:
        """Show a history."""
        self.history = history

    def cancel(self) -> None:
        """Refused."""
        raise self._refusal()

    def checkpoint(self) -> CompletableFuture[int]:
        """Refused."""
        raise self._refusal()

    def savepoint(
        self, directory: str | None, stop: bool = False, drain: bool = False
    ) -> CompletableFuture[str]:
        """Refused."""
        raise self._refusal()

    def rescale(self, parallelism: int | Mapping[str, int]) -> CompletableFuture[None]:
        """Refused."""
        raise self._refusal()

    def query_state(self, operator: str, state: str, key: Any, window: Any) -> Any:
        """Refused."""
        raise self._refusal()

    def _refusal(self) -> ActionRefusedError:
        name, status = self.history.name, self.history.status
        if status in ENDED or status == "SUSPENDED":
            return ActionRefusedError(f"job '{name}' does not run: it is {status}")
        return ActionRefusedError(
            f"job '{name}' runs in another process, and this is its file; 'holdfast list' has the "
            "address of its own server"
        )


class Files:
    """The jobs whose histories are in files below directories; files are read when they change."""

    acts = False

    def __init__(self, directories: Iterable[Path]) -> None:
        """Look below these directories."""
        self._directories = list(directories)
        self._read: dict[Path, tuple[tuple[int, int], EndedJob]] = {}
        self._lock = threading.Lock()

    def jobs(self) -> list[ServedJob]:
        """All jobs, the newest first."""
        with self._lock:
            found = [self._job(path) for path in self._paths()]
        jobs: list[ServedJob] = [job for job in found if job is not None and job.history.id]
        return sorted(jobs, key=lambda job: -job.history.started)

    def job(self, job_id: str) -> ServedJob | None:
        """The job of that id."""
        return next((job for job in self.jobs() if job.history.id == job_id), None)

    def _paths(self) -> list[Path]:
        found = {
            path
            for directory in self._directories
            for pattern in ("", "*/", "*/history/")
            for path in directory.glob(f"{pattern}*{SUFFIX}")
            if not path.is_symlink()
        }
        return sorted(found)

    def _job(self, path: Path) -> EndedJob | None:
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._read.get(path)
            if known is None or known[0] != stamp or known[1].history.status not in ENDED:
                known = self._read[path] = stamp, EndedJob(read_journal(path))
        except OSError:  # it went meanwhile
            return None
        return known[1]
