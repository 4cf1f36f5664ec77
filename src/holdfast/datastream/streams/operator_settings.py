"""The settings that a stream or a sink has for its operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.graph import nodes

if TYPE_CHECKING:
    from holdfast.datastream.stream_execution_environment import StreamExecutionEnvironment

_Self = TypeVar("_Self", bound="OperatorSettings")


class OperatorSettings:
    """Settings of the operator of a stream or a sink."""

    _environment: StreamExecutionEnvironment

    def _operator(self) -> int:
        """Return the id of that operator."""
        raise NotImplementedError

    def _update(self: _Self, **changes: Any) -> _Self:
        self._environment._graph.update(self._operator(), **changes)
        return self

    def name(self: _Self, name: str) -> _Self:
        """Set the name of the operator in plans, logs and errors."""
        return self._update(name=name)

    def uid(self: _Self, uid: str) -> _Self:
        """Set the stable id of the operator, under which its state is saved."""
        return self._update(uid=uid)

    def set_uid_hash(self: _Self, uid_hash: str) -> _Self:
        """Use an exact uid from an earlier plan, if there is no ``uid``."""
        return self._update(uid_hash=uid_hash)

    def set_description(self: _Self, description: str) -> _Self:
        """Set a longer description of the operator."""
        return self._update(description=description)

    def set_parallelism(self: _Self, parallelism: int) -> _Self:
        """Set the number of subtasks of the operator."""
        check_positive("parallelism", parallelism)
        return self._update(parallelism=parallelism)

    def disable_chaining(self: _Self) -> _Self:
        """Put the operator into its own chain."""
        return self._update(chaining=nodes.Chaining.NEVER)


def check_positive(what: str, value: Any) -> None:
    """Raise a ValueError if a value is not a positive int."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        message = f"the {what} must be a positive int; got {value!r}"
        raise ValueError(message)
