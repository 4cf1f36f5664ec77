"""The base of all functions, and what they are given in ``open``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from holdfast.metrics import MetricGroup

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
        ValueState,
        ValueStateDescriptor,
    )

__all__ = ["Function", "KeyedStateStore", "RuntimeContext", "WrappingFunction", "innermost"]


class KeyedStateStore(ABC):
    """Where keyed state comes from; it is scoped to the key of the current record."""

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """A state of one value per key."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A state of a list per key."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """A state of a map per key."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """A state that folds what is added with a reduce function."""

    @abstractmethod
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        """A state that folds what is added into an accumulator."""

    @abstractmethod
    def get_folding_state(self, state_descriptor: FoldingStateDescriptor) -> FoldingState[Any, Any]:
        """A state that folds what is added into a value (deprecated, as in Flink)."""


class RuntimeContext(KeyedStateStore):
    """What a function may know of the place where it runs; given to ``open``."""

    @abstractmethod
    def get_task_name(self) -> str:
        """The name of the operator."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """The parallelism of the operator."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """The max parallelism of the operator: the number of its key groups."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """The number of this parallel instance, from 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """How often the job was restarted: 0 in the first attempt."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """The name with the number of this instance and the parallelism: ``name (1/4)``."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """A global job parameter of the ``ExecutionConfig``."""

    def is_checkpointing_enabled(self) -> bool:
        """Whether the job takes checkpoints; told to source functions only."""
        return False

    def stays_in_process(self) -> bool:
        """Whether the function object lives as long as the attempt, in this process.

        If not, an epoch may be run again, and the next one may be another process's.
        """
        return False

    @abstractmethod
    def get_staging_directory(self) -> str:
        """The address of a directory that lasts as long as the job's checkpoints.

        For what a sink has written and not committed: every worker can read it, and so can the next
        start of the job. Nobody else cleans up there.
        """

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """Where the function registers its metrics."""


class Function(ABC):  # noqa: B024 - nothing to implement, but not to be made by itself
    """Base of all functions that are objects."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called before the first record, in every worker process that runs this instance."""

    def close(self) -> None:
        """Called once after the last record. Not when the process is killed."""


class WrappingFunction(Function):
    """A function around others: what the user wrote is within.

    It has nothing of its own that changes. The functions within are opened, closed, carried and
    told of checkpoints as if they stood there by themselves.
    """

    @abstractmethod
    def wrapped(self) -> tuple[Any, ...]:
        """The functions within, plain callables and None among them."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open them."""
        for function in self.wrapped():
            if isinstance(function, Function):
                function.open(runtime_context)

    def close(self) -> None:
        """Close them."""
        for function in self.wrapped():
            if isinstance(function, Function):
                function.close()


def innermost(function: Any) -> tuple[Any, ...]:
    """The functions that a user wrote; a function that wraps no others is itself."""
    if not isinstance(function, WrappingFunction):
        return (function,)
    return tuple(inner for part in function.wrapped() for inner in innermost(part))
