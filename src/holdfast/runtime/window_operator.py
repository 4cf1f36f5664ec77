"""The operator of windows of any assigner with any trigger.

Two things end a stay in a window. The trigger may purge it when it fires, or without: then the
contents go. And when its clean-up time passes, which is its end and the allowed lateness after
it, everything of it goes. Trigger and clean-up share the timers, as in Flink: the timer of clean-up
is the one that is of that time, and the trigger is asked then, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from holdfast.common.constants import MAX_LONG_VALUE, MIN_LONG_VALUE
from holdfast.datastream.functions import ProcessAllWindowFunction, ProcessWindowFunction
from holdfast.datastream.time_domain import TimeDomain
from holdfast.datastream.window_operation import WindowOperation
from holdfast.datastream.windows.assigners import MergingWindowAssigner
from holdfast.datastream.windows.trigger import TriggerResult
from holdfast.runtime.timers import Timer
from holdfast.runtime.window_contents import make_contents
from holdfast.runtime.window_contexts import (
    AssignerContext,
    FunctionContext,
    Surroundings,
    TriggerContext,
    namespace_of,
    window_at,
)

#: a result, and its timestamp
Pair = tuple[Any, int | None]

LATE_RECORDS_DROPPED = "numLateRecordsDropped"


class WindowOperator(ABC):
    """The windows of one operator in one subtask; the base of all kinds."""

    def __init__(self, operation: WindowOperation, around: Surroundings) -> None:
        """Ask for the states."""
        merging = isinstance(operation.assigner, MergingWindowAssigner)
        self._operation = operation
        self._keys = around.keys
        self._time = around.time
        self._lateness = operation.allowed_lateness
        self._function_context = FunctionContext(around, merging)
        self._contents = make_contents(operation, around, self._function_context)
        self._clear = _own_clear(operation.function)
        self._late_tag = operation.late_tag
        self._dropped = around.context.get_metrics_group().counter(LATE_RECORDS_DROPPED)

    @abstractmethod
    def process(self, record: Any, timestamp: int | None) -> Iterable[Pair] | None:
        """Take a record of the current key; returns the results of windows that fire."""

    @abstractmethod
    def on_timer(self, timer: Timer, domain: TimeDomain) -> Iterable[Pair]:
        """Handle a timer of the current key that is due."""

    def _fire(self, window: Any, last: bool = False) -> list[Pair]:
        """Call the function with the contents in the current namespace."""
        try:
            results = self._contents.fire(window, last)
        except Exception as error:
            error.add_note(f"in {window!r} of key {self._keys.shown()!r}")
            raise
        stamp = window.max_timestamp()
        return [(result, stamp) for result in results]

    def _let_go(self, window: Any) -> None:
        """Remove the contents, and what the function keeps of the window."""
        self._contents.clear()
        if self._clear is not None:
            self._function_context.current = window
            self._clear(self._function_context)

    def _late(self, record: Any, timestamp: int | None) -> Iterable[Pair] | None:
        """A record is too late for all its windows."""
        if self._late_tag is None:
            self._dropped.inc()
            return None
        return (((self._late_tag, record), timestamp),)


def _own_clear(function: Any) -> Callable[[FunctionContext], None] | None:
    """The ``clear`` of a process function, unless it is the one that does nothing."""
    for base in (ProcessWindowFunction, ProcessAllWindowFunction):
        if (
            isinstance(function, base)
            and getattr(function.clear, "__func__", None) is not base.clear
        ):
            return function.clear
    return None


class Placed(NamedTuple):
    """Where a window is: its own namespace, and that of its contents."""

    window: Any
    namespace: Any
    contents: Any


class TriggeredWindows(WindowOperator):
    """Windows of any assigner, with any trigger."""

    def __init__(self, operation: WindowOperation, around: Surroundings) -> None:
        """Make the contexts of assigner and trigger."""
        super().__init__(operation, around)
        self._assigner_context = AssignerContext(around)
        self._trigger = operation.trigger
        self._trigger_context = TriggerContext(around)
        self._by_events = operation.assigner.is_event_time()
        self._domain = TimeDomain.EVENT_TIME if self._by_events else TimeDomain.PROCESSING_TIME
        self._timers = around.time.queues[self._domain]

    def process(self, record: Any, timestamp: int | None) -> Iterable[Pair] | None:
        """Put a record into its windows, and ask the trigger of each."""
        stamp = MIN_LONG_VALUE if timestamp is None else timestamp
        assigner = self._operation.assigner
        results: list[Pair] = []
        skipped = True
        for window in assigner.assign_windows(record, stamp, self._assigner_context):
            place = self._place(window)
            if place is not None:
                skipped = False
                results += self._put(record, timestamp, stamp, place)
        if skipped and self._is_late(stamp):
            return self._late(record, timestamp)
        return results or None

    def on_timer(self, timer: Timer, domain: TimeDomain) -> Iterable[Pair]:
        """Ask the trigger; then see whether the window is over."""
        place = self._find(timer.namespace)
        if place is None:
            return ()
        self._keys.namespace = place.namespace
        by_events = domain is TimeDomain.EVENT_TIME
        ask = self._trigger.on_event_time if by_events else self._trigger.on_processing_time
        result = ask(timer.timestamp, place.window, self._trigger_context)
        if domain is not self._domain:
            return self._follow(result, place)
        over = self._cleanup_time(place.window)
        results = self._follow(result, place, last=timer.timestamp == over)
        if timer.timestamp < over:
            # NB: the lateness may have been another one when the window began
            self._await_cleanup(over, place.namespace)
        elif timer.timestamp == over or self._has_contents(place):
            self._end(place)
        return results

    def _place(self, window: Any) -> Placed | None:
        """Where a record's window is; None if it is over."""
        if self._is_over(window):
            return None
        namespace = namespace_of(window)
        return Placed(window, namespace, namespace)

    def _find(self, namespace: Any) -> Placed | None:
        """The window of a timer; None if there is none any more."""
        return Placed(window_at(namespace), namespace, namespace)

    def _put(self, record: Any, timestamp: int | None, stamp: int, place: Placed) -> Iterable[Pair]:
        self._keys.namespace = place.contents
        self._contents.add(record, timestamp)
        self._keys.namespace = place.namespace
        result = self._trigger.on_element(record, stamp, place.window, self._trigger_context)
        results = self._follow(result, place)
        self._await_cleanup(self._cleanup_time(place.window), place.namespace)
        return results

    def _follow(self, result: TriggerResult, place: Placed, last: bool = False) -> Iterable[Pair]:
        """Do what the trigger has said."""
        if result is TriggerResult.CONTINUE:
            return ()
        if not isinstance(result, TriggerResult):
            msg = f"{self._trigger!r} returned {result!r}; a trigger returns a TriggerResult"
            raise TypeError(msg)
        self._keys.namespace = place.contents
        purge = result.is_purge()
        results = self._fire(place.window, last or purge) if result.is_fire() else []
        if purge:
            self._contents.clear()
        return results

    def _has_contents(self, place: Placed) -> bool:
        self._keys.namespace = place.contents
        return not self._contents.is_empty()

    def _end(self, place: Placed) -> None:
        """Let go of a window and of all that belongs to it."""
        self._keys.namespace = place.contents
        self._let_go(place.window)
        self._keys.namespace = place.namespace
        self._trigger.clear(place.window, self._trigger_context)

    def _await_cleanup(self, time: int, namespace: Any) -> None:
        if time < MAX_LONG_VALUE:
            self._timers.register(time, namespace)

    def _cleanup_time(self, window: Any) -> int:
        end: int = window.max_timestamp()
        return min(end + self._lateness, MAX_LONG_VALUE) if self._by_events else end

    def _is_over(self, window: Any) -> bool:
        return self._by_events and self._cleanup_time(window) <= self._time.watermark.time

    def _is_late(self, stamp: int) -> bool:
        return self._by_events and stamp + self._lateness <= self._time.watermark.time
