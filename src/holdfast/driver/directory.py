"""The directories of a running job: one of the driver, and one that all hosts can access.

The driver's directory is local. It holds packages, the log of the query and, for a job without
another place for it, state. It belongs to the driver's process: see `holdfast.common.leftovers`. In
a local session the workers can access it, too.
"""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from pathlib import Path

from holdfast.common.leftovers import OwnDirectory, named
from holdfast.common.options.engine import DIRECTORY
from holdfast.common.private import user_directory
from holdfast.errors import JobExecutionError
from holdfast.filesystem import check_scheme, file_system_of, join


class JobDirectory:
    """The directories of one job.

    Attributes:
        path: the directory of the driver.
        shared: the address of the one that all workers can access; empty if there is none.
    """

    def __init__(self, setting: str | None, local: bool) -> None:
        """Create them; ``local`` means that all workers are on the driver's machine.

        Raises:
            JobExecutionError: if they cannot be created.
        """
        with ExitStack() as made:
            own = make_job_directory(setting if local else None)
            made.callback(own.remove)
            self.path = own.path
            self.shared = str(own.path) if local else ""
            if setting is not None and not local:
                self._share(setting, made)
            self._made = made.pop_all()

    def _share(self, setting: str, made: ExitStack) -> None:
        try:
            if check_scheme(setting) == "file":
                mounted = make_job_directory(file_system_of(setting)[1])
                made.callback(mounted.remove)
                self.shared = str(mounted.path)
                return
            # NB: leftovers of a killed driver are not cleaned up there
            self.shared = join(setting, named("job", secrets.token_bytes(16)))
            files, path = file_system_of(self.shared)
            made.callback(files.delete_tree, path)
            files.make_directories(path)
        except (OSError, ValueError) as error:
            raise _cannot_make(setting, error) from error

    @property
    def address(self) -> str:
        """Return the address of the directory for data of the running job, for the driver."""
        return self.shared or str(self.path)

    def remove(self) -> None:
        """Delete them with their contents."""
        self._made.close()


def make_job_directory(parent: str | None = None) -> OwnDirectory:
    """Create a directory in ``parent``, or else in the user's own directory.

    Raises:
        JobExecutionError: if it cannot be created.
    """
    try:
        base = user_directory() if parent is None else Path(parent)
        base.mkdir(parents=True, exist_ok=True)
        return OwnDirectory(base, "job")
    except OSError as error:
        raise _cannot_make(parent or "the user's directory", error) from error


def _cannot_make(where: str, error: Exception) -> JobExecutionError:
    return JobExecutionError(
        f"cannot create a directory for the job in {where}: {error}; set '{DIRECTORY}' to a place "
        "that the driver and all executors can write to"
    )
