"""Windows that merge, with any assigner and trigger.

Contents are not moved each time a window grows. They stay in the namespace of the first window that
they were put into, the state window, while the window that they belong to changes. A map state of
the key has the window of each state window.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from holdfast.datastream.state import MapState, MapStateDescriptor
from holdfast.datastream.streams.window_operation import WindowOperation
from holdfast.datastream.time_domain import TimeDomain
from holdfast.datastream.windows.assigners import MergingWindowAssigner
from holdfast.runtime.operators.windows.contexts import Surroundings, namespace_of, window_at
from holdfast.runtime.operators.windows.operator import Pair, Placed, TriggeredWindows
from holdfast.runtime.timer_queue import Timer

#: for each key: the namespace of contents -> the namespace of the window that has them
WINDOWS: Final = MapStateDescriptor("\0merging-windows")


def marked(span: tuple[int, int]) -> tuple[int, int, bool]:
    """Return a span with the mark of `Sessions`, which its windows and their timers have.

    The mark means that timers stay in the namespace of the contents. A job may get another trigger
    between two runs, so each implementation can handle the state of the other one.
    """
    return (*span, True)


def is_marked(namespace: Any) -> bool:
    """Return whether a window or a timer has the mark."""
    return namespace.__class__ is tuple and len(namespace) == 3


class MergingWindows(TriggeredWindows):
    """Windows that merge when they overlap."""

    def __init__(self, operation: WindowOperation, around: Surroundings) -> None:
        """Open the map of state windows."""
        super().__init__(operation, around)
        assert isinstance(operation.assigner, MergingWindowAssigner)
        self._merging = operation.assigner
        self._windows: MapState[Any, Any] = around.key_state(WINDOWS)

    def on_timer(self, timer: Timer, domain: TimeDomain) -> Iterable[Pair]:
        """Call the trigger for a timer that is due."""
        taken = self._take_over(timer) if is_marked(timer.namespace) else timer
        return () if taken is None else super().on_timer(taken, domain)

    def _without_mark(self, contents: Any, live: Any) -> Any:
        """Set own timers for a window with the mark; return its namespace without the mark."""
        if not is_marked(live):
            return live
        live = live[:2]
        self._windows.put(contents, live)
        window = window_at(live)
        if window.max_timestamp() > self._time.watermark.time:
            self._timers.register(window.max_timestamp(), live)
        self._await_cleanup(self._cleanup_time(window), live)
        return live

    def _take_over(self, timer: Timer) -> Timer | None:
        """Remove the mark from a window and its timer; return None if it is not due yet."""
        contents = timer.namespace[:2]
        live: Any = self._windows.get(contents)
        if not is_marked(live):
            return None
        self._windows.put(contents, live[:2])
        end = window_at(live[:2]).max_timestamp()
        if timer.timestamp < end:
            self._timers.register(end, live[:2])
            return None
        return timer._replace(namespace=live[:2])

    def _place(self, window: Any) -> Placed | None:
        """Merge a record's window with the existing ones."""
        namespace = namespace_of(window)
        state_windows = {
            self._without_mark(contents, live): contents for contents, live in self._windows.items()
        }
        if namespace not in state_windows:
            merges = _Merges()
            self._merging.merge_windows([*map(window_at, state_windows), window], merges)
            merged = False
            for group, result in merges.found:
                before = [namespace_of(part) for part in group if part != window]
                if window in group:
                    window, namespace, merged = result, namespace_of(result), True
                self._merge(before, result, state_windows)
            if not merged:
                return self._begin(window, namespace)
        return Placed(window, namespace, state_windows[namespace])

    def _begin(self, window: Any, namespace: Any) -> Placed | None:
        """Create a window that merges with no other."""
        if self._is_over(window):
            return None
        self._windows.put(namespace, namespace)
        return Placed(window, namespace, namespace)

    def _merge(self, before: list[Any], window: Any, state_windows: dict[Any, Any]) -> None:
        """Merge windows that have contents, and update ``state_windows``."""
        namespace = namespace_of(window)
        if before == [namespace]:
            return  # it already contains the new window
        contents, *others = [state_windows.pop(part) for part in before]
        state_windows[namespace] = contents
        for other in others:
            self._windows.remove(other)
        self._windows.put(contents, namespace)
        self._merge_triggers([part for part in before if part != namespace], window)
        self._contents.merge(contents, others)

    def _merge_triggers(self, gone: list[Any], window: Any) -> None:
        context = self._trigger_context
        self._keys.namespace = namespace_of(window)
        context.merged = gone
        self._trigger.on_merge(window, context)
        for namespace in gone:
            self._keys.namespace = namespace
            before = window_at(namespace)
            self._trigger.clear(before, context)
            self._timers.delete(self._cleanup_time(before), namespace)

    def _find(self, namespace: Any) -> Placed | None:
        """Return the window of a timer; None if it was merged into another one or removed."""
        for contents, live in self._windows.items():
            if live == namespace:
                return Placed(window_at(live), live, contents)
        return None

    def _end(self, place: Placed) -> None:
        super()._end(place)
        self._windows.remove(place.contents)


class _Merges(MergingWindowAssigner.MergeCallback[Any]):
    """Collects the merges that an assigner finds."""

    def __init__(self) -> None:
        self.found: list[tuple[list[Any], Any]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.found.append((list(to_be_merged), merge_result))
