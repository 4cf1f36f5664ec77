"""Streams that are split into windows; each becomes one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from holdfast.common.time import DurationLike, to_millis
from holdfast.common.typeinfo import TypeInformation, Types, type_info_of
from holdfast.datastream.functions import (
    AggregateFunction,
    NullByteKeySelector,
    ReduceFunction,
)
from holdfast.datastream.functions.windows import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from holdfast.datastream.output_tag import OutputTag
from holdfast.datastream.streams.combining import combined
from holdfast.datastream.streams.function_checks import check_function, check_object, kind_of
from holdfast.datastream.streams.window_operation import WindowOperation
from holdfast.datastream.windows.assigners import MergingWindowAssigner, WindowAssigner
from holdfast.datastream.windows.evictors import Evictor
from holdfast.datastream.windows.trigger import Trigger
from holdfast.errors import JobDefinitionError, JobTypeError
from holdfast.graph import nodes
from holdfast.graph.operations import WindowingOperation

if TYPE_CHECKING:
    from holdfast.datastream.data_stream import DataStream, KeyedStream
    from holdfast.datastream.stream_execution_environment import StreamExecutionEnvironment

_Self = TypeVar("_Self", bound="WindowSettings")
_F = TypeVar("_F")
_P = TypeVar("_P")
#: the methods of an aggregate function; sessions also need ``merge``
_AGGREGATING = ("create_accumulator", "add", "get_result")


class WindowSettings:
    """Settings of windows, before a function is applied."""

    def __init__(self, window_assigner: WindowAssigner[Any, Any]) -> None:
        """Start with the defaults of the assigner."""
        _check("window", window_assigner, WindowAssigner)
        self._assigner = window_assigner
        self._trigger: Trigger[Any, Any] | None = None
        self._evictor: Evictor[Any, Any] | None = None
        self._lateness = 0

    def trigger(self: _Self, trigger: Trigger[Any, Any]) -> _Self:
        """Use this trigger instead of the assigner's default."""
        _check("trigger", trigger, Trigger)
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise JobDefinitionError(
                f"the windows of {type(self._assigner).__name__} can merge, and the trigger "
                f"{trigger!r} cannot merge; implement can_merge() and on_merge() in it, or use "
                "another trigger"
            )
        self._trigger = trigger
        return self

    def evictor(self: _Self, evictor: Evictor[Any, Any]) -> _Self:
        """Let this evictor remove records from windows that fire; keeps all records."""
        _check("evictor", evictor, Evictor)
        self._evictor = evictor
        return self

    def allowed_lateness(self: _Self, time_ms: DurationLike) -> _Self:
        """Keep event-time windows that long after their end, for late records.

        A late record fires its window again. Without it, a window is removed when it has fired.
        """
        lateness = to_millis(time_ms)
        if lateness < 0:
            message = f"allowed_lateness: must not be negative; got {time_ms!r}"
            raise ValueError(message)
        self._lateness = lateness
        return self


class _Windows(WindowSettings, Generic[_F, _P]):
    """Base of keyed windows and windows of a whole stream.

    ``_F`` and ``_P`` are their classes of functions, the simple one and the general one.
    """

    _functions: ClassVar[tuple[type[Any], type[Any]]]
    _kind: ClassVar[str]

    def __init__(self, stream: KeyedStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(window_assigner)
        self._stream = stream
        self._late_tag: OutputTag | None = None
        self._combines = False

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment that the stream belongs to."""
        return self._stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """Return the declared type of the records; pickled if there is none."""
        return self._stream.get_type()

    def side_output_late_data(self: _Self, output_tag: OutputTag) -> _Self:
        """Send records that are too late for all their windows to a side output.

        By default they are dropped. ``get_side_output(output_tag)`` of the result is their stream.
        """
        _check("side_output_late_data", output_tag, OutputTag)
        self._late_tag = output_tag  # type: ignore[attr-defined]
        return self

    def combine_before_exchange(self: _Self) -> _Self:
        """Combine the records of a key and window where they are sent.

        This is for ``reduce`` and ``aggregate``. A subtask then receives one partial value instead
        of many records of a key. Use it where a few keys have most of the records, so that their
        subtask is busy and others are idle. Where a key has few records, it costs more than it
        saves.

        The function must be associative: partial values are merged in any grouping, with
        ``reduce``, or with ``merge`` of the aggregate function. Windows are tumbling or sliding
        windows of event time with the default trigger, without an evictor, allowed lateness and a
        side output for late data. Late records are dropped as without it, but the metric
        ``numLateRecordsDropped`` counts partial values. The state is the same, so it can be turned
        on and off between two runs if the windows have a uid.
        """
        self._combines = True  # type: ignore[attr-defined]
        return self

    def reduce(
        self,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction,
        window_function: _F | _P | None = None,
        output_type: Any = None,
    ) -> DataStream:
        """Reduce the records of a window to one of the same type as they arrive.

        Only that one is kept. The window function, if there is one, is called with it when the
        window fires.
        """
        check_function("reduce", reduce_function, ReduceFunction)
        kept = self._stream._type()
        if window_function is None and output_type is None:
            output_type = kept
        return self._add(
            "reduce", output_type, window_function, reducer=reduce_function, kept_type=kept
        )

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: _F | _P | None = None,
        accumulator_type: Any = None,
        output_type: Any = None,
    ) -> DataStream:
        """Aggregate the records of a window in an accumulator as they arrive.

        Only the accumulator is kept. The window function, if there is one, gets its result
        when the window fires.
        """
        if not all(hasattr(aggregate_function, method) for method in _AGGREGATING):
            raise _unexpected("aggregate", aggregate_function, "an AggregateFunction")
        check_object("aggregate", aggregate_function, object)
        if isinstance(accumulator_type, list):
            accumulator_type = Types.ROW(accumulator_type)
        kept = type_info_of(accumulator_type)
        return self._add(
            "aggregate",
            output_type,
            window_function,
            aggregator=aggregate_function,
            kept_type=kept,
        )

    def apply(self, window_function: _F, output_type: Any = None) -> DataStream:
        """Keep the records of a window, and call the function with them when it fires."""
        simple, _ = self._functions
        check_object("apply", window_function, simple)
        return self._add("apply", output_type, window_function, kept_type=self._stream._type())

    def process(self, process_window_function: _P, output_type: Any = None) -> DataStream:
        """Keep the records of a window, and call the function with them when it fires.

        The function may use time, state and side outputs.
        """
        _, general = self._functions
        check_object("process", process_window_function, general)
        kept = self._stream._type()
        return self._add("process", output_type, process_window_function, kept_type=kept)

    def _add(self, method: str, output_type: Any, function: Any, **parts: Any) -> DataStream:
        if function is not None:
            check_object(method, function, *self._functions)
        environment = self.get_execution_environment()
        operation = WindowOperation(
            self._assigner,
            self._trigger or self._assigner.get_default_trigger(environment),
            self._evictor,
            self._lateness,
            self._late_tag,
            function=function,
            **parts,
        )
        name = type(self._assigner).__name__
        stream = self._windows(name, operation, output_type)
        functions = [type(part).__name__ for part in operation.wrapped() if part is not None]
        about = ", ".join([repr(self._assigner), repr(operation.trigger), *functions])
        return stream.set_description(f"Window({about})")

    def _windows(self, name: str, operation: WindowOperation, output_type: Any) -> DataStream:
        stream = self._stream
        if not self._combines:
            return stream._apply(self._kind, name, WindowingOperation, operation, output_type)
        graph = self.get_execution_environment()._graph
        edges, merging = combined(graph, stream._edges, operation)
        partitioning = edges[0].partitioning
        assert isinstance(partitioning, nodes.Hash)
        made = WindowingOperation(merging, partitioning.selector, partitioning.key_type)
        return stream._new(self._kind, name, made, edges, output_type)


class WindowedStream(
    _Windows[WindowFunction[Any, Any, Any, Any], ProcessWindowFunction[Any, Any, Any, Any]]
):
    """A keyed stream that is split into windows per key."""

    _functions = (WindowFunction, ProcessWindowFunction)
    _kind = "window"


class AllWindowedStream(
    _Windows[AllWindowFunction[Any, Any, Any], ProcessAllWindowFunction[Any, Any, Any]]
):
    """A stream that is split into windows as a whole, in one subtask."""

    _functions = (AllWindowFunction, ProcessAllWindowFunction)
    _kind = "window_all"

    def __init__(self, stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        """Assign the same key to all records."""
        super().__init__(stream.key_by(NullByteKeySelector()), window_assigner)

    def _add(self, method: str, output_type: Any, function: Any, **parts: Any) -> DataStream:
        return super()._add(method, output_type, function, **parts).force_non_parallel()


def _check(method: str, value: Any, kind: type[Any]) -> None:
    if not isinstance(value, kind):
        raise _unexpected(method, value, f"a {kind.__name__}")


def _unexpected(method: str, value: Any, expected: str) -> JobTypeError:
    return JobTypeError(f"{method}: expected {expected}; got {kind_of(value)}")
