"""The jobs that a server shows: those of this process, or those in history files."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from holdfast.common import CompletableFuture
from holdfast.errors import HoldfastError
from holdfast.history.job import ENDED, JobHistory
from holdfast.history.journal import SUFFIX, read_journal
from holdfast.history.logs import LogBook

#: jobs of this process that have ended and are still shown
_ENDED_SHOWN: Final = 50


class ActionRefusedError(HoldfastError):
    """The operation is not possible for this job."""


class ServedJob(Protocol):
    """The interface of a job for the API. All methods are thread-safe."""

    @property
    def history(self) -> JobHistory:
        """Return its history."""

    @property
    def logs(self) -> LogBook | None:
        """Return what its functions logged last; None if that is not known here."""

    @property
    def savepoint_directory(self) -> str | None:
        """Return the default directory of its savepoints."""

    def cancel(self) -> None:
        """Request its cancellation."""

    def checkpoint(self) -> CompletableFuture[int]:
        """Request a checkpoint; the result is its id."""

    def savepoint(
        self, directory: str | None, stop: bool = False, drain: bool = False
    ) -> CompletableFuture[str]:
        """Request a savepoint; the result is its path."""

    def rescale(self, parallelism: int | Mapping[str, int]) -> CompletableFuture[None]:
        """Request another parallelism; the future completes when the job runs with it.

        A number applies to all operators without a parallelism in the program; a mapping is by uid.

        Raises:
            HoldfastError: if the job cannot run with it.
        """

    def query_state(self, operator: str, state: str, key: Any, window: Any) -> Any:
        """Return the value of a key in a state; None if there is none."""


class Site(Protocol):
    """The jobs that a server shows.

    Attributes:
        acts: whether operations on jobs are possible.
    """

    acts: bool

    def jobs(self) -> list[ServedJob]:
        """Return all jobs, the newest first."""

    def job(self, job_id: str) -> ServedJob | None:
        """Return the job with that id; None if there is none."""


class LiveJobs:
    """The jobs of this process; the last ended ones are kept as long as another one runs."""

    acts = True

    def __init__(self) -> None:
        """Start without jobs."""
        self._jobs: dict[str, ServedJob] = {}
        self._lock = threading.Lock()

    def add(self, job: ServedJob) -> None:
        """Show a job."""
        with self._lock:
            self._jobs[job.history.id] = job

    def end(self, job: ServedJob) -> None:
        """Replace an ended job by its history; only the last ended jobs are kept."""
        with self._lock:
            self._jobs[job.history.id] = EndedJob(job.history, job.logs)
            ended = [key for key, one in self._jobs.items() if isinstance(one, EndedJob)]
            for key in ended[:-_ENDED_SHOWN]:
                del self._jobs[key]

    def jobs(self) -> list[ServedJob]:
        with self._lock:
            return sorted(self._jobs.values(), key=lambda job: -job.history.started)

    def job(self, job_id: str) -> ServedJob | None:
        return self._jobs.get(job_id)


class EndedJob:
    """A job that has ended, or is known from a file; operations on it are not possible."""

    savepoint_directory = None

    def __init__(self, history: JobHistory, logs: LogBook | None = None) -> None:
        """Show a history, and what functions logged, if that is known."""
        self.history = history
        self.logs = logs

    def cancel(self) -> None:
        raise self._refusal()

    def checkpoint(self) -> CompletableFuture[int]:
        raise self._refusal()

    def savepoint(
        self, directory: str | None, stop: bool = False, drain: bool = False
    ) -> CompletableFuture[str]:
        raise self._refusal()

    def rescale(self, parallelism: int | Mapping[str, int]) -> CompletableFuture[None]:
        raise self._refusal()

    def query_state(self, operator: str, state: str, key: Any, window: Any) -> Any:
        raise self._refusal()

    def _refusal(self) -> ActionRefusedError:
        name, status = self.history.name, self.history.status
        if status in ENDED or status == "SUSPENDED":
            return ActionRefusedError(f"job '{name}' is not running: it is {status}")
        return ActionRefusedError(
            f"job '{name}' runs in another process; this is its file; 'holdfast list' shows the "
            "address of its own server"
        )


class Files:
    """The jobs in history files of directories; files are read again when they change."""

    acts = False

    def __init__(self, directories: Iterable[Path]) -> None:
        """Read the files in these directories."""
        self._directories = list(directories)
        self._read: dict[Path, tuple[tuple[int, int], EndedJob]] = {}
        self._lock = threading.Lock()

    def jobs(self) -> list[ServedJob]:
        with self._lock:
            found = [self._job(path) for path in self._paths()]
        jobs: list[ServedJob] = [job for job in found if job is not None and job.history.id]
        return sorted(jobs, key=lambda job: -job.history.started)

    def job(self, job_id: str) -> ServedJob | None:
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
        except OSError:  # it was deleted meanwhile
            return None
        return known[1]
