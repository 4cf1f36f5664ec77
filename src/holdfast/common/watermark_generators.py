"""Watermark generators: how watermarks follow from the records of one subtask.

They are plain objects that touch neither streams nor clocks of their own: whoever runs them shows
them each record, asks for the watermark at the end of each epoch, and reads what they said from a
`CurrentWatermark`. They are picklable, so that a subtask can take its generator along.
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
    """Where a `WatermarkGenerator` sends its watermarks."""

    @abstractmethod
    def emit_watermark(self, timestamp: int) -> None:
        """Say that no record at or before this timestamp is to come; going back is ignored.

        It also says that this input is active.
        """

    @abstractmethod
    def mark_idle(self) -> None:
        """Say that this input has nothing to send, so that others need not wait for it."""

    @abstractmethod
    def mark_active(self) -> None:
        """Say that this input sends again."""


class WatermarkGenerator(ABC):
    """Watermarks by the user's own rule; one object per subtask, in the workers."""

    @abstractmethod
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """See a record; a watermark may be sent for it."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Send the present watermark; called at the end of each epoch.

        In a source with watermark alignment it is also called within an epoch.
        """


class CurrentWatermark(WatermarkOutput):
    """What a generator has said so far.

    Attributes:
        watermark: the latest watermark, which never goes back; -2**63 before the first one.
        is_idle: whether others need not wait for this input.
    """

    def __init__(self, watermark: int = MIN_LONG_VALUE, is_idle: bool = False) -> None:
        """Go on where a subtask stood, or begin."""
        self.watermark = watermark
        self.is_idle = is_idle

    def emit_watermark(self, timestamp: int) -> None:
        """Take the watermark if it is later."""
        self.is_idle = False
        if timestamp > self.watermark:
            self.watermark = timestamp

    def mark_idle(self) -> None:
        """Note that the input is idle."""
        self.is_idle = True

    def mark_active(self) -> None:
        """Note that the input is active."""
        self.is_idle = False


class NoWatermarksGenerator(WatermarkGenerator):
    """Never sends a watermark."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Do nothing."""

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Do nothing."""


class BoundedOutOfOrdernessWatermarks(WatermarkGenerator):
    """Follows the largest timestamp at a fixed distance.

    Only the largest timestamp of an epoch matters, so it is enough to be shown that record.
    """

    def __init__(self, delay: int) -> None:
        """Stay that many milliseconds behind."""
        self._delay = delay
        #: such that the watermark before the first record is the one before all others
        self._max_timestamp = MIN_LONG_VALUE + delay + 1

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Note the timestamp if it is the largest."""
        if event_timestamp > self._max_timestamp:
            self._max_timestamp = event_timestamp

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Send the watermark: a record with the same timestamp may follow, so one less."""
        output.emit_watermark(self._max_timestamp - self._delay - 1)


class WatermarksWithIdleness(WatermarkGenerator):
    """Another generator, and idleness: without a record for long enough, the input is idle.

    The time runs from the end of the last epoch that had a record, or of the first one. With the
    next record the input is active again.

    Attributes:
        clock: the processing time in milliseconds. It is not pickled: set it anew.
    """

    clock: Callable[[], int]

    def __init__(
        self, generator: WatermarkGenerator, idle_timeout: int, clock: Callable[[], int]
    ) -> None:
        """Watch a generator; the timeout is in milliseconds."""
        self._generator = generator
        self._idle_timeout = idle_timeout
        self._quiet_since: int | None = None
        self._had_records = False
        self._is_idle = False
        self.clock = clock

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "clock"}

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Show the record to the other generator; the input is active."""
        self._had_records = True
        if self._is_idle:
            self._is_idle = False
            output.mark_active()
        self._generator.on_event(event, event_timestamp, output)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Let the other generator send its watermark, unless the input is idle."""
        if not self._has_been_quiet():
            self._generator.on_periodic_emit(output)
        elif not self._is_idle:
            self._is_idle = True
            output.mark_idle()

    def hold(self) -> None:
        """Start the timeout anew: the input is not read, so it says nothing that nothing comes."""
        if not self._is_idle:
            self._quiet_since = None

    def _has_been_quiet(self) -> bool:
        now = self.clock()
        if self._had_records or self._quiet_since is None:
            self._had_records = False
            self._quiet_since = now
            return False
        return now - self._quiet_since >= self._idle_timeout
