"""Tumbling processing-time windows, with the usual trigger.

They produce the same results as `operator` would, and keep the same state. Assigner and trigger are
inlined, as in `event_time_windows`. No record is late here: the clock determines its window.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.datastream.streams.window_operation import WindowOperation
from holdfast.datastream.time_domain import TimeDomain
from holdfast.datastream.windows.assigners import TumblingProcessingTimeWindows
from holdfast.datastream.windows.windows import TimeWindow
from holdfast.runtime.operators.windows.contexts import Surroundings
from holdfast.runtime.operators.windows.operator import Pair, Process, WindowOperator
from holdfast.runtime.timer_queue import Timer


class TumblingClockWindows(WindowOperator):
    """Windows of one size, one after another, that fire when the clock has passed their end."""

    def __init__(self, operation: WindowOperation, around: Surroundings) -> None:
        """Read the parameters of the assigner."""
        super().__init__(operation, around)
        assert isinstance(operation.assigner, TumblingProcessingTimeWindows)
        self._size, self._offset = operation.assigner.size, operation.assigner.offset
        self._timers = around.clock_times
        self._clock = around.time.clock

    def processing(self) -> Process:
        size, offset = self._size, self._offset
        clock, register = self._clock, self._timers.register
        keys, add = self._keys, self._contents.adder()

        def process(record: Any, timestamp: int | None) -> None:
            """Put a record into the current window."""
            now = clock()
            start = now - (now - offset) % size
            end = start + size
            keys.namespace = span = (start, end)
            if add(record, timestamp):
                register(end - 1, span)

        return process

    def on_timer(self, timer: Timer, domain: TimeDomain) -> Iterable[Pair]:
        """Fire a window at its end, and remove it."""
        if domain is not TimeDomain.PROCESSING_TIME:
            return ()
        self._keys.namespace = timer.namespace
        window = TimeWindow(*timer.namespace)
        results = self._fire(window, last=True)
        self._let_go(window)
        return results
