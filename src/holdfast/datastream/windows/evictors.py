"""Evictors: which records are removed from a window before or after its function is called.

PyFlink has no evictors; the API is that of Flink's Java API. A window with an evictor
keeps all its records, so ``reduce`` and ``aggregate`` save nothing there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from holdfast.common.time import DurationLike, to_millis
from holdfast.datastream.windows.delta import DeltaFunction, as_delta
from holdfast.datastream.windows.windows import Window
from holdfast.metrics import MetricGroup

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class TimestampedValue(NamedTuple, Generic[T]):
    """A record of a window and its timestamp; None if it has none."""

    value: T
    timestamp: int | None = None

    def get_value(self) -> T:
        """Return the record."""
        return self.value

    def get_timestamp(self) -> int | None:
        """Return the timestamp; None if there is none."""
        return self.timestamp

    def has_timestamp(self) -> bool:
        """Return whether there is a timestamp."""
        return self.timestamp is not None


class Evictor(ABC, Generic[T, W]):
    """Removes records from a window that fires, and so from the window's state.

    One evictor object serves all keys and windows of a subtask and must not keep anything.
    """

    class EvictorContext(ABC):
        """The context of an evictor; valid only during the call."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time in milliseconds."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """Return where the window operator registers its metrics."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the watermark of the operator; -2**63 before the first one."""

    @abstractmethod
    def evict_before(
        self,
        elements: list[TimestampedValue[T]],
        size: int,
        window: W,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        """Called when the window fires, before its function: remove from the list in place.

        ``elements`` are in the order in which they came, ``size`` is their number.
        """

    @abstractmethod
    def evict_after(
        self,
        elements: list[TimestampedValue[T]],
        size: int,
        window: W,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        """Called after the window's function with the records it saw: remove in place."""


class _OneSidedEvictor(Evictor[T, W]):
    """Evicts either before or after the window function, by one rule."""

    do_evict_after: bool

    def evict_before(
        self,
        elements: list[TimestampedValue[T]],
        size: int,
        window: W,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        """Evict, unless that is to be done after the window function."""
        if not self.do_evict_after and elements:
            self._evict(elements)

    def evict_after(
        self,
        elements: list[TimestampedValue[T]],
        size: int,
        window: W,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        """Evict, if that is to be done after the window function."""
        if self.do_evict_after and elements:
            self._evict(elements)

    @abstractmethod
    def _evict(self, elements: list[TimestampedValue[T]]) -> None:
        """Remove records from the list, which is not empty."""


@dataclass(frozen=True)
class CountEvictor(_OneSidedEvictor[T, W]):
    """Keeps the last records, up to a number."""

    max_count: int
    do_evict_after: bool = False

    def __post_init__(self) -> None:
        if self.max_count < 0:
            message = f"CountEvictor: max_count must not be negative; got {self.max_count}"
            raise ValueError(message)

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor[Any, Any]:
        """Return an evictor that keeps that many records."""
        return CountEvictor(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue[T]]) -> None:
        del elements[: max(len(elements) - self.max_count, 0)]


@dataclass(frozen=True)
class TimeEvictor(_OneSidedEvictor[T, W]):
    """Keeps the records whose age, relative to the latest one, is below a limit.

    Records without a timestamp are kept.
    """

    window_size: int
    do_evict_after: bool = False

    @staticmethod
    def of(window_size: DurationLike, do_evict_after: bool = False) -> TimeEvictor[Any, Any]:
        """Return an evictor that keeps that much time."""
        return TimeEvictor(to_millis(window_size), do_evict_after)

    def _evict(self, elements: list[TimestampedValue[T]]) -> None:
        timestamps = [e.timestamp for e in elements if e.timestamp is not None]
        if timestamps:
            cutoff = max(timestamps) - self.window_size
            elements[:] = [e for e in elements if e.timestamp is None or e.timestamp > cutoff]


@dataclass(frozen=True)
class DeltaEvictor(_OneSidedEvictor[T, W]):
    """Keeps the records that are closer than a threshold to the last one."""

    threshold: float
    delta_function: DeltaFunction[T]
    do_evict_after: bool = False

    @staticmethod
    def of(
        threshold: float,
        delta_function: DeltaFunction[Any] | Callable[[Any, Any], float],
        do_evict_after: bool = False,
    ) -> DeltaEvictor[Any, Any]:
        """Return an evictor with that threshold.

        ``delta_function`` is a `DeltaFunction`, or a function of a record and the last one.
        """
        return DeltaEvictor(threshold, as_delta("DeltaEvictor", delta_function), do_evict_after)

    def _evict(self, elements: list[TimestampedValue[T]]) -> None:
        delta, last = self.delta_function.get_delta, elements[-1].value
        elements[:] = [e for e in elements if delta(e.value, last) < self.threshold]
