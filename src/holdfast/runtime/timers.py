"""Timers of a keyed operator: kept as keyed state, found in the order of their times.

The timers of a key are marks in the state, so that they are saved, restored and moved like all
state. To find those that are due, a queue beside it has them by time: a heap of the times there
are, and for each time a list. Windows of many keys end together, so there are far fewer times than
timers. The queue belongs to the process: when state is loaded, the timers that came in are added to
it, and a timer that is in the queue but no longer in the state is passed over when its turn comes.
So a watermark that fires nothing looks at one time, however many timers there are. When much of the
queue may have been deleted, it is made anew, so it is never much larger than the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from numbers import Real
from typing import Any, NamedTuple

from holdfast.datastream.time_domain import TimeDomain
from holdfast.state.backend import KeyContext, KeyedStateBackend
from holdfast.state.errors import decoding

#: no state of a user has such a name
TIMER_STATES = {
    TimeDomain.EVENT_TIME: "\0event-time-timers",
    TimeDomain.PROCESSING_TIME: "\0processing-time-timers",
}
#: so many timers too many in a queue are no matter
_FEW = 1024

#: a timer in the state: its key, and its time and namespace; flat, to be written as plain values
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
        """Begin with what is in the state already."""
        self.domain = domain
        self._operator = operator
        self._context = context
        self._times: list[int] = []
        self._marks_at: dict[int, list[_Mark]] = {}
        self._queued = 0
        #: how many of them may be no more, or there twice
        self._doubtful = 0
        self._firing = False
        self._set = backend.marks(operator, TIMER_STATES[domain], self._loaded)

    def register(self, timestamp: int, namespace: Any = None) -> None:
        """Set a timer of the current key; equal ones are one."""
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
        """Take out the timers up to a time, in its order, those that are set meanwhile too.

        The key of each is the current one while the caller has it.
        """
        times, context, remove = self._times, self._context, self._set.remove
        self._firing = True
        try:
            while times and times[0] <= until:
                timestamp = times[0]
                marks = self._marks_at[timestamp]
                done = 0
                for mark in marks:  # grows if one of the same time is set meanwhile
                    done += 1
                    if remove(mark):
                        context.key, place = mark
                        yield Timer(timestamp, context.key, _namespace(place))
                        if times[0] < timestamp:
                            break  # one that was set meanwhile comes first
                self._taken(timestamp, done)
        finally:
            self._firing = False

    def _taken(self, timestamp: int, count: int) -> None:
        """The first timers of a time are out of the queue."""
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
        """The time of the first timer, which may have been deleted; None without any."""
        return self._times[0] if self._times else None

    def __len__(self) -> int:
        """How many timers wait, those among them that were deleted and not passed over yet."""
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
        """Make the queue anew of what is in the state."""
        marks = [mark for same_time in self._marks_at.values() for mark in same_time]
        self._clear()
        self._loaded(mark for mark in dict.fromkeys(marks) if mark in self._set)

    def _clear(self) -> None:
        self._times.clear()
        self._marks_at.clear()
        self._queued = self._doubtful = 0

    def _loaded(self, marks: Iterable[_Mark] | None) -> None:
        """State came in, these among it; None if all that was there is gone."""
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
