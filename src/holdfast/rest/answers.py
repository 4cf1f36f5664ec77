"""A short-lived cache of responses, since many clients request the same at the same time.

All pages of a job are notified of a change at the same time, and request the same data. A response
that depends only on the job's history is the same for all of them until the history changes. It is
cached for half a second at most, because it also contains times that continue to run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from holdfast.history.job import JobHistory

_LASTING: Final = 0.5
_MOST: Final = 100


@dataclass(frozen=True)
class _Answer:
    history: JobHistory
    version: int
    made: float
    data: bytes


class Answers:
    """The cache, for one thread. NB: callers must check the rights of the client."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with an empty cache."""
        self._clock = clock
        self._known: dict[Hashable, _Answer] = {}

    def of(self, history: JobHistory, asked: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return the cached response to a request, or create it."""
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
