"""What functions are given with each record, and with each timer that is due."""

from __future__ import annotations

from typing import Any

from holdfast.datastream.functions import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    SinkFunction,
    TimerService,
)
from holdfast.datastream.time_domain import TimeDomain
from holdfast.runtime.event_time import OperatorTime, Timekeeping
from holdfast.state.views import KeyContext


class RecordContext(CoProcessFunction.Context, SinkFunction.Context):
    """The context of the current record, for functions without a key.

    Attributes:
        stamp: the timestamp of the record, where records have one.
    """

    def __init__(self, time: OperatorTime, operator: str) -> None:
        """Tell the time of this operator."""
        self._time = time
        self._timers = Timekeeping(time, operator)
        self.stamp: int | None = None

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
        domain: the time that a timer goes by, while it is handled.
    """

    def __init__(self, time: OperatorTime, operator: str, key_context: KeyContext) -> None:
        """Read the key from where the runtime puts it."""
        super().__init__(time, operator)
        self._key_context = key_context
        self.domain = TimeDomain.EVENT_TIME

    def get_current_key(self) -> Any:
        return self._key_context.shown()

    def time_domain(self) -> TimeDomain:
        return self.domain
