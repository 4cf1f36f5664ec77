"""Failures on request."""

from examples.orders.events import OrderEvent
from holdfast.datastream import MapFunction
from holdfast.filesystem import file_system_of

__all__ = ["FailOnce", "SimulatedFailure"]


class SimulatedFailure(RuntimeError):
    """Raised on request, as a mistake in a function would be."""


class FailOnce(MapFunction):
    """Hands events on; raises at one of them, once, however often the job is started again.

    Attributes:
        number: of the event.
    """

    def __init__(self, number: int, marker: str) -> None:
        """Fail at the n-th event that a subtask sees; the marker file says that it has happened.

        All workers must see the file: it is a path on a laptop, an address on a cluster.
        """
        self.number = number
        self._marker = marker
        self._seen = 0

    @property
    def happened(self) -> bool:
        """Whether it has failed, in this start of the job or an earlier one."""
        files, path = file_system_of(self._marker)
        return files.exists(path)

    def map(self, value: OrderEvent) -> OrderEvent:
        self._seen += 1
        if self._seen == self.number and not self.happened:
            files, path = file_system_of(self._marker)
            files.write(path, b"")
            raise SimulatedFailure(f"a simulated failure at event {self.number}")
        return value
