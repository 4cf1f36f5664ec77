"""What an operator does: one class per operation.

The class of the runtime that carries an operation out is found by the operation's class
(`holdfast.runtime.operators.choosing`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


@dataclass(frozen=True)
class SourceOperation:
    """Where records come from: a ``Source`` that makes readers.

    Attributes:
        strategy: assigns timestamps and watermarks, if there is one.
    """

    source: Any
    strategy: Any = None


@dataclass(frozen=True)
class TimestampsOperation:
    """Assigns timestamps to records and generates watermarks."""

    strategy: Any


@dataclass(frozen=True)
class FunctionOperation:
    """A function called for each record.

    Attributes:
        function: the user's function object, or a plain callable.
        key_selector: set on a keyed stream; state and timers are then scoped to the key.
        key_type: the declared type of the key, if any.
        second_selector: the key selector of the second of two connected keyed streams.
    """

    function: Any
    key_selector: Any = None
    key_type: Any = None
    second_selector: Any = None


class MapOperation(FunctionOperation):
    """One record in, one record out."""


class FlatMapOperation(FunctionOperation):
    """One record in, any number out."""


class FilterOperation(FunctionOperation):
    """Keeps some of the records."""


class ProcessOperation(FunctionOperation):
    """A process function: any number out, side outputs, state, timers."""


class SinkOperation(FunctionOperation):
    """A sink function: nothing comes out."""


class SinkWriterOperation(FunctionOperation):
    """The first half of a sink: writes records, and tells a committer what it has written."""


class CoMapOperation(FunctionOperation):
    """One record of either stream in, at most one out."""


class CoFlatMapOperation(FunctionOperation):
    """One record of either stream in, any number out."""


class CoProcessOperation(FunctionOperation):
    """A process function of two streams."""


class WindowingOperation(FunctionOperation):
    """Windows; the function is a ``WindowOperation``, which describes them."""


class CombineOperation(FunctionOperation):
    """Combines records of a key before they are sent; the function is a ``Combining``."""


@dataclass(frozen=True)
class BroadcastOperation(FunctionOperation):
    """A process function of a stream and a broadcast one.

    Attributes:
        descriptors: the states that the stream was broadcast with.
    """

    descriptors: tuple[Any, ...] = ()


@dataclass(frozen=True)
class IntervalJoinSettings:
    """How close in time two records are that are joined, and where late records go.

    A right record joins a left one if ``left + lower <= right <= left + upper``, in milliseconds.

    Attributes:
        left_late, right_late: the side outputs for late records, if there are any.
        left_type, right_type: the declared types of the records, if there are any.
    """

    lower: int
    upper: int
    left_late: Any = None
    right_late: Any = None
    left_type: Any = None
    right_type: Any = None


@dataclass(frozen=True)
class IntervalJoinOperation(FunctionOperation):
    """Pairs of records of one key that are close in time."""

    settings: IntervalJoinSettings = field(kw_only=True)


@dataclass(frozen=True)
class AsyncSettings:
    """The settings of asynchronous calls.

    Attributes:
        timeout: in milliseconds, for all attempts of a record together; 0 for no timeout.
        capacity: how many records may wait for their results at the same time, in each subtask.
        retry: whether and when a call is retried, an ``AsyncRetryStrategy``.
        ordered: whether results are emitted in the order of the records, or as soon as available.
    """

    timeout: int
    capacity: int
    retry: Any
    ordered: bool


@dataclass(frozen=True)
class AsyncOperation(FunctionOperation):
    """An asynchronous function, with many concurrent calls."""

    settings: AsyncSettings = field(kw_only=True)


@dataclass(frozen=True)
class BatchOperation(FunctionOperation):
    """A function of batches.

    Attributes:
        schema: the columns of its results, a ``pyarrow.Schema``.
        time_column: the column with the timestamps of its results, if there is one.
    """

    schema: Any = None
    time_column: str | None = None


@dataclass(frozen=True)
class KeyedBatchOperation(BatchOperation):
    """A function of batches with state in columns, and timers.

    Attributes:
        rows: the columns of the batches, a ``pyarrow.Schema``.
    """

    rows: Any = None


@dataclass(frozen=True)
class BatchWindowOperation(FunctionOperation):
    """Windows with built-in aggregates over columns, without a function.

    Attributes:
        windows: the ``BatchWindows``, which describes them.
    """

    windows: Any = None


@dataclass(frozen=True)
class ToBatchesOperation:
    """Collects records to batches of this type."""

    type: Any


@dataclass(frozen=True)
class ToRecordsOperation:
    """Turns the rows of batches into records of this type; None for rows."""

    type: Any = None


class ResultKind(Enum):
    """What the driver does with the records of a result operation."""

    COLLECT = "collect"
    PRINT = "print"


@dataclass(frozen=True)
class ResultOperation:
    """Records that go to the driver: ``execute_and_collect`` and ``print``."""

    kind: ResultKind
    prefix: str = ""


@dataclass(frozen=True)
class WriterOperation:
    """Records that a Spark writer takes over at the end of an epoch.

    Attributes:
        writer: the sink's settings; only the Spark package knows their type.
    """

    writer: Any


#: the operations with which the records of a stream leave a job
SINKS = (SinkOperation, ResultOperation, WriterOperation)

Operation = (
    SourceOperation
    | FunctionOperation
    | TimestampsOperation
    | ToBatchesOperation
    | ToRecordsOperation
    | ResultOperation
    | WriterOperation
)
