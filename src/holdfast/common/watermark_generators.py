"""Watermark generators: derive watermarks from the records of one subtask.

They are plain objects without access to streams or clocks. The runtime passes them each record,
requests the watermark at the end of each epoch, and reads the result from a `CurrentWatermark`.
They are picklable, so that a subtask can move with its generator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from holdfast.common.constants import MIN_LONG_VALUE

__all__ = [
    "BoundedOutOfOrdernessWatermarks",
    "CurrentWatermark",
    "NoWatermarksGenerator",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarksWithIdleness",
]


class WatermarkOutput(ABC):
    """The receiver of a generator's watermarks."""

    @abstractmethod
    def emit_watermark(self, timestamp: int) -> None:
        """Announce that no record at or before this timestamp will follow; a lower one is ignored.

        It also marks the input as active.
        """

    @abstractmethod
    def mark_idle(self) -> None:
        """Mark this input as idle, so that it does not hold back the watermark."""

    @abstractmethod
    def mark_active(self) -> None:
        """Mark this input as active again."""


class WatermarkGenerator(ABC):
    """A user-defined generator of watermarks; one object per subtask, in the workers."""

    @abstractmethod
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Process a record; it may emit a watermark."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit the current watermark; called at the end of each epoch.

        In a source with watermark alignment it is also called within an epoch.
        """


class CurrentWatermark(WatermarkOutput):
    """The current watermark of a generator.

    Attributes:
        watermark: the latest watermark, which never decreases; -2**63 before the first one.
        is_idle: whether this input is idle and does not hold back the watermark.
    """

    def __init__(self, watermark: int = MIN_LONG_VALUE, is_idle: bool = False) -> None:
        """Start at the saved watermark of a subtask, or without one."""
        self.watermark = watermark
        self.is_idle = is_idle

    def emit_watermark(self, timestamp: int) -> None:
        """Set the watermark if it is later."""
        self.is_idle = False
        if timestamp > self.watermark:
            self.watermark = timestamp

    def mark_idle(self) -> None:
        """Mark the input as idle."""
        self.is_idle = True

    def mark_active(self) -> None:
        """Mark the input as active."""
        self.is_idle = False


class NoWatermarksGenerator(WatermarkGenerator):
    """A generator that never emits a watermark."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Do nothing."""

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Do nothing."""


class BoundedOutOfOrdernessWatermarks(WatermarkGenerator):
    """A generator that follows the largest timestamp with a fixed delay.

    Only the largest timestamp of an epoch matters, so it suffices to pass that record.
    """

    def __init__(self, delay: int) -> None:
        """Set the delay in milliseconds."""
        self._delay = delay
        #: chosen so that the watermark before the first record is the lowest possible one
        self._max_timestamp = MIN_LONG_VALUE + delay + 1

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Record the timestamp if it is the largest."""
        if event_timestamp > self._max_timestamp:
            self._max_timestamp = event_timestamp

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit the watermark; it is one less, since a record with the same timestamp may follow."""
        output.emit_watermark(self._max_timestamp - self._delay - 1)


class WatermarksWithIdleness(WatermarkGenerator):
    """A generator that wraps another one, and marks the input as idle after a time without records.

    The time starts at the end of the last epoch that had a record, or of the first one. With the
    next record the input is active again.

    Attributes:
        clock: the processing time in milliseconds. It is not pickled: set it again.
    """

    clock: Callable[[], int]

    def __init__(
        self, generator: WatermarkGenerator, idle_timeout: int, clock: Callable[[], int]
    ) -> None:
        """Wrap a generator; the timeout is in milliseconds."""
        self._generator = generator
        self._idle_timeout = idle_timeout
        self._quiet_since: int | None = None
        self._had_records = False
        self._is_idle = False
        self.clock = clock

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "clock"}

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Pass the record to the wrapped generator, and mark the input as active."""
        self._had_records = True
        if self._is_idle:
            self._is_idle = False
            output.mark_active()
        self._generator.on_event(event, event_timestamp, output)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Let the wrapped generator emit its watermark, unless the input is idle."""
        if not self._has_been_quiet():
            self._generator.on_periodic_emit(output)
        elif not self._is_idle:
            self._is_idle = True
            output.mark_idle()

    def hold(self) -> None:
        """Restart the timeout: an input that is not read is not idle."""
        if not self._is_idle:
            self._quiet_since = None

    def _has_been_quiet(self) -> bool:
        now = self.clock()
        if self._had_records or self._quiet_since is None:
            self._had_records = False
            self._quiet_since = now
            return False
        return now - self._quiet_since >= self._idle_timeout
