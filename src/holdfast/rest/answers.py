"""Answers of the last moment: what many clients ask of a job at once is made once.

All pages of a job hear at the same time that something has changed, and ask for the same. An answer
that is made of nothing but the job's history is the same for all of them until the history changes.
It is kept for half a second at most, because times that go on are in it too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from holdfast.history.job import JobHistory

__all__ = ["Answers"]

_LASTING: Final = 0.5
_MOST: Final = 100


@dataclass(frozen=True)
class _Answer:
    history: JobHistory
    version: int
    made: float
    data: bytes


class Answers:
    """A short memory, for one thread. NB: who asks must have the right to; it does not look."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with none."""
        self._clock = clock
        self._known: dict[Hashable, _Answer] = {}

    def of(self, history: JobHistory, asked: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return the answer to what was asked, as it was made for another client, or made now."""
        version, now = history.version, self._clock()
        known = self._known.get(asked)
        if (
            known is None
            or known.history is not history
            or known.version != version
            or now - known.made >= _LASTING
        ):
            known = _Answer(history, version, now, make())
            self._forget(now)
            self._known[asked] = known
        return known.data

    def _forget(self, now: float) -> None:
        for asked, known in list(self._known.items()):
            if now - known.made >= _LASTING or len(self._known) >= _MOST:
                del self._known[asked]
