"""Operators of batches: functions of columns, and the ways between records and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any, Final

import pyarrow as pa

from holdfast.common.typeinfo import BasicTypeInfo
from holdfast.datastream.columns.batch import Batch
from holdfast.datastream.columns.results import BatchResults
from holdfast.datastream.columns.types import VALUE, BatchTypeInfo
from holdfast.datastream.formats.columns import Columns, RowError
from holdfast.datastream.formats.records import RecordMaker
from holdfast.graph.operations import BatchOperation, ToBatchesOperation, ToRecordsOperation
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.fusion import Calling, Port
from holdfast.runtime.operators.base import Operator, Pair, SubtaskParts
from holdfast.runtime.operators.functions import FunctionOperator, Method
from holdfast.runtime.worker.logs import at_work

#: how many records are collected to a batch: at first, at most
_FIRST: Final = 1024
_MOST: Final = 65536
#: the size of a batch after which fewer records are collected, in bytes
_BATCH_BYTES: Final = 1 << 20


class BatchFunctionOperator(FunctionOperator):
    """A function of batches."""

    methods = ((Calling.MANY, "map_batch"),)

    def _methods(self) -> tuple[Method, ...]:
        ((_, call),) = self.methods_of(self.function)
        results = self._results(call)

        def run(batch: Batch) -> Iterator[Batch]:
            with naming_columns(batch.rows):
                yield from results.batches(call(batch.rows), batch.timestamps)

        return ((Calling.MANY, run),)

    def _results(self, call: Callable[..., Any]) -> BatchResults:
        operation = self.operation
        assert isinstance(operation, BatchOperation)
        return BatchResults(call, operation.schema, operation.time_column)


@contextmanager
def naming_columns(rows: pa.RecordBatch) -> Iterator[None]:
    """Add the names of the columns to an exception of pyarrow about one that does not exist."""
    try:
        yield
    except KeyError as error:
        if "does not exist in schema" in str(error):
            error.add_note(f"the columns of the batch are {', '.join(rows.schema.names)}")
        raise


class ToRecordsOperator(Operator):
    """Makes a record of each row."""

    def ports(self) -> tuple[Port, ...]:
        operation = self.operator.node.operation
        assert isinstance(operation, ToRecordsOperation)
        make: Callable[[pa.RecordBatch], list[Any]] = _single_values
        if not isinstance(operation.type, BasicTypeInfo):
            make = RecordMaker(operation.type).records

        def records(batch: Batch, stamp: None) -> Iterable[Pair]:
            stamps = batch.timestamps
            times = repeat(None, len(batch)) if stamps is None else stamps.to_pylist()
            return zip(make(batch.rows), times, strict=True)

        return (Port(Calling.STAMPED, records),)


class ToBatchesOperator(Operator):
    """Collects records until there are many, or until nothing may wait any longer."""

    def __init__(self, operator: PlannedOperator, function: Any, parts: SubtaskParts) -> None:
        """Start without records."""
        super().__init__(operator, function, parts)
        operation = operator.node.operation
        assert isinstance(operation, ToBatchesOperation)
        kind: BatchTypeInfo = operation.type
        self._columns = Columns(kind.schema)
        self._is_single = isinstance(kind.record_type, BasicTypeInfo)
        self._records: list[Any] = []
        self._stamps: list[int | None] = []
        self._limit = _FIRST

    @property
    def emits_later(self) -> bool:
        return True

    def ports(self) -> tuple[Port, ...]:
        return (Port(Calling.ASYNC, self._add),)

    def finish_calls(self) -> None:
        self.flush()

    def flush(self) -> None:
        if not self._records:
            return
        records, stamps = self._records, self._stamps
        self._records, self._stamps = [], []
        with at_work(self.report):
            try:
                rows = self._columns.batch(
                    [(each,) for each in records] if self._is_single else records
                )
            except RowError as error:
                self.report.at(error.record, error)
        self._adapt(rows)
        timed = any(stamp is not None for stamp in stamps)
        self.emit([(Batch(rows, pa.array(stamps, pa.int64()) if timed else None), None)])

    def _add(self, record: Any, stamp: int | None) -> None:
        self._records.append(record)
        self._stamps.append(stamp)
        if len(self._records) >= self._limit:
            self.flush()

    def _adapt(self, rows: pa.RecordBatch) -> None:
        """Collect as many records as have the wanted size together."""
        if rows.nbytes > _BATCH_BYTES:
            self._limit = max(1, rows.num_rows * _BATCH_BYTES // rows.nbytes)
        elif rows.num_rows >= self._limit:
            self._limit = min(_MOST, 2 * self._limit)


def _single_values(rows: pa.RecordBatch) -> list[Any]:
    return rows.column(VALUE).to_pylist()  # type: ignore[no-any-return]
