"""The thread in which a job lives, and how a job ends: completely, whatever goes wrong on the way.

A thread that ends by an exception ends in silence: nobody waits for it. Here it ends the job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.printable import get_logger

__all__ = ["Steps", "supervise"]

_logger = get_logger(__name__)


def supervise(live: Callable[[], None], broken: Callable[[BaseException], None]) -> None:
    """Start a thread that calls `live`, and `broken` with what that raised, if it did."""

    def run() -> None:
        try:
            live()
        except BaseException as error:
            broken(error)

    threading.Thread(target=run, name="holdfast-job", daemon=True).start()


class Steps:
    """The steps of an end, each of which is taken even if an earlier one has failed."""

    def __init__(self, job: str) -> None:
        """Name the job in warnings."""
        self._job = job

    def take(self, what: str, step: Callable[[], object]) -> None:
        """Take a step; if it fails, warn and go on."""
        try:
            step()
        except BaseException as error:
            _logger.warning("at the end of job '%s': cannot %s: %s", self._job, what, error)
