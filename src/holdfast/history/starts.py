"""Measures how long an attempt takes to start, and its parts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.history.events import StartMeasured

_MS: Final = 1000
_DIGITS: Final = 3


class StartClock:
    """Measures the start of one attempt after the other.

    The methods are called in the order in which they are defined here, from `starting` on for the
    first attempt, which has nothing to stop.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """Start before the first attempt; ``clock`` returns seconds."""
        self._clock = clock
        self._stopping = self._stopped = self._starting = self._connected = clock()
        #: when the state was loaded
        self._loaded = self._connected
        self._measured: StartMeasured | None = None

    def stopping(self) -> None:
        """Note that an attempt begins to stop: it has failed, or the plan changes."""
        self._stopping = self._stopped = self._clock()

    def stopped(self) -> None:
        """Note that nothing of it runs any more."""
        self._stopped = self._clock()

    def starting(self, number: int) -> None:
        """Note that the next attempt begins."""
        self._starting = self._connected = self._clock()
        if number == 0:
            self._stopping = self._stopped = self._starting
        self._measured = StartMeasured(
            number,
            round(_MS * self._starting),
            stop=_seconds(self._stopping, self._stopped),
            delay=_seconds(self._stopped, self._starting),
        )

    def connected(self) -> None:
        """Note that it has its task slots, and that they are connected."""
        self._connected = self._clock()

    def epoch(self, started: float, load: float, gave_results: bool) -> StartMeasured | None:
        """Note an accepted epoch; return what is known of the start now, if that has changed.

        ``started``: when it began; ``load``: how long loading its state took, in seconds.
        """
        before = self._measured
        if before is None or before.first_result is not None:
            return None
        now = self._clock()
        changes: dict[str, float] = {}
        if before.load is None:
            changes["slots"] = _seconds(self._starting, self._connected)
            self._loaded = min(max(self._connected, started + load), now)
            changes["load"] = _seconds(self._connected, self._loaded)
        if gave_results:
            changes["first_result"] = _seconds(self._loaded, now)
        if not changes:
            return None
        self._measured = msgspec.structs.replace(before, time=round(_MS * now), **changes)
        return self._measured


def _seconds(start: float, end: float) -> float:
    # NB: the clock of a machine may be set back
    return round(max(0.0, end - start), _DIGITS)
