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
from holdfast.runtime.operators.windows.operator import Pair, Process, WindowOperator
from holdfast.runtime.timer_queue import Timer

#: start and end of a window
Span = tuple[int, int]


class EventTimeWindows(WindowOperator):
    """Windows that fire when the watermark passes their end."""

    def __init__(self, operation: WindowOperation, around: Surroundings) -> None:
        """Cache what is needed for each record."""
        super().__init__(operation, around)
        self._timers = around.events
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

    def processing(self) -> Process:
        size, offset, grace = self._size, self._offset, self._grace
        time, keys, add = self._time, self._keys, self._contents.adder()
        await_end, fire, late = self._await, self._fire, self._late
        assigner = self._operation.assigner

        def process(record: Any, timestamp: int | None) -> Iterable[Pair] | None:
            """Put a record into its window; a window whose end has passed fires again."""
            if timestamp is None:
                raise no_timestamp(assigner)
            start = timestamp - (timestamp - offset) % size
            end = start + size
            now = time.watermark.time
            if end + grace <= now:
                return late(record, timestamp)
            keys.namespace = span = (start, end)
            if add(record, timestamp):
                await_end(end, now, span)
            return fire(TimeWindow(start, end)) if end <= now + 1 else None

        return process


class SlidingWindows(EventTimeWindows):
    """Windows of one size that start at regular intervals."""

    def __init__(self, operation: WindowOperation, around: Surroundings) -> None:
        """Read the parameters of the assigner."""
        super().__init__(operation, around)
        assigner = operation.assigner
        assert isinstance(assigner, SlidingEventTimeWindows)
        self._size, self._slide, self._offset = assigner.size, assigner.slide, assigner.offset

    def processing(self) -> Process:
        size, slide, offset, grace = self._size, self._slide, self._offset, self._grace
        time, keys, add = self._time, self._keys, self._contents.adder()
        await_end, fire, late = self._await, self._fire, self._late
        assigner = self._operation.assigner

        def process(record: Any, timestamp: int | None) -> Iterable[Pair] | None:
            """Put a record into those of its windows that are not over."""
            if timestamp is None:
                raise no_timestamp(assigner)
            latest = timestamp - (timestamp - offset) % slide
            now = time.watermark.time
            starts = range(latest, max(timestamp, now - grace) - size, -slide)
            if not starts:
                return late(record, timestamp) if timestamp + grace < now else None
            results: list[Pair] = []
            for start in starts:
                end = start + size
                keys.namespace = span = (start, end)
                if add(record, timestamp):
                    await_end(end, now, span)
                if end <= now + 1:
                    results += fire(TimeWindow(start, end))
            return results or None

        return process


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

    def processing(self) -> Process:
        gap, windows_at, grace = self._gap, self._windows_at, self._grace
        time, keys, add = self._time, self._keys, self._contents.adder()
        fire, late, begin, grow = self._fire, self._late, self._begin, self._grow
        assigner = self._operation.assigner
        # without a copy, unless changes in place are detected
        items = getattr(self._windows, "live_items", self._windows.items)

        def process(record: Any, timestamp: int | None) -> Iterable[Pair] | None:
            """Put a record into the session that it belongs to, merges, or starts."""
            if timestamp is None:
                raise no_timestamp(assigner)
            end = timestamp + gap if gap is not None else windows_at(timestamp, record)[0].end
            now = time.watermark.time
            span = (timestamp, end)
            touched = []
            for item in items():  # NB: in a comprehension this would take twice as long
                if item[1][0] <= end and item[1][1] >= timestamp:
                    touched.append(item)
            if touched:
                keys.namespace, span = grow(touched, span, now)
            elif end + grace <= now:
                return late(record, timestamp)
            else:
                begin(span, now)
                keys.namespace = span
            add(record, timestamp)
            return fire(TimeWindow(*span)) if span[1] <= now + 1 else None

        return process

    def _begin(self, span: Span, now: int) -> None:
        """Begin a session."""
        self._windows.put(span, marked(span))
        self._await(span[1], now, marked(span))

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
            self._windows.put(contents, (start, end, True))  # as `marked` does
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
