"""The directory of a running job: state files, staged output, the query's own log.

It belongs to the driver's process: see `holdfast.common.leftovers`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from holdfast.common.leftovers import OwnDirectory
from holdfast.common.private import user_directory
from holdfast.errors import JobExecutionError

__all__ = ["DIRECTORY", "make_job_directory"]

#: the setting that says where it is
DIRECTORY: Final = "holdfast.directory"


def make_job_directory(parent: str | None = None) -> OwnDirectory:
    """Make a directory in the one that the settings name, or else in the user's own.

    Raises:
        JobExecutionError: when it cannot be made.
    """
    try:
        base = user_directory() if parent is None else Path(parent)
        base.mkdir(parents=True, exist_ok=True)
        return OwnDirectory(base, "job")
    except OSError as error:
        where = "the user's directory" if parent is None else parent
        raise JobExecutionError(
            f"cannot make a directory for the job below {where}: {error}; set "
            f"'{DIRECTORY}' to a place that the driver and all executors can write to"
        ) from error
