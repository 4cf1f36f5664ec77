"""Time of one operator in one subtask: its watermark, its timers, and its watermark generator.

Watermarks advance at the end of an epoch, after its records, from operator to operator in the order
of the stream. An operator's watermark is the minimum over its inputs that are not idle, and never
decreases. Results of its timers reach the downstream operators before their watermarks advance.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

from holdfast.common._cloudpickle import dumps
from holdfast.common.constants import MAX_LONG_VALUE, MIN_LONG_VALUE
from holdfast.common.watermark_generators import (
    BoundedOutOfOrdernessWatermarks,
    CurrentWatermark,
    WatermarkGenerator,
    WatermarksWithIdleness,
)
from holdfast.common.watermark_strategy import NO_TIMESTAMP, ColumnTimestamps, WatermarkStrategy
from holdfast.datastream.time_domain import TimeDomain
from holdfast.datastream.timerservice import TimerService
from holdfast.errors import JobDefinitionError
from holdfast.runtime.timer_queue import Timer, TimerQueue

#: the blob with the time of an operator
TIME = "time"

Clock = Callable[[], int]


class Watermark(NamedTuple):
    """The watermark of one input or output of an operator."""

    time: int = MIN_LONG_VALUE
    idle: bool = False


#: the watermark after the last record
END = Watermark(MAX_LONG_VALUE)


def combine(inputs: Iterable[Watermark], before: Watermark) -> Watermark:
    """Return the watermark of an operator with these inputs, whose watermark was ``before``.

    Idle inputs are ignored. If all are idle, the watermark stays, and the operator is idle too.
    """
    live = [watermark.time for watermark in inputs if not watermark.idle]
    if not live:
        return Watermark(before.time, True)
    return Watermark(max(before.time, min(live)))


def _saved(time: Any, idle: Any) -> Watermark:
    """Return a watermark from saved values."""
    if not isinstance(time, int) or not isinstance(idle, bool):
        message = f"({time!r}, {idle!r}) is not a watermark"
        raise TypeError(message)
    return Watermark(time, idle)


class OperatorTime:
    """The watermark and the timers of one operator.

    Attributes:
        watermark: the watermark at the end of the last epoch.
        queues: the timers, on a keyed stream.
        lag: how long after its time a processing-time timer is due.
    """

    def __init__(self, clock: Clock, queues: tuple[TimerQueue, ...] = ()) -> None:
        """Start with the minimum watermark."""
        self.clock = clock
        self.watermark = Watermark()
        self.queues = {queue.domain: queue for queue in queues}
        self.lag = 0

    def due(self, domain: TimeDomain) -> Iterator[Timer]:
        """Yield and remove the timers that are due."""
        if domain is TimeDomain.EVENT_TIME:
            return self.queues[domain].due(self.watermark.time)
        return self.queues[domain].due(self.clock() - self.lag)

    def next_due(self) -> int | None:
        """Return when the next processing-time timer is due; None if there is none."""
        queue = self.queues.get(TimeDomain.PROCESSING_TIME)
        first = None if queue is None else queue.first
        return None if first is None else first + self.lag

    def dump(self) -> bytes:
        """Return what is saved with the state."""
        return pickle.dumps(tuple(self.watermark), 5)

    def load(self, data: bytes | None) -> None:
        """Restore what was saved."""
        self.watermark = Watermark() if data is None else _saved(*pickle.loads(data))

    def take_over(self, saved: Iterable[bytes]) -> None:
        """Start at the minimum of the watermarks of several subtasks."""
        times = [_saved(*pickle.loads(data)[:2]) for data in saved]
        if times:
            self.watermark = Watermark(min(watermark.time for watermark in times))


class _Track:
    """The time of one split of a source: its watermark generator and the output of that."""

    def __init__(self, generator: WatermarkGenerator, output: CurrentWatermark) -> None:
        self.generator = generator
        self.output = output
        #: whether the generator needs to see only records with the largest timestamp so far
        self.only_largest = type(generator) is BoundedOutOfOrdernessWatermarks
        self.largest = MIN_LONG_VALUE if self.only_largest else MIN_LONG_VALUE - 1

    @property
    def watermark(self) -> Watermark:
        return Watermark(self.output.watermark, self.output.is_idle)

    def generate(self) -> Watermark:
        self.generator.on_periodic_emit(self.output)
        return self.watermark

    def hold(self) -> None:
        """Record that the split is paused, so that it does not become idle because of that."""
        if isinstance(self.generator, WatermarksWithIdleness):
            self.generator.hold()

    def dump(self) -> tuple[int, bool, bytes]:
        """Return the state; the pickled generator is separate: not every reader needs its class."""
        return self.output.watermark, self.output.is_idle, self._packed()

    def _packed(self) -> bytes:
        try:
            return pickle.dumps(self.generator, 5)
        except (pickle.PicklingError, AttributeError, TypeError):
            # its class is defined in the main program, or in a function
            return dumps(self.generator)


#: the only split of an input that has none
_WHOLE = None


class StampingTime(OperatorTime):
    """The time of an operator that assigns timestamps and generates watermarks.

    The records of a source may come from splits, such as partitions, each with its own order. Then
    each split has its own generator, and the watermark is the minimum over the splits that are not
    idle.

    Attributes:
        extract: returns the timestamp of a record, given its previous one; None keeps that one.
        column: the column that has the timestamps of batches, if it is named.
        largest: the generator need not see a record whose timestamp is not larger than this.
    """

    def __init__(self, clock: Clock, strategy: WatermarkStrategy) -> None:
        """Create the generator of this subtask."""
        super().__init__(clock)
        self._strategy = strategy
        assigner = strategy.timestamp_assigner
        self.extract = None if assigner is None else assigner.extract_timestamp
        self.column = assigner.column if isinstance(assigner, ColumnTimestamps) else None
        self._begin()

    def _begin(self, given: int = MIN_LONG_VALUE) -> None:
        self._tracks: dict[Hashable, _Track] = {_WHOLE: self._new_track(given)}
        self._use(self._tracks[_WHOLE])

    def _use(self, track: _Track) -> None:
        self._track = track
        self.largest = track.largest

    def _new_track(self, given: int = MIN_LONG_VALUE) -> _Track:
        return _Track(self._strategy.create_generator(self.clock), CurrentWatermark(given))

    def turn_to(self, split: Hashable) -> None:
        """Switch to a split: the next records belong to it."""
        if split not in self._tracks:
            self._tracks[split] = self._new_track()
        self._track.largest = self.largest
        self._use(self._tracks[split])

    def keep_splits(self, splits: Collection[Hashable]) -> None:
        """Set the splits that exist: the watermark waits for each of them, and for no other."""
        for split in splits:
            self.turn_to(split)
        self._tracks = {split: self._tracks[split] for split in splits}

    def saw(self, record: Any, timestamp: int | None) -> None:
        """Pass a record to the generator; its timestamp is larger than ``largest``, or None."""
        event = NO_TIMESTAMP if timestamp is None else timestamp
        track = self._track
        if track.only_largest and event > self.largest:
            self.largest = event
        track.generator.on_event(record, event, track.output)

    @staticmethod
    def refuse(timestamp: Any) -> NoReturn:
        """Raise an error because a timestamp assigner did not return a timestamp."""
        message = (
            "a timestamp assigner must return milliseconds as an int; got "
            f"{timestamp!r} ({type(timestamp).__name__})"
        )
        raise TypeError(message)

    def generate(self) -> Watermark:
        """Return the watermark at the end of an epoch; without splits the operator is idle."""
        return combine([track.generate() for track in self._tracks.values()], self.watermark)

    def hold(self, ceiling: int) -> tuple[bool, list[Hashable]]:
        """Hold back splits that are past a ceiling: they keep their watermark and stay non-idle.

        Return whether nothing may be read, and which splits may not be read.
        """
        marks = {split: track.watermark for split, track in self._tracks.items()}
        ahead = combine(marks.values(), self.watermark).time > ceiling
        held = [split for split, mark in marks.items() if ahead or mark.time > ceiling]
        for split in held:
            self._tracks[split].hold()
        return ahead, held

    def dump(self) -> bytes:
        """Return the watermark, and for each split its generator and the last output of that.

        While the input is idle, the generator may be ahead of the watermark.
        """
        tracks = {split: track.dump() for split, track in self._tracks.items()}
        return pickle.dumps((*self.watermark, tracks), 5)

    def load(self, data: bytes | None) -> None:
        self._begin()
        if data is None:
            self.watermark = Watermark()
            return
        time, idle, tracks = pickle.loads(data)
        self.watermark = _saved(time, idle)
        self._tracks = {split: self._loaded(*saved) for split, saved in tracks.items()}
        if _WHOLE in self._tracks:
            self._use(self._tracks[_WHOLE])

    def _loaded(self, given: int, idle: bool, packed: bytes) -> _Track:
        generator: WatermarkGenerator = pickle.loads(packed)
        if isinstance(generator, WatermarksWithIdleness):
            generator.clock = self.clock
        return _Track(generator, CurrentWatermark(*_saved(given, idle)))

    def take_over(self, saved: Iterable[bytes]) -> None:
        """Start at the minimum of the watermarks of several subtasks, with new generators.

        The old generators may be of a strategy that the job no longer has, or may not exist.
        """
        parts = [pickle.loads(data) for data in saved]
        super().take_over(pickle.dumps(part[:2], 5) for part in parts)
        given: dict[Hashable, int] = {}
        for split, track in (item for part in parts for more in part[2:] for item in more.items()):
            time = _saved(*track[:2]).time
            given[split] = min(time, given.get(split, time))
        self._begin(given.pop(_WHOLE, MIN_LONG_VALUE))
        self._tracks |= {split: self._new_track(time) for split, time in given.items()}


class Timekeeping(TimerService):
    """The timer service that functions use."""

    def __init__(self, time: OperatorTime, operator: str) -> None:
        """Read this time, and register timers there."""
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
            message = f"a timer needs a time in milliseconds, an int; got {timestamp!r}"
            raise TypeError(message)
        queue = self._time.queues.get(domain)
        if queue is None:
            raise JobDefinitionError(
                f"operator '{self._operator}' sets a timer, but timers belong to keys and its "
                "stream has none; call key_by(...) before it"
            )
        return queue
