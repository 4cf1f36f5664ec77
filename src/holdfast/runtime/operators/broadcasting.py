"""The operator and the contexts for a stream that is connected with a broadcast stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from holdfast.datastream.functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedStateFunction,
)
from holdfast.datastream.state import (
    BroadcastState,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    StateDescriptor,
)
from holdfast.graph.operations import BroadcastOperation
from holdfast.runtime.context import OperatorContext
from holdfast.runtime.event_time import OperatorTime
from holdfast.runtime.fusion import Calling
from holdfast.runtime.operators.functions import FunctionOperator
from holdfast.runtime.record_context import KeyedRecordContext, RecordContext
from holdfast.state.live.key_context import KeyContext
from holdfast.state.live.operator_state import ReadOnlyMap


class _BroadcastKey:
    """Replaces the key while a broadcast record is processed; looking up state with it fails."""

    def __hash__(self) -> NoReturn:
        message = (
            "a broadcast record has no key, so there is no keyed state and there are no timers "
            "for it; use ctx.apply_to_keyed_state(...) for the state of all keys"
        )
        raise TypeError(message)

    def __eq__(self, other: object) -> bool:
        return self is other


def no_key(record: Any) -> _BroadcastKey:
    """Return the key of a record of the broadcast side."""
    return _NO_KEY


_NO_KEY = _BroadcastKey()


class _States:
    """The states that a stream was broadcast with, in one subtask."""

    def __init__(
        self, operator: str, descriptors: Iterable[MapStateDescriptor], context: OperatorContext
    ) -> None:
        """Use the operator state of this context."""
        self._operator = operator
        self._descriptors = {descriptor.get_name(): descriptor for descriptor in descriptors}
        self._context = context
        self._read_only: dict[str, ReadOnlyMap] = {}

    def writable(self, descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Return a state, for the broadcast side."""
        name = descriptor.get_name()
        if name not in self._descriptors:
            known = ", ".join(f"'{known}'" for known in self._descriptors)
            message = (
                f"operator '{self._operator}' requests the broadcast state '{name}', but its "
                f"stream was broadcast with {known}; give the descriptor to broadcast(...)"
            )
            raise LookupError(message)
        return self._context.operator_states.get_broadcast_state(self._descriptors[name])

    def read_only(self, descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
        """Return a state that cannot be changed, for the other side."""
        name = descriptor.get_name()
        if name not in self._read_only:
            self._read_only[name] = ReadOnlyMap(self.writable(descriptor), name, self._operator)
        return self._read_only[name]


class _ReadingContext(RecordContext, BroadcastProcessFunction.ReadOnlyContext):
    """The context of the side that is not broadcast, without keys."""

    def __init__(self, time: OperatorTime, operator: str, states: _States) -> None:
        super().__init__(time, operator)
        self._states = states

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor
    ) -> ReadOnlyBroadcastState[Any, Any]:
        return self._states.read_only(state_descriptor)


class _KeyedReadingContext(KeyedRecordContext, KeyedBroadcastProcessFunction.OnTimerContext):
    """The context of the side that is not broadcast, with keys and timers."""

    def __init__(self, time: OperatorTime, operator: str, key: KeyContext, states: _States) -> None:
        super().__init__(time, operator, key)
        self._states = states

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor
    ) -> ReadOnlyBroadcastState[Any, Any]:
        return self._states.read_only(state_descriptor)


class _WritingContext(RecordContext, BroadcastProcessFunction.Context):
    """The context of the broadcast side."""

    def __init__(self, time: OperatorTime, operator: str, states: _States) -> None:
        super().__init__(time, operator)
        self._states = states

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return self._states.writable(state_descriptor)


class _KeyedWritingContext(_WritingContext, KeyedBroadcastProcessFunction.Context):
    """The context of the broadcast side, if the other side has keys."""

    def __init__(
        self,
        time: OperatorTime,
        operator: str,
        states: _States,
        key: KeyContext,
        context: OperatorContext,
    ) -> None:
        super().__init__(time, operator, states)
        self._key = key
        self._context = context

    def apply_to_keyed_state(
        self,
        state_descriptor: StateDescriptor,
        function: KeyedStateFunction | Callable[[Any, Any], None],
    ) -> None:
        call = function.process if isinstance(function, KeyedStateFunction) else function
        state, keys = self._context.state_of_all_keys(state_descriptor)
        try:
            for key in keys:
                self._key.key = key
                call(self._key.shown(), state)
        finally:
            self._key.key = _NO_KEY


def broadcast_contexts(
    time: OperatorTime,
    operator: str,
    key: KeyContext | None,
    context: OperatorContext,
    descriptors: Iterable[MapStateDescriptor],
) -> tuple[RecordContext, RecordContext]:
    """Return the contexts of both sides: that of the other stream, that of the broadcast one."""
    states = _States(operator, descriptors, context)
    if key is None:
        return _ReadingContext(time, operator, states), _WritingContext(time, operator, states)
    return (
        _KeyedReadingContext(time, operator, key, states),
        _KeyedWritingContext(time, operator, states, key, context),
    )


class BroadcastOperator(FunctionOperator):
    """A process function of a stream and a broadcast stream."""

    methods = (
        (Calling.PROCESS, "process_element"),
        (Calling.PROCESS, "process_broadcast_element"),
    )
    sides = True

    def _make_contexts(self) -> tuple[RecordContext, RecordContext]:
        operation = self.operation
        assert isinstance(operation, BroadcastOperation)
        name, descriptors = self.operator.name, operation.descriptors
        return broadcast_contexts(self.time, name, self.key_context, self.context, descriptors)

    def _selectors(self) -> list[Callable[[Any], Any] | None]:
        found = super()._selectors()
        return [found[0], no_key] if self.operation.key_selector else found
