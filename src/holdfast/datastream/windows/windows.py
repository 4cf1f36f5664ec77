"""Windows: finite groups of records, as values; and how they are written as bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.common.constants import MAX_LONG_VALUE
from holdfast.common.serializer import TypeSerializer

if TYPE_CHECKING:
    from holdfast.datastream.windows.assigners import MergingWindowAssigner


class Window:
    """A finite group of records of one key that are processed together.

    Windows are values: state is kept by window, so equal windows are the same. Your own window
    class needs consistent ``__eq__`` and ``__hash__``, and must be picklable.
    """

    __slots__ = ()

    def max_timestamp(self) -> int:
        """Return the last timestamp that belongs to the window."""
        message = f"the window class {type(self).__name__} has no max_timestamp()"
        raise NotImplementedError(message)


class TimeWindow(Window, msgspec.Struct, frozen=True, order=True):
    """The time from ``start``, inclusive, to ``end``, exclusive; ordered by start, then end."""

    start: int
    end: int

    def max_timestamp(self) -> int:
        """Return the last millisecond of the window."""
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Return whether the two overlap or touch, that is, are one session."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that contains both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Return the start of the window of that size that contains the timestamp.

        Windows start at multiples of their size, moved by the offset; timestamps may be negative.
        """
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(
        windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
        """Call the callback with each group of windows that overlap or touch, in order of time."""
        for group in _sessions(sorted(set(windows))):
            if len(group) > 1:
                end = max(window.end for window in group)
                callback.merge(group, TimeWindow(group[0].start, end))


class CountWindow(Window, msgspec.Struct, frozen=True, order=True):
    """The n-th window of a key that is full after a number of records."""

    id: int

    def max_timestamp(self) -> int:
        """Return the maximum timestamp: the window does not end by a clock."""
        return MAX_LONG_VALUE


class GlobalWindow(Window, msgspec.Struct, frozen=True):
    """The one window of all records of a key."""

    @staticmethod
    def get() -> GlobalWindow:
        """Return the window."""
        return _GLOBAL

    def max_timestamp(self) -> int:
        """Return the maximum timestamp."""
        return MAX_LONG_VALUE


_GLOBAL: Final = GlobalWindow()
_TIME_WINDOW: Final = struct.Struct(">qq")
_COUNT_WINDOW: Final = struct.Struct(">q")


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Writes start and end as 64-bit integers, big-endian."""

    def serialize(self, element: TimeWindow, stream: BytesIO) -> None:
        """Append 16 bytes."""
        stream.write(_TIME_WINDOW.pack(element.start, element.end))

    def deserialize(self, stream: BytesIO) -> TimeWindow:
        """Read 16 bytes."""
        return TimeWindow(*_TIME_WINDOW.unpack(stream.read(_TIME_WINDOW.size)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """Writes the id as a 64-bit integer, big-endian."""

    def serialize(self, element: CountWindow, stream: BytesIO) -> None:
        """Append 8 bytes."""
        stream.write(_COUNT_WINDOW.pack(element.id))

    def deserialize(self, stream: BytesIO) -> CountWindow:
        """Read 8 bytes."""
        return CountWindow(*_COUNT_WINDOW.unpack(stream.read(_COUNT_WINDOW.size)))


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """Writes nothing: there is only one."""

    def serialize(self, element: GlobalWindow, stream: BytesIO) -> None:
        """Append nothing."""

    def deserialize(self, stream: BytesIO) -> GlobalWindow:
        """Read nothing."""
        return _GLOBAL


def _sessions(windows: Iterable[TimeWindow]) -> Iterator[list[TimeWindow]]:
    """Yield the windows, which come sorted, in groups that overlap or touch."""
    group: list[TimeWindow] = []
    end = 0
    for window in windows:
        if group and window.start > end:
            yield group
            group = []
        end = max(end, window.end) if group else window.end
        group.append(window)
    if group:
        yield group
