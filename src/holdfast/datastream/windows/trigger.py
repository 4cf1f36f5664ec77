"""The interface of a trigger, which decides when a window fires."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Generic, TypeVar

from holdfast.datastream.state import StateDescriptor
from holdfast.datastream.windows.windows import Window
from holdfast.metrics import MetricGroup

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class TriggerResult(Enum):
    """What happens to a window.

    A window without records does not fire, whatever its trigger says.
    """

    #: nothing
    CONTINUE = (False, False)
    #: the window function is called, then the records are dropped
    FIRE_AND_PURGE = (True, True)
    #: the window function is called, the records are kept
    FIRE = (True, False)
    #: the records are dropped
    PURGE = (False, True)

    def __init__(self, fire: bool, purge: bool) -> None:
        self._fire = fire
        self._purge = purge

    def is_fire(self) -> bool:
        """Return whether the window function is called."""
        return self._fire

    def is_purge(self) -> bool:
        """Return whether the records are dropped."""
        return self._purge


class Trigger(ABC, Generic[T, W]):
    """Decides when a window fires, that is, when the window function is called.

    One trigger object serves all keys and windows of a subtask, so it must not keep state in
    fields; get state from the context. It belongs to the key and the window of the call.
    A trigger for windows that merge returns True from `can_merge` and implements `on_merge`.
    """

    class TriggerContext(ABC):
        """Time, timers and state of the key and the window of the call; valid only during it."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time in milliseconds."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """Return where the window operator registers its metrics."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the watermark of the operator; -2**63 before the first one."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Call `on_processing_time` at that time; setting a timer twice sets it once."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Call `on_event_time` at that watermark; setting a timer twice sets it once."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Delete that timer, if it is set."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Delete that timer, if it is set."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """Return the state of this key and this window, of the descriptor's kind."""

    class OnMergeContext(TriggerContext):
        """The context of `on_merge`."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merge the state of the merged windows into that of the new one.

            The state must be one that can be merged: list, reducing or aggregating.
            """

    @abstractmethod
    def on_element(
        self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Called for each record that is put into the window, after it was put there.

        ``timestamp`` is -2**63 for a record without one.
        """

    @abstractmethod
    def on_processing_time(
        self, time: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Called when a processing-time timer of this window is due."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Called when an event-time timer of this window is due."""

    def can_merge(self) -> bool:
        """Return whether the trigger may be used with windows that merge."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Called after windows became this one: merge their state, set the timers of the new one.

        After it, `clear` is called for each of the merged windows; timers that they have
        after that do not fire.
        """

    @abstractmethod
    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Called when the window is removed: remove the state and timers that it still has."""
