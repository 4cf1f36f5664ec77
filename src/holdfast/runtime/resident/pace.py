"""The windows of channels: how much may be in transit to a subtask, based on its pace.

A mark travels behind the records that were sent before it. If megabytes of small records were
queued for a slow subtask, a checkpoint would take minutes. So what is in transit is limited to what
the subtask processes in about a second, within bounds. Flink calls this buffer debloating.

Invariant: the window of a channel is the sum of what the producer may still send, what is in
transit, and what was taken but not yet put back. Consequence: a producer with nothing in transit
may send, since less than a quarter of a window is kept back; and a window can shrink at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from holdfast.runtime.wire.inbox import Producer

#: minimum window of a channel in bytes, also used before the pace is known
SMALLEST_WINDOW: Final = 1 << 10
#: maximum number of bytes in transit to a subtask, from all producers together
_BUDGET: Final = 2 << 20
#: but with many producers, this many from each
_LEAST: Final = 1 << 17
#: what is in transit should be processed in this many seconds
_TARGET: Final = 1.0
#: and be at most this multiple of what was processed recently: a subtask is not known to be fast
#: before its downstream subtasks have shown how fast they are
_GROWTH: Final = 2.0


def window_of(producers: int) -> int:
    """Return the maximum window of each channel to a subtask with this many producers."""
    return max(_LEAST, _BUDGET // max(producers, 1))


class ChannelWindows:
    """The windows of the channels to one subtask, which follow the pace of its work."""

    def __init__(
        self, producers: Iterable[Producer], put_back: Callable[[Producer, int], None]
    ) -> None:
        """Start with small windows; ``put_back`` allows a producer to send this many bytes more."""
        self._put_back = put_back
        #: what was taken from each channel, and not put back yet
        self._kept = dict.fromkeys(producers, 0)
        self._largest = window_of(len(self._kept))
        self._open = dict.fromkeys(self._kept, SMALLEST_WINDOW)
        #: what was processed recently, and how long that took
        self._bytes = 0.0
        self._seconds = 0.0

    def handled(self, producer: Producer, size: int, seconds: float) -> None:
        """Record that this many bytes of a channel were processed in this many seconds."""
        self._note(size, seconds)
        wanted = self._wanted()
        # NB: it is negative when a window shrinks: credit is then taken back
        kept = self._kept[producer] + size + wanted - self._open[producer]
        self._open[producer] = wanted
        if abs(kept) * 4 >= wanted:
            self._put_back(producer, kept)
            kept = 0
        self._kept[producer] = kept

    def _note(self, size: int, seconds: float) -> None:
        self._bytes += size
        self._seconds += seconds
        if self._seconds > _TARGET:  # older measurements count less and less
            self._bytes /= 2
            self._seconds /= 2

    def _wanted(self) -> int:
        """Return the window that each channel should have."""
        times = _TARGET / self._seconds if self._seconds > _TARGET / _GROWTH else _GROWTH
        share = self._bytes * times / len(self._open)
        return max(SMALLEST_WINDOW, min(self._largest, int(share)))
