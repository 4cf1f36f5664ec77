"""Operators behind which there is no other: sinks, and records that go to the driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.datastream.columns.batch import Batch
from holdfast.datastream.functions import SinkFunction
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.fusion import Calling, FusedStep, Port, SinkCount
from holdfast.runtime.operators.base import Operator, SubtaskParts
from holdfast.runtime.operators.functions import FunctionOperator
from holdfast.runtime.operators.results import make_buffer
from holdfast.runtime.worker.logs import at_work


class AcceptingOperator(FunctionOperator):
    """A function that takes records out of the job, and how many it has accepted."""

    def __init__(self, operator: PlannedOperator, function: Any, parts: SubtaskParts) -> None:
        """Count the records that the function accepts."""
        super().__init__(operator, function, parts)
        self.accepted = SinkCount()

    @property
    def takes_batches(self) -> bool:
        """Return whether the function is called with batches, and not with records."""
        return bool(getattr(self.function, "takes_batches", False))

    def step(self) -> FusedStep:
        step = super().step()
        if not self.takes_batches:
            step.sink = self.accepted
        return step

    def ports(self) -> tuple[Port, ...]:
        ports = super().ports()
        if not self.takes_batches:
            return ports
        return tuple(replace(port, call=self._counted(port.call)) for port in ports)

    def _counted(self, call: Callable[..., Any] | None) -> Callable[..., Any]:
        """Return a function that counts the rows of the batches that it is called with."""
        assert call is not None

        def accept(batch: Batch, context: Any) -> Any:
            results = call(batch, context)
            self.accepted.records += len(batch)
            return results

        return accept


class SinkOperator(AcceptingOperator):
    """A sink function, or a plain callable."""

    methods = ((Calling.SINK, "invoke"),)

    def finish(self) -> None:
        """A sink writes what it has buffered."""
        if isinstance(self.function, SinkFunction):
            self._call("finish", self.function.finish)

    def end_epoch(self, barrier: bool = True) -> None:
        """Sinks let nothing wait."""
        super().end_epoch(barrier)
        if not isinstance(self.function, SinkFunction):
            return
        if barrier:
            self._call("end_epoch", self.function.end_epoch)
        else:
            self._call("end_round", self.function.end_round)


class SinkWriterOperator(AcceptingOperator):
    """A sink's writer. What it wrote goes to the committer before the barrier of the epoch."""

    methods = ((Calling.PROCESS, "write"),)
    sides = True

    @property
    def emits_later(self) -> bool:
        return True

    def end_epoch(self, barrier: bool = True) -> None:
        """Without a barrier the writer goes on with what it has begun."""
        super().end_epoch(barrier)
        if barrier:
            self._call("prepare_commit", self._hand_over)

    def abandon(self) -> None:
        with at_work(self.report):
            self.function.abandon()

    def _hand_over(self) -> None:
        self.emit([(written, None) for written in self.function.prepare_commit()])


class ResultOperator(Operator):
    """Sends records to the driver, or stages them for a Spark writer."""

    def __init__(self, operator: PlannedOperator, function: Any, parts: SubtaskParts) -> None:
        """Make the buffer that records wait in."""
        super().__init__(operator, function, parts)
        self.buffer = make_buffer(operator, parts.subtask, parts.job.rows_directory)
        self.accepted = self.buffer.accepted

    def step(self) -> FusedStep:
        step = super().step()
        step.take = self.buffer.emit
        return step
