"""Time of one operator in one subtask: its watermark, its timers, and the generator of watermarks.

Watermarks move at the end of an epoch, after its records, from operator to operator in the order of
the stream. An operator's watermark is the minimum over its inputs that are not idle, and never goes
back. What its timers emit when it moves reaches the operators behind it before theirs moves.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

from holdfast.common._cloudpickle import dumps
from holdfast.common.constants import MAX_LONG_VALUE, MIN_LONG_VALUE
from holdfast.common.watermark_generators import (
    BoundedOutOfOrdernessWatermarks,
    CurrentWatermark,
    WatermarkGenerator,
    WatermarksWithIdleness,
)
from holdfast.common.watermark_strategy import NO_TIMESTAMP, WatermarkStrategy
from holdfast.datastream.time_domain import TimeDomain
from holdfast.datastream.timerservice import TimerService
from holdfast.errors import JobDefinitionError
from holdfast.runtime.timers import Timer, TimerQueue

#: the blob in which an operator's time is saved
TIME = "time"

Clock = Callable[[], int]
#: called for a timer that is due; gives results, each with its timestamp
OnTimer = Callable[[Timer, TimeDomain], Iterable[tuple[Any, int | None]]]


class Watermark(NamedTuple):
    """How far time is, on one way into or out of an operator."""

    time: int = MIN_LONG_VALUE
    idle: bool = False


#: nothing more will come
END = Watermark(MAX_LONG_VALUE)


def combine(inputs: Iterable[Watermark], before: Watermark) -> Watermark:
    """The watermark of an operator with these inputs, which stood at ``before``.

    Idle inputs hold nobody up; if all are, time stands still and the operator is idle, too.
    """
    live = [watermark.time for watermark in inputs if not watermark.idle]
    if not live:
        return Watermark(before.time, True)
    return Watermark(max(before.time, min(live)))


class OperatorTime:
    """The watermark and the timers of one operator.

    Attributes:
        watermark: as of the end of the last epoch.
        queues: the timers, on a keyed stream.
        lag: how long after its time a timer of processing time is due.
    """

    def __init__(self, clock: Clock, queues: tuple[TimerQueue, ...] = ()) -> None:
        """Begin before all time."""
        self.clock = clock
        self.watermark = Watermark()
        self.queues = {queue.domain: queue for queue in queues}
        self.lag = 0

    def due(self, domain: TimeDomain) -> Iterator[Timer]:
        """Take out the timers that are due."""
        if domain is TimeDomain.EVENT_TIME:
            return self.queues[domain].due(self.watermark.time)
        return self.queues[domain].due(self.clock() - self.lag)

    def dump(self) -> bytes:
        """What is saved with the state."""
        return pickle.dumps(tuple(self.watermark), 5)

    def load(self, data: bytes | None) -> None:
        """Go to what was saved."""
        self.watermark = Watermark() if data is None else Watermark(*pickle.loads(data))

    def take_over(self, saved: Iterable[bytes]) -> None:
        """Begin where the last of several subtasks stood."""
        times = [Watermark(*pickle.loads(data)[:2]) for data in saved]
        if times:
            self.watermark = Watermark(min(watermark.time for watermark in times))


class StampingTime(OperatorTime):
    """The time of an operator that assigns timestamps and makes watermarks.

    Attributes:
        extract: finds the timestamp of a record, given the one that it had; None keeps that one.
        largest: the generator need not see a record whose timestamp is no larger than this.
    """

    def __init__(self, clock: Clock, strategy: WatermarkStrategy) -> None:
        """Make the generator of this subtask."""
        super().__init__(clock)
        self._strategy = strategy
        assigner = strategy.timestamp_assigner
        self.extract = None if assigner is None else assigner.extract_timestamp
        self._begin()

    def _begin(self) -> None:
        self._follow(self._strategy.create_generator(self.clock))
        self._output = CurrentWatermark(*self.watermark)

    def _follow(self, generator: WatermarkGenerator) -> None:
        """Take watermarks from this generator from now on."""
        self._generator = generator
        self._only_largest = type(generator) is BoundedOutOfOrdernessWatermarks
        self.largest = MIN_LONG_VALUE if self._only_largest else MIN_LONG_VALUE - 1

    def saw(self, record: Any, timestamp: int | None) -> None:
        """Show the generator a record; its timestamp is larger than ``largest``, or None."""
        event = NO_TIMESTAMP if timestamp is None else timestamp
        if self._only_largest and event > self.largest:
            self.largest = event
        self._generator.on_event(record, event, self._output)

    @staticmethod
    def refuse(timestamp: Any) -> NoReturn:
        """Tell that a timestamp assigner did not return one."""
        msg = (
            "a timestamp assigner must return milliseconds as an int; got "
            f"{timestamp!r} ({type(timestamp).__name__})"
        )
        raise TypeError(msg)

    def generate(self) -> Watermark:
        """The watermark at the end of an epoch."""
        self._generator.on_periodic_emit(self._output)
        return Watermark(self._output.watermark, self._output.is_idle)

    def dump(self) -> bytes:
        """The watermark, the last one that the generator gave, and the generator.

        While the input is idle, the generator may be ahead of the watermark. The generator is in an
        envelope of its own: who only needs the watermarks must not need its class.
        """
        return pickle.dumps((*self.watermark, self._output.watermark, self._packed()), 5)

    def _packed(self) -> bytes:
        try:
            return pickle.dumps(self._generator, 5)
        except (pickle.PicklingError, AttributeError, TypeError):
            # its class lives in the main program, or in a function
            return dumps(self._generator)

    def load(self, data: bytes | None) -> None:
        """Go to what was saved."""
        if data is None:
            self.watermark = Watermark()
            self._begin()
            return
        time, idle, given, packed = pickle.loads(data)
        generator = pickle.loads(packed)
        self._follow(generator)
        self.watermark = Watermark(time, idle)
        self._output = CurrentWatermark(given, idle)
        if isinstance(generator, WatermarksWithIdleness):
            generator.clock = self.clock

    def take_over(self, saved: Iterable[bytes]) -> None:
        """Begin where the last of several subtasks stood, with a generator of its own.

        That of before may be one that the job has no more, or there may have been none.
        """
        saved = list(saved)
        super().take_over(saved)
        self._begin()
        given = [time for data in saved for time in pickle.loads(data)[2:3]]
        if given:
            self._output = CurrentWatermark(min(given))


class Timekeeping(TimerService):
    """The timer service that functions are given."""

    def __init__(self, time: OperatorTime, operator: str) -> None:
        """Ask this time, and set timers there."""
        self._time = time
        self._operator = operator

    def current_processing_time(self) -> int:
        return self._time.clock()

    def current_watermark(self) -> int:
        return self._time.watermark.time

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._queue(TimeDomain.PROCESSING_TIME, timestamp).register(timestamp)

    def register_event_time_timer(self, timestamp: int) -> None:
        self._queue(TimeDomain.EVENT_TIME, timestamp).register(timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._queue(TimeDomain.PROCESSING_TIME, timestamp).delete(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._queue(TimeDomain.EVENT_TIME, timestamp).delete(timestamp)

    def _queue(self, domain: TimeDomain, timestamp: Any) -> TimerQueue:
        if timestamp.__class__ is not int:
            msg = f"a timer needs a time in milliseconds, an int; got {timestamp!r}"
            raise TypeError(msg)
        queue = self._time.queues.get(domain)
        if queue is None:
            raise JobDefinitionError(
                f"operator '{self._operator}' sets a timer, but timers belong to keys and its "
                "stream has none; call key_by(...) before it"
            )
        return queue
