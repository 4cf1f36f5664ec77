"""Results for the driver: printed lines, collected records, and files to be written by Spark."""

from __future__ import annotations

import pickle
from typing import Any

from holdfast.datastream.formats.columns import RowError
from holdfast.filesystem import join
from holdfast.graph.operations import ResultKind, ResultOperation, WriterOperation
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.fusion import SinkCount
from holdfast.runtime.operators.staging import SUFFIX, StagingWriter
from holdfast.runtime.routing import Outbox
from holdfast.runtime.wire.blocks import Kind, encode_records

_RECORDS = 4096


class ResultBuffer:
    """Buffers the records of one result operator and sends them as result blocks.

    Blocks of a subtask arrive at the driver in the order of their numbers.
    """

    def __init__(self, operator: PlannedOperator, subtask: int) -> None:
        """Create an empty buffer."""
        self.operator = operator
        self.subtask = subtask
        self.accepted = SinkCount()
        self._report = FailureReporter(operator.name, subtask)
        self._records: list[Any] = []
        self._outbox: Outbox | None = None
        self._driver_level = 0

    def open(self, outbox: Outbox, driver_level: int) -> None:
        """Send to this outbox from now on; drop what a failed run left."""
        self._outbox = outbox
        self._driver_level = driver_level
        self._records.clear()

    def emit(self, record: Any) -> None:
        """Add a record."""
        self._records.append(record)
        if len(self._records) >= _RECORDS:
            self.flush()

    def flush(self) -> None:
        """Send what is buffered."""
        if self._records:
            try:
                data = encode_records(self._records)
            except Exception as error:
                self._report.sending(self._records, error)
            self._send(data, len(self._records))
            self._clear()

    def _clear(self) -> None:
        """Count what was sent, and drop it."""
        self.accepted.records += len(self._records)
        self._records.clear()

    def finish(self) -> None:
        """Send what is left after the epoch's last record."""
        self.flush()

    def _send(self, data: bytes, count: int) -> None:
        assert self._outbox is not None
        self._outbox.send(
            Kind.RESULT,
            self._driver_level,
            self.subtask,
            data,
            count=count,
            operator=self.operator.id,
        )


class PrintBuffer(ResultBuffer):
    """Formats the lines that ``print`` shows, as Flink does: ``prefix:subtask> record``."""

    def __init__(self, operator: PlannedOperator, subtask: int) -> None:
        """Determine the prefix of the lines."""
        super().__init__(operator, subtask)
        operation = operator.node.operation
        assert isinstance(operation, ResultOperation)
        number = str(subtask + 1) if operator.parallelism > 1 else ""
        label = ":".join(part for part in (operation.prefix, number) if part)
        self._label = f"{label}> " if label else ""

    def emit(self, record: Any) -> None:
        """Add a record as a formatted line."""
        try:
            line = f"{self._label}{record}"
        except Exception as error:
            self._report.at(record, error)
        super().emit(line)


class WriterBuffer(ResultBuffer):
    """Stages records in a file, and sends its name."""

    def __init__(self, operator: PlannedOperator, subtask: int, directory: str) -> None:
        """Stage files in the directory at this address."""
        super().__init__(operator, subtask)
        operation = operator.node.operation
        assert isinstance(operation, WriterOperation)
        self._columns = operation.writer
        self._directory = directory
        self._writer: StagingWriter | None = None
        self._files = 0

    def open(self, outbox: Outbox, driver_level: int) -> None:
        """Start a file for this run."""
        super().open(outbox, driver_level)
        self._begin_file(outbox.stamp)

    def _begin_file(self, stamp: str) -> None:
        name = f"{stamp}-{self.operator.id}-{self._files}{SUFFIX}"
        self._files += 1
        self._writer = StagingWriter(self._columns, join(self._directory, name))

    def flush(self) -> None:
        """Write what is buffered to the file."""
        if self._records:
            assert self._writer is not None
            try:
                self._writer.write(self._records)
            except RowError as error:
                self._report.at(error.record, error)
            self._clear()

    def finish(self) -> None:
        """Close the file, report it to the driver, and start the next one."""
        self.flush()
        assert self._writer is not None
        assert self._outbox is not None
        staged = self._writer.finish()
        if staged is not None:
            self._send(pickle.dumps(staged, 5), staged.records)
            self._begin_file(self._outbox.stamp)


def make_buffer(operator: PlannedOperator, subtask: int, directory: str) -> ResultBuffer:
    """Return the buffer for an operator's kind of result; ``directory``: for rows to be written."""
    operation = operator.node.operation
    if isinstance(operation, WriterOperation):
        return WriterBuffer(operator, subtask, directory)
    if isinstance(operation, ResultOperation) and operation.kind is ResultKind.PRINT:
        return PrintBuffer(operator, subtask)
    return ResultBuffer(operator, subtask)
