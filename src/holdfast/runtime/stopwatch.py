"""Measures how long the steps of an epoch take, in a subtask and on the driver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Measures steps by name.

    Attributes:
        seconds: the total duration of each step.
    """

    def __init__(self) -> None:
        """Start with no measurements."""
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the time of the body to a step, even if the body raises."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[step] = self.seconds.get(step, 0.0) + time.perf_counter() - started
