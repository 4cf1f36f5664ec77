"""A function's part in checkpoints: initializing state, snapshots at barriers, notifications."""

from __future__ import annotations

from typing import Any

from holdfast.datastream.functions import (
    BaseBroadcastProcessFunction,
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedStateStore,
    ListCheckpointed,
)
from holdfast.datastream.functions.base import innermost
from holdfast.datastream.state import ListStateDescriptor, OperatorStateStore
from holdfast.state.live.operator_state import OperatorStateBackend

#: the blob with an operator's state in one subtask
OPERATOR_STATE = "operator-state"

_LIST = ListStateDescriptor("list-checkpointed")


class SnapshotContext(FunctionSnapshotContext):
    """One checkpoint, as one function sees it."""

    def __init__(self, checkpoint: int, timestamp: int, states: OperatorStateBackend) -> None:
        self._checkpoint = checkpoint
        self._timestamp = timestamp
        self._states = states

    def get_checkpoint_id(self) -> int:
        return self._checkpoint

    def get_checkpoint_timestamp(self) -> int:
        return self._timestamp

    def set_raw_operator_state(self, data: bytes) -> None:
        self._states.raw_output = bytes(data)


class InitializationContext(FunctionInitializationContext):
    """The start of an attempt, as one function sees it."""

    def __init__(
        self, restored: bool, states: OperatorStateBackend, keyed: KeyedStateStore
    ) -> None:
        self._restored = restored
        self._states = states
        self._keyed = keyed

    def is_restored(self) -> bool:
        return self._restored

    def get_operator_state_store(self) -> OperatorStateStore:
        return self._states

    def get_keyed_state_store(self) -> KeyedStateStore:
        return self._keyed

    def get_raw_operator_state_inputs(self) -> tuple[bytes, ...]:
        return self._states.raw_inputs


def takes_part(function: Any) -> bool:
    """Return whether a function has operator state."""
    kinds = CheckpointedFunction | ListCheckpointed | BaseBroadcastProcessFunction
    return any(isinstance(inner, kinds) for inner in innermost(function))


def initialize(
    function: Any, restored: bool, states: OperatorStateBackend, keyed: KeyedStateStore
) -> None:
    """Call the function's method for the start of an attempt."""
    for inner in innermost(function):
        if isinstance(inner, CheckpointedFunction):
            inner.initialize_state(InitializationContext(restored, states, keyed))
        elif isinstance(inner, ListCheckpointed) and restored:
            inner.restore_state(list(states.get_list_state(_LIST).get()))


def snapshot(function: Any, checkpoint: int, timestamp: int, states: OperatorStateBackend) -> None:
    """Call the function's method for a barrier (step 5)."""
    for inner in innermost(function):
        if isinstance(inner, CheckpointedFunction):
            inner.snapshot_state(SnapshotContext(checkpoint, timestamp, states))
        elif isinstance(inner, ListCheckpointed):
            elements = inner.snapshot_state(checkpoint, timestamp)
            states.get_list_state(_LIST).update(() if elements is None else elements)


def notify(function: Any, completed: tuple[int, ...], aborted: tuple[int, ...]) -> None:
    """Notify listeners of the checkpoints that ended, in the order of their ids (step 3)."""
    listeners = [f for f in innermost(function) if isinstance(f, CheckpointListener)]
    for checkpoint in sorted({*completed, *aborted}):
        for listener in listeners:
            if checkpoint in completed:
                listener.notify_checkpoint_complete(checkpoint)
            else:
                listener.notify_checkpoint_aborted(checkpoint)
