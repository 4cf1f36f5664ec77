"""The contexts that functions get with each record, and with each timer that is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from holdfast.datastream.functions import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    SinkFunction,
    TimerService,
)
from holdfast.datastream.functions.base import KeyedStateStore
from holdfast.datastream.time_domain import TimeDomain
from holdfast.runtime.event_time import OperatorTime, Timekeeping
from holdfast.state.live.key_context import KeyContext

#: the methods of a runtime context that return a state
_STATES: Final = frozenset(name for name in vars(KeyedStateStore) if name.startswith("get_"))


def missing_in_context(of: str, context: object, name: str) -> AttributeError:
    """Return the error for an attribute that the context of a record or a batch does not have."""
    message = f"the context of a {of} has no attribute '{name}'"
    if name == "get_current_key":
        message += (
            ": this stream has no keys; call key_by(...) before the operator"
            if of == "record"
            else ": a batch has many keys; they are an argument of the method"
        )
    elif name in _STATES:
        message += f"; request the state in open(): self.state = runtime_context.{name}(...)"
    return AttributeError(message, name=name, obj=context)


class RecordContext(CoProcessFunction.Context, SinkFunction.Context):
    """The context of the current record, for functions without a key.

    Attributes:
        stamp: the timestamp of the record, if records have one.
    """

    def __init__(self, time: OperatorTime, operator: str) -> None:
        """Use the time of this operator."""
        self._time = time
        self._timers = Timekeeping(time, operator)
        self.stamp: int | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_in_context("record", self, name)

    def timestamp(self) -> int | None:
        return self.stamp

    def timer_service(self) -> TimerService:
        return self._timers

    def current_processing_time(self) -> int:
        return self._time.clock()

    def current_watermark(self) -> int:
        return self._time.watermark.time


class KeyedRecordContext(RecordContext, KeyedCoProcessFunction.OnTimerContext):
    """The context of the current record or timer, for keyed functions.

    Attributes:
        domain: the time domain of a timer, while it is handled.
    """

    def __init__(self, time: OperatorTime, operator: str, key_context: KeyContext) -> None:
        """Read the key from the context in which the runtime sets it."""
        super().__init__(time, operator)
        self._key_context = key_context
        self.domain = TimeDomain.EVENT_TIME

    def get_current_key(self) -> Any:
        return self._key_context.shown()

    def time_domain(self) -> TimeDomain:
        return self.domain
