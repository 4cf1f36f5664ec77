"""When periodic checkpoints are due: at a fixed rate, with a pause after each."""

from __future__ import annotations


class Schedule:
    """The times of a job's periodic checkpoints, by a clock that may be set back."""

    def __init__(self, interval_ms: int, min_pause_ms: int) -> None:
        """Start without times; the first epoch of an attempt starts the interval."""
        self._interval = interval_ms
        self._min_pause = min_pause_ms
        self._due: int | None = None
        self._pause_ends: int | None = None

    def begin_attempt(self) -> None:
        """Reset the times."""
        self._due = self._pause_ends = None

    def next_trigger(self, now: int) -> int:
        """Return when the next checkpoint is due."""
        if self._due is None:
            return now
        pause_ends = min(self._pause_ends or now, now + self._min_pause)
        return max(min(self._due, now + self._interval), pause_ends)

    def is_due(self, now: int) -> bool:
        """Return whether an epoch that starts now takes a checkpoint."""
        # NB: min, because a clock that was set back must not delay the next checkpoint for long.
        latest = now + self._interval
        self._due = latest if self._due is None else min(self._due, latest)
        pauses = self._is_pausing(now)
        return now >= self._due and not pauses

    def _is_pausing(self, now: int) -> bool:
        if self._pause_ends is None:
            return False
        self._pause_ends = min(self._pause_ends, now + self._min_pause)
        return now < self._pause_ends

    def triggered(self, now: int) -> None:
        """Set when the next checkpoint is due; missed ones are not made up for."""
        interval = self._interval
        following = interval + (now if self._due is None else min(self._due, now + interval))
        self._due = following if following > now else now + interval

    def failed(self, now: int) -> None:
        """Make a checkpoint due at once, because the epoch that carried the last one failed."""
        self._due = now

    def completed(self, now: int) -> None:
        """Start the pause."""
        self._pause_ends = now + self._min_pause
