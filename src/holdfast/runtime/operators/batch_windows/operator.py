"""The operator of windows with built-in aggregates over columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.common.constants import MIN_LONG_VALUE
from holdfast.datastream.columns.batch import Batch
from holdfast.datastream.columns.keys import keys_of_batch
from holdfast.datastream.columns.windows import BatchWindows, Gaps
from holdfast.datastream.time_domain import TimeDomain
from holdfast.graph.operations import BatchWindowOperation
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.event_time import OperatorTime, Watermark
from holdfast.runtime.fusion import Calling
from holdfast.runtime.operators.base import SubtaskParts
from holdfast.runtime.operators.batch_windows.panes import PaneWindows
from holdfast.runtime.operators.batch_windows.partials import Partials, TimedRows, Times
from holdfast.runtime.operators.batch_windows.sessions import SessionWindows
from holdfast.runtime.operators.functions import FunctionOperator, Method
from holdfast.runtime.worker.logs import at_work
from holdfast.state.columns.key_shape import checked_parts
from holdfast.state.columns.state import ColumnState
from holdfast.state.columns.table import whole
from holdfast.state.descriptors import ColumnStateDescriptor


class WindowTime(OperatorTime):
    """Also knows the watermark before the last one: windows up to that one have ended before.

    Attributes:
        before: the watermark before the current one.
        next_end: returns the end of the next window of processing time.
    """

    before = Watermark().time
    _watermark = Watermark()
    next_end: Callable[[], int | None] | None = None

    @property
    def watermark(self) -> Watermark:
        """Return the current watermark."""
        return self._watermark

    @watermark.setter
    def watermark(self, now: Watermark) -> None:
        self.before, self._watermark = self._watermark.time, now

    def next_due(self) -> int | None:
        return None if self.next_end is None else self.next_end()

    def load(self, data: bytes | None) -> None:
        super().load(data)
        self.before = self._watermark.time

    def take_over(self, saved: Iterable[bytes]) -> None:
        super().take_over(saved)
        self.before = self._watermark.time


class BatchWindowOperator(FunctionOperator):
    """Windows with built-in aggregates over columns."""

    methods = ((Calling.MANY, "add"),)
    time: WindowTime

    def __init__(self, operator: PlannedOperator, function: Any, parts: SubtaskParts) -> None:
        """Get the table of keys and panes."""
        super().__init__(operator, function, parts)
        operation = self.operation
        assert isinstance(operation, BatchWindowOperation)
        self._described: BatchWindows = operation.windows
        self._domain = (
            TimeDomain.PROCESSING_TIME if self._described.by_clock else TimeDomain.EVENT_TIME
        )
        self._backend = parts.backend
        self._table = parts.backend.columns.of(operator.uid, True)
        self._late = self.context.get_metrics_group().counter("numLateRecordsDropped")

    @property
    def emits_later(self) -> bool:
        return True

    def open(self) -> None:
        """Get the states of the partial results."""
        partials = Partials(self._described, self._table, self._state)
        shape = self._described.shape
        if isinstance(shape, Gaps):
            self._windows: SessionWindows | PaneWindows = SessionWindows(partials, shape)
            return
        self._windows = windows = PaneWindows(partials, shape)
        if self._described.by_clock:
            self.time.next_end = lambda: windows.next_end(MIN_LONG_VALUE)

    def fire(self, domain: TimeDomain) -> None:
        """Emit the windows that have ended, in the order of their ends."""
        if domain is not self._domain:
            return
        with at_work(self.report):
            for batch in self._windows.fire(*self._since()):
                self.emit([(batch, None)])

    def _since(self) -> tuple[int, int]:
        """Return the last time whose windows have fired, and the current one."""
        if self._described.by_clock:
            # NB: windows of before have no state any more
            return MIN_LONG_VALUE, self.time.clock() - 1
        return self.time.before, self.time.watermark.time

    def _state(self, name: str, kind: pa.DataType) -> ColumnState:
        descriptor = ColumnStateDescriptor(name, kind)
        return self._backend.column_state(self.operator.uid, descriptor, True)

    def _make_time(self, parts: SubtaskParts) -> OperatorTime:
        return WindowTime(parts.clock)

    def _selectors(self) -> list[Callable[[Any], Any] | None]:
        return [None, None]  # a batch has many keys

    def _methods(self) -> tuple[Method, ...]:
        return ((Calling.MANY, self._add),)

    def _add(self, batch: Batch) -> tuple[()]:
        times, now = self._times(batch)
        keys = whole(keys_of_batch(self.operation.key_selector, batch.rows))
        checked_parts(keys)  # also those of late rows
        self._late.inc(self._windows.add(TimedRows(batch.rows, keys, times), now))
        return ()

    def _times(self, batch: Batch) -> tuple[Times, int]:
        """Return the times of rows, and up to which time windows are over."""
        if self._described.by_clock:
            return np.full(len(batch), self.time.clock()), MIN_LONG_VALUE
        if batch.timestamps is None or batch.timestamps.null_count:
            message = (
                "windows need the timestamps of the rows, and some have none; call "
                "assign_timestamps_and_watermarks(...) before, or name the timestamp_column of "
                "the function of batches before it"
            )
            raise ValueError(message)
        return batch.timestamps.to_numpy(), self.time.watermark.time
