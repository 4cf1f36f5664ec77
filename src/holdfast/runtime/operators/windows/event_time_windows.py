"""The usual event-time windows, with the usual trigger: tumbling, sliding, and sessions.

They produce the same results as `operator` and `merging` would, and keep the same state. But
assigner and trigger are inlined: no objects are created for a record that is not kept, and timers
are set when a window gets its first record, instead of being looked up for each record.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from holdfast.common.constants import MAX_LONG_VALUE
from holdfast.datastream.state import MapState
from holdfast.datastream.streams.window_operation import WindowOperation
from holdfast.datastream.time_domain import TimeDomain
from holdfast.datastream.windows.assigners import (
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    no_timestamp,
)
from holdfast.datastream.windows.sessions import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
)
from holdfast.datastream.windows.windows import TimeWindow
from holdfast.runtime.operators.windows.contexts import Surroundings
from holdfast.runtime.operators.windows.merging import WINDOWS, is_marked, marked
from holdfast.runtime.operators.windows.operator import Pair, WindowOperator
from holdfast.runtime.timer_queue import Timer

#: start and end of a window
Span = tuple[int, int]


class EventTimeWindows(WindowOperator):
    """Windows that fire when the watermark passes their end."""

    def __init__(self, operation: WindowOperation, around: Surroundings) -> None:
        """Cache what is needed for each record."""
        super().__init__(operation, around)
        self._timers = around.events
        self._add = self._contents.add
        #: a window is over when the watermark has reached its end plus this
        self._grace = self._lateness - 1

    def on_timer(self, timer: Timer, domain: TimeDomain) -> Iterable[Pair]:
        """Fire a window at its end, and remove it when its allowed lateness is over."""
        span = self._span_of(timer) if domain is TimeDomain.EVENT_TIME else None
        if span is None:
            return ()
        end, at = span[1], timer.timestamp
        window = TimeWindow(*span)
        is_over = at >= end + self._grace
        results = self._fire(window, is_over) if at == end - 1 else []
        if is_over:
            self._forget(window)
        else:
            # NB: the allowed lateness may have been different when the window was created
            self._await(end, at, timer.namespace)
        return results

    def _span_of(self, timer: Timer) -> Span | None:
        """Return the window of a timer, and set the namespace to that of its contents."""
        self._keys.namespace = timer.namespace
        return timer.namespace  # type: ignore[no-any-return]

    def _forget(self, window: TimeWindow) -> None:
        self._let_go(window)

    def _await(self, end: int, now: int, namespace: Any) -> None:
        """Set the timers of a window: for its end, unless that has passed, and for clean-up."""
        if end > now + 1:
            self._timers.register(end - 1, namespace)
        if self._lateness and end + self._grace < MAX_LONG_VALUE:
            self._timers.register(end + self._grace, namespace)


class TumblingWindows(EventTimeWindows):
    """Windows of one size, one after another."""

    def __init__(self, operation: WindowOperation, around: Surroundings) -> None:
        """Read the parameters of the assigner."""
        super().__init__(operation, around)
        assert isinstance(operation.assigner, TumblingEventTimeWindows)
        self._size, self._offset = operation.assigner.size, operation.assigner.offset

    def process(self, record: Any, timestamp: int | None) -> Iterable[Pair] | None:
        """Put a record into its window; a window whose end has passed fires again."""
        if timestamp is None:
            raise no_timestamp(self._operation.assigner)
        start = timestamp - (timestamp - self._offset) % self._size
        end = start + self._size
        now = self._time.watermark.time
        if end + self._grace <= now:
            return self._late(record, timestamp)
        self._keys.namespace = span = (start, end)
        if self._add(record, timestamp):
            self._await(end, now, span)
        return self._fire(TimeWindow(start, end)) if end <= now + 1 else None


class SlidingWindows(EventTimeWindows):
    """Windows of one size that start at regular intervals."""

    def __init__(self, operation: WindowOperation, around: Surroundings) -> None:
        """Read the parameters of the assigner."""
        super().__init__(operation, around)
        assigner = operation.assigner
        assert isinstance(assigner, SlidingEventTimeWindows)
        self._size, self._slide, self._offset = assigner.size, assigner.slide, assigner.offset

    def process(self, record: Any, timestamp: int | None) -> Iterable[Pair] | None:
        """Put a record into those of its windows that are not over."""
        if timestamp is None:
            raise no_timestamp(self._operation.assigner)
        latest = timestamp - (timestamp - self._offset) % self._slide
        now = self._time.watermark.time
        starts = range(latest, max(timestamp, now - self._grace) - self._size, -self._slide)
        if not starts:
            return self._late(record, timestamp) if timestamp + self._grace < now else None
        results: list[Pair] = []
        for start in starts:
            end = start + self._size
            self._keys.namespace = span = (start, end)
            if self._add(record, timestamp):
                self._await(end, now, span)
            if end <= now + 1:
                results += self._fire(TimeWindow(start, end))
        return results or None


class Sessions(EventTimeWindows):
    """Session windows. Timers of a session have the namespace of its contents, however it grows.

    A timer is not moved when a session grows. If the session has not ended when it is due, it is
    set again. So a session that has not ended has a timer that is due at its end or before, and a
    session that only waits for its clean-up has one that is due at that time or before.
    """

    def __init__(self, operation: WindowOperation, around: Surroundings) -> None:
        """Open the map of state windows."""
        super().__init__(operation, around)
        assigner = operation.assigner
        assert isinstance(assigner, EventTimeSessionWindows | DynamicEventTimeSessionWindows)
        self._windows_at = assigner.windows_at
        self._gap = getattr(assigner, "session_gap", None)
        self._windows: MapState[Span, tuple[Any, ...]] = around.key_state(WINDOWS)
        # without a copy, unless changes in place are detected
        self._items = getattr(self._windows, "live_items", self._windows.items)

    def process(self, record: Any, timestamp: int | None) -> Iterable[Pair] | None:
        """Put a record into the session that it belongs to, merges, or starts."""
        if timestamp is None:
            raise no_timestamp(self._operation.assigner)
        if self._gap is not None:
            end = timestamp + self._gap
        else:
            end = self._windows_at(timestamp, record)[0].end
        now = self._time.watermark.time
        touched = [item for item in self._items() if item[1][0] <= end and item[1][1] >= timestamp]
        span = (timestamp, end)
        if touched:
            contents, span = self._grow(touched, span, now)
        elif end + self._grace <= now:
            return self._late(record, timestamp)
        else:
            contents = span
            self._windows.put(contents, marked(span))
            self._await(end, now, marked(contents))
        self._keys.namespace = contents
        self._add(record, timestamp)
        return self._fire(TimeWindow(*span)) if span[1] <= now + 1 else None

    def _grow(
        self, touched: list[tuple[Span, tuple[Any, ...]]], span: Span, now: int
    ) -> tuple[Span, Span]:
        """Extend or merge the sessions that a record touches; return their contents and span."""
        if len(touched) > 1:
            return self._merge(touched, span, now)
        contents, before = touched[0]
        start = before[0] if before[0] < span[0] else span[0]
        end = before[1] if before[1] > span[1] else span[1]
        if start < before[0] or end > before[1] or not is_marked(before):
            self._windows.put(contents, marked((start, end)))
            self._await_grown(contents, before, end, now)
        return contents, (start, end)

    def _merge(
        self, touched: list[tuple[Span, tuple[Any, ...]]], span: Span, now: int
    ) -> tuple[Span, Span]:
        # NB: in the order of time, so that the order of records does not depend on how the map of
        # windows was loaded
        touched.sort(key=itemgetter(1))
        contents, first = touched[0]
        grown = min(first[0], span[0]), max(span[1], *(live[1] for _, live in touched))
        others = [gone for gone, _ in touched[1:]]
        for gone in others:
            self._windows.remove(gone)
        self._windows.put(contents, marked(grown))
        self._contents.merge(contents, others)
        self._await_grown(contents, first, grown[1], now)
        return contents, grown

    def _await_grown(self, contents: Span, before: tuple[Any, ...], end: int, now: int) -> None:
        """Set timers for a session that has grown, unless an existing one is due earlier."""
        if before[1] <= now + 1 < end or not is_marked(before):
            self._await(end, now, marked(contents))

    def _span_of(self, timer: Timer) -> Span | None:
        contents = timer.namespace[:2]
        if not is_marked(timer.namespace):
            windows = self._windows.items()
            contents = next((c for c, live in windows if live == timer.namespace), None)
        live = None if contents is None else self._windows.get(contents)
        if live is None or is_marked(live) != is_marked(timer.namespace):
            return None
        self._keys.namespace = contents
        return live[0], live[1]

    def _forget(self, window: TimeWindow) -> None:
        super()._forget(window)
        self._windows.remove(self._keys.namespace)
