"""The operators of one subtask.

``Chain`` makes the function objects of a level for one subtask, opens them, wires them, carries
their fields and closes them. It does not know of blocks, epochs or files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.datastream.functions import Function
from holdfast.graph.nodes import (
    FunctionOperation,
    ResultKind,
    ResultOperation,
    WriterOperation,
)
from holdfast.plan.model import Level, Plan, PlannedOperator
from holdfast.runtime.checkpointing import OPERATOR_STATE, initialize, notify, snapshot
from holdfast.runtime.context import (
    Clock,
    KeyedRecordContext,
    OperatorContext,
    RecordContext,
)
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.fields import FIELDS, FieldCarrier
from holdfast.runtime.fusion import Run, Step, fuse, method_of
from holdfast.runtime.job import JobCode
from holdfast.runtime.results import PrintBuffer, ResultBuffer, WriterBuffer
from holdfast.runtime.routing import Router, key_function
from holdfast.state.backend import KeyedStateBackend
from holdfast.state.operator_state import Image, decode_image, encode_image
from holdfast.state.views import KeyContext


class OperatorInstance:
    """One operator in one subtask: its function object and what belongs to it."""

    def __init__(
        self,
        operator: PlannedOperator,
        job: JobCode,
        subtask: int,
        attempt: int,
        backend: KeyedStateBackend,
    ) -> None:
        """Make the function object; nothing is opened yet."""
        operation = operator.node.operation
        self.operator = operator
        self.report = FailureReporter(operator.name, subtask)
        self.selector: Any = None
        self.function: Any = job.new_function(operator.id)
        if isinstance(operation, FunctionOperation) and operation.key_selector:
            self.selector = key_function(operation.key_selector)
        self.key_context = KeyContext() if self.selector else None
        self.context = OperatorContext(
            operator, subtask, attempt, backend, self.key_context, job.parameters
        )
        self.carrier = FieldCarrier(operator.name, self.function, self.context)

    def open(self) -> None:
        """Call the function's ``open``."""
        if isinstance(self.function, Function):
            self.context.opening(True)
            try:
                self.function.open(self.context)
            except Exception as error:
                self.report.during("open", error)
            finally:
                self.context.opening(False)

    def initialize(self, restored: bool, image: Image | None) -> None:
        """Begin an attempt: hand out the operator state, call ``initialize_state``."""
        self.context.operator_states.load(image or {})
        try:
            initialize(self.function, restored, self.context.operator_states, self.context)
        except Exception as error:
            self.report.during("initialize_state", error)

    def snapshot(self, checkpoint: int, timestamp: int) -> None:
        """Take part in a checkpoint; raises what ``snapshot_state`` raises."""
        snapshot(self.function, checkpoint, timestamp, self.context.operator_states)

    def notify(self, completed: tuple[int, ...], aborted: tuple[int, ...]) -> None:
        """Tell the function of checkpoints that ended."""
        try:
            notify(self.function, completed, aborted)
        except Exception as error:
            self.report.during("notify_checkpoint_complete", error)

    def close(self) -> None:
        """Call the function's ``close``."""
        if isinstance(self.function, Function):
            try:
                self.function.close()
            except Exception as error:
                self.report.during("close", error)

    def step(self, clock: Clock) -> Step:
        """This operator, as the chain's code needs it."""
        operator, operation = self.operator, self.operator.node.operation
        coerce = operator.node.output_type.coercer() if operator.node.output_type else None
        step = Step(self.report, coerce=coerce, calls=operator.calls)
        if isinstance(operation, FunctionOperation):
            step.style = operation.style
            step.call = method_of(self.function, operation.style)
            step.selector, step.key_context = self.selector, self.key_context
            step.context = RecordContext(clock)
            if self.key_context is not None:
                step.context = KeyedRecordContext(clock, self.key_context)
        return step


class Chain:
    """All operators of a level in one subtask."""

    def __init__(
        self,
        job: JobCode,
        level: Level,
        subtask: int,
        attempt: int,
        backend: KeyedStateBackend,
        clock: Clock,
    ) -> None:
        """Make and wire the operators that this subtask has."""
        self._backend = backend
        self._directory = job.directory
        self.instances = {
            op.id: OperatorInstance(op, job, subtask, attempt, backend)
            for op in (job.plan.operators[op_id] for op_id in level.operators)
            if subtask < op.parallelism
        }
        self.routers: list[Router] = []
        self.results: list[ResultBuffer] = []
        #: what takes the records that reach an operator; for a source, those that it read
        self.inputs = self._wire(job.plan, level, subtask, clock)

    def initialize(self, restored: bool, images: Mapping[str, Image]) -> None:
        """Begin an attempt, the last function of the chain first."""
        for instance in reversed(self.instances.values()):
            instance.initialize(restored, images.get(instance.operator.uid))

    def snapshot(self, checkpoint: int, timestamp: int) -> str | None:
        """Take part in a checkpoint, the last function first; why that failed, or None."""
        for instance in reversed(self.instances.values()):
            try:
                instance.snapshot(checkpoint, timestamp)
            except Exception as error:
                return f"snapshot_state of '{instance.operator.name}': {error!r}"
        return None

    def notify(self, completed: tuple[int, ...], aborted: tuple[int, ...]) -> None:
        """Tell listeners of checkpoints that ended, the last function first."""
        if completed or aborted:
            for instance in reversed(self.instances.values()):
                instance.notify(completed, aborted)

    def open(self) -> None:
        """Open all functions, the last of the chain first, as Flink does."""
        for instance in reversed(self.instances.values()):
            instance.open()
        for router in self.routers:
            router.open_functions(self.instances[router.exchange.source].context)

    def restore_fields(self) -> None:
        """Put the carried fields back."""
        for instance in self.instances.values():
            uid = instance.operator.uid
            image = self._backend.get_blob(uid, OPERATOR_STATE)
            if instance.function is not None and image is not None:
                instance.context.operator_states.load(decode_image(image))
            instance.carrier.restore(self._backend.get_blob(uid, FIELDS))

    def save_fields(self) -> None:
        """Put the fields where they are persisted with the state."""
        for instance in self.instances.values():
            data = instance.carrier.save()
            if data is not None:
                self._backend.set_blob(instance.operator.uid, FIELDS, data)
            states = instance.context.operator_states
            if instance.function is not None and states.used:
                image = encode_image(states.image())
                self._backend.set_blob(instance.operator.uid, OPERATOR_STATE, image)

    def metrics(self) -> dict[str, dict[str, Any]]:
        """The users' metrics, by operator uid."""
        taken = {
            instance.operator.uid: instance.context.get_metrics_group().snapshot()
            for instance in self.instances.values()
        }
        return {uid: metrics for uid, metrics in taken.items() if metrics}

    def close(self) -> None:
        """Close all functions, in the order of the stream."""
        for instance in self.instances.values():
            instance.close()

    def _wire(self, plan: Plan, level: Level, subtask: int, clock: Clock) -> dict[int, Run]:
        steps = {number: instance.step(clock) for number, instance in self.instances.items()}
        for number, step in steps.items():
            operator = plan.operators[number]
            step.routers = tuple(
                Router(plan.exchanges[exchange], subtask, step.report)
                for exchange in operator.exchanges
            )
            self.routers += step.routers
            if isinstance(operator.node.operation, ResultOperation | WriterOperation):
                buffer = _result_buffer(operator, subtask, self._directory, clock)
                self.results.append(buffer)
                step.take = buffer.emit
        reached = {ex.target for ex in plan.exchanges if ex.target_level == level.index}
        sources = {number for number in steps if plan.operators[number].node.is_source}
        return fuse(steps, sorted(steps.keys() & (reached | sources)))


def _result_buffer(
    operator: PlannedOperator, subtask: int, directory: str, clock: Clock
) -> ResultBuffer:
    """The buffer for an operator's kind of result."""
    operation = operator.node.operation
    if isinstance(operation, WriterOperation):
        return WriterBuffer(operator, subtask, Path(directory) / "staging")
    if isinstance(operation, ResultOperation) and operation.kind is ResultKind.PRINT:
        return PrintBuffer(operator, subtask)
    return ResultBuffer(operator, subtask)
