"""The base of all functions, and the context for ``open``."""

from __future__ import annotations

import dis
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.metrics import MetricGroup

if TYPE_CHECKING:
    from holdfast.datastream.state import (
        AggregatingState,
        AggregatingStateDescriptor,
        ColumnState,
        ColumnStateDescriptor,
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


class KeyedStateStore(ABC):  # noqa: B024 - who overrides all methods needs no `_state`
    """Gives access to keyed state, which is scoped to the key of the current record."""

    def _state(self, descriptor: StateDescriptor) -> Any:
        """Return the state of a descriptor."""
        raise NotImplementedError

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Return a state of one value per key."""
        return self._state(state_descriptor)  # type: ignore[no-any-return]

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a state of a list per key."""
        return self._state(state_descriptor)  # type: ignore[no-any-return]

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Return a state of a map per key."""
        return self._state(state_descriptor)  # type: ignore[no-any-return]

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Return a state that reduces added values with a function."""
        return self._state(state_descriptor)  # type: ignore[no-any-return]

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        """Return a state that aggregates added values in an accumulator."""
        return self._state(state_descriptor)  # type: ignore[no-any-return]

    def get_column_state(self, state_descriptor: ColumnStateDescriptor) -> ColumnState:
        """Return a state of one value per key, in a column; for functions of batches."""
        return self._state(state_descriptor)  # type: ignore[no-any-return]

    def get_folding_state(self, state_descriptor: FoldingStateDescriptor) -> FoldingState[Any, Any]:
        """Return a state that folds added values (deprecated, as in Flink)."""
        return self._state(state_descriptor)  # type: ignore[no-any-return]


class RuntimeContext(KeyedStateStore):
    """Describes the subtask of a function, and gives access to state; passed to ``open``."""

    @abstractmethod
    def get_task_name(self) -> str:
        """Return the name of the operator."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """Return the parallelism of the operator."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the max parallelism of the operator: the number of its key groups."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """Return the number of this parallel instance, from 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """Return how often the job has been restarted: 0 in the first attempt."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """Return the name with the number of this instance and the parallelism: ``name (1/4)``."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a global job parameter of the ``ExecutionConfig``."""

    def get_job_name(self) -> str:
        """Return the name of the job."""
        return ""

    def get_job_id(self) -> str:
        """Return the id of the job, as the REST API and the log show it."""
        return ""

    def is_checkpointing_enabled(self) -> bool:
        """Return whether the job takes checkpoints; for source functions only."""
        return False

    def stays_in_process(self) -> bool:
        """Return whether the function object lives as long as the attempt, in this process.

        If not, an epoch may be repeated, and the next one may run in another process.
        """
        return False

    @abstractmethod
    def get_staging_directory(self) -> str:
        """Return the address of a directory that lasts as long as the job's checkpoints.

        For uncommitted output of a sink: every worker can read it, and so can the next
        start of the job. The sink must clean up there.
        """

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """Return the metric group of the function."""


class Function(ABC):  # noqa: B024 - nothing to implement, but not to be made by itself
    """Base of all functions that are objects."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(_missing(type(self), name), name=name, obj=self)

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called before the first record, in every worker process that runs this instance."""

    def close(self) -> None:
        """Called once after the last record, but not when the process is killed."""


def _missing(cls: type, name: str) -> str:
    """Return the message for an attribute that a function object does not have."""
    message = f"'{cls.__name__}' object has no attribute '{name}'"
    if name == "get_runtime_context":
        return f"{message}; open(self, runtime_context) gets it, and requests state from it"
    for method in ("__init__", "open"):
        users = [base for base in cls.__mro__ if method in vars(base)]
        setter = next((base for base in users if _sets(vars(base)[method], name)), None)
        if setter is not None and setter is not users[0]:
            return (
                f"{message}: {setter.__name__}.{method} sets it, and {users[0].__name__}.{method} "
                f"does not call it; add super().{method}(...) there"
            )
        if setter is not None and method == "open":
            return f"{message}: open() sets it, and has not been called yet"
    return message


def _sets(method: Any, attribute: str) -> bool:
    """Return whether a method stores to an attribute of that name."""
    code = getattr(method, "__code__", None)
    return code is not None and any(
        step.opname == "STORE_ATTR" and step.argval == attribute
        for step in dis.get_instructions(code)
    )


class WrappingFunction(Function):
    """A function that wraps functions of the user.

    It has no changing state of its own. The wrapped functions are opened, closed, moved and
    notified of checkpoints as if they were not wrapped.
    """

    @abstractmethod
    def wrapped(self) -> tuple[Any, ...]:
        """Return the wrapped functions, including plain callables and None."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open the wrapped functions."""
        for function in self.wrapped():
            if isinstance(function, Function):
                function.open(runtime_context)

    def close(self) -> None:
        """Close the wrapped functions."""
        for function in self.wrapped():
            if isinstance(function, Function):
                function.close()


def innermost(function: Any) -> tuple[Any, ...]:
    """Return the user's functions; a function that wraps no others is itself."""
    if not isinstance(function, WrappingFunction):
        return (function,)
    return tuple(inner for part in function.wrapped() for inner in innermost(part))
