"""A sink that takes note of when records were made, and when they arrive."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.engines.percentiles import Times
from holdfast.datastream import RuntimeContext
from holdfast.datastream.functions import SinkFunction

__all__ = ["Arrivals"]


class Arrivals(SinkFunction):
    """Takes pairs of the time at which a record was made, and a count; notes when they arrive."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def open(self, context: RuntimeContext) -> None:
        """Begin with nothing."""
        self._times = Times()

    def invoke(self, value: tuple[float, int], context: Any) -> None:
        """Take note of one."""
        self._times.note(*value, time.time())

    def close(self) -> None:
        """Write the notes."""
        self._times.write(self._directory)
