"""Streams: what the user's program is written with. Each call adds a node to the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast.common import ExecutionConfig, TypeInformation, Types, WatermarkStrategy
from holdfast.common.typeinfo import type_info_of
from holdfast.datastream._watermark_alignment import check_strategy
from holdfast.datastream.broadcast_streams import BroadcastConnectedStream, BroadcastStream
from holdfast.datastream.closeable_iterator import CloseableIterator
from holdfast.datastream.connected_streams import ConnectedStreams, check_same_environment
from holdfast.datastream.connectors.base import Sink
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
from holdfast.datastream.interval_join import IntervalJoin
from holdfast.datastream.joined_streams import CoGroupedStreams, JoinedStreams
from holdfast.datastream.keyed_functions import (
    FilterWithState,
    FinalReduce,
    FlatMapWithState,
    MapWithState,
    Reduce,
    field_reducer,
)
from holdfast.datastream.output_tag import OutputTag
from holdfast.datastream.state import MapStateDescriptor
from holdfast.datastream.windowed_stream import AllWindowedStream, WindowedStream
from holdfast.datastream.windows.assigners import (
    WindowAssigner,
    count_windows,
)
from holdfast.graph.nodes import (
    Broadcast,
    Chaining,
    Custom,
    Edge,
    Forward,
    FunctionOperation,
    Global,
    Hash,
    Node,
    Operation,
    Partitioning,
    Rebalance,
    Rescale,
    ResultKind,
    ResultOperation,
    Shuffle,
    Style,
    TimestampsOperation,
    WriterOperation,
)

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

_Self = TypeVar("_Self", bound="_OperatorSettings")
_AnySink = SinkFunction | TwoPhaseCommitSinkFunction | Sink
#: the type of a side output that was given none
_UNDECLARED = Types.PICKLED_BYTE_ARRAY()


class _OperatorSettings:
    """Settings of the operator that a stream or a sink stands for."""

    _environment: StreamExecutionEnvironment

    def _operator(self) -> int:
        """The id of that operator."""
        raise NotImplementedError

    def _update(self: _Self, **changes: Any) -> _Self:
        self._environment._graph.update(self._operator(), **changes)
        return self

    def name(self: _Self, name: str) -> _Self:
        """Name the operator, for people: in plans, logs and errors."""
        return self._update(name=name)

    def uid(self: _Self, uid: str) -> _Self:
        """Name the operator's state: stays the same while the job changes around it."""
        return self._update(uid=uid)

    def set_uid_hash(self: _Self, uid_hash: str) -> _Self:
        """Use an exact uid, as it stands in an earlier plan, where no ``uid`` was given."""
        return self._update(uid_hash=uid_hash)

    def set_description(self: _Self, description: str) -> _Self:
        """Say more of the operator than its name does."""
        return self._update(description=description)

    def set_parallelism(self: _Self, parallelism: int) -> _Self:
        """The number of subtasks of the operator."""
        _check_positive("parallelism", parallelism)
        return self._update(parallelism=parallelism)

    def disable_chaining(self: _Self) -> _Self:
        """Keep the operator in a chain of its own."""
        return self._update(chaining=Chaining.NEVER)


class _Stream:
    """The edges that the next operator will read from."""

    def __init__(self, environment: StreamExecutionEnvironment, edges: tuple[Edge, ...]) -> None:
        self._environment = environment
        self._edges = edges

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment that the stream belongs to."""
        return self._environment

    def get_execution_config(self) -> ExecutionConfig:
        """The settings of the environment."""
        return self._environment.get_config()

    def get_type(self) -> TypeInformation:
        """The declared type of the records; pickled where none was declared."""
        return self._type() or Types.PICKLED_BYTE_ARRAY()

    def get_name(self) -> str:
        """The name of the operator whose output this is."""
        return self._source().name

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print each record on the driver's standard output, once its epoch is accepted."""
        operation = ResultOperation(ResultKind.PRINT, sink_identifier or "")
        return self._sink("print", "Sink: Print to Std. Out", operation)

    def add_sink(self, sink_func: _AnySink) -> DataStreamSink:
        """Give each record to a sink function, in the workers."""
        if isinstance(sink_func, Sink):
            return self.sink_to(sink_func)
        return self._sink_function(sink_func, "Sink")

    def sink_to(self, sink: Sink | DataFrameSink) -> DataStreamSink:
        """Give the records to a sink of ``holdfast.datastream.connectors``."""
        if isinstance(sink, DataFrameSink):
            operation = WriterOperation(sink.with_type(self._type()))
            return self._sink("writer", f"Sink: {sink.format}", operation)
        if not isinstance(sink, Sink):
            msg = f"sink_to: expected a Sink or a DataFrameSink; got {_kind(sink)}"
            raise TypeError(msg)
        return self._sink_function(sink.create_function(), sink.name)

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
        operation = ResultOperation(ResultKind.COLLECT)
        node = self._add("collect", "Collect", operation, parallelism=parallelism)
        iterator = self._environment._execute_and_collect(node, job_execution_name)
        if limit is None:
            return iterator
        with iterator:
            return list(islice(iterator, limit))

    def _sink_function(self, function: Any, name: str) -> DataStreamSink:
        if not isinstance(function, SinkFunction):
            msg = f"add_sink: expected a SinkFunction; got {_kind(function)}"
            raise TypeError(msg)
        return self._sink("sink", name, FunctionOperation(Style.SINK, function))

    def _source(self) -> Node:
        return self._environment._graph[self._edges[0].source]

    def _type(self) -> Any:
        graph = self._environment._graph
        types = [
            graph[edge.source].output_type if edge.tag is None else edge.tag_type
            for edge in self._edges
        ]
        return types[0] if all(known == types[0] for known in types) else None

    def _add(self, kind: str, name: str, operation: Operation, **settings: Any) -> int:
        return self._environment._graph.add(kind, name, operation, self._edges, **settings)

    def _sink(self, kind: str, name: str, operation: Operation) -> DataStreamSink:
        return DataStreamSink(self._environment, self._add(kind, name, operation))

    def _apply(
        self,
        kind: str,
        name: str,
        style: Style,
        function: Any,
        output_type: Any,
    ) -> DataStream:
        return self._new(kind, name, self._operation(style, function), self._edges, output_type)

    def _new(
        self,
        kind: str,
        name: str,
        operation: Operation,
        edges: tuple[Edge, ...],
        output_type: Any,
    ) -> DataStream:
        """The output of a new operator with these inputs."""
        graph = self._environment._graph
        node = graph.add(kind, name, operation, edges, output_type=type_info_of(output_type))
        return DataStream(self._environment, (Edge(node),))

    def _operation(self, style: Style, function: Any) -> FunctionOperation:
        return FunctionOperation(style, function)

    def map(self, func: Callable[[Any], Any] | MapFunction, output_type: Any = None) -> DataStream:
        """One record in, one record out."""
        _check_function("map", func, MapFunction)
        return self._apply("map", "Map", Style.MAP, func, output_type)

    def flat_map(
        self, func: Callable[[Any], Any] | FlatMapFunction, output_type: Any = None
    ) -> DataStream:
        """One record in, any number out: the function returns an iterable or yields."""
        _check_function("flat_map", func, FlatMapFunction)
        return self._apply("flat_map", "Flat Map", Style.FLAT_MAP, func, output_type)

    def filter(self, func: Callable[[Any], Any] | FilterFunction) -> DataStream:
        """Keep the records for which the function returns something true."""
        _check_function("filter", func, FilterFunction)
        return self._apply("filter", "Filter", Style.FILTER, func, self._type())

    def project(self, *field_indexes: int) -> DataStream:
        """Keep some fields of tuples or rows, in the given order, as a tuple."""
        if not field_indexes or not all(isinstance(index, int) for index in field_indexes):
            msg = f"project: expected field indexes; got {field_indexes!r}"
            raise TypeError(msg)
        values = self._values()
        return values._apply("project", "Projection", Style.MAP, _Projection(field_indexes), None)

    def union(self, *streams: DataStream | KeyedStream) -> DataStream:
        """The records of all these streams, in no order between them; same types expected."""
        edges = self._values()._edges
        for stream in streams:
            if not isinstance(stream, DataStream | KeyedStream):
                msg = f"union: expected streams; got {_kind(stream)}"
                raise TypeError(msg)
            check_same_environment("union", self._values(), stream)
            edges += stream._values()._edges
        return DataStream(self._environment, edges)

    @overload
    def connect(self, ds: DataStream | KeyedStream) -> ConnectedStreams: ...
    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...
    def connect(
        self, ds: DataStream | KeyedStream | BroadcastStream
    ) -> ConnectedStreams | BroadcastConnectedStream:
        """This stream and another one, for one function that sees the records of both."""
        assert isinstance(self, DataStream | KeyedStream)
        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        if not isinstance(ds, DataStream | KeyedStream):
            msg = f"connect: expected a stream; got {_kind(ds)}"
            raise TypeError(msg)
        return ConnectedStreams(self, ds)

    def join(self, other: DataStream | KeyedStream) -> JoinedStreams:
        """Join with another stream, window by window."""
        return JoinedStreams(self._values(), other._values())

    def co_group(self, other: DataStream | KeyedStream) -> CoGroupedStreams:
        """Group with another stream, window by window."""
        return CoGroupedStreams(self._values(), other._values())

    def key_by(
        self, key_selector: Callable[[Any], Any] | KeySelector, key_type: Any = None
    ) -> KeyedStream:
        """Partition by a key: records of one key go to one subtask and share its state.

        The selector is called on both sides of the shuffle, so it must be deterministic. Keys must
        be hashable, but for lists whose type is declared: ``key_by(f, Types.LIST(Types.LONG()))``.
        """
        _check_function("key_by", key_selector, KeySelector)
        partitioning = Hash(key_selector, type_info_of(key_type))
        edges = tuple(replace(edge, partitioning=partitioning) for edge in self._values()._edges)
        return KeyedStream(self._environment, edges, self._values())

    def _values(self) -> DataStream:
        raise NotImplementedError


class DataStream(_Stream, _OperatorSettings):
    """A stream of records."""

    def _operator(self) -> int:
        edge = self._edges[0]
        if self._edges != (Edge(edge.source),):
            msg = (
                "names, uids and parallelism belong to an operator; this stream is a union, a "
                "partitioning or a side output of operators: set them on the operator before or "
                "after it"
            )
            raise TypeError(msg)
        return edge.source

    def _values(self) -> DataStream:
        return self

    def set_max_parallelism(self, max_parallelism: int) -> DataStream:
        """The number of key groups of the operator: the bound for its parallelism, for ever."""
        _check_positive("max parallelism", max_parallelism)
        return self._update(max_parallelism=max_parallelism)

    def force_non_parallel(self) -> DataStream:
        """Run the operator in one subtask, now and after any rescaling."""
        return self._update(parallelism=1, max_parallelism=1)

    def set_buffer_timeout(self, timeout_millis: int) -> DataStream:
        """The shortest of all buffer timeouts of a job is the interval of its epochs."""
        return self._update(buffer_timeout=timeout_millis)

    def start_new_chain(self) -> DataStream:
        """Begin a chain with this operator."""
        return self._update(chaining=Chaining.HEAD)

    def process(self, func: ProcessFunction, output_type: Any = None) -> DataStream:
        """Give each record to a process function."""
        if not isinstance(func, ProcessFunction):
            msg = f"process: a DataStream takes a ProcessFunction; got {_kind(func)}"
            raise TypeError(msg)
        return self._apply("process", "Process", Style.PROCESS, func, output_type)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Give records their timestamps, and the stream its watermarks."""
        check_strategy(watermark_strategy)
        node = self._add(
            "timestamps",
            "Timestamps/Watermarks",
            TimestampsOperation(watermark_strategy),
            output_type=self._type(),
            parallelism=self._source().parallelism,
        )
        return DataStream(self._environment, (Edge(node),))

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """The records that the operator sends to a side output with ``yield tag, record``."""
        if not isinstance(output_tag, OutputTag):
            msg = f"get_side_output: expected an OutputTag; got {_kind(output_tag)}"
            raise TypeError(msg)
        declared = output_tag.type_info if output_tag.type_info != _UNDECLARED else None
        edge = Edge(self._operator(), tag=output_tag.tag_id, tag_type=declared)
        return DataStream(self._environment, (edge,))

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Split the whole stream into windows; they are in one subtask."""
        return AllWindowedStream(self, window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Windows of so many records of the whole stream, as by `KeyedStream.count_window`."""
        return self.window_all(count_windows(size, slide))

    def rebalance(self) -> DataStream:
        """Send records round robin to all subtasks of the next operator."""
        return self._partition(Rebalance())

    def rescale(self) -> DataStream:
        """Send records round robin to this subtask's share of the next operator's subtasks."""
        return self._partition(Rescale())

    def shuffle(self) -> DataStream:
        """Send each record to a random subtask of the next operator."""
        return self._partition(Shuffle())

    def forward(self) -> DataStream:
        """Send records to the subtask of the same number; the parallelism must be the same."""
        return self._partition(Forward(explicit=True))

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
        everywhere = self._partition(Broadcast())
        if broadcast_state_descriptor is None:
            return everywhere
        states = (broadcast_state_descriptor, *other_broadcast_state_descriptors)
        return BroadcastStream(everywhere, states)

    def global_(self) -> DataStream:
        """Send every record to the first subtask of the next operator."""
        return self._partition(Global())

    def partition_custom(
        self,
        partitioner: Callable[[Any, int], int] | Partitioner,
        key_selector: Callable[[Any], Any] | KeySelector,
    ) -> DataStream:
        """Send each record where ``partitioner(key, number_of_subtasks)`` says."""
        _check_function("partition_custom", partitioner, Partitioner)
        _check_function("partition_custom", key_selector, KeySelector)
        return self._partition(Custom(partitioner, key_selector))

    def _partition(self, partitioning: Partitioning) -> DataStream:
        edges = tuple(replace(edge, partitioning=partitioning) for edge in self._edges)
        return DataStream(self._environment, edges)


class KeyedStream(_Stream):
    """A stream by key: functions on it have keyed state, scoped to the key of the record."""

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        edges: tuple[Edge, ...],
        origin: DataStream,
    ) -> None:
        """Made by ``DataStream.key_by``."""
        super().__init__(environment, edges)
        self._origin = origin

    def _values(self) -> DataStream:
        return self._origin

    def _operation(self, style: Style, function: Any) -> FunctionOperation:
        partitioning = self._edges[0].partitioning
        assert isinstance(partitioning, Hash)
        return FunctionOperation(style, function, partitioning.selector, partitioning.key_type)

    def process(self, func: KeyedProcessFunction, output_type: Any = None) -> DataStream:
        """Give each record to a keyed process function."""
        if not isinstance(func, KeyedProcessFunction):
            msg = f"process: a KeyedStream takes a KeyedProcessFunction; got {_kind(func)}"
            raise TypeError(msg)
        return self._apply("keyed_process", "Process", Style.PROCESS, func, output_type)

    def interval_join(self, other_stream: KeyedStream) -> IntervalJoin:
        """Pairs of records of one key that are close in time: ``.between(...).process(...)``."""
        if not isinstance(other_stream, KeyedStream):
            msg = f"interval_join: expected a KeyedStream; got {_kind(other_stream)}"
            raise TypeError(msg)
        return IntervalJoin(self, other_stream)

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Split the stream of each key into windows."""
        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Windows of so many records of a key; of a slide, see `CountSlidingWindowAssigner`."""
        return self.window(count_windows(size, slide))

    def reduce(self, func: Callable[[Any, Any], Any] | ReduceFunction) -> DataStream:
        """A rolling reduction: every record gives the new value of its key.

        In batch mode every key gives its value once, when the input has ended.
        """
        _check_function("reduce", func, ReduceFunction)
        return self._reduce("reduce", func)

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """The running sum of a field; the other fields are those of the key's first record."""
        return self._reduce("sum", field_reducer("sum", position_to_sum))

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """The running minimum of a field; the other fields are those of the first record."""
        return self._reduce("min", field_reducer("min", position_to_min))

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """The running maximum of a field; the other fields are those of the first record."""
        return self._reduce("max", field_reducer("max", position_to_max))

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """The record with the smallest value of a field so far; the first of equal ones."""
        return self._reduce("min_by", field_reducer("min_by", position_to_min_by))

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """The record with the largest value of a field so far; the first of equal ones."""
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
        _check_function(kind, func, Function)
        name = kind.replace("_", " ").title()
        wrapped = function(func, type_info_of(state))
        return self._apply(kind, name, Style.PROCESS, wrapped, output_type)

    def _reduce(self, kind: str, function: Any) -> DataStream:
        type_info = self._type()
        reduction = FinalReduce if self._environment._is_batch else Reduce
        name = kind.replace("_", " ").title()
        return self._apply(kind, name, Style.PROCESS, reduction(function, type_info), type_info)


class DataStreamSink(_OperatorSettings):
    """The end of a stream."""

    def __init__(self, environment: StreamExecutionEnvironment, node: int) -> None:
        """Made by the sink methods of a stream."""
        self._environment = environment
        self._node = node

    def _operator(self) -> int:
        return self._node


class _Projection:
    def __init__(self, indexes: tuple[int, ...]) -> None:
        self._indexes = indexes

    def __call__(self, record: Any) -> tuple[Any, ...]:
        return tuple(record[index] for index in self._indexes)


def _kind(value: Any) -> str:
    return f"{value!r} ({type(value).__name__})"


def _check_positive(what: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        msg = f"the {what} must be a positive int; got {value!r}"
        raise ValueError(msg)


def _check_function(method: str, function: Any, kind: type[Function]) -> None:
    if not isinstance(function, kind) and not callable(function):
        msg = f"{method}: expected a {kind.__name__} or a callable; got {_kind(function)}"
        raise TypeError(msg)
