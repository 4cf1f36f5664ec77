"""The contexts of assigners, triggers, evictors and functions of windows, and window namespaces.

State and timers of a window are stored under its namespace: for a time window its start and end,
for a count window its number, for the global window None, for any other class the window itself.
Namespaces are small, fast to hash, and stored as plain values.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from holdfast.datastream.functions import ProcessAllWindowFunction, ProcessWindowFunction
from holdfast.datastream.functions.base import KeyedStateStore, RuntimeContext
from holdfast.datastream.state import StateDescriptor
from holdfast.datastream.time_domain import TimeDomain
from holdfast.datastream.windows.assigners import WindowAssigner
from holdfast.datastream.windows.evictors import Evictor
from holdfast.datastream.windows.trigger import Trigger
from holdfast.datastream.windows.windows import CountWindow, GlobalWindow, TimeWindow
from holdfast.errors import JobDefinitionError
from holdfast.metrics import MetricGroup
from holdfast.runtime.context import OperatorContext
from holdfast.runtime.event_time import OperatorTime
from holdfast.runtime.timer_queue import TimerQueue
from holdfast.state.backend import KeyContext, KeyedStateBackend


def namespace_of(window: Any) -> Any:
    """Return the namespace of the state and the timers of a window."""
    kind = window.__class__
    if kind is TimeWindow:
        return window.start, window.end
    if kind is CountWindow:
        return window.id
    return None if kind is GlobalWindow else window


def window_at(namespace: Any) -> Any:
    """Return the window of a namespace."""
    kind = namespace.__class__
    if kind is tuple:
        return TimeWindow(*namespace)
    if kind is int:
        return CountWindow(namespace)
    return GlobalWindow.get() if namespace is None else namespace


@dataclass(frozen=True)
class Surroundings:
    """The runtime environment of the windows of one operator in one subtask.

    Attributes:
        uid: the uid of the operator.
        keys: the current key, and the namespace of state.
        context: the context that the operator's functions get in ``open``.
    """

    uid: str
    backend: KeyedStateBackend
    keys: KeyContext
    time: OperatorTime
    context: OperatorContext

    def state(self, descriptor: StateDescriptor) -> Any:
        """Return a state of the current key and window."""
        return self.backend.keyed_state(self.uid, descriptor, self.keys, namespaced=True)

    def key_state(self, descriptor: StateDescriptor) -> Any:
        """Return a state of the current key."""
        return self.backend.keyed_state(self.uid, descriptor, self.keys)

    @property
    def events(self) -> TimerQueue:
        """Return the event-time timers."""
        return self.time.queues[TimeDomain.EVENT_TIME]

    @property
    def clock_times(self) -> TimerQueue:
        """Return the processing-time timers."""
        return self.time.queues[TimeDomain.PROCESSING_TIME]


class _Times:
    """The methods that the contexts of triggers, evictors and functions have in common."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._time = around.time

    def get_current_processing_time(self) -> int:
        return self._time.clock()

    def get_current_watermark(self) -> int:
        return self._time.watermark.time

    def get_metric_group(self) -> MetricGroup:
        return self._around.context.get_metrics_group()


class AssignerContext(_Times, WindowAssigner.WindowAssignerContext):
    """The context of an assigner."""

    def get_runtime_context(self) -> RuntimeContext:
        return self._around.context


class EvictorContext(_Times, Evictor.EvictorContext):
    """The context of an evictor."""


class TriggerContext(_Times, Trigger.OnMergeContext):
    """Timers and state for a trigger, in the namespace that the operator has set.

    Attributes:
        merged: while windows merge, the namespaces of those that no longer exist.
    """

    def __init__(self, around: Surroundings) -> None:
        """Start without states."""
        super().__init__(around)
        self.merged: list[Any] = []
        self._keys = around.keys
        self._events = around.events
        self._clock_times = around.clock_times
        self._states: dict[str, Any] = {}

    def register_processing_time_timer(self, time: int) -> None:
        self._clock_times.register(time, self._keys.namespace)

    def register_event_time_timer(self, time: int) -> None:
        self._events.register(time, self._keys.namespace)

    def delete_processing_time_timer(self, time: int) -> None:
        self._clock_times.delete(time, self._keys.namespace)

    def delete_event_time_timer(self, time: int) -> None:
        self._events.delete(time, self._keys.namespace)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        name = state_descriptor.name
        state = self._states.get(name)
        if state is None:
            own = copy.copy(state_descriptor)
            own.name = f"\0trigger-{name}"  # distinct from a state of the function with that name
            state = self._states[name] = self._around.state(own)
        return state

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        state = self.get_partitioned_state(state_descriptor)
        merge = getattr(state, "merge_namespaces", None)
        if merge is None:
            message = (
                f"the trigger's state {state_descriptor!r} cannot be merged; use a list, reducing "
                "or aggregating state for what is merged with windows"
            )
            raise TypeError(message)
        merge(self._keys.key, self._keys.namespace, self.merged)


class FunctionContext(
    _Times, ProcessWindowFunction.Context[Any], ProcessAllWindowFunction.Context[Any]
):
    """The context of a process function of windows.

    Attributes:
        current: the window that fires or is cleared.
    """

    def __init__(self, around: Surroundings, merging: bool) -> None:
        """Create the context; ``merging``: windows have no own state, as it cannot be merged."""
        super().__init__(around)
        self.current: Any = None
        self._window_states = None if merging else _WindowStates(around)

    def window(self) -> Any:
        return self.current

    def current_processing_time(self) -> int:
        return self._time.clock()

    def current_watermark(self) -> int:
        return self._time.watermark.time

    def window_state(self) -> KeyedStateStore:
        if self._window_states is None:
            raise JobDefinitionError(
                f"operator '{self._around.context.get_task_name()}' calls window_state(), but "
                "its windows merge, and their state cannot be merged; use "
                "global_state(), or windows that do not merge"
            )
        return self._window_states

    def global_state(self) -> KeyedStateStore:
        return self._around.context


class _WindowStates(KeyedStateStore):
    """The states of a function that belong to a key and a window."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._states: dict[str, tuple[StateDescriptor, Any]] = {}

    def _state(self, descriptor: StateDescriptor) -> Any:
        known = self._states.get(descriptor.name)
        if known is None or known[0] != descriptor:
            # NB: the backend rejects another kind or type with the same name
            known = self._states[descriptor.name] = descriptor, self._around.state(descriptor)
        return known[1]
