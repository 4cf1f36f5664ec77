"""Time of one operator in one subtask: its watermark, its timers, and the generator of watermarks.

Watermarks move at the end of an epoch, after its records, from operator to operator in the order of
the stream. An operator's watermark is the minimum over its inputs that are not idle, and never goes
back. What its timers emit when it moves reaches the operators behind it before theirs moves.
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


def _saved(time: Any, idle: Any) -> Watermark:
    """A watermark that was read from somewhere."""
    if not isinstance(time, int) or not isinstance(idle, bool):
        msg = f"({time!r}, {idle!r}) is no watermark"
        raise TypeError(msg)
    return Watermark(time, idle)


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

    def next_due(self) -> int | None:
        """Return when the next timer of processing time is due; None if there is none."""
        queue = self.queues.get(TimeDomain.PROCESSING_TIME)
        first = None if queue is None else queue.first
        return None if first is None else first + self.lag

    def dump(self) -> bytes:
        """What is saved with the state."""
        return pickle.dumps(tuple(self.watermark), 5)

    def load(self, data: bytes | None) -> None:
        """Go to what was saved."""
        self.watermark = Watermark() if data is None else _saved(*pickle.loads(data))

    def take_over(self, saved: Iterable[bytes]) -> None:
        """Begin where the last of several subtasks stood."""
        times = [_saved(*pickle.loads(data)[:2]) for data in saved]
        if times:
            self.watermark = Watermark(min(watermark.time for watermark in times))


class _Track:
    """How far time is in one split of a source: its generator, and what that said."""

    def __init__(self, generator: WatermarkGenerator, output: CurrentWatermark) -> None:
        self.generator = generator
        self.output = output
        #: whether only records matter to it whose timestamps are the largest so far
        self.only_largest = type(generator) is BoundedOutOfOrdernessWatermarks
        self.largest = MIN_LONG_VALUE if self.only_largest else MIN_LONG_VALUE - 1

    @property
    def watermark(self) -> Watermark:
        return Watermark(self.output.watermark, self.output.is_idle)

    def generate(self) -> Watermark:
        self.generator.on_periodic_emit(self.output)
        return self.watermark

    def hold(self) -> None:
        """Note that the split is left out, so that it does not become idle by that."""
        if isinstance(self.generator, WatermarksWithIdleness):
            self.generator.hold()

    def dump(self) -> tuple[int, bool, bytes]:
        """The generator is in an envelope: who needs the watermark must not need its class."""
        return self.output.watermark, self.output.is_idle, self._packed()

    def _packed(self) -> bytes:
        try:
            return pickle.dumps(self.generator, 5)
        except (pickle.PicklingError, AttributeError, TypeError):
            # its class lives in the main program, or in a function
            return dumps(self.generator)


#: the only split of an input that has none
_WHOLE = None


class StampingTime(OperatorTime):
    """The time of an operator that assigns timestamps and makes watermarks.

    The records of a source may come from splits, partitions say, each with its own order. Each
    has a generator of its own then, and time is where the slowest of them is that is not idle.

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

    def _begin(self, given: int = MIN_LONG_VALUE) -> None:
        self._tracks: dict[Hashable, _Track] = {_WHOLE: self._new_track(given)}
        self._use(self._tracks[_WHOLE])

    def _use(self, track: _Track) -> None:
        self._track = track
        self.largest = track.largest

    def _new_track(self, given: int = MIN_LONG_VALUE) -> _Track:
        return _Track(self._strategy.create_generator(self.clock), CurrentWatermark(given))

    def turn_to(self, split: Hashable) -> None:
        """The next records are of this split."""
        if split not in self._tracks:
            self._tracks[split] = self._new_track()
        self._track.largest = self.largest
        self._use(self._tracks[split])

    def keep_splits(self, splits: Collection[Hashable]) -> None:
        """These are the splits that there are: time waits for each of them, and for no other."""
        for split in splits:
            self.turn_to(split)
        self._tracks = {split: self._tracks[split] for split in splits}

    def saw(self, record: Any, timestamp: int | None) -> None:
        """Show the generator a record; its timestamp is larger than ``largest``, or None."""
        event = NO_TIMESTAMP if timestamp is None else timestamp
        track = self._track
        if track.only_largest and event > self.largest:
            self.largest = event
        track.generator.on_event(record, event, track.output)

    @staticmethod
    def refuse(timestamp: Any) -> NoReturn:
        """Tell that a timestamp assigner did not return one."""
        msg = (
            "a timestamp assigner must return milliseconds as an int; got "
            f"{timestamp!r} ({type(timestamp).__name__})"
        )
        raise TypeError(msg)

    def generate(self) -> Watermark:
        """The watermark at the end of an epoch; without any split there is nothing to wait for."""
        return combine([track.generate() for track in self._tracks.values()], self.watermark)

    def hold(self, ceiling: int) -> tuple[bool, list[Hashable]]:
        """Hold what is past a ceiling: it keeps its watermark, and does not become idle.

        Returns whether nothing is to be read, and which splits are not.
        """
        marks = {split: track.watermark for split, track in self._tracks.items()}
        ahead = combine(marks.values(), self.watermark).time > ceiling
        held = [split for split, mark in marks.items() if ahead or mark.time > ceiling]
        for split in held:
            self._tracks[split].hold()
        return ahead, held

    def dump(self) -> bytes:
        """The watermark, and of each split the last one that its generator gave, and the generator.

        While the input is idle, the generator may be ahead of the watermark.
        """
        tracks = {split: track.dump() for split, track in self._tracks.items()}
        return pickle.dumps((*self.watermark, tracks), 5)

    def load(self, data: bytes | None) -> None:
        """Go to what was saved."""
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
        """Begin where the last of several subtasks stood, with generators of its own.

        Those of before may be ones that the job has no more, or there may have been none.
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
