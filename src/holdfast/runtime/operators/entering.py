"""Operators at which records enter the job, or get their timestamps."""

from __future__ import annotations

from holdfast.graph.operations import SourceOperation, TimestampsOperation
from holdfast.runtime.event_time import OperatorTime, StampingTime
from holdfast.runtime.fusion import FusedStep
from holdfast.runtime.operators.base import Operator, SubtaskParts


class TimestampsOperator(Operator):
    """Assigns timestamps to records, and generates the watermarks of the stream."""

    def _make_time(self, parts: SubtaskParts) -> OperatorTime:
        operation = self.operator.node.operation
        assert isinstance(operation, SourceOperation | TimestampsOperation)
        if operation.strategy is None:
            return super()._make_time(parts)
        return StampingTime(parts.clock, operation.strategy)

    def step(self) -> FusedStep:
        step = super().step()
        if isinstance(self.time, StampingTime):
            step.stamping = self.time
        return step


class SourceOperator(TimestampsOperator):
    """Forwards the records of a source, and its records for side outputs."""

    @property
    def has_sides(self) -> bool:
        operation = self.operator.node.operation
        assert isinstance(operation, SourceOperation)
        return bool(operation.source.side_outputs)

    @property
    def emits_later(self) -> bool:
        return self.has_sides
