"""Watches for task slots for a job that runs with fewer subtasks than wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: maximum interval between two counts, in milliseconds
_LOOK: Final = 1000


class SlotWatch:
    """Watches the number of task slots, which counts once it has not changed for a while."""

    def __init__(self, stable_ms: int) -> None:
        """Start without a number of slots."""
        self._stable = stable_ms
        self._every = min(stable_ms, _LOOK)
        self._looked = 0
        self._number: int | None = None
        self._since = 0

    def look(self, count: Callable[[], int | None], now: int) -> int | None:
        """Return the number of slots once it is stable; None until then."""
        if now - self._looked < self._every:
            return None
        self._looked = now
        number = count()
        if number is None:
            return None
        if number != self._number:
            self._number, self._since = number, now
        if now - self._since < self._stable:
            return None
        self.forget()
        return number

    def forget(self) -> None:
        """Start again without a number."""
        self._number = None
