"""Session windows: records of a key with no gap between them that is too long.

Each record starts with its own window, which is as long as the gap; windows that overlap or
touch merge into one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.common.time import DurationLike, to_millis
from holdfast.datastream.windows.assigners import (
    EventTimeWindowAssigner,
    MergingWindowAssigner,
    ProcessingTimeWindowAssigner,
    TimeWindowAssigner,
)
from holdfast.datastream.windows.windows import TimeWindow

T = TypeVar("T")


class SessionWindowTimeGapExtractor(ABC):
    """Says how long a session stays open after a record."""

    @abstractmethod
    def extract(self, element: Any) -> DurationLike:
        """Return the gap after this record: milliseconds, or any other duration."""


class _Sessions(TimeWindowAssigner[T], MergingWindowAssigner[T, TimeWindow]):
    """Windows of time that merge when they overlap or touch."""

    def merge_windows(
        self,
        windows: Iterable[TimeWindow],
        callback: MergingWindowAssigner.MergeCallback[TimeWindow],
    ) -> None:
        """Call the callback with every group of windows that overlap or touch."""
        TimeWindow.merge_windows(windows, callback)


@dataclass(frozen=True)
class _FixedSessions(_Sessions[T]):
    """Sessions with one gap for all records."""

    session_gap: int

    def __post_init__(self) -> None:
        if self.session_gap <= 0:
            message = (
                f"{type(self).__name__}: the gap must be longer than zero; "
                f"got {self.session_gap} ms"
            )
            raise ValueError(message)

    def windows_at(self, time: int, element: T) -> list[TimeWindow]:
        """Return a window from the record to the end of its gap."""
        return [TimeWindow(time, time + self.session_gap)]


@dataclass(frozen=True)
class _DynamicSessions(_Sessions[T]):
    """Sessions in which each record has its own gap."""

    session_window_time_gap_extractor: SessionWindowTimeGapExtractor

    def windows_at(self, time: int, element: T) -> list[TimeWindow]:
        """Return a window from the record to the end of its gap."""
        gap = to_millis(self.session_window_time_gap_extractor.extract(element))
        if gap <= 0:
            message = (
                f"{type(self).__name__}: the gap must be longer than zero; the extractor "
                f"{self.session_window_time_gap_extractor!r} returned {gap} ms for {element!r}"
            )
            raise ValueError(message)
        return [TimeWindow(time, time + gap)]


class EventTimeSessionWindows(_FixedSessions[T], EventTimeWindowAssigner[T]):
    """Sessions by the records' timestamps."""

    @staticmethod
    def with_gap(size: DurationLike) -> EventTimeSessionWindows[Any]:
        """Return sessions that end after that long without a record."""
        return EventTimeSessionWindows(to_millis(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], DurationLike],
    ) -> DynamicEventTimeSessionWindows[Any]:
        """Return sessions whose gap depends on the record."""
        return DynamicEventTimeSessionWindows.with_dynamic_gap(extractor)


class ProcessingTimeSessionWindows(_FixedSessions[T], ProcessingTimeWindowAssigner[T]):
    """Sessions by the clock."""

    @staticmethod
    def with_gap(size: DurationLike) -> ProcessingTimeSessionWindows[Any]:
        """Return sessions that end after that long without a record."""
        return ProcessingTimeSessionWindows(to_millis(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], DurationLike],
    ) -> DynamicProcessingTimeSessionWindows[Any]:
        """Return sessions whose gap depends on the record."""
        return DynamicProcessingTimeSessionWindows.with_dynamic_gap(extractor)


class DynamicEventTimeSessionWindows(_DynamicSessions[T], EventTimeWindowAssigner[T]):
    """Sessions by the records' timestamps, with a gap that depends on the record."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], DurationLike],
    ) -> DynamicEventTimeSessionWindows[Any]:
        """Return sessions with gaps from the extractor, or from a function of the record."""
        return DynamicEventTimeSessionWindows(_as_extractor(extractor))


class DynamicProcessingTimeSessionWindows(_DynamicSessions[T], ProcessingTimeWindowAssigner[T]):
    """Sessions by the clock, with a gap that depends on the record."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], DurationLike],
    ) -> DynamicProcessingTimeSessionWindows[Any]:
        """Return sessions with gaps from the extractor, or from a function of the record."""
        return DynamicProcessingTimeSessionWindows(_as_extractor(extractor))


@dataclass(frozen=True)
class _CallableExtractor(SessionWindowTimeGapExtractor):
    function: Callable[[Any], DurationLike]

    def extract(self, element: Any) -> DurationLike:
        return self.function(element)


def _as_extractor(given: Any) -> SessionWindowTimeGapExtractor:
    # Any object with the method is accepted, as in PyFlink.
    if hasattr(given, "extract"):
        return given  # type: ignore[no-any-return]
    if callable(given):
        return _CallableExtractor(given)
    message = (
        "with_dynamic_gap: expected a SessionWindowTimeGapExtractor or a function of the record; "
        f"got {type(given).__name__}: {given!r}"
    )
    raise TypeError(message)
