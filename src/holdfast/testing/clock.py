"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import timedelta

from holdfast.common import Duration, Time
from holdfast.common.time import to_millis


class ManualClock:
    """A manual processing-time clock, in milliseconds since 1970; call it to read it.

    >>> clock = ManualClock(1_000)
    >>> clock.advance("5s")
    >>> clock()
    6000
    """

    def __init__(self, now: int = 0) -> None:
        """Start at this time."""
        self._now = now

    def __call__(self) -> int:
        """Return the time now."""
        return self._now

    def advance(self, duration: int | str | timedelta | Duration | Time) -> None:
        """Move forward by milliseconds or any other duration."""
        self.set(self._now + to_millis(duration))

    def set(self, now: int) -> None:
        """Move to a time; never back.

        Raises:
            ValueError: when that time has passed.
        """
        if now < self._now:
            message = f"a clock does not go back: it is {self._now}, and was to be set to {now}"
            raise ValueError(message)
        self._now = now
