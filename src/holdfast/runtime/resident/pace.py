"""How much may be under way to a subtask: as much as it handles in a second, within bounds.

A mark travels behind the records that were sent before it. If a slow subtask had megabytes of small
records before it, a checkpoint would take minutes. Flink calls the remedy buffer debloating.

Invariant: what a producer may still send, what is under way, and what was taken and not put back
yet are the window of a channel together. Consequence: a producer that has nothing under way may
send, since less than a quarter of a window is kept back; and a window can become smaller at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from holdfast.runtime.inbox import Producer

__all__ = ["SMALLEST_WINDOW", "Windows", "window_of"]

#: how many bytes may be under way on a channel at least, and before the pace is known
SMALLEST_WINDOW: Final = 1 << 10
#: how many bytes may be under way to a subtask at most, from all producers together
_BUDGET: Final = 2 << 20
#: but with many producers, so many from each
_LEAST: Final = 1 << 17
#: what is under way should be handled in so many seconds
_TARGET: Final = 1.0
#: and be no more than so many times what was handled in the last time: a subtask is not known to be
#: fast before those after it have shown how fast they are
_GROWTH: Final = 2.0


def window_of(producers: int) -> int:
    """Return how many bytes may be under way at most on each of so many channels to a subtask."""
    return max(_LEAST, _BUDGET // max(producers, 1))


class Windows:
    """The windows of the channels to one subtask; they follow the pace of its work."""

    def __init__(
        self, producers: Iterable[Producer], put_back: Callable[[Producer, int], None]
    ) -> None:
        """Begin with small windows; ``put_back`` lets a producer send so many bytes more."""
        self._put_back = put_back
        #: what was taken of each channel, and not put back yet
        self._kept = dict.fromkeys(producers, 0)
        self._largest = window_of(len(self._kept))
        self._open = dict.fromkeys(self._kept, SMALLEST_WINDOW)
        #: what was handled lately, and how long that took
        self._bytes = 0.0
        self._seconds = 0.0

    def handled(self, producer: Producer, size: int, seconds: float) -> None:
        """So many bytes of a channel were handled in so many seconds."""
        self._note(size, seconds)
        wanted = self._wanted()
        # NB: less than nothing, when a window becomes smaller: what may be sent is taken back
        kept = self._kept[producer] + size + wanted - self._open[producer]
        self._open[producer] = wanted
        if abs(kept) * 4 >= wanted:
            self._put_back(producer, kept)
            kept = 0
        self._kept[producer] = kept

    def _note(self, size: int, seconds: float) -> None:
        self._bytes += size
        self._seconds += seconds
        if self._seconds > _TARGET:  # what was long ago counts less and less
            self._bytes /= 2
            self._seconds /= 2

    def _wanted(self) -> int:
        """Return the window that each channel should have."""
        times = _TARGET / self._seconds if self._seconds > _TARGET / _GROWTH else _GROWTH
        share = self._bytes * times / len(self._open)
        return max(SMALLEST_WINDOW, min(self._largest, int(share)))
