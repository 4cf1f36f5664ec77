"""The runtime context that ``open`` is given."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.datastream.function_base import KeyedStateStore, RuntimeContext
from holdfast.errors import JobDefinitionError
from holdfast.metrics import MetricGroup
from holdfast.plan.model import PlannedOperator
from holdfast.state.operator_state import OperatorStates

if TYPE_CHECKING:
    from holdfast.datastream.state import (
        AggregatingState,
        AggregatingStateDescriptor,
        FoldingState,
        FoldingStateDescriptor,
        ListState,
        ListStateDescriptor,
        MapState,
        MapStateDescriptor,
        ReducingState,
        ReducingStateDescriptor,
        StateDescriptor,
        ValueState,
        ValueStateDescriptor,
    )
    from holdfast.state.backend import KeyedStateBackend
    from holdfast.state.mutations import MutationWatch
    from holdfast.state.views import KeyContext

Clock = Callable[[], int]


class StatesByDescriptor(KeyedStateStore):
    """A store that finds every kind of state in the same way: by its descriptor."""

    @abstractmethod
    def _state(self, descriptor: StateDescriptor) -> Any:
        """The state of the descriptor's kind."""

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        return self._state(state_descriptor)  # type: ignore[no-any-return]

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        return self._state(state_descriptor)  # type: ignore[no-any-return]

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        return self._state(state_descriptor)  # type: ignore[no-any-return]

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        return self._state(state_descriptor)  # type: ignore[no-any-return]

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        return self._state(state_descriptor)  # type: ignore[no-any-return]

    def get_folding_state(self, state_descriptor: FoldingStateDescriptor) -> FoldingState[Any, Any]:
        return self._state(state_descriptor)  # type: ignore[no-any-return]


class OperatorContext(StatesByDescriptor, RuntimeContext):
    """The runtime context of one operator in one subtask."""

    def __init__(
        self,
        operator: PlannedOperator,
        subtask: int,
        attempt: int,
        backend: KeyedStateBackend,
        key_context: KeyContext | None,
        parameters: Mapping[str, str],
        staging_directory: str = "",
        watch: MutationWatch | None = None,
        stays: bool = False,
    ) -> None:
        """Tie the context to its operator and to the state of its subtask."""
        self._operator = operator
        self._subtask = subtask
        self._attempt = attempt
        self._backend = backend
        self._key_context = key_context
        self._parameters = parameters
        self._staging_directory = staging_directory
        self._stays = stays
        self._metrics = MetricGroup()
        self._states: dict[str, tuple[StateDescriptor, Any]] = {}
        self._opening = False
        #: whether the job takes checkpoints, as far as the loop of a source is told
        self.checkpointing = False
        self.operator_states = OperatorStates(operator.name, watch=watch)

    def get_task_name(self) -> str:
        return self._operator.name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._operator.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._operator.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._subtask

    def get_attempt_number(self) -> int:
        return self._attempt

    def get_task_name_with_subtasks(self) -> str:
        return f"{self._operator.name} ({self._subtask + 1}/{self._operator.parallelism})"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._parameters.get(key, default_value)

    def get_staging_directory(self) -> str:
        return self._staging_directory

    def stays_in_process(self) -> bool:
        return self._stays

    def get_metrics_group(self) -> MetricGroup:
        return self._metrics

    def is_checkpointing_enabled(self) -> bool:
        return self.checkpointing

    def opening(self, is_opening: bool) -> None:
        """Within ``open`` every descriptor is a new state, so one name twice is a mistake."""
        self._opening = is_opening

    def state_named(self, name: str) -> Any:
        """The handle of a keyed state that the function has asked for."""
        return self._states[name][1]

    def state_of_all_keys(self, descriptor: StateDescriptor) -> tuple[Any, list[Any]]:
        """A keyed state, and the keys of this subtask that have it."""
        state = self._state(descriptor)
        entries = self._backend.entries(self._operator.uid, descriptor.get_name())
        return state, [key for key, _, _ in entries]

    def reference(self, handle: object) -> tuple[str, StateDescriptor]:
        """How a handle in a field is found again in another process."""
        for descriptor, known in self._states.values():
            if known is handle:
                return ("keyed", descriptor)
        found = self.operator_states.reference(handle)
        if found is None:
            msg = f"operator '{self._operator.name}' holds a state of another operator"
            raise JobDefinitionError(msg)
        return found

    def by_reference(self, kind: str, descriptor: StateDescriptor) -> Any:
        """The handle that a reference stands for."""
        if kind == "keyed":
            known = self._states.get(descriptor.get_name())
            return known[1] if known else self._state(descriptor)
        return self.operator_states.by_reference(kind, descriptor)

    def _state(self, descriptor: StateDescriptor) -> Any:
        name = descriptor.get_name()
        if self._key_context is None:
            raise JobDefinitionError(
                f"operator '{self._operator.name}' asks for the keyed state '{name}', but its "
                "input is not a keyed stream; call key_by(...) before it"
            )
        known = self._states.get(name)
        if known is not None:
            self._check_again(known[0], descriptor)
            return known[1]
        handle = self._backend.keyed_state(self._operator.uid, descriptor, self._key_context)
        self._states[name] = (descriptor, handle)
        return handle

    def _check_again(self, known: StateDescriptor, descriptor: StateDescriptor) -> None:
        """A function may look a state up again; it may not give one name to two states."""
        if known is descriptor or (known == descriptor and not self._opening):
            return
        raise JobDefinitionError(
            f"operator '{self._operator.name}' has two states of the name "
            f"'{descriptor.get_name()}': {known!r} and {descriptor!r}; "
            "the name identifies a state: give each its own"
        )
