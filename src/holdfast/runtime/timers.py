"""Timers of a keyed operator: kept as keyed state, found in the order of their times.

The timers of a key are a map state, so that they are saved, restored and moved like all state. To
find those that are due, a heap beside it holds the same timers by time. The heap belongs to the
process: when state is loaded, the timers of the keys that came in are added to it, and a timer that
is in the heap but no longer in the state is passed over when its turn comes. So a watermark that
fires nothing looks at one timer, however many there are. Whenever the heap has doubled, it is rid
of timers that were deleted or are there twice, so it is never much larger than the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from holdfast.datastream.state import MapState, MapStateDescriptor
from holdfast.datastream.time_domain import TimeDomain
from holdfast.state.backend import KeyContext, KeyedStateBackend

#: no state of a user has such a name
_NAMES = {
    TimeDomain.EVENT_TIME: "\0event-time-timers",
    TimeDomain.PROCESSING_TIME: "\0processing-time-timers",
}
#: a heap that is not worth a sweep
_SMALL = 1024


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
        self._context = context
        name = _NAMES[domain]
        #: of the current key: `_place` -> True
        self._state: MapState[Any, bool] = backend.keyed_state(  # type: ignore[assignment]
            operator, MapStateDescriptor(name), context
        )
        #: time, turn, key, and place in the key's map
        self._heap: list[tuple[int, int, Any, tuple[Any, ...]]] = []
        self._turn = count()
        self._sweep_at = _SMALL
        backend.watch(operator, name, self._loaded)

    def register(self, timestamp: int, namespace: Any = None) -> None:
        """Set a timer of the current key; equal ones are one."""
        place = _place(timestamp, namespace)
        if not self._state.contains(place):
            self._state.put(place, True)
            self._push(timestamp, self._context.key, place)

    def delete(self, timestamp: int, namespace: Any = None) -> None:
        """Remove a timer of the current key, if there is one."""
        self._state.remove(_place(timestamp, namespace))

    def due(self, until: int) -> Iterator[Timer]:
        """Take out the timers up to a time, in its order, those that are set meanwhile too.

        The key of each is the current one while the caller has it.
        """
        heap, state = self._heap, self._state
        while heap and heap[0][0] <= until:
            timestamp, _, key, place = heappop(heap)
            self._context.key = key
            if state.contains(place):
                state.remove(place)
                yield Timer(timestamp, key, _namespace_at(place))

    def __len__(self) -> int:
        """How many timers wait, those among them that were deleted and not passed over yet."""
        return len(self._heap)

    def _push(self, timestamp: int, key: Any, place: tuple[Any, ...]) -> None:
        heappush(self._heap, (timestamp, next(self._turn), key, place))
        if len(self._heap) >= self._sweep_at:
            self._sweep()

    def _sweep(self) -> None:
        """Take timers out of the heap that are no longer in the state, or there twice."""
        current = self._context.key
        once = {(key, place): (at, turn, key, place) for at, turn, key, place in self._heap}
        # NB: in place, since `due` may be at work on it
        self._heap[:] = [entry for (key, place), entry in once.items() if self._is_set(key, place)]
        heapify(self._heap)
        self._context.key = current
        self._sweep_at = 2 * len(self._heap) + _SMALL

    def _is_set(self, key: Any, place: tuple[Any, ...]) -> bool:
        self._context.key = key
        return self._state.contains(place)

    def _loaded(self, entries: dict[Any, dict[Any, bool]], keys: list[Any] | None) -> None:
        """State came in: the timers of these keys, or None if all that was there is gone."""
        if keys is None:
            self._heap.clear()
            return
        for key in keys:
            for place in entries.get(key, ()):
                self._push(place[0], key, place)


def _place(timestamp: int, namespace: Any) -> tuple[Any, ...]:
    """The timer in its key's map; flat, so that it is written as plain values."""
    if namespace.__class__ is tuple:
        return (timestamp, *namespace)
    return timestamp, namespace


def _namespace_at(place: tuple[Any, ...]) -> Any:
    """The namespace of a timer that is there."""
    return place[1] if len(place) == 2 else place[1:]
