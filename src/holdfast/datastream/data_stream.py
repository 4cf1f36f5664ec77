"""Streams, with which users write programs. Each call adds a node to the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, Self, overload

from holdfast.common import Types, WatermarkStrategy
from holdfast.common.typeinfo import type_info_of
from holdfast.common.watermark_strategy import ColumnTimestamps
from holdfast.datastream.columns.keys import ColumnKey
from holdfast.datastream.connectors.base import CommittingSink, Sink
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
    TwoPhaseCommitSinkFunction,
)
from holdfast.datastream.output_tag import OutputTag
from holdfast.datastream.state import MapStateDescriptor
from holdfast.datastream.streams.base import StreamBase
from holdfast.datastream.streams.batch_methods import BatchMethods, KeyedBatchMethods
from holdfast.datastream.streams.batches import check_key_columns, columnar_type
from holdfast.datastream.streams.broadcast_streams import BroadcastConnectedStream, BroadcastStream
from holdfast.datastream.streams.closeable_iterator import CloseableIterator
from holdfast.datastream.streams.connected_streams import ConnectedStreams, check_same_environment
from holdfast.datastream.streams.function_checks import (
    check_function,
    check_object,
    kind_of,
    missing_method,
    no_keys,
)
from holdfast.datastream.streams.interval_join import IntervalJoin
from holdfast.datastream.streams.joined_streams import CoGroupedStreams, JoinedStreams
from holdfast.datastream.streams.keyed_functions import (
    FilterWithState,
    FinalReduce,
    FlatMapWithState,
    MapWithState,
    Reduce,
    field_reducer,
)
from holdfast.datastream.streams.operator_settings import OperatorSettings, check_positive
from holdfast.datastream.streams.projection import Projection
from holdfast.datastream.streams.watermark_alignment import check_strategy
from holdfast.datastream.streams.windowed_stream import AllWindowedStream, WindowedStream
from holdfast.datastream.windows.assigners import (
    WindowAssigner,
    count_windows,
)
from holdfast.errors import JobTypeError
from holdfast.graph import nodes, operations
from holdfast.graph.operations import FunctionOperation, Operation
from holdfast.printable import printable

if TYPE_CHECKING:
    from holdfast.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
    "WindowedStream",
]

_Edges = tuple[nodes.Edge, ...]
_AnySink = SinkFunction | TwoPhaseCommitSinkFunction | Sink
#: what the name and the uid of a sink's committer end with
_COMMITTER = ": committer"
#: the type of a side output without a declared one
_UNDECLARED = Types.PICKLED_BYTE_ARRAY()


class _Stream(StreamBase):
    """A stream of any kind, and the operators that can follow it."""

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print each record on the driver's standard output, once its epoch is accepted."""
        operation = operations.ResultOperation(operations.ResultKind.PRINT, sink_identifier or "")
        return self._sink("print", "Sink: Print to Std. Out", operation)

    def add_sink(self, sink_func: _AnySink) -> DataStreamSink:
        """Pass each record to a sink function, in the workers."""
        if isinstance(sink_func, Sink):
            return self.sink_to(sink_func)
        return self._sink_function(sink_func, "Sink", self._edges)

    def sink_to(self, sink: Sink | DataFrameSink) -> DataStreamSink:
        """Write the records to a sink of ``holdfast.datastream.connectors``."""
        if isinstance(sink, DataFrameSink):
            operation = operations.WriterOperation(sink.with_type(self._type()))
            return self._sink("writer", f"Sink: {sink.format}", operation)
        if not isinstance(sink, Sink):
            message = f"sink_to: expected a Sink or a DataFrameSink; got {kind_of(sink)}"
            raise JobTypeError(message)
        kind = columnar_type(self._environment._graph, self._given)
        columnar = None if kind is None else sink.for_batches(kind)
        edges = self._edges if columnar is None else self._given
        sink = columnar or sink
        if isinstance(sink, CommittingSink):
            return self._committing_sink(sink.for_stream(), edges)
        return self._sink_function(sink.create_function(), sink.name, edges)

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None) -> CloseableIterator: ...
    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, *, limit: int
    ) -> list[Any]: ...
    @overload
    def execute_and_collect(self, job_execution_name: str | None, limit: int) -> list[Any]: ...
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Run the job and iterate over this stream's records; with a limit, a list of them."""
        edge = self._edges[0]
        parallelism = self._environment._graph[edge.source].parallelism
        operation = operations.ResultOperation(operations.ResultKind.COLLECT)
        node = self._add("collect", "Collect", operation, parallelism=parallelism)
        iterator = self._environment._execute_and_collect(node, job_execution_name)
        if limit is None:
            return iterator
        with iterator:
            return list(islice(iterator, limit))

    def preview(self, n: int = 20, seconds: float = 10.0) -> None:
        """Show the first records as a table: in a notebook as HTML, elsewhere as text.

        Runs a job for it, which ends after ``n`` records, or ``seconds`` after it has started. Only
        the operators before this stream run: no sink writes anything, and there are no checkpoints.
        The job that was built so far can still be executed; an operator that was only previewed,
        and has no sink, is not part of it.
        """
        check_positive("number of records", n)
        self._environment._preview(self._given, n, seconds)

    def _sink_function(self, function: Any, name: str, edges: _Edges) -> DataStreamSink:
        check_object("add_sink", function, SinkFunction)
        operation = operations.SinkOperation(function)
        node = self._environment._graph.add("sink", name, operation, edges)
        return DataStreamSink(self._environment, node)

    def _committing_sink(self, sink: CommittingSink, edges: _Edges) -> DataStreamSink:
        writer = operations.SinkWriterOperation(sink.create_writer())
        if key := sink.key_selector():
            edges = tuple(replace(edge, partitioning=nodes.Hash(key)) for edge in edges)
        written = self._environment._graph.add("sink_writer", sink.name, writer, edges)
        committer = self._environment._graph.add(
            "committer",
            f"{sink.name}{_COMMITTER}",
            operations.SinkOperation(sink.create_function()),
            (nodes.Edge(written, nodes.Global()),),
            parallelism=1,
            max_parallelism=1,
        )
        return _CommittedSink(self._environment, written, committer)

    def _add(self, kind: str, name: str, operation: Operation, **settings: Any) -> int:
        return self._environment._graph.add(kind, name, operation, self._edges, **settings)

    def _sink(self, kind: str, name: str, operation: Operation) -> DataStreamSink:
        return DataStreamSink(self._environment, self._add(kind, name, operation))

    def _apply(
        self,
        kind: str,
        name: str,
        operation: type[FunctionOperation],
        function: Any,
        output_type: Any,
    ) -> DataStream:
        return self._new(kind, name, self._operation(operation, function), self._edges, output_type)

    def _new(
        self,
        kind: str,
        name: str,
        operation: Operation,
        edges: tuple[nodes.Edge, ...],
        output_type: Any,
    ) -> DataStream:
        """Return the output of a new operator with these inputs."""
        graph = self._environment._graph
        node = graph.add(kind, name, operation, edges, output_type=type_info_of(output_type))
        return DataStream(self._environment, (nodes.Edge(node),))

    def _operation(self, kind: type[FunctionOperation], function: Any) -> FunctionOperation:
        return kind(function)

    def map(self, func: Callable[[Any], Any] | MapFunction, output_type: Any = None) -> DataStream:
        """One record in, one record out."""
        check_function("map", func, MapFunction)
        return self._apply("map", "Map", operations.MapOperation, func, output_type)

    def flat_map(
        self, func: Callable[[Any], Any] | FlatMapFunction, output_type: Any = None
    ) -> DataStream:
        """One record in, any number out: the function returns an iterable or yields."""
        check_function("flat_map", func, FlatMapFunction)
        return self._apply("flat_map", "Flat Map", operations.FlatMapOperation, func, output_type)

    def filter(self, func: Callable[[Any], Any] | FilterFunction) -> DataStream:
        """Keep the records for which the function returns a true value."""
        check_function("filter", func, FilterFunction)
        return self._apply("filter", "Filter", operations.FilterOperation, func, self._type())

    def project(self, *field_indexes: int) -> DataStream:
        """Keep some fields of tuples or rows, in the given order, as a tuple."""
        if not field_indexes or not all(isinstance(index, int) for index in field_indexes):
            message = f"project: expected field indexes; got {field_indexes!r}"
            raise JobTypeError(message)
        values = self._values()
        return values._apply(
            "project", "Projection", operations.MapOperation, Projection(field_indexes), None
        )

    def union(self, *streams: DataStream | KeyedStream) -> DataStream:
        """Merge the records of several streams of the same type, without an order between them."""
        edges = self._values()._given
        for stream in streams:
            if not isinstance(stream, DataStream | KeyedStream):
                message = f"union: expected streams; got {kind_of(stream)}"
                raise JobTypeError(message)
            check_same_environment("union", self._values(), stream)
            edges += stream._values()._given
        return DataStream(self._environment, edges)

    @overload
    def connect(self, ds: DataStream | KeyedStream) -> ConnectedStreams: ...
    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...
    def connect(
        self, ds: DataStream | KeyedStream | BroadcastStream
    ) -> ConnectedStreams | BroadcastConnectedStream:
        """Connect this stream with another one, for one function on both."""
        assert isinstance(self, DataStream | KeyedStream)
        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        if not isinstance(ds, DataStream | KeyedStream):
            message = f"connect: expected a stream; got {kind_of(ds)}"
            raise JobTypeError(message)
        return ConnectedStreams(self, ds)

    def join(self, other: DataStream | KeyedStream) -> JoinedStreams:
        """Join with another stream, window by window."""
        return JoinedStreams(self._values(), other._values())

    def co_group(self, other: DataStream | KeyedStream) -> CoGroupedStreams:
        """Group with another stream, window by window."""
        return CoGroupedStreams(self._values(), other._values())

    def key_by(
        self,
        key_selector: Callable[[Any], Any] | KeySelector | str | Sequence[str],
        key_type: Any = None,
    ) -> KeyedStream:
        """Partition by a key: records of one key go to one subtask and share its state.

        The selector is called on both sides of the shuffle, so it must be deterministic. Keys must
        be hashable, except lists with a declared type: ``key_by(f, Types.LIST(Types.LONG()))``. The
        name of a column or field, or a list of names, can be given instead of a function.
        """
        if isinstance(key_selector, Sequence):
            key_selector = ColumnKey(key_selector)
            check_key_columns(key_selector, self._batch_type())
        check_function("key_by", key_selector, KeySelector)
        partitioning = nodes.Hash(key_selector, type_info_of(key_type))
        edges = tuple(replace(edge, partitioning=partitioning) for edge in self._values()._given)
        return KeyedStream(self._environment, edges, self._values())

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_method(self, name, KeyedStream, DataStream)

    def _values(self) -> DataStream:
        raise NotImplementedError


class DataStream(_Stream, BatchMethods, OperatorSettings):
    """A stream of records."""

    def _operator(self) -> int:
        edge = self._given[0]
        if self._given != (nodes.Edge(edge.source),):
            message = (
                "names, uids and parallelism belong to an operator; this stream is a union, a "
                "partitioning or a side output of operators: set them on the operator before or "
                "after it"
            )
            raise JobTypeError(message)
        return edge.source

    def _values(self) -> DataStream:
        return self

    def set_max_parallelism(self, max_parallelism: int) -> DataStream:
        """Set the number of key groups of the operator: the permanent limit of its parallelism."""
        check_positive("max parallelism", max_parallelism)
        return self._update(max_parallelism=max_parallelism)

    def force_non_parallel(self) -> DataStream:
        """Run the operator in one subtask, now and after any rescaling."""
        return self._update(parallelism=1, max_parallelism=1)

    def set_buffer_timeout(self, timeout_millis: int) -> DataStream:
        """Set the buffer timeout; the shortest one of a job is the interval of its epochs."""
        return self._update(buffer_timeout=timeout_millis)

    def start_new_chain(self) -> DataStream:
        """Start a new chain with this operator."""
        return self._update(chaining=nodes.Chaining.HEAD)

    def process(self, func: ProcessFunction, output_type: Any = None) -> DataStream:
        """Apply a process function to each record."""
        if isinstance(func, KeyedProcessFunction):
            raise no_keys(func)
        check_object("process", func, ProcessFunction, expected="a DataStream takes")
        return self._apply("process", "Process", operations.ProcessOperation, func, output_type)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Assign timestamps to records and generate watermarks."""
        check_strategy(watermark_strategy)
        is_record_wise = not isinstance(
            watermark_strategy.timestamp_assigner, ColumnTimestamps | None
        )
        batches = None if is_record_wise else self._batch_type()
        node = self._environment._graph.add(
            "timestamps",
            "Timestamps/Watermarks",
            operations.TimestampsOperation(watermark_strategy),
            self._edges if batches is None else self._given,
            output_type=batches or self._type(),
            parallelism=self._source().parallelism,
        )
        return DataStream(self._environment, (nodes.Edge(node),))

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """Return the records of a side output, sent with ``yield tag, record``."""
        return _side_output(self._environment, self._operator(), output_tag)

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Split the whole stream into windows, in one subtask."""
        return AllWindowedStream(self, window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Split the stream into windows of ``size`` records; see `KeyedStream.count_window`."""
        return self.window_all(count_windows(size, slide))

    def rebalance(self) -> DataStream:
        """Send records round robin to all subtasks of the next operator."""
        return self._partition(nodes.Rebalance())

    def rescale(self) -> DataStream:
        """Send records round robin to this subtask's share of the next operator's subtasks."""
        return self._partition(nodes.Rescale())

    def shuffle(self) -> DataStream:
        """Send each record to a random subtask of the next operator."""
        return self._partition(nodes.Shuffle())

    def forward(self) -> DataStream:
        """Send records to the subtask of the same number; the parallelism must be the same."""
        return self._partition(nodes.Forward(explicit=True))

    @overload
    def broadcast(self) -> DataStream: ...
    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream: ...
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream | BroadcastStream:
        """Send every record to every subtask of the next operator.

        With descriptors, for the broadcast state pattern: see ``BroadcastStream``.
        """
        everywhere = self._partition(nodes.Broadcast())
        if broadcast_state_descriptor is None:
            return everywhere
        states = (broadcast_state_descriptor, *other_broadcast_state_descriptors)
        return BroadcastStream(everywhere, states)

    def global_(self) -> DataStream:
        """Send every record to the first subtask of the next operator."""
        return self._partition(nodes.Global())

    def partition_custom(
        self,
        partitioner: Callable[[Any, int], int] | Partitioner,
        key_selector: Callable[[Any], Any] | KeySelector,
    ) -> DataStream:
        """Send each record to the subtask ``partitioner(key, number_of_subtasks)``."""
        check_function("partition_custom", partitioner, Partitioner)
        check_function("partition_custom", key_selector, KeySelector)
        custom = nodes.Custom(partitioner, key_selector)
        return DataStream(self._environment, self._edges)._partition(custom)

    def _partition(self, partitioning: nodes.Partitioning) -> DataStream:
        edges = tuple(replace(edge, partitioning=partitioning) for edge in self._given)
        return DataStream(self._environment, edges)


class KeyedStream(_Stream, KeyedBatchMethods):
    """A stream partitioned by key: functions have keyed state, scoped to the key of the record."""

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        edges: tuple[nodes.Edge, ...],
        origin: DataStream,
    ) -> None:
        """Made by ``DataStream.key_by``."""
        super().__init__(environment, edges)
        self._origin = origin

    def _values(self) -> DataStream:
        return self._origin

    def _operation(self, kind: type[FunctionOperation], function: Any) -> FunctionOperation:
        partitioning = self._given[0].partitioning
        assert isinstance(partitioning, nodes.Hash)
        return kind(function, partitioning.selector, partitioning.key_type)

    def process(self, func: KeyedProcessFunction, output_type: Any = None) -> DataStream:
        """Apply a keyed process function to each record."""
        check_object("process", func, KeyedProcessFunction, expected="a KeyedStream takes")
        return self._apply(
            "keyed_process", "Process", operations.ProcessOperation, func, output_type
        )

    def interval_join(self, other_stream: KeyedStream) -> IntervalJoin:
        """Join records of one key that are close in time: ``.between(...).process(...)``."""
        if not isinstance(other_stream, KeyedStream):
            message = f"interval_join: expected a KeyedStream; got {kind_of(other_stream)}"
            raise JobTypeError(message)
        return IntervalJoin(self, other_stream)

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Split the stream of each key into windows."""
        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Split into windows of ``size`` records; for a slide see `CountSlidingWindowAssigner`."""
        return self.window(count_windows(size, slide))

    def reduce(self, func: Callable[[Any, Any], Any] | ReduceFunction) -> DataStream:
        """Reduce continuously: for each record, emit the new value of its key.

        In batch mode, emit one value per key when the input has ended.
        """
        check_function("reduce", func, ReduceFunction)
        return self._reduce("reduce", func)

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """Emit the running sum of a field; the other fields are those of the first record."""
        return self._reduce("sum", field_reducer("sum", position_to_sum))

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """Emit the running minimum of a field; the other fields are those of the first record."""
        return self._reduce("min", field_reducer("min", position_to_min))

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """Emit the running maximum of a field; the other fields are those of the first record."""
        return self._reduce("max", field_reducer("max", position_to_max))

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """Emit the record with the smallest value of a field so far; the first of equal ones."""
        return self._reduce("min_by", field_reducer("min_by", position_to_min_by))

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """Emit the record with the largest value of a field so far; the first of equal ones."""
        return self._reduce("max_by", field_reducer("max_by", position_to_max_by))

    def map_with_state(
        self,
        func: Callable[[Any, Any], tuple[Any, Any]],
        output_type: Any = None,
        state_type: Any = None,
    ) -> DataStream:
        """``func(value, state) -> (result, state)``; the state is None at first; None clears it."""
        return self._with_state("map_with_state", MapWithState, func, output_type, state_type)

    def flat_map_with_state(
        self,
        func: Callable[[Any, Any], tuple[Any, Any]],
        output_type: Any = None,
        state_type: Any = None,
    ) -> DataStream:
        """``func(value, state) -> (results, state)``, with any number of results."""
        return self._with_state(
            "flat_map_with_state", FlatMapWithState, func, output_type, state_type
        )

    def filter_with_state(
        self, func: Callable[[Any, Any], tuple[bool, Any]], state_type: Any = None
    ) -> DataStream:
        """``func(value, state) -> (keep, state)``."""
        return self._with_state(
            "filter_with_state", FilterWithState, func, self._type(), state_type
        )

    def _with_state(
        self, kind: str, function: type[MapWithState], func: Any, output_type: Any, state: Any
    ) -> DataStream:
        check_function(kind, func, Function, ("value", "state"))
        name = kind.replace("_", " ").title()
        wrapped = function(func, type_info_of(state))
        return self._apply(kind, name, operations.ProcessOperation, wrapped, output_type)

    def _reduce(self, kind: str, function: Any) -> DataStream:
        type_info = self._type()
        reduction = FinalReduce if self._environment._is_batch else Reduce
        name = kind.replace("_", " ").title()
        return self._apply(
            kind, name, operations.ProcessOperation, reduction(function, type_info), type_info
        )


class DataStreamSink(OperatorSettings):
    """The end of a stream."""

    def __init__(self, environment: StreamExecutionEnvironment, node: int) -> None:
        """Made by the sink methods of a stream."""
        self._environment = environment
        self._node = node

    def _operator(self) -> int:
        return self._node

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """Return the records that a sink has put aside, such as rows that do not fit its table.

        Raises:
            JobTypeError: when the sink has no side outputs.
        """
        name = self._environment._graph[self._node].name
        message = f"get_side_output: '{name}' has no side outputs; only sinks of tables have them"
        raise JobTypeError(message)

    def __repr__(self) -> str:
        return f"<DataStreamSink '{printable(self._environment._graph[self._node].name)}'>"


class _CommittedSink(DataStreamSink):
    """The end of a stream in a sink with a writer, whose settings these are, and a committer."""

    def __init__(self, environment: StreamExecutionEnvironment, node: int, committer: int) -> None:
        super().__init__(environment, node)
        self._committer = committer

    def _update(self, **changes: Any) -> Self:
        """Keep the name and the uid of the committer in step with those of the writer."""
        own = {name: changes[name] + _COMMITTER for name in ("name", "uid") if name in changes}
        self._environment._graph.update(self._committer, **own)
        return super()._update(**changes)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        return _side_output(self._environment, self._node, output_tag)


def _side_output(
    environment: StreamExecutionEnvironment, node: int, output_tag: OutputTag
) -> DataStream:
    if not isinstance(output_tag, OutputTag):
        message = f"get_side_output: expected an OutputTag; got {kind_of(output_tag)}"
        raise JobTypeError(message)
    declared = output_tag.type_info if output_tag.type_info != _UNDECLARED else None
    return DataStream(environment, (nodes.Edge(node, tag=output_tag.tag_id, tag_type=declared),))
