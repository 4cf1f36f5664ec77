"""Tumbling and sliding windows over columns.

The namespace of a state is the start of a pane. A window consists of whole panes, which sliding
windows share. There are no timers: `PaneIndex` knows the end of the next window.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.datastream.columns.batch import Batch
from holdfast.datastream.columns.windows import Spans
from holdfast.runtime.operators.batch_windows.partials import Partials, TimedRows, Times
from holdfast.state.columns.growing import Slots
from holdfast.state.columns.table import dense

#: partial results that are combined at once, about
_AT_ONCE: Final = 1 << 18


class PaneIndex:
    """The slots of each pane that has some. Finds the next window without a look at all panes."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._slots: dict[int, list[Slots]] = {}
        self._starts: list[int] = []  # a heap

    def add(self, panes: Times, slots: Slots) -> None:
        """Add slots, each with the start of its pane."""
        order = np.argsort(panes, kind="stable")
        panes, slots = panes[order], slots[order]
        bounds = [0, *(np.flatnonzero(np.diff(panes)) + 1).tolist(), len(panes)]
        for first, end in pairwise(bounds):
            if end > first:
                self._add(int(panes[first]), slots[first:end])

    def _add(self, pane: int, slots: Slots) -> None:
        if pane not in self._slots:
            self._slots[pane] = []
            heappush(self._starts, pane)
        self._slots[pane].append(slots)

    def next_end(self, after: int) -> int | None:
        """Return the first end after this one of a window with rows; None if there is none."""
        if not self._starts:
            return None
        return max(self._spans.first_end(self._starts[0]), self._spans.end_after(after))

    def slots_until(self, end: int) -> Slots:
        """Return the slots of the window with this end, in the order of their panes."""
        spans = self._spans
        panes = range(end - spans.size, end, spans.pane)
        inside = (
            [pane for pane in panes if pane in self._slots]
            if len(panes) <= len(self._slots)
            else sorted(pane for pane in self._slots if end - spans.size <= pane < end)
        )
        return np.concatenate([part for pane in inside for part in self._slots[pane]])

    def pop_until(self, end: int) -> Slots:
        """Remove the panes that no window after this end has; return their slots."""
        found: list[Slots] = [np.zeros(0, np.int64)]
        while self._starts and self._spans.last_end(self._starts[0]) <= end:
            found += self._slots.pop(heappop(self._starts))
        return np.concatenate(found)


class PaneWindows:
    """Tumbling and sliding windows."""

    def __init__(self, partials: Partials, spans: Spans) -> None:
        self._partials = partials
        self._spans = spans
        self._index = PaneIndex(spans)
        self._version: tuple[int, int] | None = None

    def add(self, rows: TimedRows, now: int) -> int:
        """Add rows to their panes; return how many were dropped because they are late."""
        spans, times = self._spans, rows.times
        panes = times - (times - spans.offset) % spans.pane
        ends = panes - (panes - spans.offset) % spans.slide + spans.size
        late = ends - 1 <= now
        kept = ~late & (ends > panes)  # rows between windows belong to none
        dropped = 0
        if not kept.all():
            dropped = int(np.count_nonzero(late & (ends > panes)))
            rows, panes = rows.take(np.flatnonzero(kept)), panes[kept]
        if len(panes):
            index = self._known()
            new, places = self._partials.add(rows, panes)
            index.add(panes[places], new)
        return dropped

    def next_end(self, fired: int) -> int | None:
        """Return the end of the next window, if those up to this time have fired."""
        return self._known().next_end(fired + 1)

    def fire(self, fired: int, now: int) -> Iterator[Batch]:
        """Yield the results of windows that have ended, in the order of their ends."""
        index, end = self._known(), self.next_end(fired)
        slots: list[Slots] = []
        ends: list[int] = []
        done: list[Slots] = []
        while end is not None and end - 1 <= now:
            slots.append(index.slots_until(end))
            ends.append(end)
            done.append(index.pop_until(end))
            end = index.next_end(end)
            if sum(map(len, slots)) >= _AT_ONCE or end is None or end - 1 > now:
                yield self._results(slots, ends)
                slots, ends = [], []
        if done:
            self._partials.clear(np.concatenate(done))

    def _results(self, slots: list[Slots], ends: list[int]) -> Batch:
        spans, partials = self._spans, self._partials
        every = np.concatenate(slots)
        until = np.repeat(np.array(ends, np.int64), [len(some) for some in slots])
        keys, found = partials.keys(every)[0], partials.read(every)
        if spans.pane != spans.size:
            groups, places = dense([*partials.key_columns(keys), pa.array(until)])
            found = partials.combined(found, groups)
            keys, until = keys.take(pa.array(places)), until[places]
        return partials.results(keys, until - spans.size, until, found)

    def _known(self) -> PaneIndex:
        """Return the index; made anew if state was restored, or slots have new numbers."""
        partials = self._partials
        if self._version != partials.version:
            self._version, self._index = partials.version, PaneIndex(self._spans)
            slots = partials.live()
            if len(slots):
                self._index.add(partials.keys(slots)[1], slots)
        return self._index
