"""Warnings that clients can cause: rate-limited, and without control characters."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

_PAUSE: Final = 600.0
_LONGEST: Final = 1000


class Notice:
    """A warning that is logged when it first occurs, and then with a count every ten minutes."""

    def __init__(
        self, logger: logging.Logger, text: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Log ``text``; its ``%s`` are filled when the warning occurs."""
        self._logger = logger
        self._text = text
        self._clock = clock
        self._next = float("-inf")
        self._unsaid = 0

    def __call__(self, *values: object, error: BaseException | None = None) -> None:
        """Record an occurrence; ``error`` is logged with its traceback."""
        self._unsaid += 1
        now = self._clock()
        if now < self._next:
            return
        more = "" if self._unsaid == 1 else f" ({self._unsaid} times since this was last logged)"
        self._next, self._unsaid = now + _PAUSE, 0
        self._logger.warning(self._text + "%s", *values, more, exc_info=error)


def described(error: BaseException) -> str:
    """Return an error as one short line; its message may contain data of a client."""
    return f"{type(error).__name__}: {ascii(str(error))[:_LONGEST]}"
