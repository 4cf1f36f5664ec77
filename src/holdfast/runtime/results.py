"""Records on their way to the driver: printed lines, collected records, rows for a Spark writer."""

from __future__ import annotations

from typing import Any

from holdfast.graph.nodes import ResultKind, ResultOperation
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.blocks import Kind, encode_records
from holdfast.runtime.routing import Outbox

_RECORDS = 4096


class ResultBuffer:
    """Buffers the records of one result operator and sends them as result blocks.

    Blocks of a subtask arrive at the driver in the order of their numbers.
    """

    def __init__(self, operator: PlannedOperator, subtask: int) -> None:
        """Make an empty buffer."""
        self.operator = operator
        self.subtask = subtask
        self._records: list[Any] = []
        self._outbox: Outbox | None = None
        self._driver_level = 0

    def open(self, outbox: Outbox, driver_level: int) -> None:
        """Send to this box from now on; what a failed run left is dropped."""
        self._outbox = outbox
        self._driver_level = driver_level
        self._records.clear()

    def emit(self, record: Any) -> None:
        """Take a record."""
        self._records.append(record)
        if len(self._records) >= _RECORDS:
            self.flush()

    def flush(self) -> None:
        """Send what is buffered."""
        if self._records:
            assert self._outbox is not None
            data = encode_records(self._records)
            count = len(self._records)
            self._outbox.send(
                Kind.RESULT, self._driver_level, self.subtask, data, self.operator.id, count
            )
            self._records.clear()


class PrintBuffer(ResultBuffer):
    """Makes the lines that ``print`` shows, as Flink does: ``prefix:subtask> record``."""

    def __init__(self, operator: PlannedOperator, subtask: int) -> None:
        """Work out what stands before each record."""
        super().__init__(operator, subtask)
        operation = operator.node.operation
        assert isinstance(operation, ResultOperation)
        number = str(subtask + 1) if operator.parallelism > 1 else ""
        label = ":".join(part for part in (operation.prefix, number) if part)
        self._label = f"{label}> " if label else ""

    def emit(self, record: Any) -> None:
        """Take a record as the line it will be."""
        super().emit(f"{self._label}{record}")


def make_result_buffer(operator: PlannedOperator, subtask: int) -> ResultBuffer:
    """The buffer for an operator's kind of result."""
    operation = operator.node.operation
    if isinstance(operation, ResultOperation) and operation.kind is ResultKind.PRINT:
        return PrintBuffer(operator, subtask)
    return ResultBuffer(operator, subtask)
