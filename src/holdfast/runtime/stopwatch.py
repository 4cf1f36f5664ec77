"""How long the steps of an epoch take, in a subtask and on the driver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Measures steps by name.

    Attributes:
        seconds: how long each took; one that came more than once counts with all of its times.
    """

    def __init__(self) -> None:
        """Begin with nothing measured."""
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Count what is done within for a step, whether or not it comes to its end."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[step] = self.seconds.get(step, 0.0) + time.perf_counter() - started
