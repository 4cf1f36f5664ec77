"""Two streams joined or grouped by window; names and semantics are those of Flink's Java API.

``a.join(b).where(key_of_a).equal_to(key_of_b).window(assigner).apply(function)``. The records of
both streams are in the windows of one stream, each as a pair of its side, 0 or 1, and the record.
Triggers and evictors of the windows see these pairs. When a window of a key fires, they
are separated by side.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from holdfast.datastream.functions import (
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    KeySelector,
    WindowFunction,
)
from holdfast.datastream.functions.base import Function, WrappingFunction
from holdfast.datastream.streams.function_checks import check_function
from holdfast.datastream.streams.windowed_stream import WindowSettings
from holdfast.datastream.windows.assigners import WindowAssigner
from holdfast.errors import JobDefinitionError

if TYPE_CHECKING:
    from holdfast.datastream.data_stream import DataStream, KeyedStream

Selector = Callable[[Any], Any] | KeySelector
#: the side of a record, and the record
_Sided = tuple[int, Any]
_W = TypeVar("_W", bound="_PairWindows")


class _Pair(NamedTuple):
    """Two streams, and the key selectors of their records."""

    first: DataStream
    second: DataStream
    selectors: tuple[Selector, ...] = ()
    key_type: Any = None

    def with_selector(self, method: str, selector: Selector, key_type: Any) -> _Pair:
        check_function(method, selector, KeySelector)
        return self._replace(selectors=(*self.selectors, selector), key_type=key_type)

    def together(self) -> KeyedStream:
        """Return one keyed stream of both."""
        first, second = _sided(self.first, 0), _sided(self.second, 1)
        return first.union(second).key_by(_Key(*self.selectors), self.key_type)


class _Streams(Generic[_W]):
    """Two streams whose key selectors are not set yet."""

    _windows: type[_W]

    def __init__(self, first: DataStream, second: DataStream) -> None:
        """Take two streams of one environment."""
        if first.get_execution_environment() is not second.get_execution_environment():
            raise JobDefinitionError(
                f"streams '{first.get_name()}' and '{second.get_name()}' belong to two "
                "environments; a job has one environment"
            )
        self._pair = _Pair(first, second)

    def where(self, key_selector: Selector, key_type: Any = None) -> Where[_W]:
        """Return how to find the key of a record of the first stream."""
        pair = self._pair.with_selector("where", key_selector, key_type)
        return Where(pair, self._windows)


class Where(Generic[_W]):
    """Two streams, and the key of the first one."""

    def __init__(self, pair: _Pair, windows: type[_W]) -> None:
        """Use ``where``."""
        self._pair = pair
        self._windows = windows

    def equal_to(self, key_selector: Selector, key_type: Any = None) -> EqualTo[_W]:
        """Return how to find the key of a record of the second stream."""
        known = key_type or self._pair.key_type
        pair = self._pair.with_selector("equal_to", key_selector, known)
        return EqualTo(pair, self._windows)


class EqualTo(Generic[_W]):
    """Two streams, and the keys of both."""

    def __init__(self, pair: _Pair, windows: type[_W]) -> None:
        """Use ``equal_to``."""
        self._pair = pair
        self._windows = windows

    def window(self, assigner: WindowAssigner[Any, Any]) -> _W:
        """Return the windows in which records of both streams meet."""
        return self._windows(self._pair, assigner)


class _PairWindows(WindowSettings):
    """Two streams in windows."""

    def __init__(self, pair: _Pair, assigner: WindowAssigner[Any, Any]) -> None:
        """Use ``window``."""
        super().__init__(assigner)
        self._pair = pair

    def _apply(self, name: str, function: _Parted, output_type: Any) -> DataStream:
        windows = self._pair.together().window(self._assigner).allowed_lateness(self._lateness)
        if self._trigger is not None:
            windows.trigger(self._trigger)
        if self._evictor is not None:
            windows.evictor(self._evictor)
        return windows.apply(function, output_type).name(name)


class JoinWindows(_PairWindows):
    """Two windowed streams to join."""

    def apply(
        self,
        function: JoinFunction[Any, Any, Any]
        | FlatJoinFunction[Any, Any, Any]
        | Callable[[Any, Any], Any],
        output_type: Any = None,
    ) -> DataStream:
        """Call the function with each pair of records of one key in one window.

        A plain function returns one record per pair, like a `JoinFunction`.
        """
        flat = isinstance(function, FlatJoinFunction)
        call = _method(function, FlatJoinFunction if flat else JoinFunction, "join")
        wrapped = (_FlatJoin if flat else _Join)(function, call)
        return self._apply("Window Join", wrapped, output_type)


class CoGroupWindows(_PairWindows):
    """Two windowed streams to group."""

    def apply(
        self,
        function: CoGroupFunction[Any, Any, Any]
        | Callable[[list[Any], list[Any]], Iterable[Any] | None],
        output_type: Any = None,
    ) -> DataStream:
        """Call the function with the records of both streams, of each key in each window.

        One of the two lists may be empty.
        """
        call = _method(function, CoGroupFunction, "co_group")
        return self._apply("Window CoGroup", _CoGroup(function, call), output_type)


class JoinedStreams(_Streams[JoinWindows]):
    """Two streams to join: each pair of records of one key in one window."""

    _windows = JoinWindows


class CoGroupedStreams(_Streams[CoGroupWindows]):
    """Two streams to group: all records of one key in one window."""

    _windows = CoGroupWindows


class _WithSide:
    """Adds its side to a record."""

    def __init__(self, side: int) -> None:
        self._side = side

    def __call__(self, record: Any) -> _Sided:
        return self._side, record


class _Key(WrappingFunction, KeySelector):
    """Selects the key of a record of either side."""

    def __init__(self, *selectors: Selector) -> None:
        self._selectors = selectors
        self._keys: list[Any] = [getattr(given, "get_key", given) for given in selectors]

    def wrapped(self) -> tuple[Any, ...]:
        return self._selectors

    def get_key(self, value: _Sided) -> Any:
        return self._keys[value[0]](value[1])


class _Parted(WrappingFunction, WindowFunction[_Sided, Any, Any, Any]):
    """A function of the records of both sides."""

    def __init__(self, function: Any, call: Callable[[Any, Any], Any]) -> None:
        self._function = function
        self._call = call

    def wrapped(self) -> tuple[Any, ...]:
        return (self._function,)

    def apply(self, key: Any, window: Any, inputs: Iterable[_Sided]) -> Iterable[Any] | None:
        sides: tuple[list[Any], list[Any]] = [], []
        for side, record in inputs:
            sides[side].append(record)
        return self._results(*sides)

    @abstractmethod
    def _results(self, first: list[Any], second: list[Any]) -> Iterable[Any] | None: ...


class _CoGroup(_Parted):
    def _results(self, first: list[Any], second: list[Any]) -> Iterable[Any] | None:
        return self._call(first, second)  # type: ignore[no-any-return]


class _Join(_Parted):
    def _results(self, first: list[Any], second: list[Any]) -> Iterable[Any]:
        return [self._call(left, right) for left in first for right in second]


class _FlatJoin(_Parted):
    def _results(self, first: list[Any], second: list[Any]) -> Iterator[Any]:
        for left in first:
            for right in second:
                yield from self._call(left, right) or ()


def _sided(stream: DataStream, side: int) -> DataStream:
    """Return the records of a stream, each with its side; in the subtasks that the stream has."""
    name = "Second Input" if side else "First Input"
    sided = stream.map(_WithSide(side)).name(name)
    parallelism = stream._source().parallelism
    return sided if parallelism is None else sided.set_parallelism(parallelism)


def _method(function: Any, kind: type[Function], method: str) -> Callable[..., Any]:
    check_function("apply", function, kind)
    return getattr(function, method, function)  # type: ignore[no-any-return]
