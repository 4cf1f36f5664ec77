"""The thread of a job, and the steps of a job's end, which are all taken whatever fails.

An exception would end a thread silently, because nobody waits for it. Here it ends the job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.printable import get_logger

_logger = get_logger(__name__)


def supervise(live: Callable[[], None], broken: Callable[[BaseException], None]) -> None:
    """Start a thread that calls `live`; if that raises, it calls `broken` with the exception."""

    def run() -> None:
        try:
            live()
        except BaseException as error:
            broken(error)

    threading.Thread(target=run, name="holdfast-job", daemon=True).start()


class Steps:
    """The steps of an end. Each is taken even if an earlier one has failed."""

    def __init__(self, job: str) -> None:
        """Take the name of the job, for warnings."""
        self._job = job

    def take(self, what: str, step: Callable[[], object]) -> None:
        """Take a step; if it fails, log a warning and continue."""
        try:
            step()
        except BaseException as error:
            _logger.warning("at the end of job '%s': cannot %s: %s", self._job, what, error)
