"""The built-in triggers.

They are values without state in fields. A trigger keeps what it has to remember in state that
the context scopes to the key and the window.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from holdfast.common.time import DurationLike, to_millis
from holdfast.common.typeinfo import TypeInformation, Types
from holdfast.datastream.state import (
    ReducingState,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from holdfast.datastream.windows.delta import DeltaFunction, as_delta
from holdfast.datastream.windows.trigger import Trigger, TriggerResult
from holdfast.datastream.windows.windows import TimeWindow, Window

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class _QuietTrigger(Trigger[T, W]):
    """Never fires and keeps no state; subclasses override what they do."""

    def on_element(
        self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Do nothing."""
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Do nothing."""
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Do nothing."""
        return TriggerResult.CONTINUE

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Do nothing."""

    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class NeverTrigger(_QuietTrigger[T, W]):
    """Never fires; the default of a global window."""


@dataclass(frozen=True)
class EventTimeTrigger(_QuietTrigger[T, TimeWindow]):
    """Fires when the watermark passes the end of the window, and for each record after that."""

    @staticmethod
    def create() -> EventTimeTrigger[Any]:
        """Return the trigger."""
        return EventTimeTrigger()

    def on_element(
        self, element: T, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Wait for the end of the window; fire if it has passed."""
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_event_time(
        self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Fire at the end of the window."""
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        """Return True."""
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        """Wait for the end of the new window."""
        # NB: not if it has passed: the record that led to the merge fires the window.
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        """Stop waiting."""
        ctx.delete_event_time_timer(window.max_timestamp())


@dataclass(frozen=True)
class ProcessingTimeTrigger(_QuietTrigger[T, TimeWindow]):
    """Fires when the clock passes the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger[Any]:
        """Return the trigger."""
        return ProcessingTimeTrigger()

    def on_element(
        self, element: T, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Wait for the end of the window."""
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Fire."""
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        """Return True."""
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        """Wait for the end of the new window."""
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        """Stop waiting."""
        ctx.delete_processing_time_timer(window.max_timestamp())


#: when the window fires next; of windows that merge, the earliest
_FIRE_TIME: Final = ReducingStateDescriptor("fire-time", min, Types.LONG())


@dataclass(frozen=True)
class _ContinuousTrigger(_QuietTrigger[T, TimeWindow]):
    """Fires at the multiples of an interval, while the window has records, and at its end."""

    interval: int

    def __post_init__(self) -> None:
        _check_positive(type(self).__name__, "interval", self.interval, " ms")

    def can_merge(self) -> bool:
        """Return True."""
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        """Fire next when the first of the merged windows would have."""
        ctx.merge_partitioned_state(_FIRE_TIME)
        fire_time = ctx.get_partitioned_state(_FIRE_TIME).get()
        if fire_time is not None:
            self._register(fire_time, ctx)

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        """Forget when to fire."""
        state = ctx.get_partitioned_state(_FIRE_TIME)
        fire_time = state.get()
        if fire_time is not None:
            self._delete(fire_time, ctx)
            state.clear()

    def register_next_fire_timestamp(
        self,
        time: int,
        window: TimeWindow,
        ctx: Trigger.TriggerContext,
        fire_timestamp_state: ReducingState[int],
    ) -> None:
        """Set the timer an interval after ``time``, or at the end of the window if that is first.

        By the clock, an event-time window may be past its end; then it continues by intervals.
        """
        fire_time = self._next(time, window.max_timestamp())
        fire_timestamp_state.add(fire_time)
        self._register(fire_time, ctx)

    def _start(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        """Set the first timer of a window that has none."""
        state = ctx.get_partitioned_state(_FIRE_TIME)
        if state.get() is None:
            self.register_next_fire_timestamp(time - time % self.interval, window, ctx, state)

    def _continue(
        self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Fire, and set the next timer, if this is the timer that was set."""
        state = ctx.get_partitioned_state(_FIRE_TIME)
        if state.get() != time:
            return TriggerResult.CONTINUE
        state.clear()
        self.register_next_fire_timestamp(time, window, ctx, state)
        return TriggerResult.FIRE

    def _next(self, time: int, end: int) -> int:
        return min(time + self.interval, end)

    @abstractmethod
    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None: ...

    @abstractmethod
    def _delete(self, time: int, ctx: Trigger.TriggerContext) -> None: ...


class ContinuousEventTimeTrigger(_ContinuousTrigger[T]):
    """Fires at every interval of event time, and when the watermark passes the window's end."""

    @staticmethod
    def of(interval: DurationLike) -> ContinuousEventTimeTrigger[Any]:
        """Return a trigger that fires at the multiples of the interval."""
        return ContinuousEventTimeTrigger(to_millis(interval))

    def on_element(
        self, element: T, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Wait for the next interval and for the end; fire if the end has passed."""
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        self._start(timestamp, window, ctx)
        return TriggerResult.CONTINUE

    def on_event_time(
        self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Fire at the end of the window, or at the interval."""
        if time == window.max_timestamp():
            # NB: no interval of it is left, also if it merges with another window later
            ctx.get_partitioned_state(_FIRE_TIME).clear()
            return TriggerResult.FIRE
        return self._continue(time, window, ctx)

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        """Stop waiting for the interval and for the end."""
        super().clear(window, ctx)
        ctx.delete_event_time_timer(window.max_timestamp())

    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.register_event_time_timer(time)

    def _delete(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(time)


class ContinuousProcessingTimeTrigger(_ContinuousTrigger[T]):
    """Fires at every interval by the clock, and when the clock passes the window's end."""

    @staticmethod
    def of(interval: DurationLike) -> ContinuousProcessingTimeTrigger[Any]:
        """Return a trigger that fires at the multiples of the interval."""
        return ContinuousProcessingTimeTrigger(to_millis(interval))

    def on_element(
        self, element: T, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Wait for the next interval."""
        self._start(ctx.get_current_processing_time(), window, ctx)
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Fire at the interval."""
        return self._continue(time, window, ctx)

    def _next(self, time: int, end: int) -> int:
        return super()._next(time, end) if time < end else time + self.interval

    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.register_processing_time_timer(time)

    def _delete(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(time)


_COUNT: Final = ReducingStateDescriptor("count", operator.add, Types.LONG())


@dataclass(frozen=True)
class CountTrigger(_QuietTrigger[T, W]):
    """Fires with every n-th record of the window."""

    window_size: int

    def __post_init__(self) -> None:
        _check_positive("CountTrigger", "window_size", self.window_size)

    @staticmethod
    def of(window_size: int) -> CountTrigger[Any, Any]:
        """Return a trigger that fires after that many records."""
        return CountTrigger(window_size)

    def on_element(
        self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Count the record; fire and reset the count if it was the last one."""
        count = ctx.get_partitioned_state(_COUNT)
        count.add(1)
        # NB: merged windows may have more than the number together.
        if count.get() < self.window_size:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        """Return True."""
        return True

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Add up the counts."""
        ctx.merge_partitioned_state(_COUNT)

    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Forget the count."""
        ctx.get_partitioned_state(_COUNT).clear()


@dataclass(frozen=True)
class DeltaTrigger(_QuietTrigger[T, W]):
    """Fires when a record is further than a threshold from the one that fired last.

    The first record of a window does not fire; later ones are compared with it until one does.
    As in Flink it cannot be used with windows that merge.
    """

    threshold: float
    delta_function: DeltaFunction[T]
    state_type: TypeInformation | type | None = None
    _last: ValueStateDescriptor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        descriptor = ValueStateDescriptor("last-element", self.state_type)
        object.__setattr__(self, "_last", descriptor)

    @staticmethod
    def of(
        threshold: float,
        delta_function: DeltaFunction[Any] | Callable[[Any, Any], float],
        state_type: TypeInformation | type | None = None,
    ) -> DeltaTrigger[Any, Any]:
        """Return a trigger with that threshold.

        ``delta_function`` is a `DeltaFunction`, or a function of the record that fired last and
        the new one; ``state_type`` is the type of a record, with which the last one is saved.
        """
        return DeltaTrigger(threshold, as_delta("DeltaTrigger", delta_function), state_type)

    def on_element(
        self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Compare the record with the one that fired last."""
        last = ctx.get_partitioned_state(self._last)
        before = last.value()
        if before is None:
            last.update(element)
            return TriggerResult.CONTINUE
        if self.delta_function.get_delta(before, element) <= self.threshold:
            return TriggerResult.CONTINUE
        last.update(element)
        return TriggerResult.FIRE

    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Forget the last record."""
        ctx.get_partitioned_state(self._last).clear()


@dataclass(frozen=True)
class PurgingTrigger(Trigger[T, W]):
    """Another trigger that also drops the records of the window when it fires."""

    nested_trigger: Trigger[T, W]

    @staticmethod
    def of(nested_trigger: Trigger[T, W]) -> PurgingTrigger[T, W]:
        """Return that trigger as one that purges."""
        return PurgingTrigger(nested_trigger)

    def on_element(
        self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Ask the other trigger."""
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_processing_time(
        self, time: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Ask the other trigger."""
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Ask the other trigger."""
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def can_merge(self) -> bool:
        """Return whether the other trigger can merge."""
        return self.nested_trigger.can_merge()

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Let the other trigger merge."""
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Let the other trigger clear."""
        self.nested_trigger.clear(window, ctx)


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result


def _check_positive(trigger: str, what: str, value: int, unit: str = "") -> None:
    if value < 1:
        message = f"{trigger}: {what} must be at least 1{unit}; got {value}{unit}"
        raise ValueError(message)
