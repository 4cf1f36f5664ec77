"""Failures on request."""

from pathlib import Path

from examples.orders.events import OrderEvent
from holdfast.datastream import MapFunction

__all__ = ["FailOnce", "SimulatedFailure"]


class SimulatedFailure(RuntimeError):
    """Raised on request, as a mistake in a function would be."""


class FailOnce(MapFunction):
    """Hands events on; raises at one of them, once, however often the job is started again."""

    def __init__(self, number: int, marker: Path) -> None:
        """Fail at the n-th event that a subtask sees; the marker file says that it has happened."""
        self._number = number
        self._marker = marker
        self._seen = 0

    def map(self, value: OrderEvent) -> OrderEvent:
        self._seen += 1
        if self._seen == self._number and not self._marker.exists():
            self._marker.touch()
            raise SimulatedFailure(f"a simulated failure at event {self._number}")
        return value
