"""Operators at which records enter the job, or get their timestamps."""

from __future__ import annotations

import pyarrow.compute as pc

from holdfast.datastream.columns.batch import Batch
from holdfast.datastream.columns.results import times_in
from holdfast.graph.operations import SourceOperation, TimestampsOperation
from holdfast.runtime.event_time import OperatorTime, StampingTime
from holdfast.runtime.fusion import Calling, FusedStep, Port
from holdfast.runtime.operators.base import Operator, SubtaskParts


class TimestampsOperator(Operator):
    """Assigns timestamps to records, and generates the watermarks of the stream."""

    def _make_time(self, parts: SubtaskParts) -> OperatorTime:
        operation = self.operator.node.operation
        assert isinstance(operation, SourceOperation | TimestampsOperation)
        if operation.strategy is None:
            return super()._make_time(parts)
        return StampingTime(parts.clock, operation.strategy)

    @property
    def is_columnar(self) -> bool:
        """Return whether batches pass, and not records."""
        return bool(getattr(self.operator.node.output_type, "columnar", False))

    def ports(self) -> tuple[Port, ...]:
        if self.is_columnar and isinstance(self.time, StampingTime):
            return (Port(Calling.ONE, BatchStamping(self.time).stamped),)
        return super().ports()

    def step(self) -> FusedStep:
        step = super().step()
        if isinstance(self.time, StampingTime) and not self.is_columnar:
            step.stamping = self.time
        return step


class BatchStamping:
    """Gives the rows of batches their timestamps, and the generator the largest of a batch."""

    def __init__(self, time: StampingTime) -> None:
        self._time = time
        self._column = time.column

    def stamped(self, batch: Batch) -> Batch:
        """Return a batch with timestamps; the generator sees one event for it."""
        if self._column is not None:
            batch = Batch(batch.rows, times_in(batch.rows, self._column))
        if batch.timestamps is not None and len(batch):
            largest = pc.max(batch.timestamps).as_py()
            if largest is not None and largest > self._time.largest:
                self._time.saw(batch.rows, largest)
        return batch


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
