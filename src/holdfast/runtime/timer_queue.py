"""Timers of a keyed operator: stored as keyed state, and ordered by time.

The timers of a key are marks in the state, so they are saved, restored and redistributed like all
state. To find timers that are due, a queue has them by time: a heap of the distinct times, and a
list for each time. Windows of many keys end together, so there are far fewer times than timers. The
queue is local to the process: when state is loaded, the loaded timers are added to it. A timer that
is in the queue but no longer in the state is skipped when it is due. So a watermark that fires
nothing looks at one time only, however many timers there are. When much of the queue may have been
deleted, it is rebuilt, so it is never much larger than the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from numbers import Real
from typing import Any, NamedTuple

from holdfast.datastream.time_domain import TimeDomain
from holdfast.state.backend import KeyContext, KeyedStateBackend
from holdfast.state.errors import decoding

#: names that no state of a user has
TIMER_STATES = {
    TimeDomain.EVENT_TIME: "\0event-time-timers",
    TimeDomain.PROCESSING_TIME: "\0processing-time-timers",
}
#: this many superfluous timers in a queue are tolerated
_FEW = 1024

#: a timer in the state: key, and time and namespace as a flat tuple, to be stored as plain values
_Mark = tuple[Any, tuple[Any, ...]]


class Timer(NamedTuple):
    """A timer that is due; the namespace is a window, or None."""

    timestamp: int
    key: Any
    namespace: Any


class TimerQueue:
    """The timers of one operator in one subtask, of one time domain."""

    def __init__(
        self, domain: TimeDomain, operator: str, backend: KeyedStateBackend, context: KeyContext
    ) -> None:
        """Start with the timers that are in the state already."""
        self.domain = domain
        self._operator = operator
        self._context = context
        self._times: list[int] = []
        self._marks_at: dict[int, list[_Mark]] = {}
        self._queued = 0
        #: how many of them may have been deleted, or may be queued twice
        self._doubtful = 0
        self._firing = False
        self._set = backend.marks(operator, TIMER_STATES[domain], self._loaded)

    def register(self, timestamp: int, namespace: Any = None) -> None:
        """Set a timer of the current key; equal timers are merged."""
        mark = self._context.key, _place(timestamp, namespace)
        if self._set.add(mark):
            self._enqueue(timestamp, mark)

    def delete(self, timestamp: int, namespace: Any = None) -> None:
        """Remove a timer of the current key, if there is one."""
        if self._set.remove((self._context.key, _place(timestamp, namespace))):
            self._doubtful += 1
            if not self._firing and self._doubtful > _FEW and 2 * self._doubtful > self._queued:
                self._sweep()

    def due(self, until: int) -> Iterator[Timer]:
        """Yield and remove the timers up to a time, in order, including those set meanwhile.

        The key of each timer is the current key while the caller handles it.
        """
        times, context, remove = self._times, self._context, self._set.remove
        self._firing = True
        try:
            while times and times[0] <= until:
                timestamp = times[0]
                marks = self._marks_at[timestamp]
                done = 0
                for mark in marks:  # it grows if a timer with the same time is set meanwhile
                    done += 1
                    if remove(mark):
                        context.key, place = mark
                        yield Timer(timestamp, context.key, _namespace(place))
                        if times[0] < timestamp:
                            break  # a timer that was set meanwhile is due earlier
                self._taken(timestamp, done)
        finally:
            self._firing = False

    def _taken(self, timestamp: int, count: int) -> None:
        """Remove the first timers of a time from the queue."""
        self._queued -= count
        marks = self._marks_at[timestamp]
        if count < len(marks):
            del marks[:count]
        elif self._times[0] == timestamp:
            del self._marks_at[heappop(self._times)]
        else:
            marks.clear()

    @property
    def first(self) -> int | None:
        """Return the time of the first timer, which may be deleted already; None without any."""
        return self._times[0] if self._times else None

    def __len__(self) -> int:
        """Return the number of timers, including deleted ones that were not skipped yet."""
        return self._queued

    def _enqueue(self, timestamp: int, mark: _Mark) -> None:
        self._queued += 1
        marks = self._marks_at.get(timestamp)
        if marks is None:
            self._marks_at[timestamp] = [mark]
            heappush(self._times, timestamp)
        else:
            marks.append(mark)

    def _sweep(self) -> None:
        """Rebuild the queue from the state."""
        marks = [mark for same_time in self._marks_at.values() for mark in same_time]
        self._clear()
        self._loaded(mark for mark in dict.fromkeys(marks) if mark in self._set)

    def _clear(self) -> None:
        self._times.clear()
        self._marks_at.clear()
        self._queued = self._doubtful = 0

    def _loaded(self, marks: Iterable[_Mark] | None) -> None:
        """Add timers from loaded state; None if all state was dropped."""
        if marks is None:
            return self._clear()
        before = self._queued
        with decoding(f"the timers of operator {self._operator!r}"):
            for mark in marks:
                timestamp = mark[1][0]
                if not _is_time(timestamp):
                    raise TypeError(f"the time of a timer is {timestamp!r}")
                self._enqueue(timestamp, mark)
        if before:
            self._doubtful += self._queued - before


def _is_time(value: Any) -> bool:
    return value.__class__ is int or isinstance(value, Real)


def _place(timestamp: int, namespace: Any) -> tuple[Any, ...]:
    if namespace.__class__ is tuple:
        return (timestamp, *namespace)
    return timestamp, namespace


def _namespace(place: tuple[Any, ...]) -> Any:
    return place[1] if len(place) == 2 else place[1:]
