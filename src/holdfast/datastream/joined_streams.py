"""Two streams joined or grouped window by window; names and meaning are those of Flink's Java API.

``a.join(b).where(key_of_a).equal_to(key_of_b).window(assigner).apply(function)``. The records of
both streams go into the windows of one stream, each as a pair of its side, 0 or 1, and itself.
Those pairs are what a trigger or an evictor of the windows sees. When a window of a key fires, they
are parted again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from holdfast.datastream.function_base import WrappingFunction
from holdfast.datastream.functions import (
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    KeySelector,
    WindowFunction,
)
from holdfast.datastream.windowed_stream import WindowSettings
from holdfast.datastream.windows.assigners import WindowAssigner
from holdfast.errors import JobDefinitionError

if TYPE_CHECKING:
    from holdfast.datastream.data_stream import DataStream, KeyedStream

__all__ = ["CoGroupWindows", "CoGroupedStreams", "EqualTo", "JoinWindows", "JoinedStreams", "Where"]

Selector = Callable[[Any], Any] | KeySelector
#: of which side a record is, and the record
_Sided = tuple[int, Any]
_W = TypeVar("_W", bound="_PairWindows")


class _Pair(NamedTuple):
    """Two streams, and how to find the keys of their records."""

    first: DataStream
    second: DataStream
    selectors: tuple[Selector, ...] = ()
    key_type: Any = None

    def with_selector(self, method: str, selector: Selector, key_type: Any) -> _Pair:
        if not isinstance(selector, KeySelector) and not callable(selector):
            msg = (
                f"{method}: expected a KeySelector or a callable; got {selector!r} "
                f"({type(selector).__name__})"
            )
            raise TypeError(msg)
        return self._replace(selectors=(*self.selectors, selector), key_type=key_type)

    def together(self) -> KeyedStream:
        """One stream of both, by key."""
        first, second = _sided(self.first, 0), _sided(self.second, 1)
        return first.union(second).key_by(_Key(*self.selectors), self.key_type)


class _Streams(Generic[_W]):
    """Two streams, of which it is to be said what belongs together."""

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
        """How to find the key of a record of the first stream."""
        pair = self._pair.with_selector("where", key_selector, key_type)
        return Where(pair, self._windows)


class Where(Generic[_W]):
    """Two streams, and the key of the first one."""

    def __init__(self, pair: _Pair, windows: type[_W]) -> None:
        """Made by ``where``."""
        self._pair = pair
        self._windows = windows

    def equal_to(self, key_selector: Selector, key_type: Any = None) -> EqualTo[_W]:
        """How to find the key of a record of the second stream."""
        known = key_type or self._pair.key_type
        pair = self._pair.with_selector("equal_to", key_selector, known)
        return EqualTo(pair, self._windows)


class EqualTo(Generic[_W]):
    """Two streams, and the keys of both."""

    def __init__(self, pair: _Pair, windows: type[_W]) -> None:
        """Made by ``equal_to``."""
        self._pair = pair
        self._windows = windows

    def window(self, assigner: WindowAssigner[Any, Any]) -> _W:
        """The windows in which records of both streams meet."""
        return self._windows(self._pair, assigner)


class _PairWindows(WindowSettings):
    """Two streams in windows."""

    def __init__(self, pair: _Pair, assigner: WindowAssigner[Any, Any]) -> None:
        """Made by ``window``."""
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
    """Two streams in windows, to be joined."""

    def apply(
        self,
        function: JoinFunction[Any, Any, Any]
        | FlatJoinFunction[Any, Any, Any]
        | Callable[[Any, Any], Any],
        output_type: Any = None,
    ) -> DataStream:
        """Call the function with each pair of records of one key in one window.

        A plain function makes one record of a pair, as a `JoinFunction` does.
        """
        flat = isinstance(function, FlatJoinFunction)
        call = _method("apply", function, "join", "a JoinFunction, a FlatJoinFunction")
        wrapped = (_FlatJoin if flat else _Join)(function, call)
        return self._apply("Window Join", wrapped, output_type)


class CoGroupWindows(_PairWindows):
    """Two streams in windows, to be grouped."""

    def apply(
        self,
        function: CoGroupFunction[Any, Any, Any]
        | Callable[[list[Any], list[Any]], Iterable[Any] | None],
        output_type: Any = None,
    ) -> DataStream:
        """Call the function with the records of both streams, of each key in each window.

        One of the two may have none.
        """
        call = _method("apply", function, "co_group", "a CoGroupFunction")
        return self._apply("Window CoGroup", _CoGroup(function, call), output_type)


class JoinedStreams(_Streams[JoinWindows]):
    """Two streams to be joined: each pair of records of one key in one window."""

    _windows = JoinWindows


class CoGroupedStreams(_Streams[CoGroupWindows]):
    """Two streams to be grouped: all records of one key in one window."""

    _windows = CoGroupWindows


class _Side:
    """Says of which side a record is."""

    def __init__(self, side: int) -> None:
        self._side = side

    def __call__(self, record: Any) -> _Sided:
        return self._side, record


class _Key(WrappingFunction, KeySelector):
    """The key of a record of either side."""

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
    """The records of a stream, each with its side; in the subtasks that the stream has."""
    name = "Second Input" if side else "First Input"
    sided = stream.map(_Side(side)).name(name)
    parallelism = stream._source().parallelism
    return sided if parallelism is None else sided.set_parallelism(parallelism)


def _method(user: str, function: Any, method: str, expected: str) -> Callable[..., Any]:
    call = getattr(function, method, function)
    if not callable(call):
        kind = type(function).__name__
        msg = f"{user}: expected {expected} or a callable; got {function!r} ({kind})"
        raise TypeError(msg)
    return call  # type: ignore[no-any-return]
