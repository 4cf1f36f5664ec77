"""The methods of streams for functions that take many records at once, as columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.common.typeinfo import TypeInformation
from holdfast.datastream.columns.aggregates import Aggregate
from holdfast.datastream.columns.keys import ColumnKey
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.columns.windows import BatchAssigner, describe_windows
from holdfast.datastream.functions import BatchFunction, KeyedBatchFunction
from holdfast.datastream.streams.base import StreamBase
from holdfast.datastream.streams.batches import Edges, batch_edges, batch_type
from holdfast.datastream.streams.function_checks import check_function, check_object, kind_of
from holdfast.errors import JobTypeError
from holdfast.graph import nodes, operations
from holdfast.graph.graph import Graph

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.datastream.data_stream import DataStream


class BatchMethods(StreamBase):
    """What a stream without keys has for batches."""

    def map_batches(
        self,
        func: Callable[[Any], Any] | BatchFunction,
        schema: Any,
        timestamp_column: str | None = None,
    ) -> DataStream:
        """Call a function with many records at once, as a ``pyarrow.RecordBatch``.

        The function returns a batch, several of them, or None. How many records a batch has is not
        defined: it must not matter for the results.

        Args:
            func: the function, or a `BatchFunction`.
            schema: the columns of the results: a ``pyarrow.Schema``, a dataclass, another class
                with fields, or a row type with names.
            timestamp_column: the column with the event timestamps of the results. Without it, a
                result with as many rows as the batch keeps the timestamps row by row, and other
                results have none.

        Raises:
            JobTypeError: when the columns of this stream are not known.
        """
        check_function("map_batches", func, BatchFunction)
        edges = self._batch_edges("map_batches")
        kind = _declared("map_batches", schema)
        operation = operations.BatchOperation(
            func, schema=kind.schema, time_column=_checked(kind, timestamp_column)
        )
        return self._new("map_batches", "Map Batches", operation, edges, kind)

    def to_batches(self, schema: Any) -> DataStream:
        """Collect the records to batches with these columns, for functions of batches.

        It is needed only if the type of the records is not declared, or for other columns.

        Args:
            schema: a ``pyarrow.Schema``, a dataclass, another class with fields, or a row type with
                names. Records are rows, dicts, tuples, or objects with these fields.
        """
        kind = _declared("to_batches", schema)
        edges = batch_edges(self._environment._graph, self._edges, "to_batches", kind.declared)
        return self._stream(edges)

    def to_records(self, record_type: Any = None) -> DataStream:
        """Make a record of each row of the batches.

        Functions of records do so by themselves. Use it to choose what the records are.

        Args:
            record_type: ``dict``, a dataclass or another class with fields, or a row type with
                names; None for rows with all columns.
        """
        edges = self._batch_edges("to_records")
        operation = operations.ToRecordsOperation(record_type)
        output_type = None if record_type is dict else record_type
        return self._new("to_records", "To Records", operation, edges, output_type)

    if TYPE_CHECKING:

        def _new(self, *arguments: Any) -> DataStream: ...

    def _stream(self, edges: tuple[nodes.Edge, ...]) -> DataStream:
        return type(self)(self._environment, edges)  # type: ignore[return-value]


class KeyedBatchMethods(StreamBase):
    """What a keyed stream has for batches."""

    def process_batches(
        self, func: KeyedBatchFunction, schema: Any, timestamp_column: str | None = None
    ) -> DataStream:
        """Call a function with many records at once, with their keys and state in columns.

        Args:
            func: the function.
            schema: the columns of the results, as in ``DataStream.map_batches``.
            timestamp_column: the column with the event timestamps of the results, as there. Results
                of timers with a row for each timer have the times of the timers without it.

        Raises:
            JobTypeError: when the columns of this stream are not known.
        """
        check_object("process_batches", func, KeyedBatchFunction)
        edges = self._batch_edges("process_batches")
        kind = _declared("process_batches", schema)
        partitioning = edges[0].partitioning
        assert isinstance(partitioning, nodes.Hash)
        operation = operations.KeyedBatchOperation(
            func,
            partitioning.selector,
            partitioning.key_type,
            schema=kind.schema,
            time_column=_checked(kind, timestamp_column),
            rows=_columns_of(self._environment._graph, edges),
        )
        return self._new("process_batches", "Process Batches", operation, edges, kind)

    def window_batches(
        self,
        window_assigner: BatchAssigner,
        aggregates: Mapping[str, Aggregate],
    ) -> DataStream:
        """Compute aggregates of the rows of each key and window, when the window has ended.

        The results have the columns of the key, ``window_start`` and ``window_end``, in
        milliseconds, and a column for each aggregate. Rows that are late are dropped, and counted
        by the metric ``numLateRecordsDropped``.

        Args:
            window_assigner: tumbling or sliding windows or sessions of event time, or tumbling
                windows of processing time.
            aggregates: by the name of the column of the result:
                `holdfast.datastream.columns.aggregates`.

        Raises:
            JobTypeError: when the key is not a column, or a column does not exist.
        """
        partitioning = self._given[0].partitioning
        assert isinstance(partitioning, nodes.Hash)
        selector = partitioning.selector
        if not isinstance(selector, ColumnKey):
            message = "window_batches: the key must be a column or several: key_by('name')"
            raise JobTypeError(message)
        edges = self._batch_edges("window_batches")
        columns = _columns_of(self._environment._graph, edges)
        windows = describe_windows(window_assigner, aggregates, selector.names, columns)
        operation = operations.BatchWindowOperation(
            None, selector, partitioning.key_type, windows=windows
        )
        kind = BatchTypeInfo(windows.schema)
        return self._new("window_batches", "Window Batches", operation, edges, kind)

    if TYPE_CHECKING:

        def _new(self, *arguments: Any) -> DataStream: ...


def _columns_of(graph: Graph, edges: Edges) -> pa.Schema:
    columns = batch_type(graph, edges)
    assert columns is not None
    return columns.schema


def _declared(call: str, schema: Any) -> BatchTypeInfo:
    if isinstance(schema, BatchTypeInfo):
        return schema
    try:
        return BatchTypeInfo(schema)
    except TypeError as error:
        message = f"{call}: {error}"
        if not isinstance(schema, type | TypeInformation):
            message = (
                f"{call}: expected a pyarrow.Schema, a dataclass, another class with fields, or a "
                f"row type with names for schema; got {kind_of(schema)}"
            )
        raise JobTypeError(message) from None


def _checked(kind: BatchTypeInfo, column: str | None) -> str | None:
    if column is not None and column not in kind.schema.names:
        names = ", ".join(kind.schema.names)
        message = f"timestamp_column: there is no column '{column}'; the columns are {names}"
        raise JobTypeError(message)
    return column
