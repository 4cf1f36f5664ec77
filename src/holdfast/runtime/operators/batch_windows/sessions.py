"""Session windows over columns.

Time is cut into panes that are as long as the gap. So rows of a key in one pane are always in the
same session. A pane has partial results, and the times of its earliest and its latest row. Rows
are only added to their pane; it does not matter in which order they come.

A pane ends a gap after its latest row. Then it is moved to the next pane of its key, if that one
touches it; otherwise it has a whole session, which is a result.

Invariant: the gap after the latest row of each pane is not over yet. Consequence: a pane that ends
can continue only in the next one, and a late row can touch only two panes: that of the watermark
and the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

import numpy as np
import pyarrow as pa

from holdfast.datastream.columns.aggregates import EARLIEST, LATEST
from holdfast.datastream.columns.batch import Batch
from holdfast.datastream.columns.windows import Gaps
from holdfast.runtime.operators.batch_windows.partials import Partials, TimedRows, Times
from holdfast.state.columns.growing import Mask, Slots
from holdfast.state.columns.table import dense


class DueIndex:
    """Slots by time: finds those that are due without a look at all of them.

    It is a heap of arrays that are sorted by time; most have the slots of one batch.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[int, int, Times, Slots]] = []
        self._count = 0

    def add(self, times: Times, slots: Slots) -> None:
        """Add slots, each with its time."""
        order = np.argsort(times, kind="stable")
        self._push(times[order], slots[order])

    def pop(self, until: int) -> Slots:
        """Remove and return the slots whose time is not after this one."""
        found: list[Slots] = []
        while self._runs and self._runs[0][0] <= until:
            _, _, times, slots = heappop(self._runs)
            end = int(np.searchsorted(times, until, side="right"))
            found.append(slots[:end])
            self._push(times[end:], slots[end:])
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def _push(self, times: Times, slots: Slots) -> None:
        if len(times):
            self._count += 1  # NB: so that arrays are never compared
            heappush(self._runs, (int(times[0]), self._count, times, slots))


class SessionWindows:
    """Sessions with a fixed gap."""

    def __init__(self, partials: Partials, gaps: Gaps) -> None:
        self._partials = partials
        self._gap = gaps.gap
        self._index = DueIndex()
        self._version: tuple[int, int] | None = None

    def add(self, rows: TimedRows, now: int) -> int:
        """Add rows to their panes; return how many were dropped because they are late."""
        gap, times = self._gap, rows.times
        panes = times - times % gap
        late, dropped = times + (gap - 1) <= now, 0
        if late.any():
            kept = ~late
            for place, pane in _Latecomers(self._partials, gap, now).find(rows, late):
                kept[place], panes[place] = True, pane
            dropped = len(kept) - int(np.count_nonzero(kept))
            rows, panes = rows.take(np.flatnonzero(kept)), panes[kept]
        if len(panes):
            index = self._known()
            new, _ = self._partials.add(rows, panes)
            index.add(self._moments(new), new)
        return dropped

    def fire(self, fired: int, now: int) -> Iterator[Batch]:
        """Yield the sessions that have ended, in the order of their ends."""
        index = self._known()
        slots = index.pop(now)
        if not len(slots):
            return
        moments = self._moments(slots)
        later = moments > now  # since rows came
        index.add(moments[later], slots[later])
        slots = slots[~later]
        if len(slots):
            yield from self._ended(slots)

    def _ended(self, slots: Slots) -> Iterator[Batch]:
        partials = self._partials
        nexts = self._next_panes(slots)
        goes_on = nexts >= 0
        ended = slots
        if goes_on.any():
            ended, found, alive = self._merged(slots, goes_on, nexts[goes_on])
            kept = np.flatnonzero(~alive)
            partials.write(ended[alive], found.filter(pa.array(alive)))
            ended, found = ended[kept], found.take(pa.array(kept))
        else:
            found = partials.read(slots)
        partials.clear(slots)
        if len(ended):
            yield self._results(ended, found)

    def _merged(self, slots: Slots, goes_on: Mask, nexts: Slots) -> tuple[Slots, pa.Table, Mask]:
        """Return the last panes of chains of panes, what the chains have, and which go on."""
        partials = self._partials
        every = np.unique(np.concatenate((slots, nexts)))
        every = every[np.argsort(partials.keys(every)[1], kind="stable")]
        place = np.argsort(every)
        at = place[np.searchsorted(every, slots, sorter=place)]
        last = np.arange(len(every))
        last[at[goes_on]] = place[np.searchsorted(every, nexts, sorter=place)]
        while (last[last] != last).any():
            last = last[last]
        lasts, groups = np.unique(last, return_inverse=True)
        alive = np.ones(len(every), np.bool_)
        alive[at] = False
        found = partials.combined(partials.read(every), groups)
        return every[lasts], found, alive[lasts]

    def _results(self, slots: Slots, found: pa.Table) -> Batch:
        partials = self._partials
        order = np.argsort(found[LATEST].to_numpy(), kind="stable")
        found = found.take(pa.array(order))
        keys = partials.keys(slots[order])[0]
        starts, ends = found[EARLIEST].to_numpy(), found[LATEST].to_numpy() + self._gap
        return partials.results(keys, starts, ends, found)

    def _next_panes(self, slots: Slots) -> Slots:
        """Return, per slot, the slot of the next pane of its key if it touches it; otherwise -1."""
        partials = self._partials
        keys, panes = partials.keys(slots)
        nexts = partials.find(keys, panes + self._gap)
        found = np.flatnonzero(nexts >= 0)
        earliest = partials.times(EARLIEST, nexts[found])
        apart = earliest > partials.times(LATEST, slots[found]) + self._gap
        nexts[found[apart]] = -1
        return nexts

    def _moments(self, slots: Slots) -> Times:
        """Return the last millisecond of the gap after each pane."""
        return self._partials.times(LATEST, slots) + (self._gap - 1)

    def _known(self) -> DueIndex:
        """Return the index; made anew if state was restored, or slots have new numbers."""
        if self._version != self._partials.version:
            self._version, self._index = self._partials.version, DueIndex()
            slots = self._partials.live()
            self._index.add(self._moments(slots), slots)
        return self._index


class _Latecomers:
    """Finds late rows that touch a session which is not over, so that they are in it.

    It matters which rows have come before, so it goes from row to row; only of keys that have such
    rows.
    """

    def __init__(self, partials: Partials, gap: int, now: int) -> None:
        self._partials = partials
        self._gap = gap
        self._now = now

    def find(self, rows: TimedRows, late: Mask) -> Iterator[tuple[int, int]]:
        """Yield the places of such rows, each with a pane of the session."""
        gap, times = self._gap, rows.times
        codes, places = dense(self._partials.key_columns(rows.keys))
        chosen = np.unique(codes[late])
        # per key: the earliest time of sessions, and the pane that it is in
        lows = dict(
            zip(chosen.tolist(), self._alive(rows.keys.take(pa.array(places[chosen]))), strict=True)
        )
        best = np.full(len(places), np.iinfo(np.int64).max)
        best[chosen] = [low for low, _ in lows.values()]
        np.minimum.at(best, codes[~late], times[~late])
        hopeful = np.unique(codes[late & (times + gap >= best[codes])])
        for row in np.flatnonzero(np.isin(codes, hopeful)).tolist():
            code, time = int(codes[row]), int(times[row])
            low, pane = lows[code]
            if not late[row]:
                if time < low:
                    lows[code] = time, time - time % gap
            elif time + gap >= low:
                lows[code] = min(low, time), pane
                yield row, pane

    def _alive(self, keys: pa.Array) -> list[tuple[int, int]]:
        """Return the earliest time and the pane of the first session of keys."""
        never = np.iinfo(np.int64).max
        low, panes = np.full(len(keys), never), np.zeros(len(keys), np.int64)
        pane = min(self._now + 1, never) // self._gap * self._gap
        for at in (pane, pane - self._gap):
            slots = self._partials.find(keys, np.full(len(keys), at))
            found = np.flatnonzero(slots >= 0)
            times = self._partials.times(EARLIEST, slots[found])
            earlier = times < low[found]
            low[found[earlier]], panes[found[earlier]] = times[earlier], at
        return list(zip(low.tolist(), panes.tolist(), strict=True))
