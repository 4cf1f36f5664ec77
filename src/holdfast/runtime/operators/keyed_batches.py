"""The operator of a function of batches with state in columns, and timers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from holdfast.datastream.columns.batch import Batch, millis_of
from holdfast.datastream.columns.keys import keys_of_batch
from holdfast.datastream.columns.results import BatchResults
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.functions import KeyedBatchFunction
from holdfast.datastream.output_tag import OutputTag
from holdfast.datastream.time_domain import TimeDomain
from holdfast.graph.operations import KeyedBatchOperation
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.event_time import OperatorTime
from holdfast.runtime.fusion import Calling
from holdfast.runtime.operators.base import SubtaskParts
from holdfast.runtime.operators.batches import BatchFunctionOperator, naming_columns
from holdfast.runtime.operators.functions import Method
from holdfast.runtime.record_context import missing_in_context
from holdfast.runtime.timer_queue import TimerQueue
from holdfast.runtime.worker.logs import at_work
from holdfast.state.column_keys import key_array, python_keys
from holdfast.state.columns.key_shape import KeyShape
from holdfast.state.columns.keys import Keys
from holdfast.state.columns.table import ColumnTable, whole
from holdfast.state.live.key_context import KeyContext

#: how many timers are passed to the function at once
_TIMERS: Final = 65536


class KeyedBatchOperator(BatchFunctionOperator):
    """A function of batches with state in columns, and timers."""

    methods = ((Calling.MANY, "process_batch"),)
    sides = True

    def __init__(self, operator: PlannedOperator, function: Any, parts: SubtaskParts) -> None:
        """Get the table with the keys of the operator."""
        super().__init__(operator, function, parts)
        self._table: ColumnTable = parts.backend.columns.of(operator.uid)
        self._table.expected = self._expected_key_type
        self._context = BatchContext(self.time, self.key_context, operator.side_types)

    @property
    def has_timers(self) -> bool:
        return type(self.function).on_timers is not KeyedBatchFunction.on_timers

    def _selectors(self) -> list[Callable[[Any], Any] | None]:
        return [None, None]  # a batch has many keys

    def _methods(self) -> tuple[Method, ...]:
        process = self.function.process_batch
        results = self._results(process)
        selector, context = self.operation.key_selector, self._context

        def run(batch: Batch) -> Iterator[Any]:
            keys = self._table.keys(keys_of_batch(selector, batch.rows))
            context.begin(batch.timestamps)
            with naming_columns(batch.rows):
                given = process(batch.rows, keys, context)
                yield from results.batches(given, batch.timestamps)
            yield from context.take_sides()

        return ((Calling.MANY, run),)

    def fire(self, domain: TimeDomain) -> None:
        """Call the function with all timers that are due, many at once."""
        if domain is not TimeDomain.EVENT_TIME or domain not in self.time.queues:
            return
        on_timers = self.function.on_timers
        results = self._results(on_timers)
        with at_work(self.report):
            while timers := [(timer.key, timer.timestamp) for timer in self.time.due(domain)]:
                for first in range(0, len(timers), _TIMERS):
                    some = timers[first : first + _TIMERS]
                    try:
                        found = list(self._fired(some, results))
                    except Exception as error:
                        self.report.at_timer("on_timers", *some[0], error)
                    self.emit([(batch, None) for batch in found])

    def _fired(self, timers: Sequence[tuple[Any, int]], results: BatchResults) -> Iterable[Any]:
        keys = self._table.keys(self._key_array([key for key, _ in timers]))
        times = pa.array([time for _, time in timers], pa.int64())
        self._context.begin(times)
        yield from results.batches(self.function.on_timers(keys, times, self._context), times)
        yield from self._context.take_sides()

    def _key_array(self, keys: list[Any]) -> pa.Array:
        """Return keys of timers as the batches had them."""
        return key_array(keys, self._table.key_type())

    def _expected_key_type(self) -> pa.DataType | None:
        """Return the type of keys if no batch has told it since the start; None if unknown."""
        assert isinstance(self.operation, KeyedBatchOperation)
        empty = pa.RecordBatch.from_pylist([], self.operation.rows)
        try:
            return KeyShape(whole(keys_of_batch(self.operation.key_selector, empty)).type).key
        except Exception:
            return None  # NB: a function for keys need not accept an empty batch


class BatchContext(KeyedBatchFunction.Context):
    """What a function is told about a batch, or about timers."""

    def __init__(self, time: OperatorTime, key_context: KeyContext | None, side_types: Any) -> None:
        self._time = time
        self._key_context = key_context
        self._side_types = side_types
        self._timestamps: pa.Array | None = None
        self._sides: list[tuple[OutputTag, Batch]] = []

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_in_context("batch", self, name)

    def begin(self, timestamps: pa.Array | None) -> None:
        """Set the timestamps of the rows with which the function is called next."""
        self._timestamps = timestamps

    def take_sides(self) -> list[tuple[OutputTag, Batch]]:
        """Return what the function emitted to side outputs since the last call."""
        sides, self._sides = self._sides, []
        return sides

    @property
    def timestamps(self) -> pa.Array | None:
        return self._timestamps

    def current_watermark(self) -> int:
        return self._time.watermark.time

    def current_processing_time(self) -> int:
        return self._time.clock()

    def register_timers(self, keys: Keys, timestamps: Any) -> None:
        times = timestamps if isinstance(timestamps, pa.Array) else pa.array(timestamps)
        if len(times) != len(keys):
            message = (
                "register_timers needs a time for each row of the keys; got "
                f"{len(times)} times for {len(keys)} rows"
            )
            raise ValueError(message)
        queue = self._time.queues.get(TimeDomain.EVENT_TIME)
        if queue is None:
            message = "a function that registers timers must override on_timers"
            raise TypeError(message)
        if times.null_count:
            valid = times.is_valid()
            keys, times = keys.filter(valid), times.filter(valid)
        self._register(queue, keys, millis_of(times).to_numpy())

    def _register(self, queue: TimerQueue, keys: Keys, times: np.ndarray) -> None:
        """Register each timer of the batch once; timers are stored one by one."""
        context = self._key_context
        assert context is not None
        order = np.lexsort((keys.indices, times))
        ours, sorted_times = keys.indices[order], times[order]
        new = np.ones(len(order), np.bool_)
        new[1:] = (np.diff(ours) != 0) | (np.diff(sorted_times) != 0)
        known = python_keys(keys.distinct)
        for index, time in zip(ours[new].tolist(), sorted_times[new].tolist(), strict=True):
            context.key = known[index]
            queue.register(time)

    def output(self, output_tag: OutputTag, batch: Any) -> None:
        kind = output_tag.type_info
        if not isinstance(kind, BatchTypeInfo):
            message = (
                f"output: the side output '{output_tag.tag_id}' of batches needs the type of the "
                "batches: OutputTag(name, BatchTypeInfo(schema))"
            )
            raise TypeError(message)
        results = BatchResults(self.output, kind.schema)
        self._sides += [(output_tag, part) for part in results.batches(batch, self._timestamps)]
