"""Whether a number has been the same for a while."""

from __future__ import annotations

__all__ = ["Steady"]


class Steady:
    """Task slots that come and go: they count when their number has not changed for a time."""

    def __init__(self, stable_ms: int) -> None:
        """Begin with no number."""
        self._stable = stable_ms
        self._number: int | None = None
        self._since = 0

    def see(self, number: int, now: int) -> bool:
        """Take note of a number; returns whether it was there all the time."""
        if number != self._number:
            self._number, self._since = number, now
        return now - self._since >= self._stable

    def forget(self) -> None:
        """Begin anew."""
        self._number = None
