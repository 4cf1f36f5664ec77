"""The directory of a running job: state files, staged output, the query's own log.

It goes when the job ends. A job that is killed cannot remove its directory; the next job that
starts beside it does. A lock that the system lets go of with the process tells which are left over.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import shutil
import tempfile
from pathlib import Path

from holdfast.errors import JobExecutionError

_PREFIX = "holdfast-job-"
_LOCK = "lock"


class JobDirectory:
    """A directory that exists as long as this object is not removed."""

    def __init__(self, parent: str | None = None) -> None:
        """Make the directory, below the system's temporary directory unless told otherwise."""
        base = Path(parent or tempfile.gettempdir())
        try:
            base.mkdir(parents=True, exist_ok=True)
            _sweep(base)
            # NB: locked before it has the name by which others look for what is left over
            draft = Path(tempfile.mkdtemp(prefix=".holdfast-new-", dir=base))
            self._lock = (draft / _LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self.path = draft.rename(base / draft.name.replace(".holdfast-new-", _PREFIX))
        except OSError as error:
            raise JobExecutionError(
                f"cannot make a directory for the job below {base}: {error}; set "
                "'holdfast.directory' to a place that the driver and all executors can write to"
            ) from error
        atexit.register(self.remove)

    def remove(self) -> None:
        """Delete everything."""
        atexit.unregister(self.remove)
        self._lock.close()
        shutil.rmtree(self.path, ignore_errors=True)


def _sweep(base: Path) -> None:
    """Delete the directories of jobs that were killed."""
    for lock in base.glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError), lock.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
