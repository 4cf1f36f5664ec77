"""The class of operator for each operation.

To add an operator: add a dataclass to `holdfast.graph.operations`, a class to
`holdfast.runtime.operators`, and an entry below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.datastream.functions.two_phase_commit import TwoPhaseCommitSinkFunction
from holdfast.graph import operations
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.operators import functions
from holdfast.runtime.operators.asynchronous import AsyncOperator
from holdfast.runtime.operators.base import Operator, SubtaskParts
from holdfast.runtime.operators.batch_windows.operator import BatchWindowOperator
from holdfast.runtime.operators.batches import (
    BatchFunctionOperator,
    ToBatchesOperator,
    ToRecordsOperator,
)
from holdfast.runtime.operators.broadcasting import BroadcastOperator
from holdfast.runtime.operators.combining import CombineOperator
from holdfast.runtime.operators.entering import SourceOperator, TimestampsOperator
from holdfast.runtime.operators.interval_joining import IntervalJoinOperator
from holdfast.runtime.operators.keyed_batches import KeyedBatchOperator
from holdfast.runtime.operators.sinks import ResultOperator, SinkOperator, SinkWriterOperator
from holdfast.runtime.operators.transactions import TransactionalSinkOperator
from holdfast.runtime.operators.windows.windowing import WindowingOperator

_OPERATORS: Final[dict[type, type[Operator]]] = {
    operations.SourceOperation: SourceOperator,
    operations.TimestampsOperation: TimestampsOperator,
    operations.MapOperation: functions.MapOperator,
    operations.FlatMapOperation: functions.FlatMapOperator,
    operations.FilterOperation: functions.FilterOperator,
    operations.ProcessOperation: functions.ProcessOperator,
    operations.CoMapOperation: functions.CoMapOperator,
    operations.CoFlatMapOperation: functions.CoFlatMapOperator,
    operations.CoProcessOperation: functions.CoProcessOperator,
    operations.BroadcastOperation: BroadcastOperator,
    operations.WindowingOperation: WindowingOperator,
    operations.CombineOperation: CombineOperator,
    operations.IntervalJoinOperation: IntervalJoinOperator,
    operations.AsyncOperation: AsyncOperator,
    operations.BatchOperation: BatchFunctionOperator,
    operations.KeyedBatchOperation: KeyedBatchOperator,
    operations.BatchWindowOperation: BatchWindowOperator,
    operations.ToBatchesOperation: ToBatchesOperator,
    operations.ToRecordsOperation: ToRecordsOperator,
    operations.SinkOperation: SinkOperator,
    operations.SinkWriterOperation: SinkWriterOperator,
    operations.ResultOperation: ResultOperator,
    operations.WriterOperation: ResultOperator,
}


def make_operator(operator: PlannedOperator, parts: SubtaskParts) -> Operator:
    """Create an operator for one subtask, with a function object of its own."""
    function = parts.job.new_function(operator.id)
    return _class_for(operator.node.operation, function)(operator, function, parts)


def methods_of(operation: Any, function: Any) -> list[Callable[..., Any]]:
    """Return the methods of a function that are called with records."""
    cls = _class_for(operation, function)
    assert issubclass(cls, functions.FunctionOperator)
    return [call for _, call in cls.methods_of(function)]


def _class_for(operation: Any, function: Any) -> type[Operator]:
    if isinstance(function, TwoPhaseCommitSinkFunction):
        return TransactionalSinkOperator
    return _OPERATORS[type(operation)]
