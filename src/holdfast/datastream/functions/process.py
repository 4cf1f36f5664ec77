"""The general functions of a stream: time, timers, state, and side outputs.

Yield results, or return any iterable. A pair of an `OutputTag` and a record goes to that
side output instead of the stream.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from holdfast.datastream.functions.base import Function
from holdfast.datastream.time_domain import TimeDomain
from holdfast.datastream.timerservice import TimerService


class ProcessFunction(Function):
    """The general function of a stream without keys."""

    class Context(ABC):
        """The context of the current record; valid only during the call."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the time; timers cannot be set, because they belong to keys."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the event timestamp of the record in milliseconds, or None if it has none."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any] | None:
        """Called for each record; yields (or returns an iterable of) results."""


class KeyedProcessFunction(Function):
    """The general function of a keyed stream, with state and timers."""

    class Context(ABC):
        """The context of the current record; valid only during the call."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key of the record, or of the timer."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the time, and the timers of this key."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the event timestamp of the record in milliseconds, or None if it has none.

            In ``on_timer`` it is the time that the timer was set for.
            """

    class OnTimerContext(Context):
        """The context of a timer that is due; valid only during the call."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return whether it is an event-time or a processing-time timer."""

    @abstractmethod
    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any] | None:
        """Called for each record; yields (or returns an iterable of) results."""

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterable[Any] | None:
        """Called for each timer that is due, in the order of their times; yields results.

        State is that of the timer's key. New timers may be set, also ones that are already due.
        """
        return None
