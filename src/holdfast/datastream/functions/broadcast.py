"""Functions of a stream that is connected with a broadcast one, and the state they share.

Every subtask sees every record of the broadcast stream and keeps what it says in broadcast state,
which the other side may read and not change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.datastream.functions.base import Function
from holdfast.datastream.time_domain import TimeDomain
from holdfast.datastream.timerservice import TimerService

if TYPE_CHECKING:
    from holdfast.datastream.state import (
        BroadcastState,
        MapStateDescriptor,
        ReadOnlyBroadcastState,
        StateDescriptor,
    )

KEY = TypeVar("KEY")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")


class KeyedStateFunction(ABC):
    """What `KeyedBroadcastProcessFunction.Context.apply_to_keyed_state` does with each key."""

    @abstractmethod
    def process(self, key: Any, state: Any) -> None:
        """Called with each key that has the state, and the state; may change and clear it."""


class BaseBroadcastProcessFunction(Function):
    """What both kinds of broadcast functions have in common."""

    class BaseContext(ABC):
        """The context of the current record; valid only during the call."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the event timestamp of the record in milliseconds, or None if it has none."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time in milliseconds."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark of the operator; -2**63 before the first one."""

    class Context(BaseContext):
        """The context of the broadcast side."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> BroadcastState[Any, Any]:
            """One of the states that the stream was broadcast with, to read and to write.

            Each subtask must make the same changes: see `BroadcastState`.
            """

    class ReadOnlyContext(BaseContext):
        """The context of the side that is not broadcast."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> ReadOnlyBroadcastState[Any, Any]:
            """One of the states that the other stream was broadcast with, to read."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """The function of a stream without keys that is connected with a broadcast one."""

    class Context(BaseBroadcastProcessFunction.Context):
        """The context of the broadcast side."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """The context of the side that is not broadcast."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[OUT] | None:
        """Called for each record of the stream that is not broadcast; yields results."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: BroadcastProcessFunction.Context
    ) -> Iterable[OUT] | None:
        """Called in every subtask for each record of the broadcast stream; yields results."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """The function of a keyed stream that is connected with a broadcast one."""

    class Context(BaseBroadcastProcessFunction.Context):
        """The context of the broadcast side; it has no key."""

        @abstractmethod
        def apply_to_keyed_state(
            self,
            state_descriptor: StateDescriptor,
            function: KeyedStateFunction | Callable[[Any, Any], None],
        ) -> None:
            """Call the function with each key of this subtask that has the state, and the state.

            The keys come in no promised order.
            """

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """The context of the keyed side."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the time, and the timers of this key."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key of the record, or of the timer."""

    class OnTimerContext(ReadOnlyContext):
        """The context of a timer that is due; valid only during the call."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return whether it is an event-time or a processing-time timer."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[OUT] | None:
        """Called for each record of the keyed stream; yields results."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterable[OUT] | None:
        """Called in every subtask for each record of the broadcast stream; yields results."""

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterable[OUT] | None:
        """Called for each timer that is due; see `KeyedProcessFunction.on_timer`."""
        return None
