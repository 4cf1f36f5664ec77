"""Windows of any assigner with any trigger.

The contents of a window end in two ways. The trigger may purge the window, with or without firing
it: then the contents are deleted. And at the window's clean-up time, which is its end plus the
allowed lateness, all of its state is deleted. Trigger and clean-up share the timers, as in Flink: a
timer at the clean-up time cleans up, and the trigger is called for it too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from holdfast.common.constants import MAX_LONG_VALUE, MIN_LONG_VALUE
from holdfast.datastream.functions import ProcessAllWindowFunction, ProcessWindowFunction
from holdfast.datastream.streams.window_operation import WindowOperation
from holdfast.datastream.time_domain import TimeDomain
from holdfast.datastream.windows.assigners import MergingWindowAssigner
from holdfast.datastream.windows.trigger import TriggerResult
from holdfast.runtime.operators.windows.contents import make_contents
from holdfast.runtime.operators.windows.contexts import (
    AssignerContext,
    FunctionContext,
    Surroundings,
    TriggerContext,
    namespace_of,
    window_at,
)
from holdfast.runtime.timer_queue import Timer

#: a result, and its timestamp
Pair = tuple[Any, int | None]
#: takes a record and its timestamp, and returns the results of windows that fire
Process = Callable[[Any, int | None], Iterable[Pair] | None]

LATE_RECORDS_DROPPED = "numLateRecordsDropped"


class WindowOperator(ABC):
    """The windows of one operator in one subtask; the base of all kinds."""

    def __init__(self, operation: WindowOperation, around: Surroundings) -> None:
        """Open the states."""
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
    def processing(self) -> Process:
        """Return the function that processes the records of the current key.

        It is called for each record, so the usual windows return one that refers to what it needs
        as variables of the function around it: calling a function that is stored in an attribute
        takes half as long again.
        """

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
        """Delete the contents, and what the function stores for the window."""
        self._contents.clear()
        if self._clear is not None:
            self._function_context.current = window
            self._clear(self._function_context)

    def _late(self, record: Any, timestamp: int | None) -> Iterable[Pair] | None:
        """Handle a record that is too late for all its windows."""
        if self._late_tag is None:
            self._dropped.inc()
            return None
        return (((self._late_tag, record), timestamp),)


def _own_clear(function: Any) -> Callable[[FunctionContext], None] | None:
    """Return the ``clear`` of a process function; None if it is the default, which does nothing."""
    for base in (ProcessWindowFunction, ProcessAllWindowFunction):
        if (
            isinstance(function, base)
            and getattr(function.clear, "__func__", None) is not base.clear
        ):
            return function.clear
    return None


class Placed(NamedTuple):
    """A window with its own namespace and that of its contents."""

    window: Any
    namespace: Any
    contents: Any


class TriggeredWindows(WindowOperator):
    """Windows of any assigner, with any trigger."""

    def __init__(self, operation: WindowOperation, around: Surroundings) -> None:
        """Create the contexts of assigner and trigger."""
        super().__init__(operation, around)
        self._assigner_context = AssignerContext(around)
        self._trigger = operation.trigger
        self._trigger_context = TriggerContext(around)
        self._by_events = operation.assigner.is_event_time()
        self._domain = TimeDomain.EVENT_TIME if self._by_events else TimeDomain.PROCESSING_TIME
        self._timers = around.time.queues[self._domain]

    def processing(self) -> Process:
        return self._process

    def _process(self, record: Any, timestamp: int | None) -> Iterable[Pair] | None:
        """Put a record into its windows, and call the trigger for each."""
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
        """Call the trigger; then check whether the window is over."""
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
            # NB: the allowed lateness may have been different when the window was created
            self._await_cleanup(over, place.namespace)
        elif timer.timestamp == over or self._has_contents(place):
            self._end(place)
        return results

    def _place(self, window: Any) -> Placed | None:
        """Return the place of a record's window; None if the window is over."""
        if self._is_over(window):
            return None
        namespace = namespace_of(window)
        return Placed(window, namespace, namespace)

    def _find(self, namespace: Any) -> Placed | None:
        """Return the window of a timer; None if it no longer exists."""
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
        """Carry out the decision of the trigger."""
        if result is TriggerResult.CONTINUE:
            return ()
        if not isinstance(result, TriggerResult):
            message = f"{self._trigger!r} returned {result!r}; a trigger returns a TriggerResult"
            raise TypeError(message)
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
        """Delete a window and all its state."""
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
