"""The runtime context that is passed to ``open``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.datastream.functions.base import RuntimeContext
from holdfast.errors import JobDefinitionError
from holdfast.metrics import MetricGroup
from holdfast.plan.model import PlannedOperator
from holdfast.state.live.operator_state import OperatorStateBackend

if TYPE_CHECKING:
    from holdfast.datastream.state import StateDescriptor
    from holdfast.state.backend import KeyedStateBackend
    from holdfast.state.live.key_context import KeyContext
    from holdfast.state.live.mutations import MutationWatch

Clock = Callable[[], int]


class OperatorContext(RuntimeContext):
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
        job: tuple[str, str] = ("", ""),
    ) -> None:
        """Bind the context to its operator and to the state of its subtask."""
        self._operator = operator
        self._subtask = subtask
        self._attempt = attempt
        self._backend = backend
        self._key_context = key_context
        self._parameters = parameters
        self._staging_directory = staging_directory
        self._stays = stays
        self._job_name, self._job_id = job
        self._metrics = MetricGroup()
        self._states: dict[str, tuple[StateDescriptor, Any]] = {}
        self._opening = False
        #: whether the job takes checkpoints; set for the loop of a source
        self.checkpointing = False
        self.operator_states = OperatorStateBackend(operator.name, watch=watch)

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

    def get_job_name(self) -> str:
        return self._job_name

    def get_job_id(self) -> str:
        return self._job_id

    def get_staging_directory(self) -> str:
        return self._staging_directory

    def stays_in_process(self) -> bool:
        return self._stays

    def get_metrics_group(self) -> MetricGroup:
        return self._metrics

    def is_checkpointing_enabled(self) -> bool:
        return self.checkpointing

    def opening(self, is_opening: bool) -> None:
        """Set whether ``open`` runs, in which each descriptor is a new state with its own name."""
        self._opening = is_opening

    def state_named(self, name: str) -> Any:
        """Return the handle of a keyed state that the function has requested."""
        return self._states[name][1]

    def state_of_all_keys(self, descriptor: StateDescriptor) -> tuple[Any, list[Any]]:
        """Return a keyed state, and the keys of this subtask that have a value in it."""
        state = self._state(descriptor)
        entries = self._backend.entries(self._operator.uid, descriptor.get_name())
        return state, [key for key, _, _ in entries]

    def reference(self, handle: object) -> tuple[str, StateDescriptor]:
        """Return a reference by which a handle in a field is found in another process."""
        for descriptor, known in self._states.values():
            if known is handle:
                return ("keyed", descriptor)
        found = self.operator_states.reference(handle)
        if found is None:
            message = f"operator '{self._operator.name}' holds a state of another operator"
            raise JobDefinitionError(message)
        return found

    def by_reference(self, kind: str, descriptor: StateDescriptor) -> Any:
        """Return the handle for a reference."""
        if kind == "keyed":
            known = self._states.get(descriptor.get_name())
            return known[1] if known else self._state(descriptor)
        return self.operator_states.by_reference(kind, descriptor)

    def _state(self, descriptor: StateDescriptor) -> Any:
        name = descriptor.get_name()
        if self._key_context is None:
            raise JobDefinitionError(
                f"operator '{self._operator.name}' requests the keyed state '{name}', but its "
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
        """Allow the lookup of a known state, but not two states with the same name."""
        if known is descriptor or (known == descriptor and not self._opening):
            return
        raise JobDefinitionError(
            f"operator '{self._operator.name}' has two states with the name "
            f"'{descriptor.get_name()}': {known!r} and {descriptor!r}; "
            "the name identifies a state: give each its own name"
        )
