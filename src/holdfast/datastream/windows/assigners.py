"""Assigners: which windows a record belongs to.

An assigner is a value: it checks its arguments, is part of the graph, and keeps no state.
Time windows come in pairs, by the records' timestamps and by the clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from holdfast.common.constants import MIN_LONG_VALUE
from holdfast.common.serializer import TypeSerializer
from holdfast.common.time import DurationLike, to_millis
from holdfast.common.typeinfo import Types
from holdfast.datastream.functions.base import RuntimeContext
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.datastream.windows.trigger import Trigger
from holdfast.datastream.windows.triggers import (
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from holdfast.datastream.windows.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    Window,
)

if TYPE_CHECKING:
    from holdfast.datastream.stream_execution_environment import StreamExecutionEnvironment

T = TypeVar("T")
W = TypeVar("W", bound=Window)
W2 = TypeVar("W2", bound=Window)


class WindowAssigner(ABC, Generic[T, W]):
    """Puts each record into no, one or several windows."""

    class WindowAssignerContext(ABC):
        """The context of an assigner; valid only during the call."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time in milliseconds."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """Return the context of the operator; its state is scoped to the record's key."""

    @abstractmethod
    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[W]:
        """Return the windows of a record; called once for each, in the workers.

        ``timestamp`` is -2**63 for a record without one.
        """

    @abstractmethod
    def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[T, W]:
        """Return the default trigger; called when the job is built."""

    @abstractmethod
    def get_window_serializer(self) -> TypeSerializer[W]:
        """Return what writes the windows as bytes."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Return whether windows come from timestamps and end by watermarks."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows may merge, as sessions do."""

    class MergeCallback(ABC, Generic[W2]):
        """Gets the windows that merge."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None:
            """Make these windows, at least two, into that one."""

    @abstractmethod
    def merge_windows(
        self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W]
    ) -> None:
        """Find windows that merge, and call the callback with each group of them.

        Called with all windows that a key has, whenever one is added.
        """


class TimeWindowAssigner(WindowAssigner[T, TimeWindow]):
    """An assigner of windows of time.

    There are two kinds, by event time and by processing time, which determine the time of a record;
    `windows_at` returns the windows that contain it.
    """

    @abstractmethod
    def windows_at(self, time: int, element: T) -> list[TimeWindow]:
        """Return the windows of a record with that time."""

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        """Return the serializer of time windows."""
        return TimeWindowSerializer()


class EventTimeWindowAssigner(TimeWindowAssigner[T]):
    """An assigner by the records' timestamps."""

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        """Return the windows of the record's timestamp.

        Raises:
            ValueError: when it has none.
        """
        if timestamp <= MIN_LONG_VALUE:
            raise no_timestamp(self)
        return self.windows_at(timestamp, element)

    def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[T, TimeWindow]:
        """Return a trigger that waits for the watermark."""
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        """Return True."""
        return True


class ProcessingTimeWindowAssigner(TimeWindowAssigner[T]):
    """An assigner by the clock."""

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        """Return the windows of the current time."""
        return self.windows_at(context.get_current_processing_time(), element)

    def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[T, TimeWindow]:
        """Return a trigger that waits for the clock."""
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        """Return False."""
        return False


@dataclass(frozen=True)
class _TumblingWindows(TimeWindowAssigner[T]):
    """Windows of a fixed size, each starting where the previous one ends."""

    size: int
    offset: int = 0

    def __post_init__(self) -> None:
        if abs(self.offset) >= self.size:
            message = (
                f"{type(self).__name__}: the size must be longer than zero and the offset shorter "
                f"than the size; got size {self.size} ms, offset {self.offset} ms"
            )
            raise ValueError(message)

    def windows_at(self, time: int, element: T) -> list[TimeWindow]:
        """Return the window that contains the time."""
        start = time - (time - self.offset) % self.size
        return [TimeWindow(start, start + self.size)]


class TumblingEventTimeWindows(_TumblingWindows[T], EventTimeWindowAssigner[T]):
    """Windows of a fixed size, one after another, by the records' timestamps."""

    @staticmethod
    def of(size: DurationLike, offset: DurationLike | None = None) -> TumblingEventTimeWindows[Any]:
        """Return windows of that size that start at its multiples since 1970, UTC.

        An offset moves them: ``of(Time.hours(1), Time.minutes(15))`` are the hours from quarter
        past to quarter past, ``of(Time.days(1), Time.hours(-8))`` the days of UTC+8.
        """
        return TumblingEventTimeWindows(to_millis(size), _optional_millis(offset))


class TumblingProcessingTimeWindows(_TumblingWindows[T], ProcessingTimeWindowAssigner[T]):
    """Windows of a fixed size, one after another, by the clock."""

    @staticmethod
    def of(
        size: DurationLike, offset: DurationLike | None = None
    ) -> TumblingProcessingTimeWindows[Any]:
        """Return windows of that size; see `TumblingEventTimeWindows.of`."""
        return TumblingProcessingTimeWindows(to_millis(size), _optional_millis(offset))


@dataclass(frozen=True)
class _SlidingWindows(TimeWindowAssigner[T]):
    """Windows of a fixed size that start at regular intervals."""

    size: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        if abs(self.offset) >= self.slide or self.size <= 0:
            message = (
                f"{type(self).__name__}: size and slide must be longer than zero and the offset "
                f"shorter than the slide; got size {self.size} ms, slide {self.slide} ms, "
                f"offset {self.offset} ms"
            )
            raise ValueError(message)

    def windows_at(self, time: int, element: T) -> list[TimeWindow]:
        """Return all windows that contain the time, the latest first."""
        size = self.size
        latest = time - (time - self.offset) % self.slide
        starts = range(latest, time - size, -self.slide)
        return [TimeWindow(start, start + size) for start in starts]


class SlidingEventTimeWindows(_SlidingWindows[T], EventTimeWindowAssigner[T]):
    """Windows of a fixed size that start at regular intervals, by the records' timestamps."""

    @staticmethod
    def of(
        size: DurationLike, slide: DurationLike, offset: DurationLike | None = None
    ) -> SlidingEventTimeWindows[Any]:
        """Return windows of that size that start at the multiples of the slide since 1970, UTC.

        They overlap if the size is longer than the slide; if it is shorter, there are
        records between them that belong to none. An offset moves them.
        """
        return SlidingEventTimeWindows(to_millis(size), to_millis(slide), _optional_millis(offset))


class SlidingProcessingTimeWindows(_SlidingWindows[T], ProcessingTimeWindowAssigner[T]):
    """Windows of a fixed size that start at regular intervals, by the clock."""

    @staticmethod
    def of(
        size: DurationLike, slide: DurationLike, offset: DurationLike | None = None
    ) -> SlidingProcessingTimeWindows[Any]:
        """Return windows of that size and slide; see `SlidingEventTimeWindows.of`."""
        return SlidingProcessingTimeWindows(
            to_millis(size), to_millis(slide), _optional_millis(offset)
        )


@dataclass(frozen=True)
class GlobalWindows(WindowAssigner[T, GlobalWindow]):
    """One window for all records of a key; it needs a trigger to ever fire."""

    @staticmethod
    def create() -> GlobalWindows[Any]:
        """Return the assigner."""
        return GlobalWindows()

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[GlobalWindow]:
        """Return the one window."""
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[T, GlobalWindow]:
        """Return a trigger that never fires."""
        return NeverTrigger()

    def get_window_serializer(self) -> TypeSerializer[GlobalWindow]:
        """Return the serializer of the global window."""
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:
        """Return False."""
        return False


_TUMBLING_COUNT: Final = ValueStateDescriptor("tumble-count-assigner", Types.LONG())
_SLIDING_COUNT: Final = ValueStateDescriptor("slide-count-assigner", Types.LONG())


class _CountWindows(WindowAssigner[T, CountWindow]):
    """Windows that are full after a number of records of the key."""

    window_size: int

    def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[T, CountWindow]:
        """Return a trigger that fires the full window and drops its records.

        No record is added to a full window, and no time ends it, so it would be kept forever.
        """
        return PurgingTrigger(CountTrigger(self.window_size))

    def get_window_serializer(self) -> TypeSerializer[CountWindow]:
        """Return the serializer of count windows."""
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        """Return False."""
        return False


@dataclass(frozen=True)
class CountTumblingWindowAssigner(_CountWindows[T]):
    """Each ``window_size`` records of a key are a window."""

    window_size: int

    def __post_init__(self) -> None:
        _check_count("CountTumblingWindowAssigner", "window_size", self.window_size)

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner[Any]:
        """Return windows of that many records."""
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        """Return the window of the key that is not full yet."""
        return [CountWindow(_next_position(_TUMBLING_COUNT, context) // self.window_size)]


@dataclass(frozen=True)
class CountSlidingWindowAssigner(_CountWindows[T]):
    """A window of ``window_size`` records of a key begins every ``window_slide`` records.

    As in PyFlink, a window fires once, when it is full. Flink's ``countWindow(size, slide)`` in
    Java differs: it fires every ``slide`` records with the last ``size`` of them, so that the first
    windows are partial ones. That is `GlobalWindows` with ``CountTrigger.of(slide)`` and
    ``CountEvictor.of(size)``.
    """

    window_size: int
    window_slide: int

    def __post_init__(self) -> None:
        _check_count("CountSlidingWindowAssigner", "window_size", self.window_size)
        _check_count("CountSlidingWindowAssigner", "window_slide", self.window_slide)

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner[Any]:
        """Return windows of that many records that start at that distance."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        """Return all windows that the next record of the key is in, the latest first."""
        position = _next_position(_SLIDING_COUNT, context)
        latest = position // self.window_slide
        before_first = (position - self.window_size) // self.window_slide
        return [CountWindow(id) for id in range(latest, max(before_first, -1), -1)]


def count_windows(size: int, slide: int) -> WindowAssigner[Any, Any]:
    """Return windows of that many records, one after another or, with a slide, overlapping."""
    return CountSlidingWindowAssigner(size, slide) if slide else CountTumblingWindowAssigner(size)


def _next_position(
    descriptor: ValueStateDescriptor, context: WindowAssigner.WindowAssignerContext
) -> int:
    """Return how many records of the key came before this one, and count it."""
    count = context.get_runtime_context().get_state(descriptor)
    position: int = count.value() or 0
    count.update(position + 1)
    return position


def _optional_millis(offset: DurationLike | None) -> int:
    return 0 if offset is None else to_millis(offset)


def no_timestamp(assigner: WindowAssigner[Any, Any]) -> ValueError:
    """Return the error message for a record without a timestamp."""
    return ValueError(
        f"{type(assigner).__name__} needs records with a timestamp, and this one has none; give "
        "the stream timestamps with assign_timestamps_and_watermarks(...) before the window, or "
        "use windows of processing time"
    )


def _check_count(assigner: str, what: str, value: int) -> None:
    if value < 1:
        message = f"{assigner}: {what} must be at least 1; got {value}"
        raise ValueError(message)
