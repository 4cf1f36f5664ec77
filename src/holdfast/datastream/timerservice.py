"""Access to the time and to timers."""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["TimerService"]


class TimerService(ABC):
    """Returns the time, and sets timers that belong to the current key.

    Equal timers of a key (same time, same domain) are one: they fire once. Timers are part of every
    checkpoint. Only functions on a keyed stream can set them.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the processing time in milliseconds."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return the watermark of the operator; -2**63 before the first one."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call ``on_timer`` for this key when the processing time reaches the timestamp."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Call ``on_timer`` for this key when the watermark reaches the timestamp."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Remove that timer of this key; nothing happens if there is none."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Remove that timer of this key; nothing happens if there is none."""
