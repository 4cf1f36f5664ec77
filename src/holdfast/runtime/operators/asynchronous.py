"""The operator of an asynchronous function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.graph.operations import AsyncOperation
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.fusion import Calling, Port
from holdfast.runtime.operators.async_calls import AsyncCalls
from holdfast.runtime.operators.base import SubtaskParts
from holdfast.runtime.operators.functions import FunctionOperator


class AsyncOperator(FunctionOperator):
    """Starts a call for each record, and forwards results when calls have ended."""

    methods = ((Calling.ASYNC, "async_invoke"),)

    def __init__(self, operator: PlannedOperator, function: Any, parts: SubtaskParts) -> None:
        """Make the calls in the loop of the subtask."""
        super().__init__(operator, function, parts)
        operation = self.operation
        assert isinstance(operation, AsyncOperation)
        self._loop = parts.loop
        self.calls = AsyncCalls(
            function, operation.settings, parts.loop, self.report, lambda out: self.emit(out)
        )

    @property
    def emits_later(self) -> bool:
        return True

    def ports(self) -> tuple[Port, ...]:
        return (Port(Calling.ASYNC, self.calls.begin),)

    def finish_calls(self) -> None:
        self.calls.finish()

    def _run(self, method: Callable[[], object]) -> None:
        self._loop.call(method)
