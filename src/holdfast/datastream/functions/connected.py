"""Functions of two connected streams. One object sees the records of both, and shares its state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from holdfast.datastream.functions.base import Function
from holdfast.datastream.functions.process import KeyedProcessFunction, ProcessFunction


class CoMapFunction(Function):
    """One record of either stream in, one record out, or none.

    As in PyFlink, a result of None is no record. (A `MapFunction` that returns None does emit it.)
    """

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """Return the result for a record of the first stream; None for no result."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """Return the result for a record of the second stream; None for no result."""


class CoFlatMapFunction(Function):
    """One record of either stream in, any number of records out."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any] | None:
        """Return the results for a record of the first stream: an iterable, or None."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any] | None:
        """Return the results for a record of the second stream."""


class CoProcessFunction(Function):
    """The general function of two connected streams without keys."""

    class Context(ProcessFunction.Context):
        """The context of the current record; valid only during the call."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any] | None:
        """Called for each record of the first stream; yields results."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any] | None:
        """Called for each record of the second stream; yields results."""


class KeyedCoProcessFunction(Function):
    """The general function of two connected keyed streams: records of one key share its state."""

    class Context(KeyedProcessFunction.Context):
        """The context of the current record; valid only during the call."""

    class OnTimerContext(Context, KeyedProcessFunction.OnTimerContext):
        """The context of a timer that is due; valid only during the call."""

    @abstractmethod
    def process_element1(
        self, value: Any, ctx: KeyedCoProcessFunction.Context
    ) -> Iterable[Any] | None:
        """Called for each record of the first stream; yields results."""

    @abstractmethod
    def process_element2(
        self, value: Any, ctx: KeyedCoProcessFunction.Context
    ) -> Iterable[Any] | None:
        """Called for each record of the second stream; yields results."""

    def on_timer(
        self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext
    ) -> Iterable[Any] | None:
        """Called for each timer that is due; see `KeyedProcessFunction.on_timer`."""
        return None
